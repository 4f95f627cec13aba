"""PrivateGNN on exact neighbors: what one record moves, what it costs, what is covered, what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import graphveil as gv
from graphveil.audit import neighbor_test
from graphveil.audit.small_graphs import SmallGraph
from graphveil.data import RECIPES, Adjacency, Graph, synthetic
from graphveil.errors import ConfigError, ReleaseError, UnitError
from graphveil.estimators.gnn.multi_hop_inputs import MultiHopInputs
from graphveil.estimators.own import code
from graphveil.ledger import ledger_of
from graphveil.privacy import Guarantee, NodeBoundedDegree, PoissonRoots
from graphveil.release.steps.bounded_lists import BoundedTrees
from graphveil.training.ego_graphs import EgoGraphClippedSum, Route
from tests.estimators.gnn.modules import Mean
from tests.training.stateful import KINDS

SMALL: dict[str, Any] = {"unit": "node-record", "epsilon": 4.0, "delta": 1e-5, "seed": 0, "epochs": 2}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


def make(**changes: Any) -> gv.PrivateGNN:
    given = {"module": Mean, "neighborhood": "neighbors", "unsafe_noise_seed": 0}
    return gv.PrivateGNN(**{**SMALL, **given, **changes})


# -- what one record moves ---------------------------------------------------------------------------------


def clipped(
    graph: SmallGraph,
    slots: int,
    depth: int,
    clip: float = 0.5,
    kind: type[nn.Module] = Mean,
    route: Route = "ghost",
) -> Tensor:
    """The sum of all roots' clipped gradients at fixed weights, for one draw of the trees."""
    source, target = np.array(graph.edges, dtype=np.int64).reshape(-1, 2).T
    adjacency = Adjacency.from_edges(source, target, num_nodes=graph.nodes, directed=True)
    trees = BoundedTrees(adjacency, slots=slots, cap=3, depth=depth, key=bytes(32))
    inputs = MultiHopInputs(torch.from_numpy(graph.x), torch.arange(graph.nodes), trees, 1)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = kind(graph.x.shape[1], 3)
    labels = torch.from_numpy(np.where(graph.y < 0, -1, graph.y % 3))
    gradients = EgoGraphClippedSum(module, inputs, labels, route=route)
    gradients.add(torch.arange(graph.nodes), clip)
    return gradients.sums / clip


@pytest.mark.parametrize(("slots", "depth", "roots"), [(1, 1, 2), (2, 1, 3), (1, 2, 3)])
def test_no_null_record_moves_a_sum_by_more_than_its_roots(slots: int, depth: int, roots: int) -> None:
    def sums(graph: SmallGraph) -> np.ndarray:
        return clipped(graph, slots, depth).numpy()

    found = neighbor_test(sums, unit="node-record", sensitivity=2 * roots - 1, pairs=40, nodes=9)
    assert not found.broken and found.largest_mu > 1.0  # more than a record's own gradient


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_module_with_state_moves_a_sum_by_more_than_its_roots(kind: type[nn.Module]) -> None:
    def sums(graph: SmallGraph) -> np.ndarray:
        return clipped(graph, 1, 1, kind=kind, route="loop").numpy()

    assert not neighbor_test(sums, unit="node-record", sensitivity=3, pairs=6, nodes=6).broken


def test_a_claim_of_its_own_root_alone_is_refuted() -> None:
    def sums(graph: SmallGraph) -> np.ndarray:
        return clipped(graph, 2, 1).numpy()

    assert neighbor_test(sums, unit="node-record", sensitivity=1.0, pairs=40, nodes=9).broken


