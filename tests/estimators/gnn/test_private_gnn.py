"""PrivateGNN from graph to predictions: price, isolation of stars, saving, resuming, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import graphveil as gv
from graphveil._util.random import PublicStreams
from graphveil.data import RECIPES, Adjacency, Graph, synthetic
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, ReleaseError, UnitError
from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.estimators.gnn.code_prior import CodePriorModule
from graphveil.estimators.gnn.execution_route import choose_route
from graphveil.estimators.gnn.one_hop_inputs import OneHopInputs
from graphveil.estimators.own import code
from graphveil.estimators.public_sizes import members
from graphveil.ledger import ledger_of
from graphveil.privacy import ByGroup, Gaussian, PoissonGaussian
from graphveil.release.steps.bounded_lists import NO_NODE, read_ego_graphs
from graphveil.training.ego_graphs import EgoGraphClippedSum, StoredEgoGraphs, ego_graph_logits
from tests.estimators.gnn.modules import Branching, Mean

SMALL: dict[str, Any] = {
    "unit": "node-record",
    "epsilon": 4.0,
    "delta": 1e-5,
    "seed": 0,
    "leaves": 8,
    "encoder_share": 0.1,
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


def make(**changes: Any) -> gv.PrivateGNN:
    return gv.PrivateGNN(**{**SMALL, "module": Mean, "unsafe_noise_seed": 0, "epochs": 2, **changes})


@pytest.mark.parametrize(
    "changes", [{}, {"replace_one": True}, {"private_metrics": True}, {"out_degree_bound": 3}]
)
def test_a_fit_books_one_release_that_costs_the_target(changes: dict[str, Any]) -> None:
    fresh = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    model = make(unsafe_noise_seed=None, **changes).fit(fresh)
    (entry,) = ledger_of(fresh.edge_set).entries
    assert entry.label == "gnn" and model.guarantee.valid
    assert 0.999 * 4.0 <= model.guarantee.epsilon <= 4.0
    assert model.guarantee.edge_use == "read" and "own edge list" in model.guarantee.formal_statement()
    torch.testing.assert_close(model.predict_proba().sum(dim=1), torch.ones(fresh.num_nodes))
    steps = [e for event in model.plan_.event.events for e in parts(event) if isinstance(e, PoissonGaussian)]
    assert {step.relation for step in steps} == {"replace" if changes.get("replace_one") else "add_remove"}
    pushed = model.plan_.queries[1].event(model.protected_unit)
    teaches, other = pushed.events[0].mu, pushed.events[2].mu
    longer = 1.0 if "private_metrics" in changes else 1 / math.sqrt(0.75)
    assert other == pytest.approx(teaches * longer)


def parts(event: Any) -> tuple[Any, ...]:
    return event.events if isinstance(event, ByGroup) else (event,)


def test_replaced_records_double_the_noise_of_encoder_and_push(graph: Graph) -> None:
    plans = [make(replace_one=both).preview(graph).plan for both in (False, True)]
    for place in (0, 1):
        one, other = (plan.noise_std[place] for plan in plans)
        assert other == pytest.approx(2 * one, rel=0.05)  # the scale of both is shared with sampled steps
    assert isinstance(plans[0].queries[0].event(make().protected_unit).events[0], Gaussian)


# -- stars -------------------------------------------------------------------------------------------------


def lists(num_nodes: int, seed: int) -> Adjacency:
    """Lists that are long, short and empty."""
    rng = np.random.default_rng(seed)
    edges = rng.random((num_nodes, num_nodes)) < (rng.random(num_nodes) ** 2)[:, None]
    edges[0] = False
    source, target = np.nonzero(edges)
    return Adjacency.from_edges(source, target, num_nodes=num_nodes, directed=True)


def without(adjacency: Adjacency, q: int) -> Adjacency:
    source, target = adjacency.edge_index()
    kept = source != q
    return Adjacency.from_edges(source[kept], target[kept], num_nodes=adjacency.num_nodes, directed=True)


@pytest.mark.parametrize("most", [1, 3, 40])
def test_stars_of_others_are_the_same_bits_whatever_one_record_holds(most: int) -> None:
    compared = 0
    nodes = 20
    for seed in range(6):
        rng = torch.Generator().manual_seed(seed)
        adjacency, rows = lists(nodes, seed), torch.randn(nodes, 2, generator=rng, dtype=torch.float64)
        posteriors, sent = torch.randn(nodes, 3, generator=rng).log_softmax(dim=1), rows.flip(0) / 9

        def stars(adjacency: Adjacency, posteriors: Tensor, sent: Tensor, rows: Tensor = rows) -> Any:
            found = read_ego_graphs(adjacency, most, bytes(32))
            inputs = OneHopInputs.from_published_rows(posteriors.double(), rows, 0.7, sent, found, 2)
            return inputs.take(torch.arange(nodes))

        x, edges = stars(adjacency, posteriors, sent)
        for q in range(nodes):
            other_posteriors, other_sent = posteriors.clone(), sent.clone()
            other_posteriors[q], other_sent[q] = float("nan"), float("inf")
            y, others = stars(without(adjacency, q), other_posteriors, other_sent)
            rest = torch.arange(nodes) != q
            assert torch.equal(x[rest], y[rest]) and torch.equal(edges[rest], others[rest])
            assert y.isfinite().all()
            compared += int(rest.sum())
    assert compared == 6 * 20 * 19


def test_a_star_is_its_roots_own_list_with_published_rows_less_what_the_root_wrote() -> None:
    adjacency = Adjacency.from_edges([0, 0, 0, 2], [1, 2, 3, 0], num_nodes=4, directed=True)
    rows, sent = torch.arange(8.0, dtype=torch.float64).view(4, 2) / 4, torch.eye(4, 2, dtype=torch.float64)
    stars = read_ego_graphs(adjacency, 4, bytes(32))
    assert stars.leaves[0].tolist() == [1, 2, 3, NO_NODE] and stars.lengths.tolist() == [3, 0, 1, 0]
    inputs = OneHopInputs.from_published_rows(torch.zeros(4, 3), rows, 2.0, sent, stars, 1)
    x, edges = inputs.take(torch.tensor([0, 1]))
    own_contribution = sent[0] / math.sqrt(3)
    for place, leaf in enumerate([1, 2, 3], start=1):
        heard = math.sqrt(3) * (rows[leaf] - own_contribution) / 2.0 / 3
        torch.testing.assert_close(x[0, place], torch.cat([torch.zeros(3), heard, torch.zeros(1)]).double())
    root = torch.cat([torch.zeros(3), rows[0] / 2.0 / 3, torch.ones(1)]).double()
    torch.testing.assert_close(x[0, 0], root)
    assert edges[0].tolist() == [[1, 2, 3, 5], [0, 0, 0, 5]] and edges[1].tolist() == [[5] * 4] * 2


def test_long_lists_are_cut_by_coins_of_each_ordered_pair() -> None:
    """A list that grows by one moves at most one leaf of its own star: coins do not shift with places."""
    source, target = [0] * 9, list(range(1, 10))
    long = Adjacency.from_edges(source, target, num_nodes=12, directed=True)
    longer = Adjacency.from_edges([*source, 0, 3, 3], [*target, 11, 1, 2], num_nodes=12, directed=True)
    kept, again = (set(read_ego_graphs(a, 5, bytes(32)).leaves[0].tolist()) for a in (long, longer))
    assert len(kept) == len(again) == 5 and len(kept - again) <= 1
    other = {tuple(sorted(read_ego_graphs(long, 5, bytes([k]) * 32).leaves[0].tolist())) for k in range(20)}
    assert len(other) > 10


# -- gradients ---------------------------------------------------------------------------------------------


def some_stars(count: int, inputs: int, leaves: int) -> Any:
    x = torch.randn(
        count, leaves + 2, inputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    edges = torch.full((count, 2, leaves), leaves + 1)
    for star in range(count):
        k = star % (leaves + 1)
        edges[star, 0, :k], edges[star, 1, :k] = torch.arange(1, k + 1), 0
    return StoredEgoGraphs(x, edges)


@pytest.mark.parametrize("route", ["ghost", "vmap", "loop"])
def test_a_sum_is_that_of_every_stars_own_clipped_gradient(route: Any) -> None:
    module, count, clip = Mean(4, 3).double(), 13, 0.4
    stars, labels = some_stars(count, 4, 5), torch.arange(count) % 3
    labels[2] = -1
    gradients = EgoGraphClippedSum(module, stars, labels, route=route)
    index = torch.tensor([0, 2, 5, 12])
    gradients.add(index, clip)
    wanted = torch.zeros_like(gradients.sums)
    for star in (0, 5, 12):
        x, edges = (part[0] for part in stars.take(torch.tensor([star])))
        loss = nn.functional.cross_entropy(module(x, edges)[:1], labels[star : star + 1])
        own = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(module.parameters()))])
        wanted += own * min(1.0, clip / float(own.norm()))
    torch.testing.assert_close(gradients.sums, wanted, rtol=1e-5, atol=1e-7)
    logits = ego_graph_logits(module, stars, count, 3, route=route)
    assert (
        torch.equal(logits[3], ego_graph_logits(module, some_stars(4, 4, 5), 4, 3, route=route)[3])
        or route != "loop"
    )
    torch.testing.assert_close(
        logits[5], module(*(part[5] for part in stars.take(torch.arange(count))))[0].detach()
    )


def test_a_module_that_cannot_be_run_at_once_is_run_in_a_loop(graph: Graph) -> None:
    assert choose_route(Mean(4, 3), 4, 3)[0] == "ghost" and choose_route(Branching(4, 3), 4, 3)[0] == "loop"
    assert make(module=Branching, epochs=1).fit(graph).predict_proba().isfinite().all()


def test_other_code_has_another_fingerprint() -> None:
    class Louder(Mean):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index) * 1.001

    build_module = [
        code.build_module(kind, 4, 3, PublicStreams(0).torch("module")) for kind in (Mean, Mean, Louder)
    ]
    first, again, other = (choose_route(module, 4, 3)[1] for module in build_module)
    assert torch.equal(first, again) and not torch.equal(first, other)


# -- the start ---------------------------------------------------------------------------------------------


def test_the_start_is_what_posterior_row_and_leaves_say_by_the_codes() -> None:
    codes, plain = simplex_codes(3), Mean(6, 3).double()
    module, (x, edges) = CodePriorModule(plain, 3), some_stars(6, 6, 5).take(torch.arange(6))
    x[5] *= 4  # long enough to be cut
    for star in range(6):  # with as many leaves
        root, leaves = x[star, 0], x[star, 1 : 1 + star, 3:-1]
        heard = leaves.mean(dim=0) if len(leaves) else torch.zeros(2, dtype=torch.float64)
        wanted = root[:3] + codes @ (3 * cut(heard) + cut(root[3:-1]))
        found = module(x[star], edges[star])[0] - plain(x[star], edges[star])[0]
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(cut(torch.tensor([30.0, 40.0])), torch.tensor([1.2, 1.6]))


def cut(row: Tensor) -> Tensor:
    return row * min(1.0, 2.0 / max(float(row.norm()), 1e-12))


def test_a_start_is_worth_its_place_where_the_noise_is_loud() -> None:
    demo = RECIPES["gap"].split(synthetic("demo"), seed=0)
    started, plain = (
        make(epsilon=1.0, leaves=16, epochs=3, start=start).fit(demo) for start in ("codes", "none")
    )
    assert started.plan_ == plain.plan_
    assert started.score(demo) > plain.score(demo) + 0.03


# -- the value of it ---------------------------------------------------------------------------------------


def test_friends_are_worth_their_epsilon_and_random_lists_worth_nothing() -> None:
    demo = RECIPES["gap"].split(synthetic("demo"), seed=0)
    settings = {"epsilon": 8.0, "epochs": 10, "leaves": 16}
    model = make(**settings).fit(demo)
    source = demo.adjacency.edge_index()[0]
    drawn = np.random.default_rng(0).integers(demo.num_nodes, size=len(source))
    strangers = Adjacency.from_edges(source, drawn, num_nodes=demo.num_nodes, directed=True)
    alone = model.fitted.trained.encoder.log_posteriors(demo.x).argmax(dim=1)
    test = demo.mask("test")
    features = float((alone == demo.y)[test].float().mean())
    assert model.score(demo) > features + 0.1
    lonely = demo.replace(adjacency=strangers)
    assert make(**settings).fit(lonely).score(lonely) < features + 0.07


@pytest.mark.parametrize("metrics", [False, True])
def test_labels_of_nodes_that_do_not_teach_are_never_read(graph: Graph, metrics: bool) -> None:
    hidden = graph.y.clone()
    for split in ("test", "val") if metrics else ("test",):
        nodes = members(graph, split)
        hidden[nodes] = (hidden[nodes] + 1) % graph.num_classes
    model = make(private_metrics=metrics)
    before = model.fit(graph).predict_proba()
    assert torch.equal(before, model.fit(graph.replace(y=hidden)).predict_proba())


# -- files -------------------------------------------------------------------------------------------------


def test_a_saved_model_holds_a_name_and_no_code(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(unsafe_noise_seed=None).fit(graph)
    model.save(tmp_path / "release", per_node=tmp_path / "rows")
    assert '"Mean"' in (tmp_path / "release" / "model.json").read_text()
    loaded = gv.load_model(tmp_path / "release", per_node=tmp_path / "rows")
    assert loaded.get_params() == {**model.get_params(), "module": "Mean"}
    assert loaded.guarantee.formal_statement() == model.guarantee.formal_statement()
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    with pytest.raises(ConfigError, match=r"graphveil.register\(Mean\)"):
        loaded.fit(graph)
    monkeypatch.setattr(code, "_REGISTERED", {})
    gv.register(Mean)
    own = gv.load_model(tmp_path / "release")
    assert own.aggregates_["rows"].equal(model.aggregates_["rows"])
    state = model.module_.state_dict()
    assert all(torch.equal(state[name], own.module_.state_dict()[name]) for name in state)


def test_an_interrupted_fit_resumes_to_the_same_bytes_and_not_with_other_code(
    graph: Graph, tmp_path: Path
) -> None:
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
    resumed = make().fit(graph, workspace=tmp_path)
    assert torch.equal(resumed.predict_proba(), make().fit(graph).predict_proba())


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"module": ""}, ConfigError, "pass module="),
        ({"module": Mean(2, 2)}, ConfigError, "is built already"),
        ({"unit": "node-bounded-degree", "max_degree": 9}, UnitError, "belongs to both of its ends"),
        ({"unit": "undirected-edge"}, UnitError, r"private_hops.*GAP\(head=...\)"),
        ({"unit": "directed-edge"}, UnitError, r"private_hops.*GAP\(head=...\)"),
        ({"unit": "none", "epsilon": None}, UnitError, "private_hops"),
        ({"start": "own"}, ConfigError, "start"),
        ({"mode": "paper"}, ConfigError, "no paper mode"),
        ({"leaves": 0}, ConfigError, "leaves"),
        ({"encoder_share": 0.9, "module_share": 0.2}, ConfigError, "leave the push"),
        ({"neighborhood": "edges"}, ConfigError, "neighborhood"),
    ],
)
def test_unusable_configurations_are_refused(
    changes: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(**changes)


def test_a_module_that_mixes_rows_is_refused_before_anything_is_booked() -> None:
    class Mixing(Mean):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x - x.mean(dim=0), edge_index)

    fresh = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    for attempt in (make(module=Mixing).preview, make(module=Mixing).fit):
        with pytest.raises(ConfigError, match="Mixing: its output at one node changes"):
            attempt(fresh)
    assert ledger_of(fresh.edge_set).entries == ()


def test_predicting_another_graph_is_refused_with_a_way_out(graph: Graph) -> None:
    model = make().fit(graph)
    other = RECIPES["gap"].split(synthetic("tiny", seed=5), seed=0)
    with pytest.raises(NotImplementedGuaranteeError, match="gap"):
        model.predict(other)


@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "gin"])
def test_a_built_in_architecture_is_trained_saved_and_loaded_by_its_name(
    graph: Graph, tmp_path: Path, name: str
) -> None:
    pytest.importorskip("torch_geometric")
    model = gv.PrivateGNN(module=name, **SMALL, epochs=1).fit(graph)
    model.save(tmp_path / "release")
    loaded = gv.load_model(tmp_path / "release")
    assert isinstance(loaded, gv.PrivateGNN) and loaded.module == name and model.guarantee.valid
    assert loaded.guarantee.epsilon == model.guarantee.epsilon <= SMALL["epsilon"]


@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "gin"])
def test_a_built_in_architecture_reads_the_root_and_the_messages_to_it(name: str) -> None:
    pytest.importorskip("torch_geometric")
    module = code.build_module(name, 4, 3, PublicStreams(0).torch("module"))
    x = torch.rand(3, 4, generator=PublicStreams(1).torch("inputs"))
    edges = torch.tensor([[1, 2], [0, 0]])
    root = module(x, edges)[0]
    assert root.shape == (3,)
    assert not torch.allclose(root, module(x, edges[:, :1])[0]), "an edge to the root changes nothing"
    assert not torch.allclose(root, module(x * torch.tensor([[2.0], [1.0], [1.0]]), edges)[0])
    other = x.clone()
    other[2] += 1
    assert not torch.allclose(root, module(other, edges)[0]), "a neighbor's inputs change nothing"


def test_code_with_the_name_of_a_built_in_architecture_is_rejected() -> None:
    with pytest.raises(ConfigError, match='name="my_sage"'):
        gv.register(Mean, name="sage")
