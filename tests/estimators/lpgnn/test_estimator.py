"""LPGNN end to end on small graphs: budgets, the guarantee, what is never read, resuming, files."""

import math
import shlex
import subprocess

import numpy as np
import pytest
import torch
from scipy import sparse

import graphveil as gv
from graphveil._util.threads import one_thread
from graphveil.core.events import LocalReport, compose
from graphveil.core.features import to_dense
from graphveil.core.noise.random import PublicStreams
from graphveil.core.unit import LocalAttributes
from graphveil.data import synthetic
from graphveil.data.recipes import RECIPES
from graphveil.errors import ArtifactError, BudgetError, ConfigError, GraphError, UnitError
from graphveil.estimators.session import Session
from graphveil.local.posterior_mixture import NoisyLabels
from graphveil.local.reports import FEATURES, WEIGHTED_MECHANISMS, outside, scaled
from graphveil.mechanisms import Bounds, SubsetSelection, WeightedAllocation

GRAPH = RECIPES["gap"].split(synthetic("tiny"), seed=0)
LOCAL = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 2.0, "seed": 0, "epochs": 4}


def model(**changed: object) -> gv.LPGNN:
    return gv.LPGNN(**{**LOCAL, **changed})


def grown(graph: gv.Graph) -> gv.Graph:
    """Return the graph with two further nodes."""
    n, x = graph.num_nodes, to_dense(graph.x)[:2]
    return graph.grow(x, None, [n, n + 1], [0, 1])


@pytest.fixture
def graph():
    """Return the graph under a budget of its own."""
    edges = GRAPH.adjacency
    fresh = gv.Graph.from_edges(GRAPH.x, GRAPH.y, *edges.edge_index(), directed=False)
    return fresh.replace(train_mask=GRAPH.train_mask, val_mask=GRAPH.val_mask, test_mask=GRAPH.test_mask)


class TestBudgets:
    def test_both_are_needed(self) -> None:
        with pytest.raises(ConfigError, match=r"eps_y is missing\. Pass it"):
            model(eps_y=None)
        with pytest.raises(ConfigError, match="eps_x and eps_y are missing"):
            model(eps_x=None, eps_y=None)

    @pytest.mark.parametrize("wrong", [0, -1, math.nan, 1e-12])
    def test_they_are_above_zero(self, wrong) -> None:
        with pytest.raises(ConfigError, match="eps_x="):
            model(eps_x=wrong)

    def test_there_is_no_epsilon(self) -> None:
        with pytest.raises(ConfigError, match="spends on features and on the label"):
            model(epsilon=1.0)

    def test_none_has_none(self) -> None:
        with pytest.raises(ConfigError, match="adds no noise"):
            gv.LPGNN(unit="none", eps_x=1.0)

    def test_delta_belongs_to_the_gaussian(self) -> None:
        with pytest.raises(ConfigError, match="is only for features='agm'"):
            model(delta=1e-10)
        assert model(features="agm", delta=1e-9).report_config().mechanism(8).claim.delta == 1e-9


class TestUnits:
    @pytest.mark.parametrize("method", ["mlp", "gap", "sage", "gcn", "gat", "classcode"])
    def test_methods_that_read_raw_records_raise_errors(self, method) -> None:
        with pytest.raises(UnitError, match="Use method 'auto', 'lpgnn' or 'simgat'"):
            gv.METHODS[method](unit="local-attributes", epsilon=1.0)

    @pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge", "node-record"])
    def test_it_protects_nothing_else(self, unit) -> None:
        with pytest.raises(UnitError, match="'local-attributes' and not"):
            gv.LPGNN(unit=unit, eps_x=1.0, eps_y=1.0)

    def test_unit_none_is_exact(self) -> None:
        reference = gv.LPGNN(unit="none", seed=0, epochs=3, x_steps=0, y_steps=0, posterior_steps=0).fit(
            GRAPH
        )
        assert not reference.guarantee.valid
        assert torch.equal(reference.predict_proba(GRAPH), reference.predict_proba())
        again = reference.fitted.trained.answer(GRAPH, Session(streams=PublicStreams(0)), None).proba
        assert torch.allclose(again, reference.predict_proba(), atol=1e-6)

    def test_infinite_budgets_are_the_reference(self) -> None:
        exact = gv.LPGNN(unit="none", seed=0, epochs=3, high=2.0).fit(GRAPH)
        open_ = model(eps_x=math.inf, eps_y=math.inf, epochs=3, high=2.0).fit(GRAPH)
        assert torch.allclose(exact.predict_proba(), open_.predict_proba(), atol=1e-6)


