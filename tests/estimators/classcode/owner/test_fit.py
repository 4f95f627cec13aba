"""ClassCode under unit node-record, from graph to predictions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from contracts.steps import SilentRelease

import graphveil as gv
from graphveil.data import RECIPES, Adjacency, Graph, synthetic
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.classcode.node_method import TrainedNodeLevelClassCode
from graphveil.estimators.public_sizes import members, record_groups
from graphveil.ledger import ledger_of
from graphveil.mechanisms import StepNoise
from graphveil.release import DPSGDData, OutEdgeSumData
from graphveil.release.steps import training_steps
from graphveil.training import ClippedSum
from tests.estimators.classcode.owner.exact import ExactPush

RECIPE_S: dict[str, object] = {}
RECIPE_R: dict[str, object] = {"read_own_edges": True}
BOTH = pytest.mark.parametrize("recipe", [RECIPE_S, RECIPE_R], ids=["S", "R"])


@pytest.fixture(scope="module")
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


@pytest.fixture(scope="module")
def demo() -> Graph:
    return RECIPES["gap"].split(synthetic("demo"), seed=0)


def make(**changes: object) -> ClassCode:
    settings: dict[str, object] = {
        "unit": "node-record",
        "epsilon": 4.0,
        "delta": 1e-5,
        "seed": 0,
        "unsafe_noise_seed": 0,
    }
    return ClassCode(**{**settings, **changes})  # type: ignore[arg-type]  # keywords are checked at run time


@BOTH
def test_a_fit_books_one_release_that_costs_the_target(recipe: dict[str, object]) -> None:
    fresh = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    model = make(unsafe_noise_seed=None, **recipe).fit(fresh)
    (entry,) = ledger_of(fresh.edge_set).entries
    assert entry.label == "classcode"
    assert model.guarantee.valid
    assert model.guarantee.epsilon == pytest.approx(4.0, rel=1e-6)
    assert model.guarantee.epsilon <= 4.0
    assert set(model.aggregates_) == {"rows"}
    proba = model.predict_proba()
    torch.testing.assert_close(proba.sum(dim=1), torch.ones(fresh.num_nodes))


def test_recipe_s_says_what_a_friendship_costs_and_recipe_r_that_lists_are_read(graph: Graph) -> None:
    strict, neighborhood_sum = make().fit(graph).guarantee, make(read_own_edges=True).fit(graph).guarantee
    assert strict.edge_epsilon is not None and strict.edge_epsilon > 4.0
    assert neighborhood_sum.edge_epsilon is None
    assert neighborhood_sum.edge_use == "read" and "own edge list" in neighborhood_sum.formal_statement()


@BOTH
def test_one_seed_gives_the_same_bytes_and_strict_noise_does_not(
    graph: Graph, recipe: dict[str, object]
) -> None:
    first, second = make(**recipe).fit(graph), make(**recipe).fit(graph)
    assert torch.equal(first.predict_proba(), second.predict_proba())
    assert not first.guarantee.valid
    strict = make(unsafe_noise_seed=None, **recipe).fit(graph)
    assert not torch.equal(first.aggregates_["rows"], strict.aggregates_["rows"])


@BOTH
@pytest.mark.parametrize("metrics", [False, True])
def test_labels_of_nodes_that_do_not_teach_are_never_read(
    graph: Graph, recipe: dict[str, object], metrics: bool
) -> None:
    hidden = graph.y.clone()
    for split in ("test", "val") if metrics else ("test",):
        nodes = members(graph, split)
        hidden[nodes] = (hidden[nodes] + 1) % graph.num_classes
    model = make(private_metrics=metrics, **recipe)
    before = model.fit(graph).predict_proba()
    assert torch.equal(before, model.fit(graph.replace(y=hidden)).predict_proba())


@BOTH
def test_missing_labels_change_neither_groups_nor_shapes(graph: Graph, recipe: dict[str, object]) -> None:
    y = graph.y.clone()
    y[members(graph, "train")[:3]] = -1
    null = graph.replace(y=y)
    models = [make(**recipe).fit(graph), make(**recipe).fit(null)]
    assert models[0].plan_ == models[1].plan_
    assert torch.equal(record_groups(graph), record_groups(null))


@BOTH
def test_friends_are_worth_their_epsilon_and_random_lists_worth_nothing(
    demo: Graph, recipe: dict[str, object]
) -> None:
    friends = make(epsilon=8.0, **recipe).fit(demo).score(demo)
    rng = np.random.default_rng(0)
    source = demo.adjacency.edge_index()[0]
    lists = Adjacency.from_edges(
        source,
        rng.integers(demo.num_nodes, size=len(source)),
        num_nodes=demo.num_nodes,
        directed=True,
    )
    strangers = demo.replace(adjacency=lists)
    alone = make(epsilon=8.0, targets=(0,)).fit(demo).score(demo)  # rows of nobody else
    assert friends > alone + 0.1
    assert abs(make(epsilon=8.0, **recipe).fit(strangers).score(strangers) - alone) < 0.1


class TestTargets:
    def test_rows_of_others_are_zero_and_their_predictions_from_features(self, graph: Graph) -> None:
        chosen = members(graph, "test")[:20]
        model = make(targets=tuple(chosen.tolist())).fit(graph)
        rows = model.aggregates_["rows"]
        inside = torch.zeros(graph.num_nodes, dtype=torch.bool)
        inside[chosen] = True
        assert (rows[~inside] == 0).all() and (rows[inside] != 0).any(dim=1).all()
        trained = model.fitted.trained
        assert isinstance(trained, TrainedNodeLevelClassCode)
        assert trained.decider.weights.tolist() == [1.0, 1.0]  # nobody who teaches has a row
        features = trained.encoder.log_posteriors(graph.x).exp().float()
        torch.testing.assert_close(model.predict_proba()[~inside], features[~inside])

    def test_names_of_sets(self, graph: Graph) -> None:
        test = members(graph, "test")
        released = (make(targets="test").fit(graph).aggregates_["rows"] != 0).any(dim=1)
        assert released.nonzero()[:, 0].tolist() == test.tolist()
        assert torch.equal(
            (make(targets="unlabeled").fit(graph).aggregates_["rows"] != 0).any(dim=1), released
        )
        counted = make(targets="unlabeled", private_metrics=True).fit(graph)  # validation nodes do not teach
        assert (counted.aggregates_["rows"] != 0).any(dim=1).sum() == len(test) + len(members(graph, "val"))

    def test_ids_are_the_graphs_own(self, graph: Graph) -> None:
        ids = np.array([f"p{k}" for k in range(graph.num_nodes)])
        named = make(targets=("p3", "p5")).fit(graph.replace(ids=ids))
        assert (named.aggregates_["rows"] != 0).any(dim=1).nonzero()[:, 0].tolist() == [3, 5]
        with pytest.raises(
            ConfigError, match="does not have; give ids of its nodes, or 'unlabeled' or 'test'"
        ):
            make(targets=("p3", "q")).fit(graph.replace(ids=ids))

    def test_a_wrong_name_is_refused_before_anything_is_booked(self) -> None:
        fresh = RECIPES["gap"].split(synthetic("tiny"), seed=0)
        with pytest.raises(ConfigError, match="does not have"):
            make(targets=(10**9,)).fit(fresh)
        assert ledger_of(fresh.edge_set).entries == ()


@BOTH
@pytest.mark.parametrize("stage", ["aggregate", "classifier"])
def test_an_interrupted_fit_resumes_to_the_same_bytes(
    graph: Graph, tmp_path: Path, recipe: dict[str, object], stage: str
) -> None:
    class KilledError(Exception):
        pass

    def kill(now: str, done: int, total: int) -> None:
        if now == stage and done == total:
            raise KilledError

    if stage == "aggregate" or recipe:
        with pytest.raises(KilledError):
            make(**recipe).fit(graph, on_progress=kill, workspace=tmp_path)
    resumed = make(**recipe).fit(graph, workspace=tmp_path)
    assert torch.equal(resumed.predict_proba(), make(**recipe).fit(graph).predict_proba())
    assert torch.equal(make(**recipe).fit(graph, workspace=tmp_path).predict_proba(), resumed.predict_proba())


@BOTH
def test_a_saved_model_comes_back(graph: Graph, tmp_path: Path, recipe: dict[str, object]) -> None:
    model = make(unsafe_noise_seed=None, **recipe).fit(graph)
    model.save(tmp_path / "release", per_node=tmp_path / "rows")
    alone = gv.load_model(tmp_path / "release")
    assert alone.guarantee.formal_statement() == model.guarantee.formal_statement()
    assert torch.equal(alone.aggregates_["rows"], model.aggregates_["rows"])
    loaded = gv.load_model(tmp_path / "release", per_node=tmp_path / "rows")
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    assert loaded.get_params() == model.get_params()
    assert loaded.fitted.trained.state().keys() == model.fitted.trained.state().keys()


def test_private_metrics_are_close_to_exact_ones_and_covered(demo: Graph) -> None:
    model = make(epsilon=8.0, private_metrics=True).fit(demo)
    assert model.guarantee.epsilon <= 8.0
    for split in ("val", "test"):
        assert model.private_accuracy_[split] == pytest.approx(model.score(demo, split), abs=0.1)


def test_replacing_costs_twice_the_noise(graph: Graph) -> None:
    nulled, replaced = (make(replace_one=both, encoder_share=0.1).fit(graph) for both in (False, True))
    assert nulled.plan_ is not None and replaced.plan_ is not None
    for one, other in zip(nulled.plan_.noise_std, replaced.plan_.noise_std, strict=True):
        assert other == pytest.approx(2 * one, rel=1e-6)


def test_a_graph_without_edges_runs_the_same_code(graph: Graph) -> None:
    none = np.empty(0, dtype=np.int64)
    empty = Adjacency.from_edges(none, none, num_nodes=graph.num_nodes, directed=False)
    for recipe in (RECIPE_S, RECIPE_R):
        assert make(**recipe).fit(graph.replace(adjacency=empty)).predict_proba().isfinite().all()


def test_silent_nodes_are_invisible_to_others() -> None:
    graph = _small(0)
    q = int(members(graph, "test")[0])
    means = []
    for seen in (graph, _without(graph, q)):
        release = _Replayed(seen)
        _run(release, make(unlabeled_send=False, encoder_share=0.3))
        means.append(release.means)
    for before, after in zip(*means, strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"read_own_edges": True, "targets": "test"}, ConfigError, "drop targets"),
        ({"targets": ()}, ConfigError, "empty targets"),
        ({"targets": "tset"}, ConfigError, "is not one of unlabeled, test; did you mean 'test'"),
        ({"targets": 1.5}, ConfigError, "must be one of 'unlabeled', 'test' or a sequence"),
        ({"targets": (1.5,)}, ConfigError, "must be one of 'unlabeled', 'test' or a sequence"),
        ({"targets": "tests"}, ConfigError, "did you mean 'test'"),
        ({"encoder_share": 0.9}, ConfigError, "encoder_share"),
        ({"few_labels": True}, ConfigError, "few_labels=True is for edge units"),
        ({"unit": "undirected-edge", "targets": "test"}, ConfigError, "is for unit 'node-record'"),
        ({"unit": "undirected-edge", "read_own_edges": True}, ConfigError, "is for unit 'node-record'"),
        (
            {"unit": "node-bounded-degree", "max_degree": 9},
            NotImplementedGuaranteeError,
            "node-bounded-degree",
        ),
        ({"unit": "undirected-edge", "out_degree_bound": 3}, UnitError, "out_degree_bound"),
        ({"mode": "paper"}, ConfigError, "no paper mode"),
    ],
)
def test_unusable_configurations_are_refused(
    changes: dict[str, object], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(**changes)


def test_predicting_another_graph_is_refused_with_a_way_out(graph: Graph) -> None:
    model = make().fit(graph)
    other = RECIPES["gap"].split(synthetic("tiny", seed=5), seed=0)
    for answer in (model.predict, model.privacy_cost):
        with pytest.raises(NotImplementedGuaranteeError, match="gap"):
            answer(other)


# -- the guarantee, replayed -------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_replay_no_record_pays_more_than_mu(
    recipe: dict[str, object], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run once, keep the transcript, null each record, and recompute the mean of every release given it."""
    graph, mu = _small(seed), 0.9
    model = make(**recipe, encoder_share=0.3)
    whole = _Replayed(graph)
    monkeypatch.setattr(training_steps, "noisy_mean", whole.step)
    plan = _run(whole, model)
    worst = [0.0, 0.0]
    for q in range(graph.num_nodes):
        replay = _Replayed(_without(graph, q), whole)
        monkeypatch.setattr(training_steps, "noisy_mean", replay.step)
        _run(replay, model)
        paid = sum(
            (float((before - after).norm()) / noise) ** 2
            for before, after, noise in zip(whole.means, replay.means, plan, strict=True)
        )
        unlabeled = int(q in members(graph, "test").tolist())
        worst[unlabeled] = max(worst[unlabeled], paid**0.5)
    assert max(worst) <= mu * (1 + 1e-6)
    assert worst[0] > 0.8 * mu
    if not recipe:  # unlabeled: the first message is faint, the others (shares .3 and .3) at full voice
        assert worst[1] > (0.6**0.5 - 1e-3) * mu


