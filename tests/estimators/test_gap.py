"""GAP: plans, releases, options, resumed fits, and the accuracy of the reference."""

from pathlib import Path
from typing import Any

import pytest
import torch

from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.features import plain_unit, shrink_unit
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import ledger_of
from graphveil.data import RECIPES, Graph, load_dataset
from graphveil.errors import ConfigError
from graphveil.estimators.gap import GAP
from graphveil.estimators.saved import load_model
from graphveil.nn.hops import scaled_by_norm
from graphveil.papers import as_published
from graphveil.papers.as_published import renyi
from tests.estimators.interrupted import InterruptedFit, interrupted_at, same

STRICT: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-7, "seed": 0, "epochs": 4}
PAPER: dict[str, Any] = {**STRICT, "unit": "directed-edge"}
BOTH = [pytest.param(GAP, STRICT, id="strict"), pytest.param(as_published.GAP, PAPER, id="paper")]


class TestPlan:
    def test_strict_noise_is_exact_for_an_undirected_edge(self):
        plan = GAP(**STRICT).plan(num_nodes=1000, num_classes=6)
        mu = mu_of(2.0, 1e-7)
        assert plan.noise_std == pytest.approx([2**0.5 * 2**0.5 / mu] * 2, rel=2e-3)
        assert plan.epsilon <= 2.0
        assert [query.sensitivity(plan.unit) for query in plan.queries] == pytest.approx([2**0.5] * 2)

    def test_strict_noise_is_exact_for_a_directed_edge(self):
        plan = GAP(**{**STRICT, "unit": "directed-edge"}).plan(num_nodes=1000, num_classes=6)
        assert plan.noise_std == pytest.approx([2**0.5 / mu_of(2.0, 1e-7)] * 2, rel=2e-3)

    @pytest.mark.parametrize("hops", [1, 3, 5])
    def test_hops_share_the_budget(self, hops):
        plan = GAP(**{**STRICT, "hops": hops}).plan(num_nodes=1000, num_classes=6)
        assert len(plan.queries) == hops
        assert plan.mu == pytest.approx(mu_of(2.0, 1e-7), rel=1e-3)

    def test_paper_noise_follows_the_paper(self):
        """Golden: Renyi, improved conversion, K = 1, delta 1e-7, epsilon 2: sigma 2.5962 at sensitivity 1."""
        plan = as_published.GAP(**{**PAPER, "hops": 1}).plan(num_nodes=1000, num_classes=6)
        assert plan.noise_std == pytest.approx([2.5962], abs=1e-4)
        two = as_published.GAP(**PAPER).plan(num_nodes=1000, num_classes=6)
        assert two.noise_std == pytest.approx([2**0.5 / renyi.mu_of(2.0, 1e-7)] * 2)
        undirected = as_published.GAP(**{**PAPER, "unit": "undirected-edge"}).plan(
            num_nodes=1000, num_classes=6
        )
        assert undirected.noise_std[0] == pytest.approx(2**0.5 * two.noise_std[0])


class TestRelease:
    @pytest.mark.parametrize("kind, parameters", BOTH)
    def test_aggregates_are_the_noisy_hops(self, graph, kind, parameters):
        model = kind(**parameters).fit(graph)
        assert list(model.aggregates_) == ["hop1", "hop2"]
        for rows in model.aggregates_.values():
            assert rows.shape == (graph.num_nodes, 16)
            assert rows.dtype == torch.float32

    def test_fits_draw_different_noise(self, graph):
        first, second = (GAP(**STRICT).fit(graph) for _ in range(2))
        assert not torch.equal(first.aggregates_["hop1"], second.aggregates_["hop1"])
        assert torch.equal(
            first.fitted.trained.state()["encoder._head.weight"],
            second.fitted.trained.state()["encoder._head.weight"],
        )

    def test_the_noise_has_the_planned_size(self, make_graph):
        """Two noise seeds have the same first hop: their difference has variance 2 s^2."""
        one, two = (GAP(**STRICT, unsafe_noise_seed=seed).fit(make_graph(nodes=900)) for seed in (1, 2))
        difference = one.aggregates_["hop1"] - two.aggregates_["hop1"]
        assert float(difference.std()) == pytest.approx(2**0.5 * one.plan_.noise_std[0], rel=0.03)

    def test_unit_none_stores_no_aggregates(self, graph):
        model = GAP(unit="none", seed=0, epochs=2, hops=1).fit(graph)
        assert model.aggregates_ == {}
        assert ledger_of(graph.edge_set).entries == ()

    def test_a_hop_sends_shrunken_aggregates(self, graph, queries):
        model = GAP(**STRICT).fit(graph)
        sent = [vectors for vectors, _ in queries]
        assert all(bool((vectors.norm(dim=1) <= 1).all()) for vectors in sent)
        std = model.plan_.noise_std[0]
        torch.testing.assert_close(sent[1], shrink_unit(model.aggregates_["hop1"], std))

    def test_a_hop_sends_normalized_aggregates_as_published(self, graph, queries):
        model = as_published.GAP(**PAPER).fit(graph)
        torch.testing.assert_close(queries[1][0], plain_unit(model.aggregates_["hop1"]))


