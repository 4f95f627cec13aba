"""Attacks on link predictors: released products reveal an edge up to the bound; with less noise, more."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr

import graphveil as gv
from graphveil.attacks import (
    LinkSettings,
    Pairs,
    SecretEdges,
    attack_links,
    draw_pairs,
    product_scores,
    roc_auc,
    theoretical_bound_of,
)
from graphveil.attacks.linkteller import BY_PRODUCTS, BY_SCORE, LINKTELLER
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.queries.pair_sums import EdgeProductQuery
from graphveil.data import Graph
from graphveil.errors import ConfigError

FITS = 12
EDGE = {"epsilon": 8.0, "delta": 1e-6, "dim": 12, "seed": 1}


def random_graph(*, directed: bool) -> Graph:
    """Return a graph whose features say nothing about its edges."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(60, 12)).astype(np.float32))
    ends = rng.integers(60, size=(2, 500))
    ends = ends[:, ends[0] != ends[1]]
    y = torch.from_numpy(rng.integers(2, size=60))
    return Graph.from_edges(x, y, *ends, directed=directed, num_classes=2)


class HalfTheNoise(gv.LinkPredictor):
    """A broken mechanism: products have half of the noise that is charged."""

    def prepare(self, graph: Any) -> Any:
        ready = super().prepare(graph)
        plan = ready.plan
        broken = replace(plan, queries=tuple(map(_with_half_the_noise, plan.queries)))
        return replace(ready, plan=broken)


def _with_half_the_noise(query: Any) -> Any:
    return replace(query, sigma=(query.sigma[0] / 2,)) if isinstance(query, EdgeProductQuery) else query


def fitted(cls: type[gv.LinkPredictor], graph: Graph, number: int, **keywords: Any) -> gv.LinkPredictor:
    unit = "directed-edge" if graph.directed else "undirected-edge"
    return cls(**{**EDGE, "unit": unit, "unsafe_noise_seed": number, **keywords}).fit(graph)


def charged_mu(graph: Graph) -> float:
    """Return the privacy cost of the products that a fit is charged."""
    model = fitted(gv.LinkPredictor, graph, 0)
    query = next(one for one in model.plan_.queries if isinstance(one, EdgeProductQuery))
    return total_mu(query.event(model.plan_.unit))


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_products_reveal_an_edge_up_to_the_bound_and_a_broken_mechanism_more(directed: bool) -> None:
    graph = random_graph(directed=directed)
    pairs = draw_pairs(SecretEdges.from_adjacency(graph.adjacency), count=60)
    bound = ndtr(charged_mu(graph) / 2**0.5)  # of the area under a ROC curve, for products alone
    areas = {
        cls: np.array(
            [
                roc_auc(product_scores(fitted(cls, graph, number, held_out=0.0), graph, pairs), pairs.joined)
                for number in range(FITS)
            ]
        )
        for cls in (gv.LinkPredictor, HalfTheNoise)
    }
    error = {cls: 4 * found.std() / FITS**0.5 for cls, found in areas.items()}
    valid, broken = areas[gv.LinkPredictor], areas[HalfTheNoise]
    assert 0.5 + 0.5 * (bound - 0.5) < valid.mean() < bound + error[gv.LinkPredictor]
    assert broken.mean() - error[HalfTheNoise] > bound


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_scores_are_the_most_powerful_test_of_each_pair(directed: bool) -> None:
    graph = random_graph(directed=directed)
    model = fitted(gv.LinkPredictor, graph, 3, held_out=0.3)
    query = model.plan_.queries[1]
    assert isinstance(query, EdgeProductQuery)
    vectors, released = model.products_
    x = np.trunc(vectors * 512) / 512
    edges = [tuple(pair) for pair in graph.adjacency.edge_index().numpy().T.tolist()]
    fitted_edges = {pair for pair in edges if not model.is_held_out([[pair[0]], [pair[1]]])[0]}
    nodes = np.arange(12)
    one, other = np.triu_indices(12, 1)
    ends = list(zip(one.tolist(), other.tolist(), strict=True))
    joined = np.array([pair in edges or pair[::-1] in edges for pair in ends])
    found = product_scores(model, graph, Pairs(nodes, one, other, joined))
    for pair, score in zip(ends, found, strict=True):
        edge = pair if pair in fitted_edges or pair[::-1] not in fitted_edges else pair[::-1]
        known = {(a, b) for a, b in fitted_edges if {a, b} != {*edge} or (directed and (a, b) != edge)}
        rest = released - sum(np.outer(x[a], x[b]) for a, b in known) / (1 if directed else 2)
        change = np.outer(x[edge[0]], x[edge[1]])
        change = change if directed else (change + change.T) / 2
        size = np.linalg.norm(change)
        assert score == pytest.approx((rest * change).sum() / size / query.sigma[0], abs=1e-6)


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_a_report_has_the_bound_next_to_each_attacker(directed: bool) -> None:
    graph = random_graph(directed=directed)
    model = fitted(gv.LinkPredictor, graph, 0, epsilon=1.0, unsafe_noise_seed=None)
    report = attack_links(model, graph, LinkSettings(nodes=60, supervised=True))
    assert report.theoretical_bound == theoretical_bound_of(model.guarantee, "edge")
    assert report.theoretical_bound["valid"] and report.edge_source == "released sums"
    assert report[LINKTELLER].roc.auc == 0.5 and report[LINKTELLER].note
    assert {BY_PRODUCTS, BY_SCORE} <= set(report.attackers) and len(report.attackers) == 7
    with pytest.raises(ConfigError, match="training graph"):
        attack_links(model, gv.load_dataset("synthetic/tiny"))


def test_a_loaded_model_has_the_released_products(tmp_path: Any) -> None:
    graph = random_graph(directed=False)
    model = fitted(gv.LinkPredictor, graph, 0)
    back = gv.LinkPredictor.load(model.save(tmp_path / "links"))
    assert all(np.array_equal(*tables) for tables in zip(model.products_, back.products_, strict=True))
