"""Surveys: the same parameters on both sides, or a typed error."""

import json
import math
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphveil.errors import ConfigError, GraphveilError, LDPReportError
from graphveil.local.collect import CollectionProtocol
from graphveil.local.collect.protocol import MAX_TEXT, report_bytes
from graphveil.mechanisms import (
    Bounds,
    EvenAllocation,
    FeatureRR,
    LabelRR,
    LocalDPClaim,
    MultiBit,
    PerFeature,
    WeightedAllocation,
)
from graphveil.mechanisms.feature_mechanisms import best_bins

from .protocols import LABEL, SURVEYS


@pytest.mark.parametrize("name", SURVEYS)
def test_json_and_back(name: str) -> None:
    protocol = SURVEYS[name]
    text = protocol.to_json()
    assert CollectionProtocol.from_json(text) == protocol
    assert CollectionProtocol.from_json(text).digest == protocol.digest
    assert len(protocol.digest) == 16


def test_every_parameter_is_in_the_digest() -> None:
    features = MultiBit(epsilon=1.0, dim=9)
    base = CollectionProtocol(features=features, label=LABEL)
    others = [
        replace(base, purpose="again"),
        replace(base, label=None),
        replace(base, label=replace(LABEL, epsilon=1.0000001)),
        replace(base, label=replace(LABEL, classes=6)),
        replace(base, features=replace(features, epsilon=1.1)),
        replace(base, features=replace(features, dim=8)),
        replace(base, features=replace(features, m="floor")),
        replace(base, features=replace(features, bounds=Bounds(0.0, 2.0))),
        replace(base, columns=tuple("abcdefghi")),
        replace(base, columns=tuple("abcdefgih")),
        replace(base, class_names=tuple("vwxyz")),
        replace(base, features=FeatureRR(epsilon=1.0, dim=9)),
        replace(base, features=FeatureRR(epsilon=1.0, dim=9, k=2)),
        replace(base, features=FeatureRR(epsilon=1.0, dim=9, k=2, mode="ceil")),
    ]
    assert len({protocol.digest for protocol in (base, *others)}) == len(others) + 1


def test_integer_and_float_budgets_have_one_digest() -> None:
    one, other = (CollectionProtocol(features=MultiBit(epsilon=epsilon, dim=3)) for epsilon in (1, 1.0))
    assert one.digest == other.digest


def test_the_claim_is_the_sum_of_both_parts() -> None:
    protocol = SURVEYS["multi-bit"]
    assert protocol.claims == (LocalDPClaim(6.0), LocalDPClaim(1.0))
    assert protocol.claim == LocalDPClaim(7.0)
    assert "eps_x = 6 and its label at eps_y = 1 (total 7;" in protocol.formal_statement()
    assert "own device" in protocol.formal_statement()
    assert SURVEYS["label"].claims[0].epsilon == 0
    assert "eps_y = inf (total inf;" in SURVEYS["weights"].formal_statement()
    seen = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=2, bounds=Bounds(0.0, 1.0, from_data=True)))
    assert seen.formal_statement().startswith(
        "No valid guarantee. Known deviations: bounds taken from the data."
    )


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({}, "features, a label, or both"),
        ({"features": MultiBit(epsilon=math.inf, dim=2)}, "not randomized"),
        (
            {"features": PerFeature(epsilon=1.0, dim=2, scalar="duchi", allocation=EvenAllocation())},
            "MultiBit or Feat",
        ),
        ({"label": LABEL, "purpose": 5}, "purpose"),
        ({"label": LABEL, "class_names": tuple("abcd")}, "class_names must be 5 different names"),
        ({"label": LABEL, "class_names": tuple("abcda")}, "class_names must be 5 different names"),
        ({"label": LABEL, "class_names": ["a"] * 5}, "class_names must be a list of text"),
        ({"label": LABEL, "columns": ("age",)}, "columns must be 0 different names"),
        (
            {"features": MultiBit(epsilon=1.0, dim=2), "columns": ("age", "")},
            "columns must be a list of text",
        ),
    ],
)
def test_rejects_invalid_protocols(wrong: dict, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        CollectionProtocol(**wrong)


def altered(name: str, *path: str, value: object) -> str:
    parts = json.loads(SURVEYS[name].to_json())
    place = parts
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "format graphveil-survey/2"),
        (altered("label", "format", value="graphveil-survey/1"), "format graphveil-survey/2"),
        (altered("multi-bit", "features", "mechanism", value="os.system"), "does not support"),
        (altered("multi-bit", "features", "extra", value=1), "missing, unknown"),
        ("x" * (MAX_TEXT + 1), "at most 1,048,576"),
        (altered("multi-bit", "features", value=3), "missing, unknown"),
        (altered("label", "label", "epsilon", value=1), "canonical"),
        (altered("label", "note", value=1), "canonical"),
        (altered("label", "label", "names", value=[]), "canonical"),
        (altered("feature-rr", "features", "from_data", value=math.inf), "wrong type"),
        (SURVEYS["label"].to_json() + " ", "canonical"),
    ],
)
def test_rejects_invalid_json(text: str, why: str) -> None:
    with pytest.raises(LDPReportError, match=why):
        CollectionProtocol.from_json(text)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("features", "epsilon"), -1.0, "epsilon="),
        (("features", "dim"), 10**9, "dim="),
        (("features", "theta"), [0.5, 0.6, 0.2], "theta sums to"),
        (("features", "low"), "0", "low="),
        (("label", "classes"), 1, "classes="),
        (("features", "high"), 1e-40, "high - low must be between"),
    ],
)
def test_rejects_json_parameters_outside_their_range(path: tuple[str, ...], value: object, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        CollectionProtocol.from_json(altered("feature-rr", *path, value=value))


# -- limits of what is read --------------------------------------------------------------------------------


def test_reads_a_million_features_in_two_seconds() -> None:
    text = CollectionProtocol(features=FeatureRR(epsilon=8.0, dim=1_000_000)).to_json()
    began = time.process_time()
    protocol = CollectionProtocol.from_json(text)
    assert report_bytes(protocol) == 41 + 125_000
    assert time.process_time() - began < 2  # it took 49 seconds


def test_rejects_protocols_with_too_large_tables_before_computing_them() -> None:
    theta = [0.5 + i / 10_000 for i in range(400)]
    theta = [weight / math.fsum(theta) for weight in theta]
    for k, epsilon in ((256, 8.0), ("auto", 40_000.0)):
        text = altered("feature-rr", "features", "theta", value=theta)
        parts = json.loads(text)
        parts["features"] |= {"dim": 400, "k": k, "epsilon": epsilon}
        began = time.process_time()
        with pytest.raises(ConfigError, match="Round the weights so that fewer differ"):
            CollectionProtocol.from_json(json.dumps(parts, sort_keys=True, separators=(",", ":")))
        assert time.process_time() - began < 1
    few = FeatureRR(epsilon=8.0, dim=400, allocation=WeightedAllocation(theta))  # few bins each: cheap
    assert CollectionProtocol.from_json(CollectionProtocol(features=few).to_json()).features == few


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.7, 5.0, 12.0, 30.0, 80.0, 119.0])
def test_the_bins_that_a_budget_takes_are_bounded(epsilon: float) -> None:
    assert best_bins(epsilon) <= 2 * epsilon + 2