# -- price, words, files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "event"),
    [
        ({}, (2, "add_remove")),
        ({"max_out_edges": 2, "layers": 2}, (7, "add_remove")),
        ({"replace_one": True}, (3, "replace")),
        ({"unit": "node-bounded-degree", "max_degree": 4}, (5, "add_remove")),
    ],
)
def test_a_fit_books_one_release_for_all_roots_that_a_record_reaches(
    changes: dict[str, Any], event: tuple[int, str]
) -> None:
    fresh = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    nodes = torch.arange(fresh.num_nodes)  # each the friend of two before it and two after
    source = torch.cat([nodes, nodes])
    target = torch.cat([(nodes + 1) % len(nodes), (nodes + 2) % len(nodes)])
    ring = Adjacency.from_edges(source, target, num_nodes=len(nodes), directed=False)
    fresh = fresh.replace(adjacency=ring)
    model = make(unsafe_noise_seed=None, **changes).fit(fresh)
    (entry,) = ledger_of(fresh.edge_set).entries
    (steps,) = model.plan_.event.events
    assert entry.label == "gnn" and model.guarantee.valid and model.guarantee.edge_use == "neighbors"
    assert isinstance(steps, PoissonRoots) and (steps.roots, steps.relation) == event
    target = changes.get("epsilon", 4.0)
    assert 0.999 * target <= model.guarantee.epsilon <= target
    assert all(weight.isfinite().all() for weight in model.module_.state_dict().values())


def test_the_statement_covers_weights_and_no_prediction(graph: Graph) -> None:
    promised = make(unsafe_noise_seed=None).preview(graph).guarantee
    words = promised.formal_statement()
    assert "the released weights are (4, 1e-05)-indistinguishable. The prediction for v would be" in words
    assert "it is not covered by this statement" in words and "for 1 layer of messages" in words
    assert "noisy aggregates" not in words and "predictions for all nodes" not in words
    assert "all predictions" in promised.not_covered and promised.edge_epsilon is None
    assert f"{promised.epsilon:.4g}" in words
    event = PoissonRoots(9.0, 0.1, 5, 5)
    kept = Guarantee.from_event(
        NodeBoundedDegree(4), event, delta=1e-5, releases=1, edge_use="neighbors"
    ).formal_statement()
    assert "no node has degree above 4" in kept and "the released weights are" in kept
    assert "own row" not in kept


def test_nothing_is_predicted(graph: Graph, tmp_path: Path) -> None:
    model = make().fit(graph)
    other = RECIPES["gap"].split(synthetic("tiny", seed=5), seed=0)
    asked = (
        model.predict_proba,
        model.predict,
        lambda: model.predict_proba(graph),
        lambda: model.predict(other),
        lambda: model.score(graph),
        lambda: model.privacy_cost(other),
        lambda: model.save(tmp_path / "a", per_node=tmp_path / "b"),
    )
    for ask in asked:
        with pytest.raises(UnitError, match="covers the weights alone"):
            ask()
    assert model.proba_ is None and not (tmp_path / "b").exists()


