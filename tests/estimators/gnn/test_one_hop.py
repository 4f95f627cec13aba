"""PrivateGNN on 1-hop ego graphs: inputs, gradients, privacy cost, predictions and files."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import graphveil as gv
from graphveil.core.clipping.ego_graphs import EgoGraphClippedSum, StoredEgoGraphs, ego_graph_logits
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import ByGroup, Gaussian, PoissonGaussian
from graphveil.core.ledger import ledger_of
from graphveil.core.noise.random import PublicStreams
from graphveil.core.queries.bounded_lists import NO_NODE, own_ego_graphs
from graphveil.core.queries.out_edge_sums import replaced_change, simplex_codes
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, ReleaseError, UnitError
from graphveil.estimators.gnn.module_training import choose_route
from graphveil.estimators.gnn.one_hop import CodePriorModule, OneHopInputs
from graphveil.estimators.own import code
from graphveil.estimators.public_sizes import members
from tests.estimators.gnn.modules import SMALL, Branching, Doubled, InterruptedFitError, Mean, interrupt


@pytest.fixture
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


def make(**changes: Any) -> gv.PrivateGNN:
    return gv.PrivateGNN(**{**SMALL, "module": Mean, "unsafe_noise_seed": 0, "epochs": 2, **changes})


# -- privacy cost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"replace_one": True}, {"private_metrics": True}, {"out_degree_bound": 3}], ids=str
)
def test_a_fit_is_charged_as_one_release_at_the_target(graph: Graph, changes: dict[str, Any]) -> None:
    model = make(unsafe_noise_seed=None, **changes).fit(graph)
    (entry,) = ledger_of(graph.edge_set).entries
    assert entry.label == "gnn" and model.guarantee.valid
    assert 0.999 <= model.guarantee.epsilon <= SMALL["epsilon"]
    assert model.guarantee.edge_use == "read" and "own edge list" in model.guarantee.formal_statement()
    torch.testing.assert_close(model.predict_proba().sum(dim=1), torch.ones(graph.num_nodes))
    events = [event.events if isinstance(event, ByGroup) else (event,) for event in model.plan_.event.events]
    relations = {each.relation for group in events for each in group if isinstance(each, PoissonGaussian)}
    assert relations == {"replace" if changes.get("replace_one") else "add_remove"}
    pushed = model.plan_.queries[1].event(model.protected_unit)
    longer = 1.0 if "private_metrics" in changes else 1 / math.sqrt(0.75)
    assert pushed.events[2].mu == pytest.approx(pushed.events[0].mu * longer)


def test_replace_one_raises_the_noise_of_encoder_and_codes(graph: Graph) -> None:
    plans = [make(replace_one=both).preview(graph).plan for both in (False, True)]
    for place, change in ((0, 2.0), (1, replaced_change(graph.num_classes))):
        one, other = (plan.noise_std[place] for plan in plans)
        assert other == pytest.approx(change * one, rel=0.05)  # the scale is shared with sampled steps
    assert isinstance(plans[0].queries[0].event(make().protected_unit).events[0], Gaussian)


@pytest.mark.parametrize("metrics", [False, True])
def test_exactly_the_records_that_are_charged_for_training_are_read(graph: Graph, metrics: bool) -> None:
    model = make(private_metrics=metrics)
    before = model.fit(graph).fitted.trained.state()
    for group, split in enumerate(("train", "val", "test")):
        y, nodes = graph.y.clone(), members(graph, split)
        y[nodes] = (y[nodes] + 1) % graph.num_classes
        after = model.fit(graph.replace(y=y)).fitted.trained.state()
        for query, part in ((0, "encoder"), (2, "module.out.weight")):
            assert torch.equal(before[part], after[part]) is not model.plan_.queries[query].pays[group]


# -- ego graphs --------------------------------------------------------------------------------------------


def test_an_ego_graph_has_published_aggregates_minus_the_contribution_of_its_root() -> None:
    adjacency = Adjacency.from_edges([0, 0, 0, 2], [1, 2, 3, 0], num_nodes=4, directed=True)
    rows, sent = torch.arange(8.0, dtype=torch.float64).view(4, 2) / 4, torch.eye(4, 2, dtype=torch.float64)
    stars = own_ego_graphs(adjacency, 4, bytes(32))
    assert stars.leaves[0].tolist() == [1, 2, 3, NO_NODE] and stars.lengths.tolist() == [3, 0, 1, 0]
    inputs = OneHopInputs.from_published_rows(torch.zeros(4, 3), rows, 2.0, sent, stars, 1)
    x, edges = inputs.take(torch.tensor([0, 1]))
    own = sent[0] / math.sqrt(3)
    for place, leaf in enumerate([1, 2, 3], start=1):
        received = math.sqrt(3) * (rows[leaf] - own) / 2.0 / 3
        expected = torch.cat([torch.zeros(3), received, torch.zeros(1)])
        torch.testing.assert_close(x[0, place], expected.double())
    root = torch.cat([torch.zeros(3), rows[0] / 2.0 / 3, torch.ones(1)]).double()
    torch.testing.assert_close(x[0, 0], root)
    assert edges[0].tolist() == [[1, 2, 3, 5], [0, 0, 0, 5]] and edges[1].tolist() == [[5] * 4] * 2


def test_leaves_are_sampled_by_a_hash_of_each_ordered_pair() -> None:
    """One more out-edge replaces at most one leaf, since hashes do not depend on positions."""
    source, target = [0] * 9, list(range(1, 10))
    long = Adjacency.from_edges(source, target, num_nodes=12, directed=True)
    longer = Adjacency.from_edges([*source, 0, 3, 3], [*target, 11, 1, 2], num_nodes=12, directed=True)
    kept, again = (set(own_ego_graphs(a, 5, bytes(32)).leaves[0].tolist()) for a in (long, longer))
    assert len(kept) == len(again) == 5 and len(kept - again) <= 1
    other = {tuple(sorted(own_ego_graphs(long, 5, bytes([k]) * 32).leaves[0].tolist())) for k in range(20)}
    assert len(other) > 10


def some_ego_graphs(count: int, inputs: int, leaves: int) -> StoredEgoGraphs:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, leaves + 2, inputs, generator=generator, dtype=torch.float64)
    edges = torch.full((count, 2, leaves), leaves + 1)
    for star in range(count):
        k = star % (leaves + 1)
        edges[star, 0, :k], edges[star, 1, :k] = torch.arange(1, k + 1), 0
    return StoredEgoGraphs(x, edges)


@pytest.mark.parametrize("route", ["ghost", "vmap", "loop"])
def test_a_sum_is_that_of_the_clipped_gradients_of_single_ego_graphs(route: Any) -> None:
    module, count, clip = Mean(4, 3).double(), 13, 0.4
    stars, labels = some_ego_graphs(count, 4, 5), torch.arange(count) % 3
    labels[2] = -1
    gradients = EgoGraphClippedSum(module, stars, labels, route=route)
    gradients.add(torch.tensor([0, 2, 5, 12]), clip)
    expected = torch.zeros_like(gradients.sums)
    for star in (0, 5, 12):
        loss = nn.functional.cross_entropy(
            module(stars.x[star], stars.edges[star])[:1], labels[star : star + 1]
        )
        own = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(module.parameters()))])
        expected += own * min(1.0, clip / float(own.norm()))
    torch.testing.assert_close(gradients.sums, expected, rtol=1e-5, atol=1e-7)
    logits = ego_graph_logits(module, stars, count, 3, route=route)
    torch.testing.assert_close(logits[5], module(stars.x[5], stars.edges[5])[0].detach())


def test_a_module_that_cannot_be_vectorized_is_run_in_a_loop(graph: Graph) -> None:
    assert choose_route(Mean(4, 3), 4, 3)[0] == "ghost" and choose_route(Branching(4, 3), 4, 3)[0] == "loop"
    assert make(module=Branching, epochs=1).fit(graph).predict_proba().isfinite().all()


def test_the_code_prior_adds_posterior_aggregate_and_leaves_to_the_logits() -> None:
    def cut(row: Tensor) -> Tensor:
        return row * min(1.0, 2.0 / max(float(row.norm()), 1e-12))

    codes, plain = simplex_codes(3), Mean(6, 3).double()
    module, stars = CodePriorModule(plain, 3), some_ego_graphs(6, 6, 5)
    stars.x[5] *= 4  # long enough to be clipped
    for star in range(6):  # with as many leaves
        x, edges = stars.x[star], stars.edges[star]
        leaves = x[1 : 1 + star, 3:-1]
        mean = leaves.mean(dim=0) if len(leaves) else torch.zeros(2, dtype=torch.float64)
        expected = x[0, :3] + codes @ (3 * cut(mean) + cut(x[0, 3:-1]))
        torch.testing.assert_close(module(x, edges)[0] - plain(x, edges)[0], expected)


# -- accuracy ----------------------------------------------------------------------------------------------


def test_the_code_prior_improves_accuracy_at_a_small_budget() -> None:
    demo = RECIPES["gap"].split(synthetic("demo"), seed=0)
    started, plain = (
        make(epsilon=1.0, leaves=16, epochs=3, start=start).fit(demo) for start in ("codes", "none")
    )
    assert started.plan_ == plain.plan_
    assert started.score(demo) > plain.score(demo) + 0.03


def test_edges_improve_accuracy_unless_they_are_random() -> None:
    demo = RECIPES["gap"].split(synthetic("demo"), seed=0)
    settings = {"epsilon": 8.0, "epochs": 10, "leaves": 16}
    model, source = make(**settings).fit(demo), demo.adjacency.edge_index()[0]
    drawn = np.random.default_rng(0).integers(demo.num_nodes, size=len(source))
    random = Adjacency.from_edges(source, drawn, num_nodes=demo.num_nodes, directed=True)
    alone = model.fitted.trained.encoder.log_posteriors(demo.x).argmax(dim=1)
    features = float((alone == demo.y)[demo.labeled_in("test")].float().mean())
    assert model.score(demo) > features + 0.1
    unrelated = demo.replace(adjacency=random)
    assert make(**settings).fit(unrelated).score(unrelated) < features + 0.07


# -- files and interrupted fits ----------------------------------------------------------------------------


@pytest.mark.usefixtures("own_names")
def test_a_saved_model_holds_a_name_and_no_code(graph: Graph, tmp_path: Path) -> None:
    model = make(unsafe_noise_seed=None).fit(graph)
    model.save(tmp_path / "release", per_node=tmp_path / "rows")
    assert '"Mean"' in (tmp_path / "release" / "model.json").read_text()
    loaded = gv.load_model(tmp_path / "release", per_node=tmp_path / "rows")
    assert loaded.get_params() == {**model.get_params(), "module": "Mean"}
    assert loaded.guarantee.formal_statement() == model.guarantee.formal_statement()
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    with pytest.raises(ConfigError, match=r"graphveil.register\(Mean\)"):
        loaded.fit(graph)
    gv.register(Mean)
    registered = gv.load_model(tmp_path / "release")
    assert registered.aggregates_["rows"].equal(model.aggregates_["rows"])
    states = [one.module_.state_dict() for one in (model, registered)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_an_interrupted_fit_is_resumed_with_the_same_bytes_and_not_with_other_code(
    graph: Graph, tmp_path: Path
) -> None:
    with pytest.raises(InterruptedFitError):
        make().fit(graph, on_progress=interrupt("module", 3), workspace=tmp_path)
    with pytest.raises(ReleaseError):
        make(module=Doubled).fit(graph, workspace=tmp_path)
    resumed = make().fit(graph, workspace=tmp_path)
    assert torch.equal(resumed.predict_proba(), make().fit(graph).predict_proba())


# -- rejected configurations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"module": ""}, ConfigError, "gnn needs a module"),
        ({"module": Mean(2, 2)}, ConfigError, "is a module instance"),
        (
            {"unit": "node-bounded-degree", "max_degree": 9},
            UnitError,
            "not private under unit 'node-bounded-degree'",
        ),
        ({"unit": "undirected-edge"}, UnitError, r"private_hops.*GAP\(head=...\)"),
        ({"unit": "directed-edge"}, UnitError, r"private_hops.*GAP\(head=...\)"),
        ({"unit": "none", "epsilon": None}, UnitError, "private_hops"),
        ({"start": "own"}, ConfigError, "start"),
        ({"leaves": 0}, ConfigError, "leaves"),
        ({"encoder_share": 0.9, "module_share": 0.2}, ConfigError, "for the aggregation"),
        ({"neighborhood": "edges"}, ConfigError, "neighborhood"),
        ({"layers": 2}, ConfigError, "need neighborhood='neighbors'"),
    ],
    ids=str,
)
def test_rejects_unusable_configurations(changes: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make(**changes)


def test_does_not_predict_other_graphs(graph: Graph) -> None:
    model, other = make().fit(graph), RECIPES["gap"].split(synthetic("tiny", seed=5), seed=0)
    with pytest.raises(NotImplementedGuaranteeError, match="gap"):
        model.predict(other)


# -- built-in architectures --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "gin"])
def test_a_built_in_architecture_is_trained_saved_and_loaded_by_its_name(
    graph: Graph, tmp_path: Path, name: str
) -> None:
    pytest.importorskip("torch_geometric")
    module = code.build_module(name, 4, 3, PublicStreams(0).torch("module"))
    x = torch.rand(3, 4, generator=PublicStreams(1).torch("inputs"))
    edges, other = torch.tensor([[1, 2], [0, 0]]), x.clone()
    other[2] += 1
    root = module(x, edges)[0]
    assert root.shape == (3,)
    assert not torch.allclose(root, module(x, edges[:, :1])[0]), "an edge to the root changes nothing"
    assert not torch.allclose(root, module(x * torch.tensor([[2.0], [1.0], [1.0]]), edges)[0])
    assert not torch.allclose(root, module(other, edges)[0]), "a neighbor's inputs change nothing"
    model = gv.PrivateGNN(module=name, **SMALL, epochs=1).fit(graph)
    model.save(tmp_path / "release")
    loaded = gv.load_model(tmp_path / "release")
    assert isinstance(loaded, gv.PrivateGNN) and loaded.module == name and model.guarantee.valid
    assert loaded.guarantee.epsilon == model.guarantee.epsilon <= SMALL["epsilon"]
