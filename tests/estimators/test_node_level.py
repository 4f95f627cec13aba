"""MLP and GAP under node-level units: cost, errors, resumed fits, selection and reports."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graphveil.core.clipping import dpsgd
from graphveil.core.ledger import ledger_of
from graphveil.data import Graph
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators import METHODS, private_training
from graphveil.estimators.base import Estimator
from graphveil.estimators.gap.method import hop_noise_stds
from graphveil.estimators.method import State
from graphveil.estimators.saved import load_model
from tests.estimators.interrupted import InterruptedFit, interrupted_at, same

NODE_RECORD = {"unit": "node-record", "out_degree_bound": 4}
BOUNDED_DEGREE = {"unit": "node-bounded-degree", "max_degree": 60}
COMMON: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-5, "seed": 0, "epochs": 4}
UNITS = pytest.mark.parametrize("unit", [NODE_RECORD, BOUNDED_DEGREE], ids=["node-record", "bounded-degree"])
METHOD = pytest.mark.parametrize("method", ["mlp", "gap"])


INTERRUPTIONS = [
    *(("mlp", "classifier", done) for done in (0, 13, 15)),
    *(("gap", "classifier", done) for done in (0, 1, 15)),
    *(("gap", "encoder", done) for done in (0, 13)),
    *(("gap", "aggregate", done) for done in (0, 1)),
    *(("mlp-paper", "classifier", done) for done in (7, 15)),
    *(("gap-paper", "classifier", done) for done in (1, 15)),
    ("gap-paper", "encoder", 13),
    ("gap-paper", "aggregate", 1),
]
LAST_OF_STAGES = list(
    {(method, stage): (method, stage, done) for method, stage, done in INTERRUPTIONS}.values()
)
RESUMED = [
    *((NODE_RECORD, *one) for one in INTERRUPTIONS),
    *((BOUNDED_DEGREE, *one) for one in LAST_OF_STAGES),  # a journal does not know the unit
]


def make(method: str, **parameters: Any) -> Estimator:
    if method.startswith("mlp"):
        parameters.pop("out_degree_bound", None)
    return METHODS[method](**{**COMMON, **parameters})


class TestPrice:
    @METHOD
    @UNITS
    @pytest.mark.parametrize("epsilon", [0.5, 4.0, 16.0])
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"replace_one": True},
            {"batch_size": 20, "epochs": 6},
            {"batch_size": 20, "replace_one": True, "private_metrics": True},
            {"private_metrics": True},
            {"private_metrics": True, "epochs": 12},
        ],
    )
    def test_a_plan_costs_at_most_the_target_and_little_less(self, graph, method, unit, epsilon, options):
        planned = make(method, **{**unit, "epsilon": epsilon, **options}).preview(graph)
        plan, guarantee = planned.plan, planned.guarantee
        assert plan is not None
        assert 0.999 * epsilon <= plan.epsilon <= epsilon
        assert guarantee.valid
        assert guarantee.epsilon <= epsilon
        assert ledger_of(graph.edge_set).entries == ()

    @METHOD
    @UNITS
    def test_a_fit_is_one_charge(self, graph, method, unit):
        model = make(method, **unit).fit(graph)
        (entry,) = ledger_of(graph.edge_set).entries
        assert entry.label == method
        assert model.guarantee.releases == 1
        assert len(model.plan_.queries) == (1 if method == "mlp" else 4)
        assert model.plan_.epsilon <= 3.0
        assert (model.private_accuracy_, model.history_) == ({}, [])  # nothing exact is kept

    def test_an_mlp_reads_no_edge(self, graph):
        statement = make("mlp", unit="node-record").fit(graph).guarantee
        assert statement.edge_epsilon == 0.0
        assert make("gap", **NODE_RECORD).preview(graph).guarantee.edge_epsilon > 0

    @UNITS
    def test_plans_assume_three_quarters_of_the_nodes_for_training(self, unit):
        plan = make("gap", **unit, batch_size=256).plan(num_nodes=20_000, num_classes=6)
        assert plan.queries[0].sampling_rate == pytest.approx(256 / 15_000)


class TestRejected:
    """Point 6 of what node level must show: typed errors, and nothing spent."""

    @METHOD
    @UNITS
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"batch_norm": True}, "use LayerNorm or GroupNorm"),
            ({"dropout": 0.1}, "dropout=0.1 is not supported"),
            ({"patience": 3}, "patience evaluates validation records"),
            ({"clip": 0.0}, "clip=0.0"),
            ({"delta": 0.5}, "delta=0.5 is outside the range of the proofs"),
        ],
    )
    def test_rejects_invalid_configurations(self, graph, method, unit, options, words):
        with pytest.raises(ConfigError, match=words):
            make(method, **unit, **options).preview(graph)

    @pytest.mark.parametrize("method", ["mlp", "gap", "mlp-paper", "gap-paper"])
    def test_rejects_a_batch_above_the_training_set_before_a_charge(self, graph, method):
        with pytest.raises(ConfigError, match="batch size 91 is larger than the number of records, 90"):
            make(method, **NODE_RECORD, batch_size=91).fit(graph)
        assert ledger_of(graph.edge_set).entries == ()

    @METHOD
    def test_rejects_an_empty_part_of_the_split(self, graph, method):
        empty = torch.zeros(graph.num_nodes, dtype=torch.bool)
        no_val = graph.with_split(graph.train_mask, empty, graph.test_mask)
        with pytest.raises(GraphError, match="no val nodes"):
            make(method, **NODE_RECORD, private_metrics=True).preview(no_val)
        make(method, **NODE_RECORD).preview(no_val)

    @METHOD
    def test_errors_do_not_depend_on_protected_labels(self, graph, method):
        """At edge level it is an error; here an error would reveal labels."""
        alike = graph.replace(y=torch.zeros_like(graph.y))
        make(method, **NODE_RECORD).preview(alike)


class TestLabels:
    @METHOD
    @UNITS
    def test_labels_of_validation_and_test_nodes_are_not_read(self, make_graph, method, unit):
        def fitted(graph: Graph) -> Estimator:
            return make(method, **unit, unsafe_noise_seed=1, epochs=10).fit(graph)

        graph = make_graph()
        scrambled = graph.y.clone()
        outside = ~graph.train_mask
        scrambled[outside] = scrambled[outside].roll(1)
        erased = torch.where(outside, -1, graph.y)
        plain = fitted(graph)
        for labels in (scrambled, erased):
            assert same(plain, fitted(make_graph().replace(y=labels)))

    @METHOD
    def test_missing_labels_do_not_change_the_plan(self, make_graph, method):
        graph = make_graph()
        graph.y[graph.train_mask.nonzero()[:5, 0]] = -1
        model = make(method, **NODE_RECORD, unsafe_noise_seed=1).fit(graph)
        assert model.plan_ == make(method, **NODE_RECORD).preview(make_graph()).plan


def resumable(method: str, unit: dict[str, Any]) -> dict[str, Any]:
    found = {**unit, "epochs": 15, "unsafe_noise_seed": 4}
    if not method.endswith("-paper"):
        return found | {"private_metrics": True}
    return found | {"batch_size": 90}


@pytest.fixture(scope="module")
def uninterrupted(make_graph):
    """Return fits without an interruption, one per method and unit."""
    fitted: dict[tuple[str, ...], Estimator] = {}

    def fit(method: str, unit: dict[str, Any]) -> Estimator:
        key = (method, unit["unit"])
        if key not in fitted:
            fitted[key] = make(method, **resumable(method, unit)).fit(make_graph())
        return fitted[key]

    return fit


class TestResume:
    @pytest.fixture(autouse=True)
    def frequent_checkpoints(self, monkeypatch):
        """Write one after 10 steps in place of 100."""
        descend = dpsgd.descend
        monkeypatch.setattr(
            dpsgd, "descend", lambda *given, **more: descend(*given, **{**more, "checkpoint_every": 10})
        )

    @pytest.mark.parametrize(("unit", "method", "stage", "done"), RESUMED)
    def test_a_resumed_fit_is_bit_identical_and_charges_nothing(
        self, make_graph, uninterrupted, tmp_path, method, unit, stage, done
    ):
        options = resumable(method, unit)
        whole = uninterrupted(method, unit)
        graph = make_graph()
        with pytest.raises(InterruptedFit):
            make(method, **options).fit(
                graph, workspace=tmp_path / "run", on_progress=interrupted_at(stage, done)
            )
        resumed = make(method, **options).fit(graph, workspace=tmp_path / "run")
        assert same(whole, resumed)
        assert resumed.private_accuracy_ == whole.private_accuracy_
        assert len(ledger_of(graph.edge_set).entries) == 1
        again = make(method, **options).fit(graph, workspace=tmp_path / "run")
        assert same(whole, again)
        assert len(ledger_of(graph.edge_set).entries) == 1

    @METHOD
    def test_a_fit_without_seeds_can_be_resumed(self, graph, tmp_path, method):
        options = {**NODE_RECORD, "seed": None, "epochs": 15}
        with pytest.raises(InterruptedFit):
            make(method, **options).fit(
                graph, workspace=tmp_path, on_progress=interrupted_at("classifier", 13)
            )
        first = make(method, **options).fit(graph, workspace=tmp_path)
        assert same(first, make(method, **options).fit(graph, workspace=tmp_path))

    @METHOD
    def test_a_noise_seed_reproduces_a_fit_and_invalidates_the_guarantee(self, make_graph, method):
        fits = [make(method, **NODE_RECORD, unsafe_noise_seed=seed).fit(make_graph()) for seed in (5, 5, 6)]
        assert same(fits[0], fits[1])
        assert not same(fits[0], fits[2])
        assert not fits[0].guarantee.valid
        graph = make_graph()
        first, second = (make(method, **NODE_RECORD).fit(graph) for _ in range(2))
        assert not same(first, second)
        assert len(ledger_of(graph.edge_set).entries) == 2


class TestReporting:
    @METHOD
    @UNITS
    def test_released_accuracies_are_near_the_exact_ones(self, make_graph, method, unit):
        graph = make_graph(nodes=900)
        model = make(method, **unit, private_metrics=True, epsilon=20.0, epochs=30).fit(graph)
        assert set(model.private_accuracy_) == {"val", "test"}
        for split, found in model.private_accuracy_.items():
            assert found == pytest.approx(model.score(graph, split), abs=0.05)


class TestSelection:
    @pytest.mark.parametrize("method", ["mlp-paper", "gap-paper"])
    def test_the_best_checkpoint_is_kept(self, make_graph, monkeypatch, method):
        """With a budget so large that the counts are as good as exact."""
        noted, fit = [], private_training.fit_dpsgd

        def noting(*args: Any, **kwargs: Any) -> list[State]:
            noted.append(fit(*args, **kwargs))
            return noted[-1]

        monkeypatch.setattr(private_training, "fit_dpsgd", noting)
        graph = make_graph(nodes=900)
        budget = {"epsilon": 100.0, "unsafe_noise_seed": 0}
        model = make(method, **NODE_RECORD, **budget, batch_size=100, epochs=10, learning_rate=0.3).fit(graph)
        kept = model.score(graph, "val")
        states = noted[-1]
        assert len(states) == 10
        assert len({state["probe"] for state in map(probed, states)}) == 10
        scores = []
        for state in states:
            trained = model.fitted.trained
            network = trained.network if method.startswith("mlp") else trained.classifier
            network.load_state_dict(state)
            proba = trained.proba(graph) if method.startswith("mlp") else rerun(model, graph)
            scores.append(float((proba.argmax(1) == graph.y)[graph.labeled_in("val")].float().mean()))
        assert kept == pytest.approx(max(scores))
        assert min(scores) < max(scores)


def probed(state: State) -> dict[str, float]:
    return {"probe": float(sum(value.abs().sum() for value in state.values()))}


def rerun(model: Estimator, graph: Graph) -> Tensor:
    """Classify again from the rows that were released."""
    trained, answers = model.fitted.trained, list(model.aggregates_.values())
    aggregation = trained.aggregation
    views = aggregation.method.hop_transform.views(
        aggregation.encode(graph), answers, hop_noise_stds(model.plan_)
    )
    return trained.proba(views)


class TestPaper:
    @METHOD
    def test_selection_is_that_of_the_paper(self, method):
        with pytest.raises(ConfigError, match="as the paper does, so private_metrics"):
            make(f"{method}-paper", **NODE_RECORD, private_metrics=True)

    @METHOD
    def test_paper_mode_lists_deviations(self, graph, method):
        guarantee = make(f"{method}-paper", **NODE_RECORD, batch_size=30).fit(graph).guarantee
        assert not guarantee.valid
        listed = " ".join(guarantee.deviations)
        for words in ("Renyi accounting", "best exact validation accuracy"):
            assert words in listed
        assert ("claims to hide all edges" in listed) == (method == "gap")

    def test_paper_mode_has_the_parameters_of_the_paper(self):
        for method in ("mlp", "gap"):
            plan = make(f"{method}-paper", **NODE_RECORD, epochs=None).plan(num_nodes=18_939, num_classes=6)
            steps = plan.queries[0]
            assert (steps.steps, steps.clip) == (554, 1.0)
            assert steps.sampling_rate == pytest.approx(256 / 14_204)
            assert set(plan.noise_std) == {steps.noise_multiplier}

    @pytest.mark.parametrize(
        ("epsilon", "multiplier"), [(1.0, 6.2243), (4.0, 1.8059), (8.0, 1.0366), (16.0, 0.6807)]
    )
    def test_one_multiplier_for_steps_and_hops(self, epsilon, multiplier):
        """Against dp-accounting's Renyi accountant on a fine grid of orders."""
        model = make("gap-paper", **NODE_RECORD, epochs=None, epsilon=epsilon)
        assert model.plan(num_nodes=18_939, num_classes=6).noise_std[1] == pytest.approx(multiplier, rel=2e-3)


class TestFolders:
    @METHOD
    @UNITS
    def test_a_saved_model_predicts_another_graph(self, graph, make_graph, tmp_path, method, unit):
        model = make(method, **unit, unsafe_noise_seed=1).fit(graph)
        model.save(tmp_path / "model")
        again, other = load_model(tmp_path / "model"), make_graph(seed=1)
        torch.testing.assert_close(again.predict_proba(other, allow_spend=True), model.predict_proba(other))
        spent = ledger_of(other.edge_set).entries
        assert len(spent) == (0 if method == "mlp" else 2)

    def test_another_graph_is_charged_for_its_hops_only(self, graph, make_graph):
        model, other = make("gap", **NODE_RECORD).fit(graph), make_graph(seed=1)
        privacy_cost = model.privacy_cost(other)
        assert privacy_cost.releases == 1
        assert len(privacy_cost.event.events) == 2
        assert 0 < privacy_cost.epsilon < 3.0
        model.predict(other)
        (entry,) = ledger_of(other.edge_set).entries
        assert entry.event == privacy_cost.event
        assert make("mlp", unit="node-record").fit(graph).privacy_cost(other) is None
