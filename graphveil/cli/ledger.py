"""``ledger``: releases of each dataset, remaining budgets, and verification of the ledger.

Args:
    name (NAME): Name of the dataset.

Privacy:
    unit (UNIT): Privacy unit of the account: undirected-edge, directed-edge, node, node-record,
        node-bounded-degree, local-attributes or edge-subset.
    epsilon (NUMBER): Limit of epsilon for all releases together.
    delta (NUMBER): Delta of the limit, for example 1e-6.
    ledger (URL|FILE): Ledger file, or postgresql+psycopg://user@host/database. Default: your ledger in the
        data folder.
"""

import json as json_text
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from annotated_types import Ge

from graphveil.cli.console import Screen
from graphveil.cli.options import AnyData, check_not_existing
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.ledger import Account, IntegrityViolation, Ledger
    from graphveil.ledger.chain import History, HistoryEntry

NO_LEDGER_MESSAGE = (
    "No dataset is registered. Register one with `graphveil ledger init NAME --unit UNIT --epsilon E "
    "--delta D`."
)

LedgerPlace = Annotated[str | None, typer.Option(envvar="GRAPHVEIL_LEDGER")]


def init(
    name: str,
    *,
    data: AnyData,
    unit: str | None = None,
    epsilon: str | None = None,
    delta: str | None = None,
    ledger: LedgerPlace = None,
    json: bool = False,
) -> None:
    """Register a dataset with a privacy budget.

    Repeat the command with the tables of a later version of the data to charge it to the same budget.

    Examples:
        graphveil ledger init users --unit undirected-edge --epsilon 4 --delta 1e-6
        graphveil ledger init users --unit node-record --epsilon 8 --delta 1e-6
    """
    from graphveil.data.fingerprint import fingerprint_parts
    from graphveil.ledger import Ledger

    if unit is None:
        raise ConfigError("Missing privacy unit. Set --unit, for example --unit undirected-edge.")
    if (epsilon is None) != (delta is None):
        raise ConfigError("A limit needs both --epsilon and --delta. Set both, or neither for no limit.")
    opened_ledger, screen, tags = Ledger(ledger_location(ledger)), Screen(as_json=json), None
    given = (data.nodes, data.edges, data.dataset, data.graph)
    if data.has_persons or any(one is not None for one in given):
        tags = opened_ledger.fingerprints(fingerprint_parts(_read(data)))
    opened_ledger.init(name, unit, epsilon=epsilon, delta=delta, tags=tags)
    account = _account_of(opened_ledger, name, unit)
    known = "it is bound to these data" if tags else "the first run that names it binds it to its data"
    screen.print_line(
        f"{name} is registered with unit {account.unit}, {format_limit(account)}; {known}. Ledger: "
        f"{opened_ledger.location}"
    )
    others = opened_ledger.other_names(name, tags) if tags else []
    for other in others:
        screen.print_line(
            f"The same data are also registered as {other}. Budget spent there does not count for {name}. To "
            f"count it, use {other}: graphveil ledger raise {quote(other)} --unit {account.unit} --epsilon E "
            "--delta D --reason WHY",
            style="bold",
        )
    screen.emit_json(
        {"name": name, "place": opened_ledger.location, **account_to_dict(account), "same_data": others}
    )


def list_(*, ledger: LedgerPlace = None, json: bool = False) -> None:
    """List the registered datasets and their spent budgets.

    Examples:
        graphveil ledger list
        graphveil ledger list --json
    """
    from graphveil._util.figures import format_delta

    screen = Screen(as_json=json)
    opened_ledger = open_ledger_or_none(ledger)
    if opened_ledger is None:
        _show_no_ledger(screen)
        return
    found = opened_ledger.accounts()
    bare = sorted(set(opened_ledger.names()) - {one.data_set for one in found})
    cells = [
        (
            one.data_set,
            one.unit,
            f"{one.releases:,}",
            format_epsilon(epsilon_of(one)),
            "none" if one.limit is None else str(one.limit.epsilon),
            format_delta(delta_of(one)),
        )
        for one in found
    ]
    cells += [(name, "-", "0", "-", "-", "-") for name in bare]
    if not cells:
        screen.print_line(NO_LEDGER_MESSAGE)
    else:
        screen.table(("dataset", "unit", "releases", "spent", "limit", "delta"), cells, right=(2,))
    screen.print_line(f"Ledger: {opened_ledger.location}", style="dim")
    screen.emit_json(
        {
            "place": opened_ledger.location,
            "data_sets": [{"name": one.data_set, **account_to_dict(one)} for one in found],
        }
    )


