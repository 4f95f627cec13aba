"""The numbers of the catalog of mechanisms are those of the code."""

import pytest

from graphveil.core.accounting.gaussian import calibrate_mu
from graphveil.core.edges.node_pairs import Domain
from graphveil.mechanisms import LabelRR, LocalHashing, SubsetSelection
from graphveil.papers.scalar_mechanisms import scalar
from graphveil.perturb import MECHANISMS


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [(1.0, 1e-5, 0.26805112), (1.0, 1e-7, 0.21373627), (4.0, 1e-7, 0.77050934), (8.0, 1e-5, 1.66603060)],
)
def test_gaussian_parameters(epsilon: float, delta: float, mu: float) -> None:
    assert calibrate_mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("duchi", (16.67079236, 4.68269438, 1.72406166, 1.07602183)),
        ("piecewise", (21.22256859, 5.22359745, 1.22756479, 0.24135389)),
        ("hybrid", (16.67079236, 4.28899249, 1.04233634, 0.21897863)),
        ("three-outputs", (16.67079236, 4.45545172, 0.99991837, 0.31817256)),
    ],
)
def test_largest_variances(name: str, values: tuple[float, ...]) -> None:
    found = [scalar(name, epsilon).worst_variance for epsilon in (0.5, 1.0, 2.0, 4.0)]
    assert found == pytest.approx(values, rel=1e-6)


def test_labels() -> None:
    assert LabelRR(epsilon=1.0, classes=7).keep == pytest.approx(0.3117910022)
    subset, hashing = SubsetSelection(epsilon=1.0, classes=7), LocalHashing(epsilon=1.0, classes=7)
    assert (subset.size, round(subset.information, 4)) == (2, 0.1215)
    assert (hashing.groups, round(hashing.information, 4)) == (3, 0.1206)


@pytest.mark.parametrize(("epsilon", "expected"), [(1.0, 985_745), (4.0, 65_924), (8.0, 1_229)])
def test_expected_edges(epsilon: float, expected: int) -> None:
    cora = Domain.whole(2708, directed=False)
    assert round(MECHANISMS["edge-rand"](epsilon=epsilon, max_edges=10**7).expected_edges(cora)) == expected