class TestViews:
    def test_scaling_by_the_norm_is_a_logarithm_of_signal_to_noise(self):
        rows = scaled_by_norm(torch.tensor([[8.0, 0.0], [0.0, 0.5], [0.0, 0.0]]), 1.0)
        assert rows.norm(dim=1).tolist() == pytest.approx([2.197225, 0.405465, 0.0], abs=1e-5)

    @pytest.mark.parametrize("unit", ["none", "undirected-edge"])
    def test_learns_from_neighbors(self, graph, unit):
        budget = {} if unit == "none" else {"epsilon": 50.0, "unsafe_noise_seed": 0}
        model = GAP(unit=unit, seed=0, epochs=100, **budget).fit(graph)
        assert model.score(graph) > 0.85


class TestOptions:
    @pytest.mark.parametrize(
        "options",
        [
            {"hops": 1, "encoder_layers": 1},
            {"hops": 3, "base_layers": 2, "head_layers": 2},
            {"batch_norm": False, "activation": "tanh"},
            {"dropout": 0.3, "batch_size": 20},
            {"encoder_epochs": 1, "patience": 2},
            {"use_encoder": False},
        ],
    )
    def test_options_train_and_are_saved(self, graph, make_graph, tmp_path, options):
        model = GAP(**{**STRICT, **options, "unsafe_noise_seed": 1}).fit(graph)
        assert model.predict_proba().isfinite().all()
        model.save(tmp_path / "model")
        again, other = load_model(tmp_path / "model"), make_graph(seed=1)
        torch.testing.assert_close(again.predict_proba(other, allow_spend=True), model.predict_proba(other))

    def test_aggregates_features_without_an_encoder(self, graph):
        model = GAP(**STRICT, use_encoder=False).fit(graph)
        assert model.aggregates_["hop1"].shape == (graph.num_nodes, graph.num_features)
        assert not any(name.startswith("encoder") for name in model.fitted.trained.state())
        assert {stage for stage, _ in model.history_} == {"classifier"}

    def test_encoder_epochs_default_to_epochs(self, graph):
        for given, expected in ((None, 4), (2, 2)):
            model = GAP(**STRICT, encoder_epochs=given).fit(graph)
            assert len([row for stage, row in model.history_ if stage == "encoder"]) == expected

    @pytest.mark.parametrize("name", ["hops", "hidden", "encoder_layers", "base_layers", "head_layers"])
    def test_rejects_counts_outside_their_range(self, name):
        with pytest.raises(ConfigError, match=f"{name}=0 must be a whole number of at least 1"):
            GAP(**{**STRICT, name: 0})
        with pytest.raises(ConfigError, match=f"{name}=1000000000000 must be at most "):
            GAP(**{**STRICT, name: 10**12})

    def test_rejects_an_unknown_activation(self):
        with pytest.raises(ConfigError, match=r"activation='selo' is not one of .*; did you mean 'selu'"):
            GAP(**STRICT, activation="selo")