def verify(name: str | None = None, *, ledger: LedgerPlace = None, json: bool = False) -> None:
    """Verify all hashes and totals. Exits with 1 if one is wrong.

    Args:
        name (NAME): Name of the dataset. Default: all.

    Examples:
        graphveil ledger verify
        graphveil ledger verify users
    """
    from graphveil._util.figures import counted

    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    names, breaks = [name] if name else opened_ledger.names(), opened_ledger.verify(name)
    if not names:
        raise ConfigError(
            f"{opened_ledger.location} has no datasets, so there is nothing to verify. Check --ledger."
        )
    _print_breaks(screen, breaks)
    if not breaks:
        screen.print_line(
            f"All hashes and totals are valid: {counted(len(names), 'dataset')} in {opened_ledger.location}."
        )
    screen.emit_json(
        {"place": opened_ledger.location, "data_sets": names, "breaks": [asdict(found) for found in breaks]}
    )
    if breaks:
        raise typer.Exit(1)


def _print_breaks(screen: Screen, breaks: "Sequence[IntegrityViolation]") -> None:
    for found in breaks:
        where = f"{found.data_set}, entry {found.entry}: " if found.data_set else ""
        screen.print_line(f"{where}{found.why}")


def check_runs(folders: list[Path], *, ledger: LedgerPlace = None, json: bool = False) -> None:
    """Verify that the ledger contains the releases of run folders.

    Args:
        folders (FOLDER): Run folders, or folders that contain run folders.

    Examples:
        graphveil ledger check-runs runs
        graphveil ledger check-runs runs/first
    """
    from graphveil._util.figures import counted
    from graphveil.runs.charges import receipts_below

    screen = Screen(as_json=json)
    found = [receipt for folder in folders for receipt in receipts_below(folder)]
    if not found:
        raise ConfigError("These folders contain no ledger receipts. Name run folders.")
    opened_ledger = open_ledger(ledger)
    breaks = opened_ledger.missing_receipts(found)
    _print_breaks(screen, breaks)
    others = sum(one.other_ledger for one in breaks)
    if len(breaks) > others:
        screen.print_line(
            f"The ledger {opened_ledger.location} lacks {len(breaks) - others:,} of the {len(found):,} "
            "entries of these runs. Restore the newest backup (graphveil ledger restore)."
        )
    if others:
        screen.print_line(
            f"{counted(others, 'receipt')} of {len(found):,} belong to another ledger than "
            f"{opened_ledger.location}, so these runs were not checked. Name their ledger with --ledger, or "
            "check only the runs of this ledger."
        )
    if not breaks:
        screen.print_line(
            f"The ledger {opened_ledger.location} has all {len(found):,} entries of these runs."
        )
    known = {"place": opened_ledger.location, "receipts": len(found)}
    screen.emit_json(known | {"breaks": [asdict(one) for one in breaks]})
    if breaks:
        raise typer.Exit(1)


def unbind(name: str, *, ledger: LedgerPlace = None, json: bool = False) -> None:
    """Unbind a dataset without releases from its data.

    Examples:
        graphveil ledger unbind users
        graphveil ledger unbind users --json
    """
    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    opened_ledger.unbind(name)
    screen.print_line(f"{name} is not bound to data. The next run that names it binds it.")
    screen.emit_json({"name": name, "place": opened_ledger.location})


