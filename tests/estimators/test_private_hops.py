"""``private_hops``: cost, sensitivity, folder, and errors before a charge."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn import draw_otherwise
from torch import Tensor

import graphveil as gv
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.ledger import MemoryLedger, attach_ledger, ledger_of
from graphveil.data import Graph, synthetic
from graphveil.errors import ArtifactError, BudgetError, ConfigError, GraphError, UnitError
from graphveil.estimators.private_hops import ReleasedRows, private_hops


@pytest.fixture
def graph() -> Graph:
    return synthetic("tiny")


def small(*, directed: bool = False, also: tuple[tuple[int, int], ...] = ()) -> Graph:
    """A graph of five nodes with codes as features, and more edges if they are given."""
    pairs = [(0, 1), (1, 2), (2, 3), *also]
    x = torch.nn.functional.normalize(torch.tensor([[1.0, 2], [2, 1], [-1, 1], [1, 0], [0, 1]]), dim=1)
    sources, targets = ([pair[end] for pair in pairs] for end in (0, 1))
    return Graph.from_edges(x, [0, 1, 0, 1, 0], sources, targets, directed=directed)


def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let noise be zero, so that rows are the exact sums."""
    draw_otherwise(monkeypatch, lambda self, stream, rows, count: torch.zeros(len(rows), count).numpy())


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize(
    ("unit", "directed", "moved"), [("undirected-edge", False, math.sqrt(2)), ("directed-edge", True, 1.0)]
)
def test_charges_k_gaussians(hops: int, unit: str, directed: bool, moved: float) -> None:
    graph = small(directed=directed)
    result = private_hops(graph, unit=unit, epsilon=2.0, delta=1e-6, hops=hops)
    (entry,) = ledger_of(graph.edge_set).entries
    assert entry.label == "hops" and entry.event == result.guarantee.event
    assert result.guarantee.valid and result.guarantee.epsilon <= 2.0
    assert result.guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
    mu = math.sqrt(hops) * moved / result.noise[0]  # by hand, from the noise that was drawn
    assert epsilon_of(mu, 1e-6) == pytest.approx(2.0, rel=2e-3)
    assert len(result.hops) == len(result.noise) == len(entry.event.events) == hops
    assert result.guarantee.releases == 1


@pytest.mark.parametrize(
    ("unit", "directed", "bound"), [("undirected-edge", False, math.sqrt(2)), ("directed-edge", True, 1.0)]
)
def test_an_edge_changes_a_hop_by_at_most_the_sensitivity(
    monkeypatch: pytest.MonkeyPatch, unit: str, directed: bool, bound: float
) -> None:
    silent(monkeypatch)

    def exact(graph: Graph) -> Tensor:
        return private_hops(graph, unit=unit, epsilon=1.0, delta=1e-6, unsafe_noise_seed=0).rows.double()

    before, reached = exact(small(directed=directed)), 0.0
    for u, v in [(0, 4), (4, 0), (1, 3), (3, 4)]:
        if directed or u < v:
            moved = float((exact(small(directed=directed, also=((u, v),))) - before).norm())
            assert moved <= bound
            reached = max(reached, moved)
    assert reached > 0.99 * bound  # the price is attained: half of it would be too little


def test_normalize_false_keeps_short_vectors_and_rejects_long_ones(graph: Graph) -> None:
    half = torch.full((graph.num_nodes, 4), 0.25)
    result = private_hops(graph, half, unit="undirected-edge", epsilon=1.0, normalize=False)
    assert torch.equal(result.sent, half.double())
    before = ledger_of(graph.edge_set).entries
    for bad, why in [
        (8 * half, "a norm above 1"),
        (half[1:], "one row"),
        (half * float("nan"), "x has NaN or"),
    ]:
        with pytest.raises(GraphError, match=why):
            private_hops(graph, bad, unit="undirected-edge", epsilon=1.0, normalize=False)
    assert ledger_of(graph.edge_set).entries == before


