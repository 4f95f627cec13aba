"""``ledger show``: what was spent of a data set, over time and release by release."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil.cli import options
from graphveil.cli.budgets import (
    BAR,
    account_to_dict,
    delta_of,
    finite_or_none,
    format_bar,
    format_epsilon,
    format_spent,
)
from graphveil.cli.console import Screen
from graphveil.cli.ledger import (
    NO_LEDGER_MESSAGE,
    AnyName,
    default_ledger_location,
    open_ledger,
    open_ledger_or_none,
)
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphveil.ledger import Account, Ledger
    from graphveil.ledger.history import History, HistoryEntry

_HEAD = ("entry", "time (UTC)", "release", "epsilon", "total so far", "")
_LAST = 20
_LEVELS = "▁▂▃▄▅▆▇█"
_OF_A_STEP = ("entry", "reference", "hash", "unit", "time", "label")


def show(
    name: AnyName = None,
    unit: options.Unit = None,
    last: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"How many releases of a unit to list; by default the last {_LAST}, and as JSON all.",
            show_default=False,
        ),
    ] = None,
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Show what was spent of a data set, over time and release by release."""
    from graphveil.ledger import unit_key

    screen = Screen(as_json=json)
    opened_ledger = open_ledger(ledger) if name is not None else open_ledger_or_none(ledger)
    if opened_ledger is None:
        screen.print_line(NO_LEDGER_MESSAGE)
        screen.emit_json({"place": default_ledger_location(), "data_sets": []})
        return
    key = None if unit is None else unit_key(unit)
    names = _names(opened_ledger, key) if name is None else [name]
    if not names:
        screen.print_line(NO_LEDGER_MESSAGE)
    records = [_show(opened_ledger, each, key, last, screen) for each in names]
    screen.print_line(f"The ledger is {opened_ledger.location}", style="dim")
    screen.emit_json({"place": opened_ledger.location, **(records[0] if name else {"data_sets": records})})


def _names(opened_ledger: "Ledger", unit: str | None) -> list[str]:
    """Return the data sets that have an account under a unit; without one all."""
    return (
        opened_ledger.names()
        if unit is None
        else [one.data_set for one in opened_ledger.accounts() if one.unit == unit]
    )


def _show(
    opened_ledger: "Ledger", name: str, unit: str | None, last: int | None, screen: Screen
) -> dict[str, Any]:
    """Print what was spent of a data set, and return it as plain values."""
    from graphveil.ledger.history import History

    found = [one for one in opened_ledger.accounts(name) if unit in (None, one.unit)]
    if unit is not None and not found:
        raise ConfigError(
            f"data set {name!r} has no budget and no release under this unit; see `graphveil ledger list`"
        )
    past = History.from_rows(opened_ledger.export(name))
    for one in found:
        _show_account(screen, one, past, _LAST if last is None else last)
    if len(found) > 1:
        screen.print_paragraph(
            "What is spent under different units does not add up: they protect different things.", style="dim"
        )
    screen.print_paragraph(f"{name}: {_versions(past)}", style="dim")
    return _record(name, past, found, last) if screen.as_json else {}


def _show_account(screen: Screen, account: "Account", past: "History", most: int) -> None:
    """Print what is spent under a unit: all of it, how it came to that, and its last releases."""
    steps = past.of_unit(account.unit)
    listed = _last(steps, most)
    left_out = steps[: len(steps) - len(listed)]
    screen.print_line(f"{account.data_set}, unit {account.unit}", style="bold")
    screen.print_line(f"  {format_spent(account)}")
    if account.limit is not None:
        screen.print_line(f"  {format_bar(account)}")
    for each in past.raised:
        if each.unit == account.unit:
            screen.print_paragraph(
                f"  limit {each.limit.epsilon} since {_format_date(each.time)}: {each.reason}"
            )
    if left_out:
        screen.print_line(
            f"  {_curve(account, steps)} from {_format_date(steps[0].time)} to {_format_date(steps[-1].time)}"
        )
    screen.print_line("")
    if left_out:
        screen.print_paragraph(_omitted_note(account, left_out), style="dim")
    if listed:
        cells = [_cells(account, step, bar=not left_out) for step in listed]
        screen.table(_HEAD, cells, right=(0, 3, 4), spare=(5, 1))
    screen.print_line("")


def _last(steps: "list[HistoryEntry]", most: int) -> "list[HistoryEntry]":
    return steps[max(0, len(steps) - most) :]


def _cells(account: "Account", step: "HistoryEntry", *, bar: bool) -> tuple[str, ...]:
    figures = _epsilon_values(account, step)
    time, alone, total = step.time[:16].replace("T", " "), figures["epsilon"], figures["total"]
    return (
        str(step.entry),
        time,
        step.label,
        format_epsilon(alone),
        format_epsilon(total),
        format_bar(account, total) * bar,
    )


def _epsilon_values(account: "Account", step: "HistoryEntry") -> dict[str, float | None]:
    delta = delta_of(account)
    return {
        "epsilon": finite_or_none(step.privacy_cost.epsilon(delta)),
        "total": finite_or_none(step.total.epsilon(delta)),
    }


def _omitted_note(account: "Account", earlier: "Sequence[HistoryEntry]") -> str:
    """Say what is not listed."""
    from graphveil.privacy.formatting import counted

    count = counted(len(earlier), "earlier release")
    together = format_epsilon(finite_or_none(earlier[-1].total.epsilon(delta_of(account))))
    return f"Not listed: {count}, together epsilon {together} (--last N, or `graphveil ledger export`)"


def _curve(account: "Account", steps: "Sequence[HistoryEntry]") -> str:
    """Return how spending rose in the course of time, as bars that end at full height."""
    from graphveil.ledger.history import over_time

    spent = [finite_or_none(total.epsilon(delta_of(account))) for total in over_time(steps, BAR)]
    return "".join(_level(each, spent[-1]) for each in spent)


def _level(part: float | None, full: float | None) -> str:
    share = 1.0 if part is None or not full else part / full
    return _LEVELS[min(len(_LEVELS) - 1, int(share * len(_LEVELS)))]


def _versions(past: "History") -> str:
    """Say which data the budgets are for."""
    days = [f"{_format_date(version.time)} (entry {version.entry})" for version in past.versions]
    if not days:
        return "bound to no data yet; the first run that names it binds it"
    if len(days) == 1:
        return f"bound to the data of {days[0]}"
    return f"{len(days)} versions of the data share the budgets, of {', '.join(days)}"


def _format_date(time: str) -> str:
    return time[:10]


def _record(name: str, past: "History", found: "list[Account]", most: int | None) -> dict[str, Any]:
    """Return everything as plain values; ``most`` is how many releases of a unit, None for all."""
    entries = [
        {name: getattr(step, name) for name in _OF_A_STEP} | _epsilon_values(account, step)
        for account in found
        for steps in [past.of_unit(account.unit)]
        for step in (steps if most is None else _last(steps, most))
    ]
    raised = [
        {"entry": one.entry, "time": one.time, "unit": one.unit, "reason": one.reason}
        | {"epsilon": float(one.limit.epsilon), "delta": float(one.limit.delta)}
        for one in past.raised
    ]
    return {
        "name": name,
        **(
            account_to_dict(found[0])
            if len(found) == 1
            else {"units": [account_to_dict(one) for one in found]}
        ),
        "entries": entries,
        "raised": raised,
        "versions": [asdict(version) for version in past.versions],
    }