def backup(path: Path, *, ledger: LedgerPlace = None, json: bool = False) -> None:
    """Copy a consistent snapshot of the ledger to a new file.

    Args:
        path (PATH): New file for the copy.

    Examples:
        graphveil ledger backup backup.sqlite
        graphveil ledger backup backup.sqlite --json
    """
    check_not_existing(path, "Choose another PATH.")
    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    opened_ledger.backup(path)
    screen.print_line(f"Ledger {opened_ledger.location} was copied to {path}")
    screen.emit_json({"place": opened_ledger.location, "path": str(path)})


def restore(
    path: Path,
    *,
    runs: list[Path] | None = None,
    force: bool = False,
    ledger: LedgerPlace = None,
    json: bool = False,
) -> None:
    """Verify a backup and replace the ledger with it.

    Args:
        path (PATH): File written by `graphveil ledger backup`.
        runs (FOLDER): Run folder of this ledger, whose entries the backup must contain. Repeatable.
        force: Restore a backup that lacks releases of this ledger. They are then no longer counted.

    Examples:
        graphveil ledger restore backup.sqlite
        graphveil ledger restore backup.sqlite --runs runs
    """
    from graphveil.ledger import restore as restored
    from graphveil.runs.charges import receipts_below

    receipts = [receipt for folder in runs or [] for receipt in receipts_below(folder)]
    opened_ledger = restored(path, ledger_location(ledger), receipts=receipts, force=force)
    screen = Screen(as_json=json)
    screen.print_line(f"Ledger {opened_ledger.location} was replaced with the backup {path}")
    screen.emit_json({"place": opened_ledger.location, "path": str(path), "data_sets": opened_ledger.names()})


def export(name: str, *, out: Path, ledger: LedgerPlace = None, json: bool = False) -> None:
    """Export a dataset's entries and hashes for an auditor.

    Args:
        out (FILE): New file with one entry per line, as JSON.

    Examples:
        graphveil ledger export users --out users.jsonl
        graphveil ledger export users --out users.jsonl --json
    """
    from graphveil._util.figures import counted
    from graphveil._util.files import write_atomic

    check_not_existing(out, "Choose another --out.")
    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    rows = [json_text.dumps(row, sort_keys=True) for row in opened_ledger.export(name)]
    write_atomic(out, "".join(f"{row}\n" for row in rows).encode())
    screen.print_line(f"{counted(len(rows), 'entry', 'entries')} of {name} in {out}")
    screen.emit_json({"name": name, "entries": len(rows), "path": str(out)})


def raise_(
    name: str,
    *,
    unit: str | None = None,
    epsilon: str | None = None,
    delta: str | None = None,
    reason: str = "",
    ledger: LedgerPlace = None,
    json: bool = False,
) -> None:
    """Raise the privacy budget of a dataset.

    Privacy:
        reason: Reason for the change, stored permanently in the ledger.

    Examples:
        graphveil ledger raise users --unit undirected-edge --epsilon 6 --delta 1e-6 --reason approved
        graphveil ledger raise users --unit node-record --epsilon 10 --delta 1e-6 --reason approved
    """
    if unit is None or epsilon is None or delta is None:
        raise ConfigError("Missing limit. Set --unit, --epsilon and --delta.")
    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    opened_ledger.raise_limit(name, unit, epsilon=epsilon, delta=delta, reason=reason)
    account = _account_of(opened_ledger, name, unit)
    screen.print_line(f"{name}, unit {account.unit}: the limit is now {format_limit(account)}")
    screen.emit_json({"name": name, "place": opened_ledger.location, **account_to_dict(account)})


def open_ledger(named: str | None) -> "Ledger":
    """Open the ledger of a flag, which must exist."""
    from graphveil.ledger import Ledger

    return Ledger(ledger_location(named), create=False)


