"""ClassCode from graph to predictions: booked first, reproducible, resumable, never far below the MLP."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ConfigError, UnitError
from graphveil.estimators.classcode import ClassCode
from graphveil.ledger import ledger_of


@pytest.fixture(scope="module")
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


def make(**changes: object) -> ClassCode:
    settings: dict[str, object] = {
        "unit": "undirected-edge",
        "epsilon": 4.0,
        "delta": 1e-5,
        "seed": 0,
        "unsafe_noise_seed": 0,
    }
    return ClassCode(**{**settings, **changes})  # type: ignore[arg-type]  # keywords are checked at run time


@pytest.mark.usefixtures("quick_classcode")
def test_a_fit_books_one_release_that_costs_the_target(graph: Graph) -> None:
    fresh = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    model = make(unsafe_noise_seed=None).fit(fresh)
    (entry,) = ledger_of(fresh.edge_set).entries
    assert entry.label == "classcode"
    assert model.guarantee.valid
    assert model.guarantee.epsilon == pytest.approx(4.0, rel=1e-5)  # a little less than at delta 0
    assert model.guarantee.epsilon <= 4.0
    assert model.guarantee.releases == 1
    assert set(model.aggregates_) == {"rows1"}
    assert "at delta 0 it is 4" in model.guarantee.formal_statement()
    summed = make(unsafe_noise_seed=None, noise="gaussian").fit(
        RECIPES["gap"].split(synthetic("tiny"), seed=0)
    )
    assert summed.guarantee.releases == 1
    assert len(summed.guarantee.event.events) == 2
    assert set(summed.aggregates_) == {"counts", "rows1"}


@pytest.mark.parametrize("options", [{"few_labels": True}, {"weights": "half_cos"}, {"count_share": 0.1}])
def test_counts_of_neighbors_refuse_what_belongs_to_sums_of_codes(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="sums of codes"):
        make(noise="laplace", **options)


@pytest.mark.usefixtures("quick_classcode")
def test_one_seed_gives_the_same_bytes_and_strict_noise_does_not(graph: Graph) -> None:
    first, second = make().fit(graph), make().fit(graph)
    assert torch.equal(first.predict_proba(), second.predict_proba())
    assert not first.guarantee.valid
    assert "reproducible" in first.guarantee.formal_statement()
    strict = make(unsafe_noise_seed=None).fit(graph)
    assert not torch.equal(first.aggregates_["rows1"], strict.aggregates_["rows1"])


def test_there_is_no_paper_mode_and_it_says_so() -> None:
    for refused in (lambda: make(mode="paper"), lambda: make().set_params(mode="paper")):
        with pytest.raises(ConfigError, match=r"no paper mode.*mode='strict' \(--mode strict\)"):
            refused()


@pytest.mark.usefixtures("quick_classcode")
def test_predictions_do_not_read_the_targets_labels(graph: Graph) -> None:
    hidden = graph.y.clone()
    hidden[graph.mask("test")] = (hidden[graph.mask("test")] + 1) % graph.num_classes
    assert torch.equal(make().fit(graph).predict_proba(), make().fit(graph.replace(y=hidden)).predict_proba())


@pytest.mark.usefixtures("quick_classcode")
def test_few_labels_switch_to_two_rounds(graph: Graph) -> None:
    order = torch.from_numpy(np.random.default_rng(0).permutation(graph.num_nodes))
    masks = [torch.zeros(graph.num_nodes, dtype=torch.bool) for _ in range(3)]
    for mask, part in zip(masks, order.split([90, 30, graph.num_nodes - 120]), strict=True):
        mask[part] = True
    model = make().fit(graph.with_split(*masks))
    assert set(model.aggregates_) == {"counts", "rows1", "rows2"}
    assert model.guarantee.epsilon <= 4.0
    one = make(few_labels=False, noise="gaussian").fit(graph.with_split(*masks))
    assert set(one.aggregates_) == {"counts", "rows1"}


@pytest.mark.usefixtures("quick_classcode")
def test_an_interrupted_fit_resumes_to_the_same_bytes(graph: Graph, tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(stage: str, done: int, total: int) -> None:
        if stage == "classifier":
            raise KilledError

    with pytest.raises(KilledError):
        make().fit(graph, on_progress=kill, workspace=tmp_path)
    resumed = make().fit(graph, workspace=tmp_path)
    assert torch.equal(resumed.predict_proba(), make().fit(graph).predict_proba())


@pytest.mark.usefixtures("quick_classcode")
def test_a_graph_without_edges_runs_the_same_code(graph: Graph) -> None:
    from graphveil.data import Adjacency

    none = np.empty(0, dtype=np.int64)
    empty = Adjacency.from_edges(none, none, num_nodes=graph.num_nodes, directed=False)
    model = make().fit(graph.replace(adjacency=empty))
    assert bool(torch.isfinite(model.predict_proba()).all())


@pytest.mark.usefixtures("quick_classcode")
def test_a_directed_graph_is_protected_edge_by_stored_edge(graph: Graph) -> None:
    from graphveil.data import Adjacency

    source, target = graph.adjacency.edge_index()
    directed = Adjacency.from_edges(source, target, num_nodes=graph.num_nodes, directed=True)
    model = make(unit="directed-edge", unsafe_noise_seed=None).fit(graph.replace(adjacency=directed))
    assert model.guarantee.valid
    assert model.guarantee.epsilon <= 4.0
    assert "stored directed edge" in model.guarantee.formal_statement()


def test_unusable_configurations_are_refused() -> None:
    with pytest.raises(UnitError, match="no non-private form"):
        ClassCode(unit="none")
    with pytest.raises(ConfigError, match="epsilon="):
        ClassCode(unit="undirected-edge")
    with pytest.raises(ConfigError, match="count_share=0"):
        make(count_share=0)


def test_the_neighborhood_is_worth_its_epsilon(graph: Graph) -> None:
    from graphveil.estimators.mlp import MLP

    demo = RECIPES["gap"].split(synthetic("demo"), seed=0)
    mlp = MLP(unit="undirected-edge", seed=0).fit(demo).score(demo)
    assert make(epsilon=4.0, delta=1e-7).fit(demo).score(demo) > mlp + 0.1