def _small(seed: int, num_nodes: int = 11) -> Graph:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(num_nodes, size=(2, 3 * num_nodes))
    x = 3 * rng.normal(size=(num_nodes, 4)).astype(np.float32)
    y = rng.integers(3, size=num_nodes)
    graph = Graph.from_edges(x, y, source, target, directed=True, num_classes=3)
    part = torch.arange(num_nodes) % 11
    return graph.with_split(part < 5, (part >= 5) & (part < 7), part >= 7)


def _without(graph: Graph, q: int) -> Graph:
    x, y = graph.x.clone(), graph.y.clone()  # type: ignore[union-attr]  # dense here
    x[q], y[q] = 0.0, -1
    source, target = graph.adjacency.edge_index()
    kept = source != q
    edges = Adjacency.from_edges(source[kept], target[kept], num_nodes=graph.num_nodes, directed=True)
    return graph.replace(x=x, y=y, adjacency=edges)


class _Replayed:
    """A release that notes the mean of every answer, and answers as another one did."""

    def __init__(self, graph: Graph, given: "_Replayed | None" = None) -> None:
        source, target = graph.adjacency.edge_index()
        lists: dict[int, list[int]] = {u: [] for u in range(graph.num_nodes)}
        for u, v in zip(source.tolist(), target.tolist(), strict=True):
            lists[u].append(v)
        self.graph, self.push_ = graph, ExactPush(lists, graph.num_nodes, noise=0.5, seed=1)
        self.given, self.means, self.answers = given, [], []

    def step(self, gradients: ClippedSum, clip: float, noise: StepNoise, number: int) -> torch.Tensor:
        """Note a gradient sum in clipping norms, and return the mean of the transcript's."""
        gradients.sums.zero_()
        gradients.add(torch.arange(gradients.count), clip)
        return self._answer(gradients.sums / clip, lambda mean: mean) * (clip / gradients.count)

    def answer(self, data: DPSGDData | OutEdgeSumData) -> torch.Tensor:
        if isinstance(data, DPSGDData):
            return SilentRelease().answer(data)
        assert data.levels is not None
        mean = self.push_.mean(data.vectors, data.levels)
        return self._answer(mean, lambda _: self.push_(data.vectors, data.levels))

    def _answer(self, mean: torch.Tensor, draw) -> torch.Tensor:  # type: ignore[no-untyped-def]
        answer = draw(mean) if self.given is None else self.given.answers[len(self.answers)]
        self.means.append(mean.clone())
        self.answers.append(answer)
        return answer.clone()


