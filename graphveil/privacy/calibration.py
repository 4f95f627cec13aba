"""From a budget to the noise: one-sided, so that the certified epsilon is never above the target."""

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.errors import CalibrationError, ConfigError
from graphveil.privacy import gaussian
from graphveil.privacy.unit import NoUnit, Unit

DELTA_RANGE = (1e-15, 1e-3)  # for which the noise samplers have a proof (docs/guarantees.md, section 6)


def check_proved_delta(delta: float) -> None:
    """Require a delta for which the guarantee is proved.

    Raises:
        ConfigError: delta is outside 1e-15 to 1e-3.

    >>> check_proved_delta(1e-300)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: delta=1e-300 is outside the range of the proofs, 1e-15 to 1e-3. Choose a \
delta in this range.
    """
    if not DELTA_RANGE[0] <= delta <= DELTA_RANGE[1]:
        raise ConfigError(
            f"delta={delta:g} is outside the range of the proofs, 1e-15 to 1e-3. Choose a delta in this "
            "range."
        )


def require_delta(delta: float, what: str) -> None:
    """Require a delta above 0 for noise that is not pure epsilon-DP.

    Raises:
        ConfigError: delta is 0.

    >>> require_delta(0.0, "NeighborSumQuery")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: delta=0 requires pure epsilon-DP noise, and NeighborSumQuery adds noise \
that needs delta > 0. Use delta='auto', or a delta from 1e-15 to 1e-3.
    """
    if delta == 0:
        raise ConfigError(
            f"delta=0 requires pure epsilon-DP noise, and {what} adds noise that needs delta > 0. Use "
            "delta='auto', or a delta from 1e-15 to 1e-3."
        )


@checked
def calibrate_mu(epsilon: float, delta: float, *, slack: float = 0.0) -> float:
    """Return the total mu that a budget allows, after setting ``slack`` of delta aside.

    The slack pays for a sampler of finite resolution (``docs/guarantees.md``, section 6).

    >>> round(calibrate_mu(4.0, 1e-5), 8)
    0.9249309
    """
    checks.positive(epsilon=epsilon, delta=delta)
    checks.non_negative(slack=slack)
    if slack >= delta:
        raise CalibrationError(
            f"the noise's finite resolution costs {slack:.2g}, all of delta={delta:g}; use a larger delta"
        )
    return gaussian.mu_of(epsilon, delta - slack)


@checked
def auto_delta(unit: Unit, bound: int) -> float:
    """Return delta ``auto``: the unit's cap or the largest power of ten <= 1/(10 B), whichever is smaller.

    B is a public bound on the number of protected units, or the number of nodes; never a private count.

    >>> from graphveil.privacy.unit import UndirectedEdge
    >>> auto_delta(UndirectedEdge(), 20_000), auto_delta(UndirectedEdge(), 10**9)
    (1e-07, 1e-10)
    """
    checks.integer_at_least(1, bound=bound)
    exponent = len(str(10 * bound - 1))  # the smallest with 10^exponent >= 10 B, in whole numbers
    return min(unit.delta_cap, float(f"1e-{exponent}"))


@checked
def check_delta(unit: Unit, delta: float | str, bound: int) -> float:
    """Return the delta to use, refusing an explicit one that is not below 1/B.

    >>> from graphveil.privacy.unit import UndirectedEdge
    >>> check_delta(UndirectedEdge(), 0.01, 1000)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: delta=0.01 must be below 1/B = 0.001 (B = 1000 units): a larger delta \
allows publishing somebody's record outright; pass a smaller delta or delta='auto'
    """
    checks.integer_at_least(1, bound=bound)
    if isinstance(unit, NoUnit):
        return 0.0
    if delta == "auto":
        found = auto_delta(unit, bound)
        check_proved_delta(found)
        return found
    if not isinstance(delta, int | float) or isinstance(delta, bool):
        raise ConfigError(f"delta={delta!r} must be a number or 'auto'")
    checks.non_negative(delta=delta)
    if delta == 0:  # pure epsilon-DP: a plan whose noise needs a delta rejects it, see ReleasePlan
        return 0.0
    if delta >= 1:
        raise ConfigError(
            f"delta={delta:g} must be far below 1, below 1/B for B protected units: a larger delta allows "
            "publishing somebody's record outright; pass a smaller delta or delta='auto'"
        )
    if delta < 1 / bound:
        check_proved_delta(delta)
    else:
        raise ConfigError(
            f"delta={delta:g} must be below 1/B = {1 / bound:.3g} (B = {bound} units): a larger delta allows "
            "publishing somebody's record outright; pass a smaller delta or delta='auto'"
        )
    return float(delta)