class TestResume:
    @pytest.mark.parametrize("kind, parameters", BOTH)
    @pytest.mark.parametrize(
        ("stage", "done"),
        [
            ("encoder", 0),
            ("encoder", 13),
            ("encoder", 1),
            ("aggregate", 0),
            ("aggregate", 1),
            ("classifier", 12),
        ],
    )
    def test_a_resumed_fit_is_bit_identical_and_charges_nothing(
        self, make_graph, tmp_path, stage, done, kind, parameters
    ):
        options = {**parameters, "epochs": 25, "dropout": 0.1, "unsafe_noise_seed": 4}
        whole = kind(**options).fit(make_graph(), workspace=tmp_path / "whole")
        graph = make_graph()
        with pytest.raises(InterruptedFit):
            kind(**options).fit(graph, workspace=tmp_path / "run", on_progress=interrupted_at(stage, done))
        assert len(ledger_of(graph.edge_set).entries) == 1
        resumed = kind(**options).fit(graph, workspace=tmp_path / "run")
        assert same(whole, resumed)
        assert resumed.history_ == whole.history_
        assert len(ledger_of(graph.edge_set).entries) == 1

    def test_a_fit_without_seeds_can_be_resumed(self, graph, tmp_path):
        with pytest.raises(InterruptedFit):
            GAP(**STRICT).fit(graph, workspace=tmp_path, on_progress=interrupted_at("aggregate", 1))
        first = GAP(**STRICT).fit(graph, workspace=tmp_path)
        again = GAP(**STRICT).fit(graph, workspace=tmp_path)
        assert same(first, again)
        assert len(ledger_of(graph.edge_set).entries) == 1

    def test_a_finished_workspace_contains_no_noise_key_and_no_exact_sum(self, graph, tmp_path, monkeypatch):
        drawn, fresh = list[ReleaseKey](), ReleaseKey.fresh
        monkeypatch.setattr(ReleaseKey, "fresh", lambda: (drawn.append(fresh()), drawn[-1])[1])
        model = GAP(**STRICT).fit(graph, workspace=tmp_path)
        from safetensors.torch import load_file

        kept = {path.name: load_file(path) for path in tmp_path.rglob("*.safetensors")}
        aggregates = [
            tensors["answer"] for name, tensors in sorted(kept.items()) if name.startswith("answer")
        ]
        assert [torch.equal(a, b) for a, b in zip(aggregates, model.aggregates_.values(), strict=True)] == [
            True
        ] * 2
        left = [path.read_bytes() for path in Path(tmp_path).rglob("*") if path.is_file()]
        (key,) = drawn
        assert key.master
        assert not any(key.master in content or key.master.hex().encode() in content for content in left)


class TestAnotherGraph:
    def test_delta_of_another_graph_does_not_change_the_charge(self, graph, make_graph):
        model = GAP(**{**STRICT, "delta": "auto"}).fit(graph)
        other = make_graph(seed=1, nodes=90)
        model.predict(other)
        (entry,) = ledger_of(other.edge_set).entries
        assert entry.event == model.guarantee.event

    def test_unit_none_predicts_other_graphs_without_a_charge(self, graph, make_graph):
        model, other = GAP(unit="none", seed=0, epochs=3).fit(graph), make_graph(seed=1)
        assert torch.equal(model.predict_proba(other), model.predict_proba(other))
        assert ledger_of(other.edge_set).entries == ()


def accuracy(data_root: Path, kind: type[GAP], **parameters: Any) -> float:
    """Return the mean test accuracy of three splits of Berkeley13, in percent."""
    scores = []
    prepared = RECIPES["gap"].prepare(
        load_dataset("facebook100/Berkeley13", data_root, recipe=None), paper=kind.as_published
    )
    for seed in range(3):
        graph: Graph = RECIPES["gap"].split(prepared, seed=seed)
        scores.append(kind(seed=seed, **parameters).fit(graph).score(graph))
    return 100 * sum(scores) / 3


@pytest.mark.slow
class TestReference:
    """The authors' public code on Berkeley13, measured once: mean of three splits, delta 1e-7."""

    @pytest.mark.parametrize(("epsilon", "reference"), [(1.0, 64.5), (2.0, 70.3), (4.0, 73.2), (8.0, 74.7)])
    def test_paper_mode(self, data_root, epsilon, reference):
        found = accuracy(data_root, as_published.GAP, unit="directed-edge", epsilon=epsilon, delta=1e-7)
        assert found == pytest.approx(reference, abs=1.5)

    def test_without_privacy(self, data_root):
        assert accuracy(data_root, GAP, unit="none", hops=4) == pytest.approx(77.2, abs=1.5)

    @pytest.mark.parametrize(("epsilon", "lower_bound"), [(0.5, 55.6), (1.0, 60.2), (2.0, 66.0), (4.0, 70.3)])
    def test_strict_mode(self, data_root, epsilon, lower_bound):
        found = accuracy(data_root, GAP, unit="undirected-edge", epsilon=epsilon, delta=1e-7)
        assert lower_bound - 0.5 < found < 80
