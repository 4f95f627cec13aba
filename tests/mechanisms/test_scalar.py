"""Mechanisms for one number: golden values, tight and unbiased laws, and samplers that follow them."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from graphveil.core.noise.sampling import ExtraWords
from graphveil.errors import ConfigError
from graphveil.mechanisms import Duchi, Hybrid, Laplace, Piecewise, PMSub, ScalarMechanism, ThreeOutputs
from graphveil.papers.scalar_mechanisms import (
    CELLS,
    SCALARS,
    SWITCH,
    Digits,
    LaplaceDistribution,
    StepDistribution,
    WindowGrid,
    scalar,
)

from .fits import fits, p_value, stream

EPSILONS = [0.01, 0.1, 0.5, 0.69, 0.7, 1.0, 1.71, 2.0, 4.0, 8.0, 15.0]
GRID = np.linspace(-1, 1, 13)
EDGES = np.array([0.0, 0.5, 1.0])

# local_and_topology.md, 15.1: eps, Duchi C and V(0), PM C and V(0), V(.5), V(1), HM V(0).
GOLDEN = """
0.5 4.08298817 16.67079236 8.04162333 17.70175692 18.58195984 21.22256859 16.67079236
1 2.16395341 4.68269438 4.08298817 3.68210337 4.06747689 5.22359745 4.28899249
2 1.31303529 1.72406166 2.16395341 0.64558809 0.79108226 1.22756479 1.04233634
4 1.03731472 1.07602183 1.31303529 0.08483624 0.12396565 0.24135389 0.21897863
8 1.00067115 1.00134275 1.03731472 0.00668325 0.01134759 0.02534061 0.02490107
"""
# eps, Three-Outputs a, C, V(0), V(.5), V(1), worst.
GOLDEN_THREE = """
0.5 0 4.08298817 16.67079236 16.42079236 15.67079236 16.67079236
1 0.28607690 2.41847846 4.17576341 4.45461907 4.23347472 4.45545172
2 0.78698604 1.46955293 0.46002192 0.94479838 0.92957485 0.99991837
4 0.96466316 1.05597208 0.03940330 0.31738934 0.09537538 0.31817256
8 0.99932952 1.00100673 0.00067183 0.25117519 0.00167855 0.25117544
"""
# eps, PM-SUB A, V(0), V(.5), V(1).
GOLDEN_SUB = """
0.5 8.05537655 17.71363079 18.55426933 21.07618496
1 4.10970318 3.68814817 4.03669582 5.08233880
2 2.21166598 0.64316895 0.75851204 1.10454133
4 1.37660971 0.07709069 0.09944999 0.16652788
8 1.07500749 0.00359709 0.00488838 0.00876223
"""


def lines(table: str) -> list[list[float]]:
    return [[float(word) for word in line.split()] for line in table.strip().splitlines()]


def golden(*values: float):
    return pytest.approx(list(values), rel=1e-7, abs=6e-9)  # printed to 8 decimals


def draw(law: ScalarMechanism, x: float, count: int, seed: int = 1) -> np.ndarray:
    draws, rows = stream(seed), np.arange(count // 100)
    words = draws.words(rows, words_per_row=100 * law.words).reshape(len(rows), 100, law.words)
    return law.draw(np.full((len(rows), 100), x), words, ExtraWords(draws, rows, 100)).reshape(-1)


@pytest.mark.parametrize("row", lines(GOLDEN), ids=lambda row: f"eps={row[0]}")
def test_golden_values(row: list[float]) -> None:
    epsilon, *wanted = row
    one, piecewise, hybrid = Duchi(epsilon), Piecewise(epsilon), Hybrid(epsilon)
    found = [one.bound, one.variance(EDGES)[0], piecewise.bound, *piecewise.variance(EDGES)]
    assert [*found, hybrid.variance(EDGES)[0]] == golden(*wanted)


@pytest.mark.parametrize("row", lines(GOLDEN_THREE), ids=lambda row: f"eps={row[0]}")
def test_golden_values_of_three_outputs(row: list[float]) -> None:
    three = ThreeOutputs(row[0])
    assert [three.zero, three.bound, *three.variance(EDGES), three.worst_variance] == golden(*row[1:])


@pytest.mark.parametrize("row", lines(GOLDEN_SUB), ids=lambda row: f"eps={row[0]}")
def test_golden_values_of_pm_sub(row: list[float]) -> None:
    sub = PMSub(row[0])
    assert [sub.bound, *sub.variance(EDGES)] == golden(*row[1:])


def test_golden_crossovers() -> None:
    assert pytest.approx(0.6093524930, abs=1e-10) == SWITCH
    for first, second, at in ((Piecewise, Duchi, 1.28978468), (PMSub, ThreeOutputs, 2.56108931)):
        assert first(at - 1e-6).worst_variance > second(at - 1e-6).worst_variance
        assert first(at + 1e-6).worst_variance < second(at + 1e-6).worst_variance


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0])
def test_no_other_probability_of_zero_is_better(epsilon: float) -> None:
    e, a = math.exp(epsilon), np.linspace(0, 1, 20_001) * math.exp(epsilon) / (math.exp(epsilon) + 2)
    c, b = e * (e + 1) / ((e - 1) * (e - a)), a * (e - 1) / e
    x = np.minimum(1, c**2 * b / 2)
    best = (c**2 * (1 - a + b * x) - x**2).min()
    assert ThreeOutputs(epsilon).worst_variance <= best * (1 + 1e-12)
    assert ThreeOutputs(epsilon).worst_variance == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("name", SCALARS)
def test_the_largest_log_ratio_is_the_budget(name: str) -> None:
    for epsilon in EPSILONS:
        laws = [scalar(name, epsilon).distribution(x) for x in GRID]
        worst = max(one.log_ratio(other) for one in laws for other in laws)
        assert worst == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("name", SCALARS)
def test_mean_and_variance_are_those_of_the_law(name: str) -> None:
    for mechanism in (scalar(name, epsilon) for epsilon in EPSILONS):
        variances = mechanism.variance(GRID)
        for x, variance in zip(GRID, variances, strict=True):
            law = mechanism.distribution(x)
            assert law.mean == pytest.approx(x, abs=1e-9 * math.sqrt(variance))
            assert law.variance == pytest.approx(variance, rel=1e-7)
            assert not isinstance(law, StepDistribution) or law.total == pytest.approx(1, abs=1e-9)
        assert mechanism.worst_variance >= variances.max() * (1 - 1e-12)


def boundaries(law: StepDistribution | LaplaceDistribution, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut the line around every atom, and the rest into cells of equal mass; return edges and masses."""
    if isinstance(law, LaplaceDistribution):
        quantiles = stats.laplace.ppf(np.arange(1, cells) / cells, law.center, law.scale)
        return np.concatenate([[-np.inf], quantiles, [np.inf]]), np.full(cells, 1 / cells)
    cuts = np.concatenate(
        [[-np.inf], *([atom - 1e-6, atom + 1e-6] for atom in np.unique(law.atoms)), [np.inf]]
    )
    if law.edges.size:
        mass = np.concatenate([[0], np.cumsum(law.densities * np.diff(law.edges))])
        inner = np.interp(mass[-1] * np.arange(1, cells) / cells, mass, law.edges)
        cuts = np.sort(np.concatenate([cuts, inner, law.edges[1:-1]]))
    return cuts, np.array([_mass(law, low, high) for low, high in pairwise(cuts)])


