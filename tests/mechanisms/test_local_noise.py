"""Local noise serves a record once, in one process, for one holder; its keys cannot be guessed or met."""

import copy
import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest

from graphveil.errors import ReleaseError
from graphveil.mechanisms import LabelRR, LocalNoise, MultiBit, RecordFeatureRR

from .sources import in_child, keys_are_fresh, keys_follow_the_system

LABEL = LabelRR(epsilon=1.0, classes=5)
X = np.full((4, 3), 0.5)
PERTURB: dict[str, Callable[..., object]] = {
    "features": lambda rows, stream: MultiBit(epsilon=1.0, dim=3).perturb(X, stream=stream, rows=rows),
    "label": lambda rows, stream: LABEL.perturb(np.zeros(4, int), stream=stream, rows=rows),
    "paper": lambda rows, stream: RecordFeatureRR(epsilon=1.0, dim=3, mode="paper").perturb(
        X, np.full((4, 3), 1 / 3), stream=stream, rows=rows
    ),
}


# -- a record once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PERTURB)
def test_a_row_of_noise_is_used_for_one_record(name: str) -> None:
    stream = LocalNoise(unsafe_noise_seed=1).stream("test")
    PERTURB[name](np.array([8, 2, 3, 4]), stream)
    for rows in ([0, 1, 4, 9], [8, 9, 10, 11], None):
        with pytest.raises(ReleaseError, match="noise of a record was already used"):
            PERTURB[name](None if rows is None else np.array(rows), stream)
    PERTURB[name](np.array([0, 1, 5, 9]), stream)


def test_one_batch_does_not_reveal_the_noise_of_another() -> None:
    # y' = y + noise (mod c): the same noise for two batches would reveal y2, given y1, y1' and y2'
    known, secret = np.array([0, 1, 2, 3, 4, 0, 1, 2]), np.array([3, 3, 0, 4, 1, 1, 2, 0])
    stream = LocalNoise(unsafe_noise_seed=2).stream("labels")
    shift = LABEL.perturb(known, stream=stream) - known
    with pytest.raises(ReleaseError):
        reported = LABEL.perturb(secret, stream=stream)
        assert ((reported - shift) % 5 != secret).any()


def test_used_rows_are_stored_exactly() -> None:
    rng = np.random.default_rng(0)
    stream, served = LocalNoise(unsafe_noise_seed=1).stream("test"), set[int]()
    for _ in range(300):
        rows = rng.choice(400, size=rng.integers(0, 6), replace=False) + rng.choice([0, 2**63 - 400])
        try:
            stream.reserve_rows(rows)
        except ReleaseError:
            assert served & set(rows.tolist())
            continue
        assert not served & set(rows.tolist())
        served |= set(rows.tolist())
    assert len(served) > 200


def test_one_of_several_threads_reserves_a_row() -> None:
    for _ in range(20):
        stream, gate, served = LocalNoise().stream("test"), threading.Barrier(4), []

        def claim(stream=stream, gate=gate, served=served) -> None:
            gate.wait()
            try:
                stream.reserve_rows(np.arange(50))
                served.append(1)
            except ReleaseError:
                pass

        threads = [threading.Thread(target=claim) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(served) == 1


# -- one holder, one process -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [LocalNoise, lambda: LocalNoise().stream("test")])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_noise_is_not_copied(make: Callable[[], object], copied: Callable[[object], object]) -> None:
    with pytest.raises(ReleaseError, match="cannot be copied or pickled"):
        copied(make())


def test_noise_is_rejected_in_a_forked_child() -> None:
    noise = LocalNoise()
    stream = noise.stream("labels")
    uses: dict[str, Callable[[], object]] = {
        "stream": lambda: noise.stream("features"),
        "perturb": lambda: LABEL.perturb(np.zeros(9, int), stream=stream),
        "words": lambda: stream.words(np.arange(3), words_per_row=2),
        "blocks": lambda: stream.blocks(np.arange(3), np.arange(3)),
    }

    def rejected() -> bytes:
        names = []
        for name, use in uses.items():
            try:
                use()
            except ReleaseError as error:
                names += [name] if "forked" in str(error) else []
        return " ".join(names).encode()

    assert in_child(rejected).decode().split() == list(uses)
    LABEL.perturb(np.zeros(9, int), stream=stream)  # and the parent goes on


# -- where keys come from ----------------------------------------------------------------------------------


def words() -> bytes:
    return LocalNoise().stream("test").words(np.arange(1), words_per_row=4).tobytes()


@pytest.mark.system_noise
def test_keys_are_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    keys_are_fresh(words, monkeypatch)
    keys_follow_the_system(words, monkeypatch)
