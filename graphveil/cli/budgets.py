"""What is spent of a budget, and what may be: in figures, in words, and as a bar."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.ledger import Account

BAR = 24  # characters of a full budget


def epsilon_of(account: "Account") -> float | None:
    """Return what is spent; None if there is no bound."""
    return finite_or_none(account.total.epsilon(delta_of(account)))


def delta_of(account: "Account") -> float:
    """Return where totals are read off: at the limit's delta, or at the unit's default one."""
    from graphveil.runs.accounts.ledger_account import unit_delta

    return unit_delta(account.unit) if account.limit is None else float(account.limit.delta)


def format_epsilon(epsilon: float | None) -> str:
    """Return an epsilon as it is printed; None is one that is not bounded."""
    from graphveil.privacy.formatting import format_upper_bound

    return "no bound" if epsilon is None else format_upper_bound(epsilon)


def format_limit(account: "Account") -> str:
    """Return what may be spent, in words."""
    from graphveil.privacy.formatting import format_delta

    if account.limit is None:
        return "no limit"
    return f"at most epsilon {account.limit.epsilon} at delta {format_delta(float(account.limit.delta))}"


def format_spent(account: "Account") -> str:
    """Return what is spent, and of what, in a line."""
    from graphveil.privacy.formatting import counted, format_delta

    count = counted(account.releases, "release")
    spent, delta = format_epsilon(epsilon_of(account)), f"at delta {format_delta(delta_of(account))}"
    if account.limit is None:
        return f"{count}, epsilon {spent} {delta}, no limit"
    return f"{count}, epsilon {spent} of {account.limit.epsilon} {delta}"


def format_bar(account: "Account", spent: float | None = None) -> str:
    """Return how much of a budget is spent, as a bar."""
    if account.limit is None or not account.limit.epsilon:
        return ""
    epsilon = epsilon_of(account) if spent is None else spent
    share = 1.0 if epsilon is None else min(1.0, epsilon / float(account.limit.epsilon))
    full = round(BAR * share)
    return "█" * full + "░" * (BAR - full)


def account_to_dict(account: "Account") -> dict[str, Any]:
    """Return an account as plain values."""
    limit = account.limit
    return {
        "unit": account.unit,
        "limit": None if limit is None else {"epsilon": float(limit.epsilon), "delta": float(limit.delta)},
        "spent": epsilon_of(account),
        "delta": delta_of(account),
        "remaining": None if limit is None else account.total.remaining_epsilon(limit),
        "releases": account.releases,
    }


def finite_or_none(value: float) -> float | None:
    """Return a figure for JSON, which has no infinity."""
    return value if value < float("inf") else None
