"""LPGNet: counts by predicted class, their noise and their cost."""

from pathlib import Path

import pytest
import torch

import graphveil as gv
from graphveil.core.queries.edge_counts import NeighborCountQuery
from graphveil.data import Graph, synthetic
from graphveil.data.recipes import RECIPES
from graphveil.errors import ArtifactError, ConfigError, UnitError
from graphveil.papers.lpgnet import LPGNet

EDGES = {"unit": "undirected-edge", "epsilon": 4.0, "seed": 0}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return RECIPES["gap"].split(gv.load_dataset("synthetic/tiny"), seed=0)


def test_an_undirected_edge_is_charged_at_both_ends_and_a_directed_edge_at_one(graph: Graph) -> None:
    for unit, share in (("undirected-edge", 4 / 6), ("directed-edge", 4 / 3)):
        plan = (
            LPGNet(unit=unit, epsilon=4.0, stacks=3)
            ._build_method()
            .plan(gv.estimators.public_sizes.PublicSizes.from_graph(graph))
        )
        assert [type(query) for query in plan.queries] == [NeighborCountQuery] * 3
        assert all(query.epsilon == pytest.approx(share) for query in plan.queries)
        assert 3.99 < plan.epsilon <= 4.0


def test_counts_improve_on_features_and_are_released(graph: Graph) -> None:
    model = LPGNet(**EDGES | {"epsilon": 16.0}, unsafe_noise_seed=0).fit(graph)
    baseline = gv.MLP(unit="undirected-edge", seed=0, tuned=False).fit(graph)
    assert model.score(graph) >= baseline.score(graph)
    assert len(model.fitted.released) == 2


def test_a_saved_model_predicts_the_same_and_rejects_other_sizes(graph: Graph, tmp_path: Path) -> None:
    model = LPGNet(**EDGES, epochs=3).fit(graph)
    model.save(tmp_path / "release")
    loaded = gv.load_model(tmp_path / "release")
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    method = LPGNet(**EDGES, stacks=1)._build_method()
    sizes = method.sizes_of(graph)
    with pytest.raises(ArtifactError, match="1 stacks"):
        method.restore({}, sizes, {})


def test_another_graph_is_a_release_of_its_own(graph: Graph) -> None:
    model = LPGNet(**EDGES, epochs=3).fit(graph)
    other = RECIPES["gap"].split(synthetic("tiny", seed=1), seed=0)
    proba = model.predict_proba(other, allow_spend=True)
    assert proba.shape == (other.num_nodes, other.num_classes)
    assert model.guarantee_with_predictions.releases == 2


def test_rejects_units_without_a_bound_and_wrong_parameters() -> None:
    with pytest.raises(UnitError, match="is unbounded under unit 'none'"):
        LPGNet(unit="none")
    with pytest.raises(UnitError, match="'lpgnn' or 'simgat'"):
        LPGNet(unit="local-attributes")
    with pytest.raises(ConfigError, match="stacks"):
        LPGNet(unit="undirected-edge", epsilon=1.0, stacks=9)