def _mass(law: StepDistribution, low: float, high: float) -> float:
    atoms = law.masses[(law.atoms > low) & (law.atoms <= high)].sum()
    lengths = np.clip(law.edges, low, high)
    return float(atoms + (law.densities * np.diff(lengths)).sum())


CASES = [(name, epsilon, x) for name in SCALARS for epsilon, x in ((0.5, 0.3), (2.0, -1.0), (2.0, 0.4))]


@pytest.mark.parametrize(("name", "epsilon", "x"), CASES)
def test_samples_follow_the_law(name: str, epsilon: float, x: float) -> None:
    mechanism = scalar(name, epsilon)
    edges, masses = boundaries(mechanism.distribution(x), 5)
    counts = np.histogram(draw(mechanism, x, 600_000), edges)[0]
    slivers = masses < 1e-5  # of a density around an atom
    fits(
        np.append(counts[~slivers], counts[slivers].sum()), np.append(masses[~slivers], masses[slivers].sum())
    )


# -- what is drawn, as whole numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 2.0, 8.0, 30.0, 70.0, 1000.0])
@pytest.mark.parametrize("root", [2.0, 3.0])
def test_no_cell_is_likelier_than_the_budget_allows(epsilon: float, root: float) -> None:
    grid = WindowGrid.from_epsilon(epsilon, math.exp(epsilon / root))
    outside, total = CELLS - grid.window, Fraction(1, 1 << 64)
    most = grid.inside * total * -(-(1 << 64) // grid.window) * total
    least = (1 - grid.inside * total) * ((1 << 64) // outside) * total
    with localcontext(prec=60):
        ratio = Decimal(most.numerator) * least.denominator / (Decimal(most.denominator) * least.numerator)
        assert ratio <= Decimal(epsilon).exp()
        assert epsilon > 30 or float(ratio.ln()) == pytest.approx(epsilon, abs=1e-8)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0, 20.0])
@pytest.mark.parametrize("mechanism", [Piecewise, PMSub])
def test_the_grid_is_unbiased_and_has_the_variance(mechanism: type[Piecewise], epsilon: float) -> None:
    grid = mechanism(epsilon).grid
    n, w, inside = CELLS, grid.window, Fraction(grid.inside, 1 << 64)
    for x in (Fraction(-1), Fraction(-1, 4), Fraction(0), Fraction(1)):
        start = Fraction(round((x + 1) * (n - w) / 2))  # a place of the window,
        x = 2 * start / (n - w) - 1  # and the x whose place it is
        window, everything = cells(start, start + w), cells(Fraction(0), Fraction(n))
        moments = [
            inside * a / w + (1 - inside) * (b - a) / (n - w) for a, b in zip(window, everything, strict=True)
        ]
        scale = Fraction(2 * grid.bound) / n
        mean = scale * moments[0] - Fraction(grid.bound)
        variance = scale**2 * (moments[1] - moments[0] ** 2)
        assert float(mean) == pytest.approx(float(x), abs=1e-12)
        assert float(variance) == pytest.approx(
            mechanism(epsilon).variance(np.array([float(x)]))[0], rel=1e-4
        )