def test_rejects_too_many_names() -> None:
    names = tuple(f"{i:0>60}" for i in range(20_000))
    protocol = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=20_000), columns=names)
    with pytest.raises(ConfigError, match="clients read at most 1,048,576"):
        protocol.to_json()


@pytest.mark.parametrize("power", [400, 4000], ids=["1e400", "1e4000"])
def test_rejects_integers_beyond_floats(power: int) -> None:
    for part, names in (
        ("features", ("epsilon", "dim", "low", "high", "k")),
        ("label", ("epsilon", "classes")),
    ):
        for name in names:
            with pytest.raises(ConfigError, match=name):
                CollectionProtocol.from_json(altered("feature-rr", part, name, value=10**power))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
PATHS = [
    ("features", "columns"),
    ("label", "names"),
    ("purpose",),
    ("features",),
    ("label",),
    ("label", "epsilon"),
    ("label", "classes"),
]
PATHS += [
    ("features", key)
    for key in ("epsilon", "dim", "low", "high", "k", "mode", "decode", "theta", "from_data")
]


@given(st.sampled_from(PATHS), VALUES)
@settings(max_examples=150)
def test_any_json_value_gives_a_protocol_or_a_typed_error(path: tuple, value: object) -> None:
    text = altered("feature-rr", *path, value=value)
    try:
        protocol = CollectionProtocol.from_json(text)
    except GraphveilError:
        return
    assert protocol.to_json() == text


def test_json_contains_names_of_features_and_classes() -> None:
    names = {"columns": tuple("abc"), "class_names": tuple("vwxyz")}
    protocol = replace(SURVEYS["feature-rr"], **names)
    back = CollectionProtocol.from_json(protocol.to_json())
    assert (back, back.columns, back.class_names) == (protocol, *names.values())
    with pytest.raises(ConfigError, match="columns must be 3 different names"):
        CollectionProtocol.from_json(protocol.to_json().replace('["a","b","c"]', '["a","b"]'))


@pytest.mark.parametrize("name", ["rr", "laplace", 3])
def test_rejects_unknown_label_mechanisms(name: object) -> None:
    parts = json.loads(SURVEYS["subset"].to_json())
    assert parts["label"].pop("mechanism") == "subset"
    parts["label"]["mechanism"] = name
    with pytest.raises(LDPReportError, match="does not support"):
        CollectionProtocol.from_json(json.dumps(parts, sort_keys=True, separators=(",", ":")))


def test_json_represents_infinite_budgets() -> None:
    protocol = CollectionProtocol(
        features=MultiBit(epsilon=1.0, dim=2), label=LabelRR(epsilon=math.inf, classes=2)
    )
    text = protocol.to_json()
    assert json.loads(text)["label"] == {"classes": 2, "epsilon": "inf"}
    assert CollectionProtocol.from_json(text).unprotected_parts == ("label",)
    alone = json.loads(text) | {"features": None}
    with pytest.raises(ConfigError, match="would protect nothing"):
        CollectionProtocol.from_json(json.dumps(alone, sort_keys=True, separators=(",", ":")))