class TestGuarantee:
    def test_both_budgets_and_their_sum(self, graph) -> None:
        guarantee = model().fit(graph).guarantee
        assert guarantee.local_budgets == (1.0, 2.0)
        assert (guarantee.epsilon, guarantee.delta, guarantee.valid) == (3.0, 0.0, True)
        assert (
            "eps_x = 1 and its label at eps_y = 2 (total 3; inf = not protected)"
            in guarantee.formal_statement()
        )
        assert {"eps_x": 1.0, "eps_y": 2.0}.items() <= guarantee.as_dict().items()

    def test_a_gaussian_mechanism_has_a_delta(self, graph) -> None:
        guarantee = model(features="agm").fit(graph).guarantee
        assert guarantee.delta == 1e-10
        assert "with delta = 1e-10, which is weaker" in guarantee.formal_statement()

    def test_no_budget_is_no_number(self, graph) -> None:
        guarantee = model(eps_y=math.inf).preview(graph).guarantee
        assert guarantee.epsilon == math.inf
        assert guarantee.as_dict()["epsilon"] is None
        assert "its label at eps_y = inf" in guarantee.formal_statement()

    def test_runs_compose(self, graph) -> None:
        whole = model(eps_x=0.1, eps_y=0.2).preview(graph).guarantee.repeated(3)
        assert whole.epsilon == pytest.approx(0.9)
        assert whole.local_budgets == (0.3, 0.6)

    def test_an_attacker_of_randomized_response(self, graph) -> None:
        guarantee = model(eps_x=0.5, eps_y=0.5).preview(graph).guarantee
        assert guarantee.max_tpr() == pytest.approx(math.e / 100)

    def test_a_fit_is_charged_within_the_limit(self, graph) -> None:
        gv.attach_ledger(graph.edge_set, gv.MemoryLedger(epsilon=4.0, delta=1e-9))
        model().fit(graph)
        (entry,) = gv.ledger_of(graph.edge_set).entries
        assert entry.unit == LocalAttributes()
        assert entry.event == compose(LocalReport("features", 1.0), LocalReport("label", 2.0))
        with pytest.raises(BudgetError, match="would bring the total to epsilon 6"):
            model().fit(graph)

    def test_a_seed_reproduces_the_fit_and_invalidates_the_guarantee(self, graph) -> None:
        first, second = (model(unsafe_noise_seed=3).fit(graph) for _ in range(2))
        assert torch.equal(first.predict_proba(), second.predict_proba())
        assert not first.guarantee.valid
        assert first.guarantee.formal_statement().startswith("No valid guarantee")
        other = model(unsafe_noise_seed=4).fit(graph)
        assert not torch.equal(first.aggregates_["labels"], other.aggregates_["labels"])

    def test_fits_without_a_seed_differ(self, graph) -> None:
        first, second = (model().fit(graph) for _ in range(2))
        assert not torch.equal(first.aggregates_["labels"], second.aggregates_["labels"])