def cells(first: Fraction, end: Fraction) -> tuple[Fraction, Fraction]:
    """The sums of (c + 1/2) and (c + 1/2)^2 over the cells from first to end."""
    return (end**2 - first**2) / 2, (end**3 - first**3) / 3 - (end - first) / 12


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.5, 1.0, 8.0, 100.0, 1000.0])
def test_the_digits_of_laplace_noise_keep_the_budget(epsilon: float) -> None:
    digits = Laplace(epsilon).digits
    with localcontext(prec=60):
        total = Decimal(1 << 64)
        odds = [(Decimal(one) / (total - one)).ln() for one in digits.ones]
        whole = (Decimal(digits.top) / total).ln()
        # A reference slope: what R steps cost by it, and all that digits and wholes can be off it.
        slope = -whole / (1 << len(digits.ones))
        off = sum(abs(odd + slope * (1 << k)) for k, odd in enumerate(odds))
        assert slope * digits.steps + off <= Decimal(epsilon)
        assert float(slope * digits.steps) == pytest.approx(epsilon, rel=1e-6)


def test_digits_make_a_geometric_variable() -> None:
    # Two digits and wholes of four: P(g) proportional to 2^-g, by counts that are exact.
    digits = Digits(4, ((1 << 64) // 3, (1 << 64) // 5), (1 << 64) // 16)
    rows, draws = np.arange(1_000_000), stream()
    words = draws.words(rows, words_per_row=3).reshape(-1, 1, 3)
    drawn = digits.draw(words, ExtraWords(draws, rows, 1)).reshape(-1)
    counts = np.bincount(np.minimum(drawn, 3), minlength=4)
    fits(counts, np.array([0.5, 0.25, 0.125, 0.125]))
    far = np.bincount(drawn, minlength=13)[4:13]
    assert p_value(far, 2.0 ** -np.arange(4, 13)) > 1e-4


def test_laplace_noise_has_its_variance() -> None:
    for epsilon in (0.01, 1.0, 30.0):
        samples = draw(Laplace(epsilon), 0.2, 400_000)
        wanted = float(Laplace(epsilon).variance(np.zeros(1))[0])
        assert samples.mean() == pytest.approx(0.2, abs=5 * math.sqrt(wanted / samples.size))
        assert samples.var() == pytest.approx(wanted, rel=5 * math.sqrt(5 / samples.size))


# -- parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCALARS)
def test_no_noise_leaves_the_number(name: str) -> None:
    mechanism = scalar(name, math.inf)
    assert draw(mechanism, 0.3, 200).tolist() == [0.3] * 200
    assert mechanism.distribution(0.3).mean == 0.3
    assert mechanism.worst_variance == 0


@pytest.mark.parametrize("name", SCALARS)
def test_a_huge_budget_overflows_nowhere(name: str) -> None:
    for mechanism in (scalar(name, 100.0), scalar(name, 1000.0)):
        samples = draw(mechanism, -0.25, 2000)
        assert np.isfinite(samples).all()
        assert np.isfinite(mechanism.variance(GRID)).all()
        assert abs(samples.mean() + 0.25) < 0.1


def test_an_unknown_mechanism_is_rejected() -> None:
    with pytest.raises(ConfigError, match="did you mean 'hybrid'"):
        scalar("hybird", 1.0)


# -- failures that these checks must see --------------------------------------------------------------------


def test_a_right_tail_that_is_a_function_of_x_would_be_noticed() -> None:
    # The released PM-SUB baseline returns one point in place of its right tail: not private at any epsilon.
    law, x = PMSub(2.0), 0.4
    samples = draw(law, x, 600_000)
    right = law.distribution(x).edges[2]
    broken = np.where(samples > right, (law.bound - right) * right, samples)
    edges, masses = boundaries(law.distribution(x), 8)
    assert p_value(np.histogram(samples, edges)[0], masses) > 1e-4
    assert p_value(np.histogram(broken, edges)[0], masses) < 1e-100


def test_a_law_with_an_atom_that_depends_on_x_has_no_finite_ratio() -> None:
    one, other = (StepDistribution.discrete(np.array([0.0, x]), np.array([0.9, 0.1])) for x in (0.3, 0.4))
    assert one.log_ratio(other) == math.inf


def test_a_sampler_at_three_percent_more_budget_would_be_noticed() -> None:
    samples = draw(Duchi(1.03), 1.0, 600_000)
    counts = np.array([(samples < 0).sum(), (samples > 0).sum()])
    assert p_value(counts, Duchi(1.0).distribution(1.0).masses) < 1e-4
