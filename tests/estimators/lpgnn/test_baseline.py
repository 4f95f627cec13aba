"""The no-graph baseline of a local method: the same reports, one collection, and no edge."""

import pytest
import torch

import graphveil as gv
from graphveil.data import synthetic
from graphveil.data.recipes import RECIPES
from graphveil.errors import ConfigError, GraphError
from graphveil.runs.experiment import Experiment, preview
from graphveil.runs.run import run
from graphveil.runs.run_folder import RunFolder
from graphveil.runs.source import Source

LOCAL = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 2.0, "epochs": 3}
METHODS = pytest.mark.parametrize("method", [gv.LPGNN, gv.SimGAT])


@pytest.fixture
def graph() -> gv.Graph:
    """Return a graph under a budget of its own."""
    found = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    fresh = gv.Graph.from_edges(found.x, found.y, *found.adjacency.edge_index(), directed=False)
    return fresh.replace(train_mask=found.train_mask, val_mask=found.val_mask, test_mask=found.test_mask)


@METHODS
def test_is_fitted_to_the_same_reports_without_a_charge(graph, method) -> None:
    model = method(**LOCAL, seed=0).fit(graph)
    baseline = model.no_graph_baseline().fit_same_reports(model, graph)
    own, others = baseline.fitted.trained.reports, model.fitted.trained.reports
    assert own.features is others.features and own.labels is others.labels
    assert baseline.aggregates_["labels"] is model.aggregates_["labels"]
    assert len(gv.ledger_of(graph.edge_set).entries) == 1
    assert baseline.guarantee == model.guarantee
    assert baseline.proba_.shape == model.proba_.shape
    assert (
        "had left the randomizer" not in baseline.guarantee.formal_statement()
    )  # that is for a server's word


def test_needs_no_further_budget(graph) -> None:
    gv.attach_ledger(graph.edge_set, gv.MemoryLedger(epsilon=3.0, delta=1e-9))
    model = gv.LPGNN(**LOCAL, seed=0).fit(graph)
    model.no_graph_baseline().fit_same_reports(model, graph)


@METHODS
def test_reads_no_edge(graph, method) -> None:
    model = method(**LOCAL, seed=0, posterior_steps=2).fit(graph)
    baseline = model.no_graph_baseline().fit_same_reports(model, graph)
    edgeless = gv.Graph.from_edges(graph.x, graph.y, [], [], directed=False)
    other = graph.replace(adjacency=edgeless.adjacency)
    assert torch.equal(model.no_graph_baseline().fit_same_reports(model, other).proba_, baseline.proba_)
    rewired = gv.LPGNN(**LOCAL, seed=0).fit_same_reports(gv.LPGNN(**LOCAL, seed=0).fit(graph), other)
    assert not torch.equal(rewired.proba_, baseline.proba_)


def test_is_more_accurate_than_the_majority() -> None:
    easy = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    settings = {"epochs": 60, "learning_rate": 0.03, "select": "likelihood"}
    model = gv.LPGNN(unit="local-attributes", eps_x=5e3, eps_y=3.0, seed=0, unsafe_noise_seed=0, **settings)
    model.fit(easy)
    baseline = model.no_graph_baseline().fit_same_reports(model, easy)
    chance = easy.y[easy.labeled_in("test")].bincount().max() / easy.labeled_in("test").sum()
    assert baseline.score(easy) > chance + 0.1
    assert not baseline.guarantee.valid  # the noise of those reports came from a seed


def test_inherits_the_configuration() -> None:
    model = gv.SimGAT(**LOCAL, features="lpm", hidden=9, dropout=0.5, forward_correction=False, low=-1.0)
    baseline = model.no_graph_baseline()
    assert (baseline.features, baseline.hidden, baseline.dropout, baseline.low) == ("lpm", 9, 0.5, -1.0)
    assert (baseline.backbone, baseline.x_steps, baseline.y_steps, baseline.posterior_steps) == (
        "mlp",
        0,
        0,
        0,
    )
    assert baseline.forward_correction


@pytest.mark.parametrize("changed", [{"eps_x": 2.0}, {"features": "1bm"}, {"high": 2.0}, {"scaling": "row"}])
def test_rejects_reports_of_another_mechanism(graph, changed) -> None:
    model = gv.LPGNN(**LOCAL, seed=0).fit(graph)
    with pytest.raises(
        ConfigError, match=f"{next(iter(changed))}=.* differs from .*with which the reports were made"
    ):
        gv.LPGNN(**{**LOCAL, **changed}).fit_same_reports(model, graph)


def test_rejects_reports_of_other_nodes(graph, tmp_path) -> None:
    model = gv.LPGNN(**LOCAL, seed=0).fit(graph)
    split = graph.replace(val_mask=graph.test_mask, test_mask=graph.val_mask)
    fewer = RECIPES["gap"].split(
        gv.Graph.from_edges(graph.x[:50], graph.y[:50], [0], [1], directed=False), seed=0
    )
    for other in (split, fewer):
        with pytest.raises(GraphError, match="other nodes or another split"):
            model.no_graph_baseline().fit_same_reports(model, other)
    model.save(tmp_path / "saved")
    for unknown in (gv.load_model(tmp_path / "saved"), gv.LPGNN(**LOCAL)):
        with pytest.raises(ConfigError, match="has no LDP reports"):
            model.no_graph_baseline().fit_same_reports(unknown, graph)


@pytest.mark.parametrize("method", ["lpgnn", "simgat"])
def test_a_resumed_run_collects_once(tmp_path, method) -> None:
    experiment = Experiment(method, Source(dataset="synthetic/tiny"), dict(LOCAL), runs=2)
    graph = experiment.load()
    plan, folder = preview(experiment, graph), RunFolder(tmp_path / "run")

    class Interrupt:
        """Interrupts the run in the training of the second baseline."""

        trainings = 0

        def __call__(self, stage: str, done: int, total: int) -> None:
            self.trainings += stage.endswith("baseline classifier") and (done, total) == (0, 1)
            if self.trainings == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, folder, Interrupt())
    metrics = run(plan, folder, lambda *given: None, resume=True)
    assert len(gv.ledger_of(graph.edge_set).entries) == experiment.runs
    assert metrics["guarantee_all_runs"] == {"epsilon": 6.0, "delta": 0.0, "releases": 2}
    assert metrics["baseline_guarantee"] is plan.baseline is None
    assert len(metrics["mlp_test_accuracy"]["values"]) == 2
