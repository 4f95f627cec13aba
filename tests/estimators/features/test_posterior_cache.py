"""Cached posteriors: trained once, and not read from a damaged or different file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

import graphveil as gv
from graphveil._util.files import save_checked
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.random import PublicStreams
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.estimators.features.crossfit import public_digest, public_posteriors
from graphveil.estimators.session import Session

pytestmark = pytest.mark.usefixtures("quick_classcode")


def small() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


def posteriors(graph: Graph, cache: Path, seed: int | None = 0) -> torch.Tensor:
    return public_posteriors(graph, Session(streams=PublicStreams(seed), cache=cache)).log


def digest(graph: Graph, recipe: str = "one", seed: int = 0) -> str:
    return public_digest(graph, recipe, seed)


def test_the_second_fit_trains_nothing_and_is_bit_identical(tmp_path: Path) -> None:
    graph = small()
    alone = public_posteriors(graph, Session(streams=PublicStreams(0)))
    first = posteriors(graph, tmp_path)
    stages: list[str] = []
    session = Session(
        streams=PublicStreams(0), cache=tmp_path, on_progress=lambda *report: stages.append(report[0])
    )
    again = public_posteriors(graph, session)
    assert torch.equal(first, alone.log)
    assert torch.equal(again.log, first)
    assert again.candidate == alone.candidate
    for one, other in zip(again.ensemble.networks, alone.ensemble.networks, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert stages == ["posteriors from the cache"]  # and no stage of a training


def test_the_digest_depends_on_neither_edges_nor_test_labels() -> None:
    graph = small()
    none = np.empty(0, dtype=np.int64)
    empty = Adjacency.from_edges(none, none, num_nodes=graph.num_nodes, directed=False)
    labels = torch.where(graph.labeled_in("test"), (graph.y + 1) % graph.num_classes, graph.y)
    assert digest(graph.replace(adjacency=empty)) == digest(graph) == digest(graph.replace(y=labels))


def test_the_digest_depends_on_all_inputs_of_posteriors() -> None:
    graph = small()
    node = int(torch.nonzero(graph.labeled_in("train"))[0])
    labels = graph.y.clone()
    labels[node] = (labels[node] + 1) % graph.num_classes
    x = graph.x.clone() if isinstance(graph.x, torch.Tensor) else torch.from_numpy(graph.x.toarray())
    other = x.clone()
    other[node, 0] += 1
    as_sparse = sparse.csr_array(x.numpy())
    split = RECIPES["gap"].split(synthetic("tiny"), seed=1)
    graphs = [
        graph.replace(x=x),
        graph.replace(x=other),
        graph.replace(x=as_sparse),
        graph.replace(y=labels),
        split,
    ]
    digests = [digest(one) for one in graphs] + [digest(graph, "two"), digest(graph, seed=1)]
    assert len(set(digests)) == len(digests)


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    graph = small()
    first = posteriors(graph, tmp_path)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert torch.equal(posteriors(graph, tmp_path), first)
    assert file.read_bytes() != bytes(content)


@pytest.mark.parametrize(
    "part", ["log", "candidate", "network/3/_layers.0.weight", "network/4/_layers.1.bias"]
)
def test_a_file_of_other_shapes_is_computed_again(tmp_path: Path, part: str) -> None:
    graph = small()
    session = Session(streams=PublicStreams(0), cache=tmp_path)
    state = public_posteriors(graph, session).state()
    (file,) = tmp_path.iterdir()
    cut = torch.tensor(99) if part == "candidate" else state[part][:-1]
    save_checked(file, state | {part: cut})
    assert torch.equal(posteriors(graph, tmp_path), state["log"])


def test_sessions_without_a_seed_cache_nothing(tmp_path: Path) -> None:
    posteriors(small(), tmp_path, seed=None)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_does_not_affect_results(tmp_path: Path) -> None:
    graph = small()

    def proba(epsilon: float, cache: Path | None) -> torch.Tensor:
        model = gv.METHODS["classcode"](
            unit="undirected-edge", epsilon=epsilon, delta=1e-5, seed=0, unsafe_noise_seed=1
        )
        return model.fit(graph, cache=cache).predict_proba()

    for epsilon in (1.0, 4.0):
        assert torch.equal(proba(epsilon, tmp_path), proba(epsilon, None))
    assert len(list(tmp_path.iterdir())) == 1