def open_ledger_or_none(named: str | None) -> "Ledger | None":
    """Open the ledger of a flag; None for the user's own ledger if it does not exist yet."""
    from graphveil.ledger.locations import VARIABLE, default_location, file_of

    if named in (None, os.environ.get(VARIABLE)):
        own = file_of(default_location())
        if own is not None and not own.exists() and not Path(f"{own}-mark").exists():
            return None
    return open_ledger(named)


def _show_no_ledger(screen: Screen) -> None:
    from graphveil.ledger.locations import default_location, file_of

    screen.print_line(NO_LEDGER_MESSAGE)
    screen.emit_json({"place": str(file_of(default_location())), "data_sets": []})


def ledger_location(named: str | None) -> str | None:
    from graphveil.ledger import split_name

    if named is None or "://" not in named:
        return named
    return split_name(named)[0]


def _read(data: AnyData) -> "Graph":
    """Read the data to register, with labels if they are named, else only edges and ids."""
    if data.has_persons or data.dataset is not None or data.graph is not None or data.label or data.classes:
        return data.checked().load()
    return data.topology()


# -- accounts, in numbers and text -----------------------------------------------------------------------


def _account_of(opened_ledger: "Ledger", name: str, unit: str) -> "Account":
    from graphveil.ledger import unit_key

    (account,) = [one for one in opened_ledger.accounts(name) if one.unit == unit_key(unit)]
    return account


def epsilon_of(account: "Account") -> float | None:
    return finite_or_none(account.total.epsilon(delta_of(account)))


def delta_of(account: "Account") -> float:
    from graphveil.ledger.chain import unit_delta

    return unit_delta(account.unit) if account.limit is None else float(account.limit.delta)


def format_epsilon(epsilon: float | None) -> str:
    from graphveil._util.figures import format_upper_bound

    return "no bound" if epsilon is None else format_upper_bound(epsilon)


def format_limit(account: "Account") -> str:
    from graphveil._util.figures import format_delta

    if account.limit is None:
        return "no limit"
    return f"at most epsilon {account.limit.epsilon} at delta {format_delta(float(account.limit.delta))}"


def format_spent(account: "Account") -> str:
    from graphveil._util.figures import counted, format_delta

    count = counted(account.releases, "release")
    spent, delta = format_epsilon(epsilon_of(account)), f"at delta {format_delta(delta_of(account))}"
    if account.limit is None:
        return f"{count}, epsilon {spent} {delta}, no limit"
    return f"{count}, epsilon {spent} of {account.limit.epsilon} {delta}"


def account_to_dict(account: "Account") -> dict[str, Any]:
    limit = account.limit
    return {
        "unit": account.unit,
        "limit": limit and limit.as_dict(),
        "spent": epsilon_of(account),
        "delta": delta_of(account),
        "remaining": None if limit is None else account.total.remaining_epsilon(limit),
        "releases": account.releases,
    }


def finite_or_none(value: float) -> float | None:
    return value if value < float("inf") else None


# -- show ------------------------------------------------------------------------------------------------

_LAST = 20  # releases of a unit that are listed by default


def show(
    name: str | None = None,
    *,
    unit: str | None = None,
    last: Annotated[int, Ge(0)] | None = None,
    ledger: LedgerPlace = None,
    json: bool = False,
) -> None:
    """Show the spent privacy budget of a dataset and its releases.

    Args:
        name (NAME): Name of the dataset. Default: all.
        last: Number of latest releases per unit to list. Default: 20, and all with --json.

    Examples:
        graphveil ledger show users
        graphveil ledger show users --last 20
    """
    from graphveil.ledger import unit_key

    screen = Screen(as_json=json)
    opened_ledger = open_ledger(ledger) if name is not None else open_ledger_or_none(ledger)
    if opened_ledger is None:
        _show_no_ledger(screen)
        return
    key = None if unit is None else unit_key(unit)
    if name is not None:
        names = [name]
    elif key is None:
        names = opened_ledger.names()
    else:
        names = [one.data_set for one in opened_ledger.accounts() if one.unit == key]
    if not names:
        screen.print_line(NO_LEDGER_MESSAGE)
    records = [_show(opened_ledger, each, key, last, screen) for each in names]
    screen.print_line(f"Ledger: {opened_ledger.location}", style="dim")
    screen.emit_json({"place": opened_ledger.location, **(records[0] if name else {"data_sets": records})})