class TestAFitIsAValue:
    """Parameters that are set after a fit are for the next one."""

    def test_predictions_use_the_fitted_configuration(self, graph) -> None:
        fitted, other = model().fit(graph), graph.replace(x=graph.x.flip(1))
        privacy_cost, said = fitted.privacy_cost(other), fitted.score(graph, "val")
        fitted.set_params(unit="none", eps_x=None, eps_y=None)
        assert fitted.privacy_cost(other) == privacy_cost and privacy_cost.local_budgets == (1.0, 0.0)
        assert fitted.score(graph, "val") == said
        fitted.predict(other)
        assert len(gv.ledger_of(graph.edge_set).entries) == 2

    def test_reports_keep_the_fitted_parameters(self, graph) -> None:
        first = model().fit(graph)
        first.eps_x = 5.0
        with pytest.raises(ConfigError, match=r"eps_x=5\.0 differs from .*with which the reports were made"):
            model(eps_x=5.0).fit_same_reports(first, graph)
        beside = model().fit_same_reports(first, graph)
        assert beside.guarantee == first.guarantee and beside.clipped_ == first.clipped_

    def test_received_reports_are_not_used_by_the_next_fit(self, graph) -> None:
        first = model(unsafe_noise_seed=1).fit(graph)
        again = model().fit_same_reports(first, graph)
        assert not again.guarantee.valid
        assert again.fit(graph).guarantee.valid
        assert again.fitted.trained.reports is not first.fitted.trained.reports

    @pytest.mark.parametrize("backbone", ["sage", "gcn", "gat"])
    def test_a_prediction_leaves_the_network_on_its_edges(self, graph, backbone) -> None:
        fitted = model(backbone=backbone).fit(graph)
        before = dict(vars(fitted.fitted.trained.network))
        fitted.predict(grown(graph))
        assert all(vars(fitted.fitted.trained.network)[name] is kept for name, kept in before.items())

    @pytest.mark.parametrize("settings", [{}, {"features": "agm", "backbone": "gat"}])
    def test_restores_a_network_from_its_parameters(self, graph, settings) -> None:
        settings |= {"posterior_steps": 0}
        fitted = model(unsafe_noise_seed=1, **settings).fit(graph).fitted
        again = fitted.method.restore(fitted.trained.state(), fitted.sizes, dict(fitted.released))
        assert again.reports is None
        estimates = fitted.trained.reports.features
        with one_thread():  # as in the fit: the order of a sum depends on the number of threads
            hops = again.method.along(graph, Session(streams=PublicStreams(0)))
            assert torch.equal(again.proba(graph, estimates, hops), fitted.proba)


class TestScaling:
    def test_bounds_from_data_invalidate_the_guarantee(self, graph) -> None:
        with pytest.raises(ConfigError, match="must be set together"):
            model(scaling="columns")
        with pytest.raises(ConfigError, match="must be set together"):
            model(data_dependent_bounds=True)
        guarantee = model(scaling="columns", data_dependent_bounds=True).preview(graph).guarantee
        assert guarantee.deviations == ("bounds taken from the data",)

    def test_a_recipe_that_scaled_columns_invalidates_the_guarantee(self) -> None:
        prepared = RECIPES["lpgnn"].split(RECIPES["lpgnn"].prepare(synthetic("tiny")), seed=0)
        guarantee = model().preview(prepared).guarantee
        assert guarantee.deviations == ("bounds taken from the data",)

    def test_a_recipe_for_clients_scales_nothing(self) -> None:
        prepared = gv.load_dataset("synthetic/tiny", recipe="lpgnn", by_id=True)
        assert model().preview(prepared).guarantee.valid
        assert torch.equal(to_dense(prepared.x), to_dense(synthetic("tiny").x))

    def test_row_scaling_keeps_the_guarantee_valid(self, graph) -> None:
        guarantee = model(scaling="row").preview(graph).guarantee
        assert guarantee.valid
        assert "each node brings its features to [0, 1] by its own" in guarantee.formal_statement()

    @pytest.mark.parametrize("shift", [0.0, -3.0])
    def test_row_scaling_of_dense_and_sparse_features(self, shift) -> None:
        x = np.array([[0.0, 4.0, 2.0], [0.0, 0.0, 0.0], [1.0, 0.0, 8.0]], dtype=np.float32)
        x[2, 0] += shift
        dense = scaled(torch.from_numpy(x), "row")
        from_sparse = scaled(sparse.csr_array(x), "row")
        assert torch.allclose(dense, to_dense(from_sparse))
        assert dense[0].tolist() == [0.0, 1.0, 0.5]
        assert dense[1].tolist() == [0.0, 0.0, 0.0]


