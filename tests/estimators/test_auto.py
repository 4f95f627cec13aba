"""Auto: the choice of a method, its privacy cost, and everything after a fit."""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pytest
import torch
from command import Invoke
from torch.nn.functional import cross_entropy

import graphveil as gv
from graphveil.audit import query_canaries
from graphveil.auto import AutoClassifier
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.events import ByGroup, compose
from graphveil.core.noise.random import PublicStreams
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ArtifactError, ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.choice import ChosenModel, OutDegreeChoice, ValidationChoice
from graphveil.estimators.method import FitResult, Method, State
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.publish.queries import stages_of
from graphveil.runs.run_audit import audit_run
from tests.estimators.interrupted import InterruptedFit, interrupted_at, same

EDGE: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-5, "seed": 0}
RECORD: dict[str, Any] = {"unit": "node-record", "epsilon": 8.0, "delta": 1e-5, "seed": 0}


def fresh() -> Graph:
    """Return a graph that no other test has fitted."""
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


@pytest.fixture(scope="module")
def tiny() -> Graph:
    return fresh()


def without_edges(graph: Graph) -> Graph:
    """Return the graph with one edge only."""
    return Graph.from_edges(
        graph.x, graph.y, [0], [1], directed=False, num_classes=graph.num_classes
    ).with_split(*(graph.labeled_in(part) for part in ("train", "val", "test")))


def telling_features(edges: int = 600) -> Graph:
    """Return a graph whose features determine the class, and whose edges are random."""
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(3, size=240))
    x = torch.eye(3)[y] + 0.1 * torch.from_numpy(rng.normal(size=(240, 3))).float()
    source, target = rng.integers(240, size=(2, edges))
    graph = Graph.from_edges(x, y, source, target, directed=False, num_classes=3)
    rank = torch.from_numpy(rng.permutation(240)) / 240
    return graph.with_split(rank < 0.6, (rank >= 0.6) & (rank < 0.8), rank >= 0.8)


def test_edges_classcode_with_the_whole_budget_or_the_baseline() -> None:
    seeded = {**EDGE, "unsafe_noise_seed": 1}
    tiny = fresh()
    model = AutoClassifier(**seeded).fit(tiny)
    alone, baseline = gv.ClassCode(**seeded).fit(tiny), gv.MLP(**seeded).fit(tiny)
    assert model.plan_ is not None and alone.plan_ is not None
    assert model.plan_.event == alone.plan_.event
    assert model.guarantee.epsilon == alone.guarantee.epsilon <= 1.0
    assert len(gv.ledger_of(tiny.edge_set)) == 2  # one release of each
    assert list(model.candidates_) == ["classcode", "mlp"]
    nodes = tiny.labeled_in("val")
    for name, fitted in (("mlp", baseline), ("classcode", model)):
        logits = fitted.predict_proba()[nodes].double().log()
        loss = {t: float(cross_entropy(t * logits, tiny.y[nodes])) for t in 2 ** np.arange(-3, 2.01, 0.25)}
        assert model.candidates_[name] == pytest.approx(-min(loss.values()))  # at the best temperature
    assert model.chosen_ == "classcode"
    assert model.homophily_ is not None


