"""The baseline beside a local method: the same reports, one collection, and no edge."""

import pytest
import torch

import graphveil as gv
from graphveil.data import synthetic
from graphveil.data.recipes import RECIPES
from graphveil.errors import ConfigError, GraphError
from graphveil.local import randomized_records
from graphveil.runs.experiment import Experiment
from graphveil.runs.preview import preview
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


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what becomes a list of every noise that is made."""
    made = list[object]()

    class Counted(randomized_records.LocalNoise):
        def __init__(self, *given: object) -> None:
            made.append(given)
            super().__init__(*given)

    monkeypatch.setattr(randomized_records, "LocalNoise", Counted)
    return made


@METHODS
def test_it_learns_from_the_same_tensors_and_books_nothing(graph, draws, method) -> None:
    model = method(**LOCAL, seed=0).fit(graph)
    beside = model.no_graph_baseline().fit_same_reports(model, graph)
    assert beside.fitted.trained.reports is model.fitted.trained.reports
    assert beside.aggregates_["labels"] is model.aggregates_["labels"]
    assert len(draws) == len(gv.ledger_of(graph.edge_set).entries) == 1
    assert beside.guarantee == model.guarantee
    assert beside.proba_.shape == model.proba_.shape
    assert "had left the randomizer" not in beside.guarantee.formal_statement()  # that is for a server's word


def test_a_limit_that_one_collection_uses_up_leaves_room_for_it(graph) -> None:
    gv.attach_ledger(graph.edge_set, gv.MemoryLedger(epsilon=3.0, delta=1e-9))
    model = gv.LPGNN(**LOCAL, seed=0).fit(graph)
    model.no_graph_baseline().fit_same_reports(model, graph)


@METHODS
def test_it_reads_no_edge(graph, method) -> None:
    model = method(**LOCAL, seed=0, posterior_steps=2).fit(graph)
    beside = model.no_graph_baseline().fit_same_reports(model, graph)
    edgeless = gv.Graph.from_edges(graph.x, graph.y, [], [], directed=False)
    other = graph.replace(adjacency=edgeless.adjacency)
    assert torch.equal(model.no_graph_baseline().fit_same_reports(model, other).proba_, beside.proba_)
    rewired = gv.LPGNN(**LOCAL, seed=0).fit_same_reports(gv.LPGNN(**LOCAL, seed=0).fit(graph), other)
    assert not torch.equal(rewired.proba_, beside.proba_)


def test_it_learns_what_reports_say_of_their_own_node() -> None:
    easy = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    settings = {"epochs": 60, "learning_rate": 0.03, "select": "likelihood"}
    model = gv.LPGNN(unit="local-attributes", eps_x=5e3, eps_y=3.0, seed=0, unsafe_noise_seed=0, **settings)
    model.fit(easy)
    beside = model.no_graph_baseline().fit_same_reports(model, easy)
    chance = easy.y[easy.mask("test")].bincount().max() / easy.mask("test").sum()
    assert beside.score(easy) > chance + 0.1
    assert not beside.guarantee.valid  # the noise of those reports came from a seed


def test_it_has_the_models_own_choices() -> None:
    model = gv.SimGAT(**LOCAL, features="lpm", hidden=9, dropout=0.5, forward_correction=False, low=-1.0)
    beside = model.no_graph_baseline()
    assert (beside.features, beside.hidden, beside.dropout, beside.low) == ("lpm", 9, 0.5, -1.0)
    assert (beside.backbone, beside.x_steps, beside.y_steps, beside.posterior_steps) == ("mlp", 0, 0, 0)
    assert beside.forward_correction


@pytest.mark.parametrize("changed", [{"eps_x": 2.0}, {"features": "1bm"}, {"high": 2.0}, {"scaling": "row"}])
def test_reports_of_another_law_are_refused(graph, changed) -> None:
    model = gv.LPGNN(**LOCAL, seed=0).fit(graph)
    with pytest.raises(ConfigError, match=f"{next(iter(changed))}=.* is not how the reports were made"):
        gv.LPGNN(**{**LOCAL, **changed}).fit_same_reports(model, graph)


def test_reports_of_other_nodes_are_refused(graph, tmp_path) -> None:
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
        with pytest.raises(ConfigError, match="has no reports"):
            model.no_graph_baseline().fit_same_reports(unknown, graph)


@pytest.mark.parametrize("method", ["lpgnn", "simgat"])
def test_a_run_collects_once_and_a_resumed_one_never_again(tmp_path, draws, monkeypatch, method) -> None:
    experiment = Experiment(method, Source(dataset="synthetic/tiny"), dict(LOCAL), runs=2)
    graph = experiment.load()
    plan, folder = preview(experiment, graph), RunFolder(tmp_path / "run")
    heard, whole = list[object](), gv.LPGNN.fit_same_reports

    def stopped(self, fitted, graph, **given):
        heard.append(fitted.fitted.trained.reports)
        if len(heard) == 2:
            raise KeyboardInterrupt
        return whole(self, fitted, graph, **given)

    monkeypatch.setattr(gv.LPGNN, "fit_same_reports", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(plan, graph, folder, lambda *given: None)
    metrics = run(plan, graph, folder, lambda *given: None, resume=True).metrics
    assert len(draws) == len(gv.ledger_of(graph.edge_set).entries) == experiment.runs
    assert torch.equal(heard[1].labels, heard[2].labels)
    assert metrics["guarantee_all_runs"] == {"epsilon": 6.0, "delta": 0.0, "releases": 2}
    assert metrics["baseline_guarantee"] is plan.baseline is None
    assert len(metrics["mlp_test_accuracy"]["values"]) == 2