class TestWhatIsRead:
    def test_test_labels_are_not_read(self, graph) -> None:
        moved = graph.y.clone()
        moved[graph.test_mask] = (moved[graph.test_mask] + 1) % graph.num_classes
        first = model(unsafe_noise_seed=1).fit(graph)
        second = model(unsafe_noise_seed=1).fit(graph.replace(y=moved))
        assert torch.equal(first.predict_proba(), second.predict_proba())

    def test_validation_scores_use_reported_labels(self, graph) -> None:
        fitted = model(labels="rr").fit(graph)
        said = fitted.aggregates_["labels"]
        mask = graph.labeled_in("val")
        expected = (fitted.predict()[mask] == said[mask]).float().mean()
        assert fitted.score(graph, "val") == pytest.approx(float(expected))
        assert (said[graph.labeled_in("test")] == -1).all()
        hidden = graph.replace(y=torch.where(graph.test_mask, graph.y, 0))
        assert fitted.score(hidden, "val") == fitted.score(graph, "val")


@pytest.mark.parametrize(
    "features",
    tuple(FEATURES),
)
def test_every_mechanism_trains(graph, features) -> None:
    assert model(features=features, epochs=1).fit(graph).predict().shape == (graph.num_nodes,)


@pytest.mark.parametrize("features", WEIGHTED_MECHANISMS)
def test_a_public_theta_divides_the_budget_of_features(graph, features) -> None:
    shares = np.arange(1, graph.num_features + 1)
    theta = tuple((shares / shares.sum()).tolist())
    law = model(features=features, theta=theta).report_config().mechanism(graph.num_features)
    assert law.allocation == WeightedAllocation(theta)
    assert law.claim.epsilon == 1.0
    worst = law.variance(np.zeros((1, graph.num_features)))[0]
    assert features == "feature-rr-naive" or (np.diff(worst) < 0).all()  # more weight, less noise
    assert model(features=features, theta=theta, epochs=1).fit(graph).guarantee.local_budgets == (1.0, 2.0)


@pytest.mark.parametrize("backbone", ["sage", "gcn", "gat", "mlp"])
def test_every_backbone_learns_exact_records(backbone) -> None:
    settings = {"x_steps": 1, "y_steps": 0, "backbone": backbone, "learning_rate": 0.03}
    fitted = gv.LPGNN(unit="none", seed=0, epochs=60, **settings).fit(GRAPH)
    majority = GRAPH.y[GRAPH.labeled_in("test")].bincount().max() / GRAPH.labeled_in("test").sum()
    assert fitted.score(GRAPH) > majority + 0.2


