"""Predictions of other graphs: their nodes randomize their features and are charged once."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.core.events import LocalReport, compose
from graphveil.errors import BudgetError, ConfigError, GraphError, UnitError
from graphveil.estimators.inference import ASSERTED_NODES
from graphveil.local.reports import RandomizedRecords
from graphveil.nn.message_passing import k_prop

BUDGETS = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 2.0}
LOCAL = {**BUDGETS, "seed": 0, "epochs": 2, "hidden": 4, "x_steps": 2}
CLASSES, DIM = 3, 5


def made(people: range, seed: int = 0) -> gv.Graph:
    """Return a graph of these people, with a split and a book of its own."""
    rng = np.random.default_rng(seed)
    n = len(people)
    x, y = rng.random((n, DIM), dtype=np.float32), rng.permutation(np.arange(n) % CLASSES)
    ends = rng.integers(n, size=(2, 3 * n))
    ids = np.array(people)
    part = torch.arange(n) % 3
    graph = gv.Graph.from_edges(x, y, *ends, directed=False, ids=ids)
    return graph.replace(train_mask=part == 0, val_mask=part == 1, test_mask=part == 2)


def grown(graph: gv.Graph, people: range, seed: int = 1) -> gv.Graph:
    """Return the graph with further people."""
    rng = np.random.default_rng(seed)
    n, more = graph.num_nodes, len(people)
    new, others = n + rng.integers(more, size=3 * more), rng.integers(n + more, size=3 * more)
    return graph.grow(rng.random((more, DIM), dtype=np.float32), None, new, others, ids=np.array(people))


def charged(*graphs: gv.Graph) -> list[int]:
    """Return the number of ledger entries of each edge set."""
    return [len(gv.ledger_of(part).entries) for graph in graphs for part in graph.edge_set.parts]


def fitted(graph: gv.Graph, method: type[gv.LPGNN] = gv.LPGNN, **changed: object) -> gv.LPGNN:
    return method(**{**LOCAL, **changed}).fit(graph)


def stored(model: gv.LPGNN, graph: gv.Graph) -> RandomizedRecords | None:
    """Return the reports that the predictions of a graph are based on."""
    kept = model._prediction_manager._known(graph)
    return None if kept is None else kept.reports


METHODS = pytest.mark.parametrize("method", [gv.LPGNN, gv.SimGAT])


class TestAnotherGraph:
    @METHODS
    def test_its_cost_is_known_before_and_charged_once(self, method) -> None:
        graph, other = made(range(30)), made(range(30, 50), seed=1)
        model = fitted(graph, method)
        privacy_cost, after = model.privacy_cost(other), model.guarantee_after(other)
        assert privacy_cost.local_budgets == (1.0, 0.0) and privacy_cost.valid and privacy_cost.releases == 1
        assert charged(graph, other) == [1, 0]
        first = model.predict_proba(other)
        assert first.shape == (20, CLASSES) and torch.allclose(first.sum(dim=1), torch.ones(20))
        assert charged(graph, other) == [2, 1]
        (entry,) = gv.ledger_of(other.edge_set).entries
        assert entry.event == compose(LocalReport("features", 1.0))
        assert model.guarantee_with_predictions == after
        assert after.local_budgets == (2.0, 2.0)
        assert model.guarantee.local_budgets == (1.0, 2.0)
        assert model.privacy_cost(other) is None
        hidden = other.replace(y=torch.full_like(other.y, -1))  # labels are no part of the query
        assert torch.equal(model.predict_proba(hidden), first)
        assert charged(graph, other) == [2, 1]

    def test_predictions_are_computed_from_reports_and_edges(self) -> None:
        graph, other = made(range(30)), made(range(30, 50), seed=1)
        model = fitted(graph)
        proba = model.predict_proba(other)
        records = stored(model, other)
        assert (records.labels == -1).all()
        hidden = other.replace(x=torch.zeros(20, DIM))
        hops = k_prop(hidden.adjacency, 2)
        assert torch.equal(proba, model.fitted.trained.proba(hidden, records.features, hops))
        assert not torch.allclose(records.features.dense(), other.x)

    def test_labels_of_the_other_graph_are_not_read(self) -> None:
        graph, other = made(range(30)), made(range(30, 50), seed=1)
        fits = [fitted(graph, unsafe_noise_seed=1, posterior_steps=2) for _ in range(2)]
        moved = other.replace(y=(other.y + 1) % CLASSES)
        assert torch.equal(fits[0].predict_proba(other), fits[1].predict_proba(moved))

    def test_collections_under_one_seed_have_different_noise(self) -> None:
        graph = made(range(30))
        model = fitted(graph, features="feature-rr", unsafe_noise_seed=1)
        found = [model.fitted.trained.reports.features.dense()]
        for seed in (1, 2):  # the same records, twice
            other = made(range(30), seed=seed).replace(x=graph.x)
            model.predict(other)
            found.append(stored(model, other).features.dense())
        assert all(not torch.equal(found[i], found[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
        assert not model.privacy_cost(made(range(3), seed=5)).valid

    def test_other_features_on_the_same_edges_are_reported_again(self) -> None:
        graph = made(range(30))
        model = fitted(graph)
        model.predict(graph.replace(x=graph.x.flip(1)))
        assert charged(graph) == [2]
        assert model.guarantee_with_predictions.local_budgets == (2.0, 2.0)

    def test_a_gaussian_adds_its_delta(self) -> None:
        model = fitted(made(range(30)), features="agm")
        other = made(range(30, 50), seed=1)
        assert model.privacy_cost(other).delta == 1e-10
        model.predict(other)
        assert model.guarantee_with_predictions.delta == 2e-10

    def test_unprotected_features_have_no_guarantee(self) -> None:
        model = fitted(made(range(30)), eps_x=math.inf)
        privacy_cost = model.privacy_cost(made(range(30, 50), seed=1))
        assert privacy_cost.epsilon == math.inf and "eps_x = inf" in privacy_cost.formal_statement()

    def test_bounds_from_its_data_invalidate_the_cost(self) -> None:
        settings = {"scaling": "columns", "data_dependent_bounds": True}
        privacy_cost = fitted(made(range(30)), **settings).privacy_cost(made(range(30, 50), seed=1))
        assert privacy_cost.deviations == ("bounds taken from the data",)

    def test_accuracy_is_close_to_that_of_the_fitted_graph(self) -> None:
        from graphveil.data import synthetic
        from graphveil.data.recipes import RECIPES

        graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
        other = synthetic("tiny")
        every = torch.ones(other.num_nodes, dtype=torch.bool)
        other = other.replace(train_mask=~every, val_mask=~every, test_mask=every)
        learning = {"epochs": 60, "learning_rate": 0.03, "select": "likelihood", "x_steps": 1, "y_steps": 0}
        model = gv.LPGNN(**{**BUDGETS, "eps_x": 200.0, "eps_y": 4.0}, seed=0, unsafe_noise_seed=0, **learning)
        model.fit(graph)
        chance = graph.y.bincount().max() / graph.num_nodes
        assert model.score(other) > chance + 0.3
        assert model.score(other) > model.score(graph) - 0.05


class TestDisjointNodes:
    def test_disjoint_nodes_compose_in_parallel(self) -> None:
        graph, other = made(range(30)), made(range(30, 50), seed=1)
        model = fitted(graph)
        after = model.guarantee_after(other, assume_disjoint_nodes=True)
        model.predict(other, assume_disjoint_nodes=True)
        assert charged(graph, other) == [1, 1]
        whole = model.guarantee_with_predictions
        assert whole == after and whole.local_budgets == (1.0, 2.0)
        assert ASSERTED_NODES in whole.formal_statement()
        for _ in range(2):
            other = other.replace(x=other.x.flip(1) * 0.9)
            model.predict(other)  # the same people again
        assert model.guarantee_with_predictions.local_budgets == (3.0, 2.0)

    def test_rejects_an_assumption_that_is_contradicted(self) -> None:
        graph = made(range(30))
        model = fitted(graph)
        part = graph.subgraph(torch.arange(30) < 10)
        for execute in (model.predict, model.privacy_cost, model.guarantee_after):
            with pytest.raises(ConfigError, match="same people as the training graph"):
                execute(part, assume_disjoint_nodes=True)

    def test_rejects_assumptions_of_other_units(self) -> None:
        model, other = fitted(made(range(30))), made(range(30, 50), seed=1)
        for execute in (model.predict, model.privacy_cost, model.guarantee_after):
            with pytest.raises(UnitError, match="pass assume_disjoint_nodes"):
                execute(other, assume_disjoint_edges=True)
        gap = gv.GAP(unit="undirected-edge", epsilon=1.0, seed=0, epochs=1, hidden=2).fit(made(range(30)))
        with pytest.raises(UnitError, match="needs unit 'local-attributes'"):
            gap.predict(other, assume_disjoint_nodes=True)


class TestGrowth:
    @METHODS
    def test_only_new_nodes_report(self, method) -> None:
        graph = made(range(30))
        model = fitted(graph, method, posterior_steps=2)
        larger = grown(grown(graph, range(30, 34)), range(34, 40), seed=2)
        assert model.privacy_cost(larger).local_budgets == (1.0, 0.0)
        assert model.guarantee_after(larger).local_budgets == (1.0, 2.0)
        proba = model.predict_proba(larger)
        assert charged(larger) == [1, 1, 1]  # the entry of the first nodes, and of each step
        assert model.guarantee_with_predictions.local_budgets == (1.0, 2.0)
        kept, own = stored(model, larger), model.fitted.trained.reports
        assert torch.equal(kept.features.dense()[:30], own.features.dense())
        assert torch.equal(kept.labels[:30], own.labels)
        assert (kept.labels[30:] == -1).all()
        assert model.privacy_cost(larger) is None and torch.equal(model.predict_proba(larger), proba)
        again = grown(larger, range(40, 43), seed=3)
        model.predict(again)
        assert torch.equal(stored(model, again).features.dense()[:40], kept.features.dense())

    def test_new_nodes_affect_predictions_of_others(self) -> None:
        graph = made(range(30))
        model = fitted(graph, epochs=20, posterior_steps=0)
        larger = grown(graph, range(30, 45))
        assert not torch.allclose(model.predict_proba(larger)[:30], model.predict_proba())

    def test_all_nodes_of_an_unknown_graph_report(self) -> None:
        model = fitted(made(range(30)))
        larger = grown(made(range(50, 70), seed=1), range(70, 75))
        model.predict(larger)
        assert charged(larger) == [1, 1]

    def test_all_nodes_report_if_old_features_changed(self) -> None:
        graph = made(range(30))
        model, larger = fitted(graph), grown(graph, range(30, 34))
        other = larger.replace(x=larger.x.flip(1))
        model.predict(other)
        reported = stored(model, other).features.dense()
        assert not torch.equal(reported[:30], model.fitted.trained.reports.features.dense())
        assert model.guarantee_with_predictions.local_budgets == (2.0, 2.0)


class TestRejections:
    def test_a_limit_rejects_a_collection(self) -> None:
        graph, other = made(range(30)), made(range(30, 50), seed=1)
        gv.attach_ledger(graph.edge_set, gv.MemoryLedger(epsilon=3.5, delta=1e-9))
        model = fitted(graph)
        with pytest.raises(BudgetError, match="would bring the total to epsilon 4"):
            model.predict(other)
        assert charged(graph, other) == [1, 0]
        assert model.guarantee_with_predictions == model.guarantee
        model.predict(other, assume_disjoint_nodes=True)
        assert charged(graph, other) == [1, 1]

    def test_features_of_another_width_charge_nothing(self) -> None:
        graph, other = made(range(30)), made(range(30, 50), seed=1)
        model = fitted(graph)
        with pytest.raises(GraphError, match="6 features, but the model was trained on 5"):
            model.predict(other.replace(x=torch.zeros(20, 6)))
        assert charged(graph, other) == [1, 0]

    def test_a_similarity_that_cannot_be_computed_charges_nothing(self) -> None:
        graph, other = made(range(30)), made(range(30, 36), seed=1)
        model = fitted(graph, gv.SimGAT, similarity="factorized(dim=8, window=1, negative=1)")
        with pytest.raises(ConfigError, match="dim=8 must be smaller"):
            model.predict(other)
        assert charged(graph, other) == [1, 0]

    def test_scores_on_reported_labels_need_the_fitted_graph(self) -> None:
        model = fitted(made(range(30)))
        with pytest.raises(GraphError, match="only in the fitted graph"):
            model.score(made(range(30, 50), seed=1), "val")

    def test_a_loaded_model_inherits_its_guarantee(self, tmp_path) -> None:
        fitted(made(range(30)), unsafe_noise_seed=1).save(tmp_path / "saved")
        model, other = gv.load_model(tmp_path / "saved"), made(range(30, 50), seed=1)
        assert not model.privacy_cost(other).valid
        assert model.guarantee_after(other).local_budgets == (2.0, 2.0)
        assert model.predict_proba(other, allow_spend=True).shape == (20, CLASSES)
        assert charged(other) == [1]


@pytest.mark.parametrize("seed", range(12))
def test_the_guarantee_bounds_the_reports_of_every_person(seed) -> None:
    """Random sequences of predictions; people may be in several graphs, and each one counts its reports."""
    rng, first = np.random.default_rng(seed), made(range(12))
    model = fitted(first, epochs=1, features="lpm")  # continuous noise: no two reports are equal
    reports, graphs, free = defaultdict(set), [first], 100

    def count_reports(graph: gv.Graph) -> None:
        for person, row in zip(graph.ids.tolist(), stored(model, graph).features.dense(), strict=True):
            reports[person].add(row.numpy().tobytes())

    count_reports(first)
    for number in range(6):
        kind = rng.choice(["same people", "others", "grow", "again", "was encoded differently than"])
        base = graphs[rng.integers(len(graphs))]
        apart = False
        if kind == "same people":
            graph = made(range(rng.integers(12), 16), seed=number + 1)
        elif kind == "others":
            graph, apart, free = made(range(free, free + 6), seed=number + 1), True, free + 10
        elif kind == "grow":
            graph, free = grown(base, range(free, free + 3), seed=number), free + 10
        else:
            graph = base if kind == "again" else base.replace(x=base.x * 0.9)
        after = model.guarantee_after(graph, assume_disjoint_nodes=apart)
        model.predict(graph, assume_disjoint_nodes=apart)
        count_reports(graph)
        graphs.append(graph)
        guarantee = model.guarantee_with_predictions
        assert guarantee == after
        labels = {person: 2.0 * (person < 12) for person in reports}  # reported in the fit only
        x, y = guarantee.local_budgets
        assert max(map(len, reports.values())) <= x
        assert max(labels.values()) <= y
        assert max(len(reports[person]) + labels[person] for person in reports) <= guarantee.epsilon