def _run(release: _Replayed, model: ClassCode) -> list[float]:
    """Fit with this release in place of a real one; return the noise of every answer, in order."""
    from graphveil._util.random import PublicStreams
    from graphveil.estimators.classcode.node_method import fit_node_level_classcode, released_rows
    from graphveil.estimators.classcode.node_plan import NodeLevelReleasePlan
    from graphveil.estimators.session import Session
    from graphveil.privacy import NodeRecord
    from graphveil.release import DPSGDQuery, ReleasePlan

    graph = release.graph
    asked = NodeLevelReleasePlan(
        unit=NodeRecord(),
        features=4,
        classes=graph.num_classes,
        records=7,
        reads_own_edges=model.read_own_edges,
        share=model.encoder_share,
        unlabeled_send=model.unlabeled_send,
    )
    queries = asked.queries(0.9)
    plan = ReleasePlan(asked.unit, queries, 1e-5)
    fit_node_level_classcode(
        graph,
        plan,
        release,
        Session(streams=PublicStreams(0)),
        released_rows(graph, plan, None),
        read_own_edges=model.read_own_edges,
    )  # type: ignore[arg-type]
    noise = list[float]()
    for query in queries:
        noise += [query.noise[0]] * (query.steps if isinstance(query, DPSGDQuery) else 1)
    return noise
