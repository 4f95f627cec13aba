"""``ledger show``: what was spent of a data set, over time and release by release."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil.cli import options
from graphveil.cli.budgets import BAR, bar_of, delta_of, finite, plain, shown, spent_of
from graphveil.cli.console import Screen
from graphveil.cli.ledger import NOTHING, AnyName, opened, opened_or_none, place_shown
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphveil.ledger import Account, Ledger
    from graphveil.ledger.history import History, Step

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
    book = opened(ledger) if name is not None else opened_or_none(ledger)
    if book is None:
        screen.say(NOTHING)
        screen.emit({"place": place_shown(), "data_sets": []})
        return
    key = None if unit is None else unit_key(unit)
    names = _names(book, key) if name is None else [name]
    if not names:
        screen.say(NOTHING)
    records = [_show(book, each, key, last, screen) for each in names]
    screen.say(f"The ledger is {book.place}", style="dim")
    screen.emit({"place": book.place, **(records[0] if name else {"data_sets": records})})


def _names(book: "Ledger", unit: str | None) -> list[str]:
    """Return the data sets that have an account under a unit; without one all."""
    return book.names() if unit is None else [one.data_set for one in book.accounts() if one.unit == unit]


def _show(book: "Ledger", name: str, unit: str | None, last: int | None, screen: Screen) -> dict[str, Any]:
    """Print what was spent of a data set, and return it as plain values."""
    from graphveil.ledger.history import History

    found = [one for one in book.accounts(name) if unit in (None, one.unit)]
    if unit is not None and not found:
        raise ConfigError(
            f"data set {name!r} has no budget and no release under this unit; see `graphveil ledger list`"
        )
    past = History.of(book.export(name))
    for one in found:
        _show_account(screen, one, past, _LAST if last is None else last)
    if len(found) > 1:
        screen.prose(
            "What is spent under different units does not add up: they protect different things.", style="dim"
        )
    screen.prose(f"{name}: {_versions(past)}", style="dim")
    return _record(name, past, found, last) if screen.as_json else {}


def _show_account(screen: Screen, account: "Account", past: "History", most: int) -> None:
    """Print what is spent under a unit: all of it, how it came to that, and its last releases."""
    steps = past.of_unit(account.unit)
    listed = _last(steps, most)
    left_out = steps[: len(steps) - len(listed)]
    screen.say(f"{account.data_set}, unit {account.unit}", style="bold")
    screen.say(f"  {spent_of(account)}")
    if account.limit is not None:
        screen.say(f"  {bar_of(account)}")
    for each in past.raised:
        if each.unit == account.unit:
            screen.prose(f"  limit {each.limit.epsilon} since {_day(each.time)}: {each.reason}")
    if left_out:
        screen.say(f"  {_curve(account, steps)} from {_day(steps[0].time)} to {_day(steps[-1].time)}")
    screen.say("")
    if left_out:
        screen.prose(_not_listed(account, left_out), style="dim")
    if listed:
        cells = [_cells(account, step, bar=not left_out) for step in listed]
        screen.table(_HEAD, cells, right=(0, 3, 4), spare=(5, 1))
    screen.say("")


def _last(steps: "list[Step]", most: int) -> "list[Step]":
    return steps[max(0, len(steps) - most) :]


def _cells(account: "Account", step: "Step", *, bar: bool) -> tuple[str, ...]:
    figures = _figures(account, step)
    time, alone, total = step.time[:16].replace("T", " "), figures["epsilon"], figures["total"]
    return str(step.entry), time, step.label, shown(alone), shown(total), bar_of(account, total) * bar


def _figures(account: "Account", step: "Step") -> dict[str, float | None]:
    delta = delta_of(account)
    return {"epsilon": finite(step.price.epsilon(delta)), "total": finite(step.total.epsilon(delta))}


def _not_listed(account: "Account", earlier: "Sequence[Step]") -> str:
    """Say what is not listed."""
    from graphveil.privacy.figures import counted

    count = counted(len(earlier), "earlier release")
    together = shown(finite(earlier[-1].total.epsilon(delta_of(account))))
    return f"Not listed: {count}, together epsilon {together} (--last N, or `graphveil ledger export`)"


def _curve(account: "Account", steps: "Sequence[Step]") -> str:
    """Return how spending rose in the course of time, as bars that end at full height."""
    from graphveil.ledger.history import over_time

    spent = [finite(total.epsilon(delta_of(account))) for total in over_time(steps, BAR)]
    return "".join(_level(each, spent[-1]) for each in spent)


def _level(part: float | None, full: float | None) -> str:
    share = 1.0 if part is None or not full else part / full
    return _LEVELS[min(len(_LEVELS) - 1, int(share * len(_LEVELS)))]


def _versions(past: "History") -> str:
    """Say which data the budgets are for."""
    days = [f"{_day(version.time)} (entry {version.entry})" for version in past.versions]
    if not days:
        return "bound to no data yet; the first run that names it binds it"
    if len(days) == 1:
        return f"bound to the data of {days[0]}"
    return f"{len(days)} versions of the data share the budgets, of {', '.join(days)}"


def _day(time: str) -> str:
    return time[:10]


def _record(name: str, past: "History", found: "list[Account]", most: int | None) -> dict[str, Any]:
    """Return everything as plain values; ``most`` is how many releases of a unit, None for all."""
    entries = [
        {name: getattr(step, name) for name in _OF_A_STEP} | _figures(account, step)
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
        **(plain(found[0]) if len(found) == 1 else {"units": [plain(one) for one in found]}),
        "entries": entries,
        "raised": raised,
        "versions": [asdict(version) for version in past.versions],
    }