@pytest.mark.parametrize(
    "unit", ["node-record", "node-bounded-degree", "local-attributes", "none", "directed-edge"]
)
def test_rejects_units_without_a_bound_before_a_charge(graph: Graph, unit: str) -> None:
    with pytest.raises((UnitError, ConfigError)):
        private_hops(graph, unit=unit, epsilon=1.0)
    assert ledger_of(graph.edge_set).entries == ()


@pytest.mark.parametrize(
    "changes",
    [{"hops": 0}, {"hops": 101}, {"hops": 10**12}, {"hops": 1.5}, {"epsilon": math.nan}, {"max_units": "9"}],
)
def test_rejects_parameters_outside_their_range_before_a_charge(
    graph: Graph, changes: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(changes))}="):
        private_hops(graph, **{"unit": "undirected-edge", "epsilon": 1.0, **changes})
    assert ledger_of(graph.edge_set).entries == ()


def test_numpy_numbers_become_python_numbers(graph: Graph) -> None:
    given: dict[str, Any] = {"epsilon": np.float32(1), "delta": np.float32(2**-20), "hops": np.int64(2)}
    result = private_hops(graph, unit="undirected-edge", **given)
    assert len(result.hops) == 2 and (result.guarantee.delta, type(result.guarantee.delta)) == (
        2**-20,
        float,
    )


def test_rejects_a_release_above_the_limit(graph: Graph) -> None:
    attach_ledger(graph.edge_set, MemoryLedger(epsilon=1.0, delta=1e-6))
    private_hops(graph, unit="undirected-edge", epsilon=0.9, delta=1e-6)
    with pytest.raises(BudgetError):
        private_hops(graph, unit="undirected-edge", epsilon=0.9, delta=1e-6)


def test_a_noise_seed_reproduces_noise_and_invalidates_the_guarantee(graph: Graph) -> None:
    def rows(seed: int | None) -> ReleasedRows:
        return private_hops(graph, unit="undirected-edge", epsilon=1.0, unsafe_noise_seed=seed)

    assert torch.equal(rows(3).rows, rows(3).rows) and not rows(3).guarantee.valid
    assert not torch.equal(rows(None).rows, rows(None).rows)
    assert rows(3).formal_statement().startswith("No valid guarantee")


def test_load_computes_the_guarantee_again(graph: Graph, tmp_path: Path) -> None:
    result = private_hops(graph, unit="undirected-edge", epsilon=1.0, delta=1e-6, hops=2)
    back = ReleasedRows.load(result.save(tmp_path / "rows"))
    assert back.guarantee == result.guarantee and back.formal_statement() == result.formal_statement()
    assert all(
        torch.equal(a, b) for a, b in zip((*back.hops, back.sent), (*result.hops, result.sent), strict=True)
    )
    assert result.formal_statement() in (tmp_path / "rows" / "RELEASED.md").read_text()
    assert "epsilon=1" in repr(back)
    with pytest.raises(ConfigError, match="exists"):
        result.save(tmp_path / "rows")
    path = tmp_path / "rows" / "guarantee.json"
    record = json.loads(path.read_text())
    record["guarantee"]["epsilon"] = 0.1
    path.write_text(json.dumps(record))
    assert (
        ReleasedRows.load(tmp_path / "rows").guarantee.epsilon == result.guarantee.epsilon
    )  # accounted again
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ArtifactError, match="damaged"):
        ReleasedRows.load(tmp_path / "rows")
    with pytest.raises(ArtifactError, match="contains no released aggregates"):
        ReleasedRows.load(tmp_path)


def test_a_custom_model_learns_from_the_aggregates() -> None:
    graph = gv.data.RECIPES["gap"].split(synthetic("demo"), seed=0)
    codes = torch.nn.functional.one_hot(graph.y, graph.num_classes).double()
    codes[~(graph.labeled_in("train", "val"))] = 0  # only public labels are sent
    result = private_hops(graph, codes, unit="undirected-edge", epsilon=4.0, delta=1e-6)
    test = graph.labeled_in("test")
    right = (result.rows.argmax(dim=1) == graph.y)[test].float().mean()
    assert right > 1.5 / graph.num_classes
