"""The device: NumPy only, a limit of its own, the law of the protocol, one answer to one question."""

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mechanisms.fits import fits
from mechanisms.sources import keys_are_fresh

from graphveil.errors import BudgetError, ConfigError, GraphError
from graphveil.local.collect import (
    CollectionProtocol,
    LDPReport,
    check_limits,
    client,
    client_secret,
    decode,
    encode,
    randomize_record,
    randomize_records,
)
from graphveil.local.collect.protocol import feature_rows, label_hashes, largest_share, overview
from graphveil.mechanisms import Bounds, FeatureRR, LabelRR, MultiBit, WeightedAllocation

from .protocols import LABEL, SECRET, SURVEYS, record

PROBE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "scipy", "cryptography", "pyarrow", "dp_accounting", "pydantic"}:
            raise ImportError(f"{name} is not on a client")
sys.meta_path.insert(0, Block())
from pathlib import Path
from graphveil.local.collect import Collector, CollectionProtocol, randomize_record, client_secret
protocol = CollectionProtocol.from_json(sys.argv[1])
collector = Collector(protocol, 1)
agreed = {"max_eps": 20.0, "allow_unprotected_label": True}
secret = client_secret(Path(sys.argv[2]))
features = [0.5] * protocol.features.dim
encoded_report = randomize_record(protocol, node=0, secret=secret, features=features, label=1, **agreed)
collector.accept(encoded_report, 0)
print(collector.features().shape, protocol.formal_statement()[:24])
"""


@pytest.mark.parametrize("name", ["multi-bit", "feature-rr", "weights"])
def test_both_sides_run_without_torch(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE, SURVEYS[name].to_json(), tmp_path / "secret"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shape, words = f"(1, {SURVEYS[name].features.dim}) ", "NOT PROTECTED: the label"
    assert done.stdout.startswith(shape + (words if name == "weights" else "Each node's features"))


def drawn(protocol: CollectionProtocol, count: int, record: dict[str, Any]) -> list[LDPReport]:
    """What so many nodes of one record say."""
    given = {name: np.tile(value, (count, *[1] * np.ndim(value))) for name, value in record.items()}
    encoded_reports = randomize_records(
        protocol, nodes=range(count), secret=SECRET, max_eps=math.inf, **given
    )
    return [decode(protocol, node, encoded_report) for node, encoded_report in enumerate(encoded_reports)]


def test_reports_have_the_distribution_of_the_mechanism() -> None:
    protocol = CollectionProtocol(
        features=MultiBit(epsilon=1.0, dim=3, m=1), label=LabelRR(epsilon=1.0, classes=3)
    )
    answers = drawn(protocol, 12_000, {"features": [0.0, 0.3, 1.0], "labels": 1})
    cells = [2 * int(one.features.indices[0, 0]) + int(one.features.values[0, 0]) for one in answers]
    bit = protocol.features.bit_probability(np.array([0.0, 0.3, 1.0])) / 3
    fits(np.bincount(cells, minlength=6), np.stack([1 / 3 - bit, bit], axis=1).reshape(-1), seen=2)
    fits(np.bincount([one.label for one in answers], minlength=3), protocol.label.transition[1], seen=2)


def test_reported_groups_have_the_distribution_of_their_hash() -> None:
    protocol, count = SURVEYS["hashing"], 60_000
    nodes = [f"n{number}" for number in range(count)]
    hashes = label_hashes(protocol, nodes)
    encoded_reports = randomize_records(protocol, nodes=nodes, secret=SECRET, labels=np.full(count, 4))
    sent_values = np.array([encoded_report[37] >> 6 for encoded_report in encoded_reports])
    among = protocol.label.among_groups
    law = np.array([among.keep, among.change, among.change])
    fits(np.bincount((sent_values - hashes[:, 4]) % 3, minlength=3), law, seen=0.5)


def test_words_beyond_the_first_have_the_distribution() -> None:
    # channels read 32 bits, and go on in a block of their own where these do not decide
    law = FeatureRR(epsilon=4.0, dim=2, allocation=WeightedAllocation([0.75, 0.25]))
    answers = drawn(CollectionProtocol(features=law), 12_000, {"features": [0.2, 0.9]})
    for column, z in enumerate((0.2, 0.9)):
        sent_values = np.array([one.features.values[0, column] for one in answers])
        bins = law.features[column]
        fits(np.bincount(sent_values, minlength=bins.k), bins.probabilities(np.array([z]))[0], seen=2)


@pytest.mark.parametrize("name", SURVEYS)
def test_one_report_equals_one_of_many(name: str) -> None:
    protocol = SURVEYS[name]
    given = record(protocol)
    many = {part: given.pop(part) for part in ("secret", "max_eps", "allow_unprotected_label")}
    if "features" in given:
        many["features"] = np.tile(given["features"], (9, 1))
    if "label" in given:
        many["labels"] = np.full(9, given["label"])
    encoded_reports = randomize_records(protocol, nodes=[*"abcdefgh", "ann"], **many)
    assert encoded_reports[-1] == randomize_record(protocol, **record(protocol))
    assert len(set(encoded_reports)) == 9
    backs = [
        decode(protocol, node, encoded_report)
        for node, encoded_report in zip("abcdefgh", encoded_reports, strict=False)
    ]
    assert [
        encode(protocol, node, back) for node, back in zip("abcdefgh", backs, strict=True)
    ] == encoded_reports[:-1]


# -- the same question, the same answer --------------------------------------------------------------------


@pytest.mark.parametrize("name", SURVEYS)
def test_the_same_record_gives_the_same_report(name: str) -> None:
    protocol = SURVEYS[name]
    assert {randomize_record(protocol, **record(protocol)) for _ in range(20)} == {
        randomize_record(protocol, **record(protocol))
    }


BITS = CollectionProtocol(
    features=MultiBit(epsilon=6.0, dim=64, m="all"), label=LabelRR(epsilon=1.0, classes=2**16)
)
HALF = {"features": [0.5] * 64, "label": 7, "node": "ann", "secret": SECRET}


def reported(protocol: CollectionProtocol = BITS, **changes: Any) -> tuple[tuple[int, ...], int]:
    given = HALF | changes
    back = decode(protocol, given["node"], randomize_record(protocol, **given))
    return tuple(back.features.values[0].tolist()), back.label


def test_random_words_are_distinct() -> None:
    words = client.ClientRandomness(SECRET, "features", BITS, ["ann", "bob"], [b"a", b"b"])
    rows = np.array([0, 0, 0, 1])
    drawn = [words.words(np.array([0, 1]), words_per_row=4), words.blocks(rows, np.array([0, 1, 256, 0]))]
    assert len({word for part in drawn for word in part.reshape(-1).tolist()}) == 16


def test_noise_depends_on_protocol_record_node_and_secret() -> None:
    # equal noise on two records would tell their difference; it depends on all that an answer is about
    again = replace(BITS, purpose="again")
    others = [
        reported(secret=SECRET[::-1]),
        reported(node="bob"),
        reported(again),
        reported(features=[0.5] * 63 + [0.6]),
    ]
    assert len({bits for bits, _ in [reported(), *others]}) == 5
    assert (
        reported(features=[0.5] * 63 + [0.6])[1] == reported()[1]
    )  # the label did not change, and says the same
    assert reported(label=8)[0] == reported()[0]
    shifts = {(reported(label=label)[1] - label) % 2**16 for label in range(20)}
    assert len(shifts) > 15, "the noise of a label must not be the same for all labels"


def test_equal_clipped_values_give_equal_reports() -> None:
    assert reported(features=[-0.0] * 64) == reported(features=[0.0] * 64) == reported(features=[-3] * 64)


@pytest.mark.parametrize("bounds", [Bounds(0.0, 1.0), Bounds(-0.3, 0.7)])
def test_the_number_format_does_not_affect_reports(bounds: Bounds) -> None:
    """A table has 32 bits of a number and a program 64: two answers would tell twice as much."""
    protocol = CollectionProtocol(features=MultiBit(epsilon=6.0, dim=64, m="all", bounds=bounds))
    record = np.append(np.random.default_rng(0).normal(0.5, 0.5, size=62), [1e300, -1e300])
    with np.errstate(over="ignore"):
        single = np.nan_to_num(record.astype(np.float32))
    forms = (record, record.tolist(), single, single.astype(np.float64), np.clip(record, -9, 9))
    assert len({randomize_record(protocol, node="ann", secret=SECRET, features=form) for form in forms}) == 1


def test_rejects_two_records_with_one_id() -> None:
    protocol = CollectionProtocol(label=LABEL)
    for nodes in (["a", "a"], [7, "7"]):
        with pytest.raises(GraphError, match="Two records have the same id"):
            randomize_records(protocol, nodes=nodes, secret=SECRET, labels=np.array([1, 2]))


@pytest.mark.parametrize("node", [None, 1.0, True, b"ann", "\ud800", ("a",)])
def test_rejects_invalid_ids(node: object) -> None:
    with pytest.raises(ConfigError, match="A node id"):
        randomize_record(CollectionProtocol(label=LABEL), node=node, secret=SECRET, label=1)


def test_a_record_without_a_label_reports_a_random_class() -> None:
    protocol = CollectionProtocol(label=LabelRR(epsilon=6.0, classes=4))
    given = {"secret": SECRET, "label": -1}
    sent_values = [
        decode(protocol, node, randomize_record(protocol, node=node, **given)).label for node in range(2000)
    ]
    fits(np.bincount(sent_values, minlength=4), np.full(4, 0.25), seen=2)
    protocol = CollectionProtocol(
        features=MultiBit(epsilon=1.0, dim=1), label=LabelRR(epsilon=math.inf, classes=4)
    )
    with pytest.raises(GraphError, match="collects labels without randomization"):
        randomize_record(protocol, node=1, features=[1.0], allow_unprotected_label=True, **given)


# -- the device's secret -----------------------------------------------------------------------------------


def default_secret(**environment: str) -> str:
    """Return the secret of a client with this environment, or its error."""
    code = "from graphveil.local.collect import client_secret; print(client_secret().hex())"
    kept = {name: value for name, value in os.environ.items() if name not in ("XDG_STATE_HOME", "HOME")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr


def test_a_secret_is_created_once_for_its_owner_only(tmp_path: Path) -> None:
    secret = bytes.fromhex(default_secret(XDG_STATE_HOME=str(tmp_path / "state")))
    path = tmp_path / "state" / "graphveil" / "device-secret"
    assert (client_secret(path), path.read_bytes(), len(secret)) == (secret, secret, 32)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len({client_secret(tmp_path / str(i)) for i in range(50)}) == 50
    assert [file.name for file in path.parent.iterdir()] == ["device-secret"]
    assert "no home directory" in default_secret(HOME="~")


def test_concurrent_threads_create_one_secret(tmp_path: Path) -> None:
    for round in range(10):
        gate, found = threading.Barrier(4), set[bytes]()

        def make(path: Path = tmp_path / str(round), gate=gate, found=found) -> None:
            gate.wait()
            found.add(client_secret(path))

        threads = [threading.Thread(target=make) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(found) == 1


def test_rejects_invalid_secrets(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(bytes(31))
    with pytest.raises(ConfigError, match="32 random bytes"):
        client_secret(tmp_path / "short")
    with pytest.raises(ConfigError, match="client secret cannot be stored"):
        client_secret(tmp_path / "short" / "below")
    for secret in (b"", bytes(31), "x" * 32, None):
        with pytest.raises(ConfigError, match="32 random bytes"):
            randomize_record(CollectionProtocol(label=LABEL), node=1, secret=secret, label=1)


def secret_of(folder: Path) -> Callable[[], bytes]:
    count = iter(range(10**6))
    return lambda: client_secret(folder / f"{os.getpid()}-{next(count)}")


def test_secrets_are_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys_are_fresh(secret_of(tmp_path), monkeypatch)


# -- a protocol with too large budgets ---------------------------------------------------------------------

GREEDY = {
    "features": CollectionProtocol(features=FeatureRR(epsilon=1e5, dim=3, k=256)),
    "label": CollectionProtocol(label=LabelRR(epsilon=1000.0, classes=3)),
    "both": CollectionProtocol(features=MultiBit(epsilon=4.1, dim=3), label=LabelRR(epsilon=4.0, classes=3)),
}


@pytest.mark.parametrize("name", GREEDY)
def test_rejects_protocols_above_the_limit_of_the_client(name: str) -> None:
    protocol, given = GREEDY[name], record(GREEDY[name])
    del given["max_eps"]
    with pytest.raises(BudgetError, match=r"allows at most 8. Nothing was sent"):
        randomize_record(protocol, **given)
    many = {"features": np.ones((1, 3))} if name != "label" else {}
    many |= {"labels": np.ones(1, int)} if name != "features" else {}
    with pytest.raises(BudgetError, match=r"allows at most 8. Nothing was sent"):
        randomize_records(protocol, nodes=[1], secret=SECRET, **many)
    assert randomize_record(protocol, **given, max_eps=protocol.claim.epsilon)
    with pytest.raises(ConfigError, match="max_eps"):
        randomize_record(protocol, **given, max_eps=math.nan)


@pytest.mark.parametrize(
    ("features", "label", "most"), [(0.1, 0.2, 0.3), (0.1, 0.7, 0.1 + 0.7), (8.0, 1e-8, 8.1)]
)
def test_budgets_are_added_as_decimals(features: float, label: float, most: float) -> None:
    law = LabelRR(epsilon=label, classes=3)
    check_limits(CollectionProtocol(features=MultiBit(epsilon=features, dim=3), label=law), max_eps=most)
    with pytest.raises(
        BudgetError, match=r"needs epsilon (0\.3|0\.8|8\.00000001) per .* allows at most .*\. Nothing"
    ):
        check_limits(
            CollectionProtocol(features=MultiBit(epsilon=features, dim=3), label=law), max_eps=most - 0.1
        )


def test_an_unprotected_label_needs_consent() -> None:
    protocol = CollectionProtocol(
        features=MultiBit(epsilon=1.0, dim=2), label=LabelRR(epsilon=math.inf, classes=3)
    )
    given = {"node": 1, "secret": SECRET, "features": [0.5, 0.5], "label": 2}
    for more in ({}, {"max_eps": math.inf}):
        with pytest.raises(BudgetError, match="allow_unprotected_label=True"):
            randomize_record(protocol, **given, **more)
    assert decode(protocol, 1, randomize_record(protocol, **given, allow_unprotected_label=True)).label == 2
    with pytest.raises(BudgetError, match="epsilon 1 per record"):
        randomize_record(protocol, **given, allow_unprotected_label=True, max_eps=0.5)


def test_unprotected_parts_follow_from_the_probability_of_an_unchanged_value() -> None:
    assert GREEDY["features"].unprotected_parts == ("features",)
    assert (
        GREEDY["features"]
        .formal_statement()
        .startswith("NOT PROTECTED: of 3 features 3 leave each node as they are")
    )
    assert GREEDY["label"].formal_statement().startswith("NOT PROTECTED: the label leaves each node as it is")
    assert GREEDY["both"].unprotected_parts == ()
    near = CollectionProtocol(
        features=FeatureRR(epsilon=3 * 110.0, dim=3, k=256)
    )  # within some bins, never the same one
    assert (near.features.features[0].table.max() < 0.5, near.unprotected_parts) == (True, ("features",))


def test_reports_the_largest_share_of_a_feature() -> None:
    law = FeatureRR(
        epsilon=8.0, dim=100, k=2, decode="unbiased", allocation=WeightedAllocation([0.901] + [0.001] * 99)
    )
    protocol = CollectionProtocol(features=law)
    assert largest_share(protocol) == pytest.approx(0.901)
    assert protocol.unprotected_parts == ("features",)
    assert "0.901 of that budget is for a single feature" in dict(overview(protocol))["largest share"]
    assert feature_rows(protocol)[0] == ("feature 0", "0", "1", "7.208", "0.9993")


@pytest.mark.parametrize(
    "given",
    [{}, {"features": [0.0] * 11}, {"label": 1}, {"features": None, "label": None}],
)
def test_rejects_records_without_the_collected_parts(given: dict) -> None:
    owner = {"node": "ann", "secret": SECRET}
    with pytest.raises(ConfigError, match="Pass exactly these parts"):
        randomize_record(SURVEYS["multi-bit"], **given, **owner)
    if "label" in given and given["label"] is not None:
        with pytest.raises(ConfigError, match="Pass exactly these parts"):
            randomize_record(SURVEYS["one bit"], **given, **owner)


@pytest.mark.parametrize(
    "features",
    [
        [0.0] * 10,
        [[0.0] * 11],
        [float("nan")] * 11,
        [1.0] * 10 + [float("-inf")],
        "x" * 11,
        [[1.0], [1.0, 2.0]],
        5,
    ],
)
def test_rejects_invalid_features(features: object) -> None:
    with pytest.raises(GraphError, match=r"must have 11 features|must have the shape|NaN or infinite"):
        randomize_record(SURVEYS["multi-bit"], node="ann", secret=SECRET, features=features, label=1)


@pytest.mark.parametrize("label", [-2, 5, 1.0, "1", True, [0, 1]])
def test_rejects_invalid_labels(label: object) -> None:
    with pytest.raises(GraphError, match=r"classes from 0 to 4|one integer|integer|whole number"):
        randomize_record(CollectionProtocol(label=LABEL), node="ann", secret=SECRET, label=label)


def test_rejects_features_and_labels_of_different_lengths() -> None:
    owner = {"nodes": range(3), "secret": SECRET}
    with pytest.raises(GraphError, match="different lengths"):
        randomize_records(SURVEYS["multi-bit"], features=np.zeros((3, 11)), labels=np.ones(2, int), **owner)
    with pytest.raises(ConfigError, match="Pass exactly these parts"):
        randomize_records(SURVEYS["multi-bit"], features=np.zeros((3, 11)), **owner)