def test_weights_travel_without_rows(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_REGISTERED", {})
    model = make(unsafe_noise_seed=None).fit(graph)
    model.save(tmp_path / "release")
    assert not (tmp_path / "release" / "predictions.parquet").exists()
    gv.register(Mean)
    loaded = gv.load_model(tmp_path / "release")
    assert loaded.guarantee.formal_statement() == model.guarantee.formal_statement()
    other = synthetic("tiny", seed=5)
    with torch.no_grad():  # whoever has a graph of their own runs the module on it
        logits = loaded.module_(other.x, other.adjacency.edge_index().long())
    assert logits.shape == (other.num_nodes, graph.num_classes) and logits.isfinite().all()
    with pytest.raises(UnitError, match="covers the weights alone"):
        loaded.predict_proba()


def test_an_interrupted_fit_is_not_resumed_with_other_code(graph: Graph, tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(now: str, done: int, total: int) -> None:
        if now == "module" and done == 3:
            raise KilledError

    class Changed(Mean):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(2 * x, edge_index)

    Changed.__name__ = "Mean"
    with pytest.raises(KilledError):
        make().fit(graph, on_progress=kill, workspace=tmp_path)
    with pytest.raises(ReleaseError):
        make(module=Changed).fit(graph, workspace=tmp_path)


def other_features(graph: Graph) -> Graph:
    x = graph.x.clone()
    x[5] += 1
    return graph.replace(x=x)


def other_labels(graph: Graph) -> Graph:
    y = graph.y.clone()
    taught = int(graph.mask("train").nonzero()[0, 0])
    y[taught] = (y[taught] + 1) % graph.num_classes
    return graph.replace(y=y)


def other_teachers(graph: Graph) -> Graph:
    masks = [graph.mask(part).clone() for part in ("train", "val", "test")]
    learns, left_out = (int(mask.nonzero()[0, 0]) for mask in (masks[0], masks[2]))
    masks[0][[learns, left_out]], masks[2][[learns, left_out]] = (
        torch.tensor(held) for held in ([False, True], [True, False])
    )
    y = graph.y.clone()
    y[left_out], features = y[learns], graph.x.clone()
    return graph.replace(y=y, x=features).with_split(*masks)


@pytest.mark.parametrize("changed", [other_features, other_labels, other_teachers])
def test_an_interrupted_fit_is_not_resumed_with_other_data(
    graph: Graph, changed: Callable[[Graph], Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def kill(now: str, done: int, total: int) -> None:
        if now == "module" and done == 3:
            raise KilledError

    with pytest.raises(KilledError):
        make().fit(graph, on_progress=kill, workspace=tmp_path)
    with pytest.raises(ReleaseError, match="different data"):
        make().fit(changed(graph), workspace=tmp_path)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_node_is_in_no_more_trees_of_a_fit_than_are_paid_for(
    graph: Graph, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    most: list[int] = []

    class Watched(BoundedTrees):
        def of_roots(self, roots: Tensor) -> Tensor:
            children = super().of_roots(torch.arange(graph.num_nodes))[:, 1:]
            most.append(int(torch.bincount(children[children >= 0]).max()))
            return super().of_roots(roots)

    monkeypatch.setattr("graphveil.estimators.gnn.multi_hop_method.BoundedTrees", Watched)
    make(max_out_edges=slots, epochs=1).fit(graph)
    assert max(most) == slots


def test_places_without_a_node_hold_nobodys_record() -> None:
    lonely = Adjacency.from_edges([1], [2], num_nodes=4, directed=True)
    trees = BoundedTrees(lonely, slots=1, cap=2, depth=1, key=bytes(32))
    x, _ = MultiHopInputs(torch.arange(1.0, 5.0)[:, None], torch.arange(4), trees, 1).take(
        torch.tensor([2, 3])
    )
    assert x[:, :, 0].tolist() == [[3.0, 2.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.0]]


def test_an_interrupted_fit_resumes_to_the_same_bytes(graph: Graph, tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(now: str, done: int, total: int) -> None:
        if now == "module" and done == 27:  # in the second pass, whose trees are others
            raise KilledError

    with pytest.raises(KilledError):
        make().fit(graph, on_progress=kill, workspace=tmp_path)
    weights = [m.module_.state_dict() for m in (make().fit(graph, workspace=tmp_path), make().fit(graph))]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_labels_of_nodes_that_do_not_teach_are_never_read(graph: Graph) -> None:
    hidden = graph.y.clone()
    hidden[graph.mask("test")] = 0
    one, other = (make().fit(g).module_.state_dict() for g in (graph, graph.replace(y=hidden)))
    assert all(torch.equal(one[name], other[name]) for name in one)


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"unit": "undirected-edge"}, UnitError, "private_hops"),
        ({"private_metrics": True}, ConfigError, "nothing bounds"),
        ({"layers": 2, "max_out_edges": 3}, ConfigError, "13 roots"),
        ({"layers": 2, "max_out_edges": 20, "allow_high_noise": True}, ConfigError, "421 roots.*fewer slots"),
        ({"unit": "node-bounded-degree", "max_degree": 1110}, ConfigError, "1111 roots.*'node-record'"),
        ({"layers": 0}, ConfigError, "layers"),
        ({"max_out_edges": 0}, ConfigError, "max_out_edges"),
        ({"neighborhood": "published", "layers": 2}, ConfigError, "for neighborhood='neighbors'"),
        ({"neighborhood": "friends"}, ConfigError, "neighborhood"),
        ({"out_degree_bound": 3}, ConfigError, "max_out_edges"),
        ({"encoder_share": 0.2}, ConfigError, "encoder_share"),
    ],
)
def test_unusable_configurations_are_refused(
    changes: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(**changes)


def test_the_least_noise_that_has_a_price_is_taken_where_the_budget_asks_for_less(graph: Graph) -> None:
    plan = make(epsilon=60.0).preview(graph).plan
    assert plan.noise_std == [0.75] and plan.epsilon < 60.0


def test_more_slots_are_trained_where_the_noise_is_accepted(graph: Graph) -> None:
    plan = make(layers=2, max_out_edges=3, allow_high_noise=True, epsilon=16.0).preview(graph).plan
    (steps,) = plan.event.events
    assert steps.roots == 13