def _show(
    opened_ledger: "Ledger", name: str, unit: str | None, last: int | None, screen: Screen
) -> dict[str, Any]:
    from graphveil.ledger.chain import History

    found = [one for one in opened_ledger.accounts(name) if unit in (None, one.unit)]
    if unit is not None and not found:
        raise ConfigError(
            f"Dataset {name!r} has no budget and no release for this unit. See `graphveil ledger list`."
        )
    past = History.from_rows(opened_ledger.export(name))
    for one in found:
        _show_account(screen, one, past, _LAST if last is None else last)
    if len(found) > 1:
        screen.print_paragraph(
            "Epsilons of different privacy units are not added: they protect different things.", style="dim"
        )
    screen.print_paragraph(f"{name}: {_versions(past)}", style="dim")
    return _record(name, past, found, last) if screen.as_json else {}


def _show_account(screen: Screen, account: "Account", past: "History", most: int) -> None:
    from graphveil._util.figures import counted

    steps = past.of_unit(account.unit)
    listed = _last(steps, most)
    left_out = steps[: len(steps) - len(listed)]
    screen.print_line(f"{account.data_set}, unit {account.unit}", style="bold")
    screen.print_line(f"  {format_spent(account)}")
    for each in past.raised:
        if each["unit"] == account.unit:
            screen.print_paragraph(f"  limit {each['epsilon']} since {each['time'][:10]}: {each['reason']}")
    screen.print_line("")
    if left_out:
        count = counted(len(left_out), "earlier release")
        together = format_epsilon(finite_or_none(left_out[-1].total.epsilon(delta_of(account))))
        screen.print_paragraph(
            f"Not listed: {count}, together epsilon {together} (--last N, or `graphveil ledger export`)",
            style="dim",
        )
    if listed:
        head = ("entry", "time (UTC)", "release", "epsilon", "total so far")
        cells = [
            (
                str(step.row["number"]),
                step.row["time"][:16].replace("T", " "),
                step.row["label"],
                *map(format_epsilon, _epsilon_values(account, step).values()),
            )
            for step in listed
        ]
        screen.table(head, cells, right=(0, 3, 4))
    screen.print_line("")


def _last(steps: "list[HistoryEntry]", most: int) -> "list[HistoryEntry]":
    return steps[max(0, len(steps) - most) :]


def _epsilon_values(account: "Account", step: "HistoryEntry") -> dict[str, float | None]:
    delta = delta_of(account)
    return {
        "epsilon": finite_or_none(step.privacy_cost.epsilon(delta)),
        "total": finite_or_none(step.total.epsilon(delta)),
    }


def _versions(past: "History") -> str:
    days = [f"{version['time'][:10]} (entry {version['number']})" for version in past.versions]
    if not days:
        return "not bound to data; the first run that names it binds it"
    if len(days) == 1:
        return f"bound to data of {days[0]}"
    return f"{len(days)} versions of the data share the budget: {', '.join(days)}"


def _record(name: str, past: "History", found: "list[Account]", most: int | None) -> dict[str, Any]:
    """Return everything as plain values; ``most`` is the number of releases per unit, None for all."""
    entries = [
        {"entry": step.row["number"]}
        | {name: step.row[name] for name in ("reference", "hash", "unit", "time", "label")}
        | _epsilon_values(account, step)
        for account in found
        for steps in [past.of_unit(account.unit)]
        for step in (steps if most is None else _last(steps, most))
    ]
    raised = [
        {"entry": one["number"], "time": one["time"], "unit": one["unit"], "reason": one["reason"]}
        | {"epsilon": float(one["epsilon"]), "delta": float(one["delta"])}
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
        "versions": [{"entry": one["number"], "time": one["time"]} for one in past.versions],
    }