@dataclass(frozen=True, kw_only=True)
class Fixed(Method):
    """Predicts class 1 with probability ``sure`` where it is right, and with ``doubted`` elsewhere."""

    sure: float
    doubted: float

    def plan(self, sizes: PublicSizes) -> None:
        """Query nothing."""

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Return the probabilities, and no model."""
        of_one = torch.where(graph.y == 1, self.sure, self.doubted)
        proba = torch.stack([1 - of_one, of_one], dim=1)
        return FitResult(trained=None, proba=proba)  # type: ignore[arg-type]

    def restore(self, state: State, sizes: PublicSizes, released: State) -> NoReturn:
        """Restore nothing."""
        raise NotImplementedError


def test_likelihood_chooses_between_methods_that_predict_the_largest_class() -> None:
    y = (torch.arange(100) % 5 == 0).long()
    graph = Graph.from_edges(torch.eye(100), y, [0], [1], directed=False)
    graph = RECIPES["gap"].split(graph, seed=0)
    config = gv.MLP(unit="none").config.privacy_config
    shares, better = ({"sure": sure, "doubted": doubted} for sure, doubted in ((0.2, 0.2), (0.4, 0.1)))
    options = {
        name: Fixed(name=name, privacy_config=config, **values)
        for name, values in (("shares", shares), ("better", better))
    }
    method = ValidationChoice(name="auto", privacy_config=config, options=options)
    fitted = method.fit(graph, Session(streams=PublicStreams(0))).trained
    assert isinstance(fitted, ChosenModel) and fitted.chosen_method == "better"  # the accuracies are equal


def test_a_metric_takes_the_place_of_the_likelihood() -> None:
    graph = fresh()
    model = AutoClassifier(**EDGE, metric="macro_f1", class_weight="balanced").fit(graph)
    assert "macro_f1" in model.config.decision
    chosen = model.candidates_[model.chosen_ or ""]
    assert chosen == pytest.approx(model.score(graph, "val", "macro_f1"))
    assert model.choice_ is not None and model.choice_["metric"] == "macro_f1"
    with pytest.raises(ConfigError, match="protects"):
        AutoClassifier(**RECORD, metric="macro_f1")


@pytest.mark.parametrize("stored", [False, True])
def test_without_privacy_validation_labels_choose_the_method(stored: bool, tmp_path: Path) -> None:
    graph = telling_features()
    model = AutoClassifier(unit="none", seed=0).fit(graph, workspace=tmp_path if stored else None)
    assert set(model.candidates_) == {"gcn", "sage", "gat", "mlp"}
    best = max(model.candidates_.values(), key=lambda value: value or 0.0)
    assert model.candidates_[model.chosen_ or ""] == best
    alone = gv.METHODS[model.chosen_ or ""](unit="none", seed=0).fit(graph)
    assert torch.equal(model.predict_proba(), alone.predict_proba())
    assert not model.guarantee.releases


@pytest.mark.parametrize("replace_one", [False, True])
def test_records_a_noisy_out_degree_chooses_and_both_choices_cost_the_budget(replace_one: bool) -> None:
    tiny = fresh()
    settings, seen = {**RECORD, "replace_one": replace_one}, {}
    for graph in (tiny, without_edges(tiny)):
        model = AutoClassifier(**settings).fit(graph)
        (entry,) = gv.ledger_of(graph.edge_set).entries
        assert model.plan_ is not None
        assert entry.event.events[0] == model.plan_.event.events[0]
        assert 0.999 * 8 < model.guarantee.epsilon <= 8.0
        assert model.guarantee.valid and model.guarantee.releases == 1
        assert model.candidates_ == {"mlp": None, "classcode": None}
        seen[model.chosen_] = model
    assert set(seen) == {"classcode", "mlp"}
    assert seen["classcode"].guarantee.event == seen["mlp"].guarantee.event
    assert seen["mlp"].mean_out_degree_ < seen["classcode"].mean_out_degree_
    assert seen["mlp"].predict_proba(telling_like(tiny)).shape == (3, 3)
    with pytest.raises(NotImplementedGuaranteeError):
        seen["classcode"].predict_proba(telling_like(tiny))


def telling_like(graph: Graph) -> Graph:
    """Return another graph with the same features."""
    return Graph.from_edges(graph.x[:3], graph.y[:3], [0], [2], directed=False, num_classes=3)


def test_the_choice_depends_on_the_answer_and_public_facts_alone() -> None:
    model = AutoClassifier(**RECORD)
    method = model.config
    assert isinstance(method, OutDegreeChoice)
    sizes = PublicSizes(nodes=3000, classes=6, features=1000, train_records=2500)
    plan = method.plan(sizes)
    chosen = [method.choose(mean, plan, sizes) for mean in (0.0, 0.5, 3.0, 20.0)]
    assert chosen == sorted(chosen) and (chosen[0], chosen[-1]) == (0, 1)
    poor = AutoClassifier(**{**RECORD, "epsilon": 0.1}).config
    assert isinstance(poor, OutDegreeChoice)
    assert poor.choose(3.0, poor.plan(sizes), sizes) == 0  # a small budget needs longer lists


@pytest.mark.parametrize("private_metrics", [False, True])
def test_each_alternative_costs_a_training_record_the_whole_budget(private_metrics: bool) -> None:
    model = AutoClassifier(**RECORD, private_metrics=private_metrics)
    plan = model.plan(num_nodes=900, num_classes=4, num_features=30)
    assert plan is not None
    first, *rest = stages_of(plan)
    assert first.share == pytest.approx(0.02)
    assert {stage.alternative for stage in rest} == {1, 2}
    for path in plan.paths:
        events = [plan.queries[k].event(plan.unit) for k in path]
        own = [event.events[0] if isinstance(event, ByGroup) else event for event in events]
        assert total_mu(compose(*own)) == pytest.approx(plan.mu)


def test_the_choice_spends_no_more_than_it_needs_on_large_graphs() -> None:
    model = AutoClassifier(**RECORD)
    method, noises = model.config, []
    assert isinstance(method, OutDegreeChoice)
    for nodes, features in ((5_000, 1_000), (50_000, 1_000), (50_000, 10)):
        sizes = PublicSizes(nodes=nodes, classes=4, features=features, train_records=3 * nodes // 4)
        plan = method.plan(sizes)
        first = stages_of(plan)[0]
        assert first.share is not None and first.share < 0.008
        sigma = plan.queries[0].noise[0] / nodes
        noises.append(sigma / method.threshold(sizes, plan.mu))
        for path in plan.paths:
            events = [plan.queries[k].event(plan.unit) for k in path]
            own = [event.events[0] if isinstance(event, ByGroup) else event for event in events]
            assert total_mu(compose(*own)) == pytest.approx(plan.mu)
    assert noises == pytest.approx([0.1] * 3, rel=0.01)


def test_a_bounded_degree_gets_the_baseline(tiny: Graph) -> None:
    settings = {**RECORD, "unit": "node-bounded-degree", "max_degree": 200, "unsafe_noise_seed": 1}
    model = AutoClassifier(**settings).fit(tiny)
    assert model.chosen_ == "mlp" and model.guarantee.epsilon <= 8.0
    assert model.guarantee.event == gv.MLP(**settings).preview(tiny).guarantee.event


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"unit": "edge-subset", "epsilon": 1.0}, NotImplementedGuaranteeError, "edge-subset"),
        ({"unit": "undirected-edge"}, ConfigError, "epsilon="),
        ({"unit": "node-record"}, ConfigError, "epsilon="),
        ({**EDGE, "out_degree_bound": 3}, UnitError, "out_degree_bound"),
    ],
)
def test_wrong_settings_are_rejected(settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        AutoClassifier(**settings)


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize("settings", [EDGE, RECORD, {"unit": "none", "seed": 0}], ids=lambda s: s["unit"])
def test_a_saved_model_keeps_its_choice(tiny: Graph, tmp_path: Path, settings: dict[str, Any]) -> None:
    model = AutoClassifier(**settings).fit(tiny)
    withheld = tmp_path / "per_node" if settings is RECORD else None
    model.save(tmp_path / "release", per_node=withheld)
    loaded = gv.load_model(tmp_path / "release", per_node=withheld)
    assert isinstance(loaded, AutoClassifier)
    assert loaded.choice_ == model.choice_
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    assert loaded.guarantee.event == model.guarantee.event
    for page in ("MODEL_CARD.md", "README.md"):
        written = (tmp_path / "release" / page).read_text()
        assert f"Chosen method: `{model.chosen_}`." in written


def test_the_card_of_a_fixed_method_names_no_choice(tiny: Graph, tmp_path: Path) -> None:
    gv.MLP(unit="undirected-edge", seed=0).fit(tiny).save(tmp_path / "release")
    assert "Chosen method" not in (tmp_path / "release" / "MODEL_CARD.md").read_text()


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize(
    ("unit", "methods", "epsilons"),
    [("undirected-edge", ("auto", "gap"), (1.0, 4.0)), ("node-record", ("auto", "mlp"), (1.0,))],
)
def test_a_sweep_compares_auto_with_fixed_methods(
    unit: str, methods: tuple[str, ...], epsilons: tuple[float, ...], tmp_path: Path, invoke: Invoke
) -> None:
    words = f"sweep {','.join(methods)} --dataset synthetic/tiny --unit {unit} --runs 1"
    budgets = ",".join(f"{epsilon:g}" for epsilon in epsilons)
    invoke(f"{words} --epsilon {budgets} --out", tmp_path / "sweep")
    table = pd.read_csv(tmp_path / "sweep" / "sweep.csv")
    assert sorted(zip(table["method"], table["epsilon"], strict=True)) == sorted(product(methods, epsilons))
    cells = [gv.load_model(folder) for folder in sorted((tmp_path / "sweep" / "cells").iterdir())]
    chosen = [cell.chosen_ for cell in cells if isinstance(cell, AutoClassifier)]
    assert len(chosen) == len(epsilons) and all(chosen)


def test_a_damaged_choice_is_rejected(tiny: Graph) -> None:
    model = AutoClassifier(**RECORD).fit(tiny)
    state = model.fitted.trained.state()
    for wrong in (torch.tensor(2), torch.tensor(-1), torch.tensor([0])):
        with pytest.raises(ArtifactError, match="damaged"):
            model.config.restore({**state, "auto/chosen": wrong}, model.fitted.sizes, {})


@pytest.mark.parametrize(("stage", "done"), [("choice", 1), ("aggregate", 1), ("classifier", 1)])
def test_an_interrupted_fit_is_resumed_with_the_same_choice(tmp_path: Path, stage: str, done: int) -> None:
    graph = fresh()
    settings = {**RECORD, "unsafe_noise_seed": 3}
    whole = AutoClassifier(**settings).fit(fresh())
    assert whole.chosen_ == "classcode"
    with pytest.raises(InterruptedFit):
        AutoClassifier(**settings).fit(graph, workspace=tmp_path, on_progress=interrupted_at(stage, done))
    resumed = AutoClassifier(**settings).fit(graph, workspace=tmp_path)
    assert same(whole, resumed)
    assert len(gv.ledger_of(graph.edge_set)) == 1


@pytest.mark.usefixtures("quick_classcode")
def test_another_graph_is_predicted_by_the_chosen_method(tiny: Graph) -> None:
    model = AutoClassifier(**EDGE).fit(tiny)
    other = RECIPES["gap"].split(synthetic("tiny", seed=1), seed=1)
    cost = model.privacy_cost(other)
    assert cost is not None and cost.epsilon <= 1.0
    assert model.predict_proba(other).shape == (other.num_nodes, 3)
    assert model.guarantee_with_predictions.releases == 2


@pytest.mark.usefixtures("quick_classcode")
def test_the_run_of_a_command_states_the_choice(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_canaries, "_RECORDS", 64)  # what they certify is measured elsewhere
    folder = tmp_path / "run"
    words = "train auto --dataset synthetic/tiny --unit node-record --epsilon 4 --out"
    answer = invoke(words, folder)
    shown = answer.out + answer.err
    assert "one of mlp, classcode by a noisy mean out-degree" in shown
    assert "Chosen method: " in shown and "Noisy mean out-degree" in shown
    assert "the queries of the chosen method together" in invoke("explain", folder).out
    found = audit_run(folder, pairs=20)
    assert not found.faults
    assert {stage for stage, _ in found.replays} == {"out-degrees", "push"}


@pytest.mark.parametrize("best", range(3))
def test_what_was_charged_is_stored_whichever_candidate_is_chosen(best: int) -> None:
    """The first candidate alone is charged: its answers are of the fit, and the others' are not."""
    y = (torch.arange(100) % 5 == 0).long()
    graph = RECIPES["gap"].split(Graph.from_edges(torch.eye(100), y, [0], [1], directed=False), seed=0)
    config = gv.MLP(unit="none").config.privacy_config

    @dataclass(frozen=True, kw_only=True)
    class Releasing(Fixed):
        def fit(self, graph: Graph, session: Session) -> FitResult:
            answers = {f"counts of {self.name}": torch.tensor(self.sure)}
            return replace(super().fit(graph, session), released=answers, learned={"edges": self.name})

    options = {
        str(number): Releasing(
            name=str(number), privacy_config=config, sure=0.4 if number == best else 0.2, doubted=0.1
        )
        for number in range(3)
    }
    method = ValidationChoice(name="auto", privacy_config=config, options=options)
    found = method.fit(graph, Session(streams=PublicStreams(0)))
    assert isinstance(found.trained, ChosenModel) and found.trained.chosen == best
    assert found.released == {"counts of 0": torch.tensor(0.4 if best == 0 else 0.2)}
    assert found.learned == {"edges": "0"}
    proba = options[str(best)].fit(graph, Session(streams=PublicStreams(0))).proba
    assert found.proba is not None and proba is not None and torch.equal(found.proba, proba)
