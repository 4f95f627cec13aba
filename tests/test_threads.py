"""The number of threads does not affect results, and is restored after every call."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, Event
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor

import graphveil as gv
from graphveil._util import threads as thread_pool
from graphveil._util.threads import all_threads, one_thread, run_in_all_threads

NODES, FEATURES, CLASSES = 400, 100, 5  # enough for torch to share a sum between threads
EDGES = {"unit": "undirected-edge", "epsilon": 4.0, "delta": 1e-6}
RECORDS = {"unit": "node-record", "epsilon": 4.0, "delta": 1e-6, "epochs": 1, "batch_size": 64}
LOCAL = {"unit": "local-attributes", "eps_x": 2.0, "eps_y": 1.5, "epochs": 2}
SUBSET = {
    "unit": "edge-subset",
    "epsilon": 4.0,
    "eps_x": 2.0,
    "epochs": 2,
    "perturb": "edge-rr(rounds=5)",
}
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", EDGES | {"epochs": 2}),
    "mlp in batches": ("mlp", EDGES | {"epochs": 2, "batch_size": 100, "batch_norm": True}),
    "mlp of records": ("mlp", RECORDS),
    "gap": ("gap", EDGES | {"epochs": 2}),
    "gap, attention": ("gap", EDGES | {"epochs": 2, "weights": "attention", "attention_steps": 3}),
    "gap of records": ("gap", RECORDS | {"out_degree_bound": 4}),
    "gcn": ("gcn", {"unit": "none", "epochs": 2}),
    "gat": ("gat", {"unit": "none", "epochs": 2}),
    "sage": ("sage", {"unit": "none", "epochs": 2}),
    "classcode": ("classcode", EDGES),
    "classcode of records": ("classcode", RECORDS | {"out_degree_bound": 4}),
    "spectral": ("spectral", EDGES),
    "lpgnn": ("lpgnn", LOCAL),
    "simgat": ("simgat", LOCAL),
    "heterorr": ("heterorr", SUBSET),
    "label-posterior": ("label-posterior", {"unit": "local-attributes", "eps_y": 1.5}),
}


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """Restore the number of threads."""
    before = torch.get_num_threads()
    with threadpool_limits(None):
        yield
    torch.set_num_threads(before)


def set_threads(threads: int) -> None:
    """Set the number of threads of torch, and of linear algebra in NumPy and SciPy."""
    torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")


def graph(seed: int) -> gv.Graph:
    rng = np.random.default_rng(seed)
    x = rng.random((NODES, FEATURES), dtype=np.float32)
    y = rng.integers(0, CLASSES, NODES)
    source, target = rng.integers(0, NODES, (2, 5 * NODES))
    share = torch.from_numpy(rng.permutation(NODES) / NODES)
    whole = gv.Graph.from_edges(x, y, source, target, directed=False, num_classes=CLASSES)
    whole = whole.with_public(whole.adjacency.without_crossing(share < 0.5), share >= 0)
    return whole.with_split(share < 0.6, (share >= 0.6) & (share < 0.8), share >= 0.8)


def numbers(name: str, threads: int) -> Tensor:
    set_threads(threads)
    method, given = FITS[name]
    given = {key: value for key, value in given.items() if hasattr(gv.METHODS[method], key)}
    noise = {} if given["unit"] == "none" else {"unsafe_noise_seed": 11}
    own = graph(0)
    model = gv.METHODS[method](seed=7, **noise, **given).fit(own)
    of_one_graph = ("classcode of records", "label-posterior")
    other = [] if name in of_one_graph else [model.predict_proba(graph(1))]
    return torch.cat([model.predict_proba(own), *other])


@pytest.mark.parametrize("name", FITS)
def test_fits_and_predictions_do_not_depend_on_the_number_of_threads(name: str) -> None:
    one, four = (numbers(name, threads) for threads in (1, 4))
    assert torch.equal(one, four)
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_fits_of_pairs_do_not_depend_on_the_number_of_threads(epsilon: float) -> None:
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "seed": 0, "unsafe_noise_seed": 11}
    rng, found = np.random.default_rng(0), []
    ends = rng.integers(2500, size=(2, 12_500))
    wide = gv.Graph.from_edges(rng.random((2500, 400)), rng.integers(3, size=2500), *ends, directed=False)
    users, items = rng.integers(NODES, size=8 * NODES), rng.integers(300, size=8 * NODES)
    for threads in (1, 4):
        set_threads(threads)
        links = gv.LinkPredictor(unit="undirected-edge", **budget).fit(wide)
        table = gv.Interactions.from_columns(users, items, item_ids=range(300))
        recommended = gv.Recommender(unit="node-record", **budget).fit(table).recommend([[3, 4]], k=50)
        scores = links.decision_function(np.arange(2500).reshape(2, -1)), recommended.scores
        found.append([np.asarray(part).tobytes() for part in scores])
        assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == {threads}
    assert found[0] == found[1]


def test_the_number_of_threads_is_restored_after_an_error() -> None:
    torch.set_num_threads(3)
    with pytest.raises(ZeroDivisionError), one_thread(), one_thread():
        assert torch.get_num_threads() == 1
        with all_threads():
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3
    with all_threads():
        assert torch.get_num_threads() == 3


def test_every_python_thread_restores_its_own_number() -> None:
    first_inside, second_gone = Barrier(2, timeout=60), Barrier(2, timeout=60)

    def second() -> list[int]:
        torch.get_num_threads()  # the first call takes what any thread set last
        torch.set_num_threads(2)
        first_inside.wait()
        with one_thread():
            within = torch.get_num_threads()
        seen = [within, torch.get_num_threads()]
        second_gone.wait()
        return seen

    torch.set_num_threads(3)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(second)
        with one_thread():
            first_inside.wait()
            second_gone.wait()
            assert torch.get_num_threads() == 1
        assert other.result() == [1, 2]
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_work_is_done_once_by_all_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    left, done = list(range(500)), list[int]()

    def work() -> None:
        while left:
            with suppress(IndexError):  # another thread took the last
                done.append(left.pop())

    run_in_all_threads(work, 100)
    assert sorted(done) == list(range(500))


def test_threads_that_have_not_started_are_cancelled_and_errors_are_raised() -> None:
    torch.set_num_threads(3)
    busy, met = Event(), Barrier(3)
    for _ in range(3):
        thread_pool.pool(3).submit(busy.wait)  # all of the pool's threads
    calls: list[int] = []
    run_in_all_threads(lambda: calls.append(1), 3)
    assert calls == [1]
    busy.set()

    def fails() -> None:
        if met.wait() == 0:
            raise ValueError("one of three")

    with pytest.raises(ValueError, match="one of three"):
        run_in_all_threads(fails, 3)


def test_an_error_is_raised_after_all_threads_have_ended() -> None:
    torch.set_num_threads(3)
    met, turns, ended = Barrier(3), iter(range(3)), list[int]()

    def work() -> None:
        turn = next(turns)
        met.wait()
        if turn == 1:
            raise ValueError("one of three")
        sleep(0.2 * turn)
        ended.append(turn)

    with pytest.raises(ValueError, match="one of three"):
        run_in_all_threads(work, 3)
    assert sorted(ended) == [0, 2]