@pytest.fixture
def threads():
    """Compute with four threads, whatever the machine has, and put back what was set."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("backbone", ["sage", "gcn", "gat"])
def test_threads_do_not_affect_results(backbone) -> None:
    fits = [model(backbone=backbone, unsafe_noise_seed=1, x_steps=2).fit(GRAPH) for _ in range(6)]
    first = fits[0].predict_proba()
    assert all(torch.equal(first, other.predict_proba()) for other in fits[1:])


def test_the_posterior_increases_accuracy(graph) -> None:
    settings = {"unsafe_noise_seed": 1, "eps_y": 1.0, "select": "likelihood"}
    alone, apply_posterior = (model(posterior_steps=steps, **settings).fit(graph) for steps in (0, 8))
    assert torch.equal(alone.aggregates_["labels"], apply_posterior.aggregates_["labels"])
    assert apply_posterior.score(graph) > alone.score(graph)


def test_training_decreases_the_loss(graph) -> None:
    history = model(eps_y=math.inf, y_steps=2, epochs=40, learning_rate=0.03).fit(graph).history_
    losses = [epoch.train_loss for _, epoch in history]
    assert losses[-1] < losses[0] - 0.05


class TestFiles:
    def test_an_interrupted_fit_randomizes_once(self, graph, tmp_path) -> None:
        first = model().fit(graph, workspace=tmp_path / "w")
        second = model().fit(graph, workspace=tmp_path / "w")
        assert torch.equal(first.predict_proba(), second.predict_proba())
        assert len(gv.ledger_of(graph.edge_set).entries) == 1

    def test_rejects_stored_reports_of_another_budget(self, graph, tmp_path) -> None:
        model().fit(graph, workspace=tmp_path / "w")
        with pytest.raises(ArtifactError, match="other settings"):
            model(eps_x=2.0).fit(graph, workspace=tmp_path / "w")

    def test_the_error_of_stored_reports_has_a_command(self, graph, tmp_path) -> None:
        folder = tmp_path / "of mine"
        model().fit(graph, workspace=folder)
        with pytest.raises(ArtifactError) as rejected:
            model(eps_x=2.0).fit(graph, workspace=folder)
        command = f"rm -r '{folder}'"
        assert str(folder / "reports.safetensors") in str(rejected.value)
        assert command in str(rejected.value) and "charged again" in str(rejected.value)
        subprocess.run(shlex.split(command), check=True)
        model(eps_x=2.0).fit(graph, workspace=folder)
        (folder / "reports.safetensors").write_bytes(b"no tensors")
        with pytest.raises(ArtifactError, match="not a checkpoint, or is damaged") as rejected:
            model(eps_x=2.0).fit(graph, workspace=folder)
        assert f"rm -r '{folder / 'reports.safetensors'}'" in str(rejected.value)

    @pytest.mark.parametrize("changed", ["order", "edges"])
    def test_reports_of_other_nodes_are_rejected(self, graph, tmp_path, changed) -> None:
        named = graph.replace(ids=np.array([f"n{number}" for number in range(graph.num_nodes)], dtype=object))
        model().fit(named, workspace=tmp_path / "w")
        model().fit(named, workspace=tmp_path / "w")
        other = named.replace(ids=named.ids[::-1])
        if changed == "edges":
            fewer = gv.Graph.from_edges(graph.x, graph.y, [0], [1], directed=False)
            other = named.replace(adjacency=fewer.adjacency)
        with pytest.raises(ArtifactError, match="with other settings, data"):
            model().fit(other, workspace=tmp_path / "w")

    def test_a_resumed_fit_stays_reproducible(self, graph, tmp_path) -> None:
        model(unsafe_noise_seed=1).fit(graph, workspace=tmp_path / "w")
        assert not model().fit(graph, workspace=tmp_path / "w").guarantee.valid

    @pytest.mark.parametrize("eps_y", [2.0, math.inf])
    def test_saving_and_loading(self, graph, tmp_path, eps_y) -> None:
        fitted = model(eps_y=eps_y).fit(graph)
        fitted.save(tmp_path / "saved")
        loaded = gv.load_model(tmp_path / "saved")
        assert torch.equal(loaded.predict_proba(), fitted.predict_proba())
        assert loaded.guarantee == fitted.guarantee
        assert loaded.get_params() == fitted.get_params()
        assert loaded.score(graph, "val") == fitted.score(graph, "val")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"features": "multibit"}, "did you mean 'multi-bit'"),
        ({"backbone": "gin"}, "backbone='gin' is not one of sage, gcn, gat, mlp"),
        ({"x_steps": -1}, "x_steps=-1"),
        (
            {"theta": (1.0,)},
            "theta weights the features of lpm, .*, feature-rr-naive, but features='multi-bit'",
        ),
        ({"features": "agm", "m": "floor"}, "m='floor' is only for features='multi-bit'"),
        ({"low": 1.0}, "must be below high"),
        ({"select": "accuracy"}, "select='accuracy' is not one of paper, likelihood"),
        ({"posterior_steps": -1}, "posterior_steps=-1"),
        ({"scaling": "rows"}, "did you mean 'row'"),
    ],
)
def test_wrong_parameters_are_rejected(wrong, message) -> None:
    with pytest.raises(ConfigError, match=message):
        model(**wrong)


def test_an_empty_part_of_the_split_is_rejected(graph) -> None:
    none = torch.zeros(graph.num_nodes, dtype=torch.bool)
    with pytest.raises(GraphError, match="no val nodes"):
        model().fit(graph.replace(val_mask=none))


@pytest.mark.parametrize("low", [0.0, 0.5])
def test_values_outside_the_range_are_counted(graph, low) -> None:
    x = torch.tensor([[0.0, 2.0, 0.7], [-1.0, 0.0, 1.0]])
    sparse_x = sparse.csr_array(x.numpy())
    expected = [1, 1] if low == 0 else [2, 2]
    assert outside(Bounds(low, 1.0), x).tolist() == expected
    assert outside(Bounds(low, 1.0), sparse_x).tolist() == expected
    assert model().fit(graph).clipped_ == int(((graph.x < 0) | (graph.x > 1)).sum())


class TestSeveralClassesOfALabel:
    def several(self, **changed: object) -> gv.LPGNN:
        return model(eps_y=0.5, labels="subset", epochs=3, **changed)

    def many(self) -> gv.Graph:
        """A graph that has room for nine classes."""
        whole = synthetic("tiny")
        many = gv.Graph.from_edges(
            whole.x, whole.y, *whole.adjacency.edge_index(), directed=False, num_classes=9
        )
        return RECIPES["gap"].split(many, seed=0)

    @pytest.mark.parametrize("backbone", ["sage", "mlp"])
    @pytest.mark.parametrize("y_steps", [0, 2])
    @pytest.mark.parametrize("forward_correction", [True, False])
    def test_fits_several_reported_classes(
        self, backbone: str, y_steps: int, forward_correction: bool
    ) -> None:
        graph = self.many()
        ways = {"backbone": backbone, "y_steps": y_steps, "forward_correction": forward_correction}
        found = self.several(**ways).fit(graph)
        said = found.aggregates_["labels"]
        assert said.shape == (graph.num_nodes, 3)
        assert ((said == -1).all(dim=1) == ~(graph.labeled_in("train", "val"))).all()
        assert 0 <= found.score(graph, "val") <= 1
        assert torch.isfinite(found.predict_proba()).all()

    def test_posterior_baseline_and_prediction_with_several_classes(self, tmp_path) -> None:
        graph = self.many()
        ways = {"posterior_steps": 4, "prior": "mixture", "posterior_use": "evidence"}
        found = self.several(**ways).fit(graph)
        beside = found.no_graph_baseline().fit_same_reports(found, graph)
        assert beside.labels == "subset"
        assert found.predict_proba(grown(graph)).shape == (graph.num_nodes + 2, 9)
        found.save(tmp_path / "model")
        assert torch.equal(gv.load_model(tmp_path / "model").predict_proba(), found.predict_proba())

    @pytest.mark.parametrize("forward_correction", [True, False])
    def test_fits_groups_of_classes(self, tmp_path, forward_correction: bool) -> None:
        graph, ways = self.many(), {"posterior_steps": 4, "prior": "mixture"}
        settings = {"eps_y": 1.5, "labels": "hashing", "epochs": 3, "forward_correction": forward_correction}
        found = model(**settings, **ways).fit(graph)
        law, said = found.label_mechanism(9), found.aggregates_["labels"].numpy()
        assert said.shape == (graph.num_nodes, 3)
        answered = np.flatnonzero(said[:, 0] >= 0)
        law.groups_of(law.hashes_of_rows(answered), said[answered])  # or a wrong hash is an error
        assert found.guarantee.local_budgets[1] == 1.5
        assert "one of 4 public groups of 9 classes" in found.config.report_config.rows(4, 9)[-1].words
        found.save(tmp_path / "model")
        assert torch.equal(gv.load_model(tmp_path / "model").predict_proba(), found.predict_proba())

    def test_the_likelihood_of_a_set_of_classes(self) -> None:
        law = SubsetSelection(epsilon=1.0, classes=7)
        labels = torch.tensor([[1, 4], [-1, -1]])
        nodes = torch.tensor([0])
        noisy = NoisyLabels(labels=labels, law=law, train=nodes, val=nodes)
        inside, outside = law.ratios()
        expected = torch.full((7,), outside).index_fill(0, torch.tensor([1, 4]), inside)
        assert torch.allclose(noisy.likelihood[0], expected)
        assert inside / outside == pytest.approx(math.e)
        assert (noisy.likelihood[1] == 1).all()
        sure = torch.eye(7)[[4]]
        assert float(noisy.negative_log_likelihood(sure, nodes)) == pytest.approx(-math.log(inside))
        assert noisy.agreement(sure, nodes) == 1

    def test_rejects_posterior_options_without_a_posterior(self) -> None:
        for given in ({"prior": "mixture"}, {"posterior_use": "evidence"}):
            wrong = {**given, "posterior_steps": 0}
            with pytest.raises(ConfigError, match="no effect with posterior_steps=0"):
                model(**wrong)
