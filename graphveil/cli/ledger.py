"""``ledger``: what was ever released of which data, how much more may be, and whether the ledger is whole."""

import json as json_text
import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from graphveil.cli import options
from graphveil.cli.budgets import (
    account_to_dict,
    delta_of,
    epsilon_of,
    format_bar,
    format_epsilon,
    format_limit,
)
from graphveil.cli.collect import check_not_existing
from graphveil.cli.console import Screen
from graphveil.cli.edge_list import EdgeListOptions as Connections
from graphveil.cli.edge_list import read_edge_list
from graphveil.cli.groups import ColumnOptions, SourceOptions, TableOptions, grouped
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.ledger import Account, IntegrityViolation, Ledger

Name = Annotated[str, typer.Argument(metavar="NAME", help="The data set.", show_default=False)]
AnyName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="One data set; by default all.", show_default=False)
]

NO_LEDGER_MESSAGE = (
    "No data set is registered. `graphveil ledger init NAME --unit UNIT --epsilon E --delta D` does."
)


@grouped
def init(
    name: Name,
    tables: TableOptions,
    columns: ColumnOptions,
    origin: SourceOptions,
    unit: options.Unit = None,
    epsilon: options.Budget = None,
    delta: options.Delta = None,
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Register a data set with a budget under one unit; its files are given now, or by the first run.

    Given again with the files of data that have grown, it registers the new version, which adds to the same
    budget.
    """
    from graphveil.ledger import Ledger, unit_key
    from graphveil.runs.accounts.graph_tags import fingerprint_parts

    if unit is None:
        raise ConfigError("a budget protects something: pass --unit (undirected-edge, node-record, ...)")
    if (epsilon is None) != (delta is None):
        raise ConfigError(
            "a budget is an epsilon and a delta: pass --epsilon and --delta, or neither for no limit"
        )
    opened_ledger, screen, tags = Ledger(ledger_location(ledger)), Screen(as_json=json), None
    if any(given is not None for given in (tables.nodes, tables.edges, origin.dataset, origin.graph)):
        tags = opened_ledger.fingerprints(fingerprint_parts(_read(tables, columns, origin)))
    opened_ledger.init(name, unit, epsilon=epsilon, delta=delta, tags=tags)
    (account,) = [one for one in opened_ledger.accounts(name) if one.unit == unit_key(unit)]
    known = "bound to these data" if tags else "bound by the first run that names it"
    screen.print_line(
        f"{name} is registered under unit {account.unit}: {format_limit(account)}; {known}. The ledger is "
        f"{opened_ledger.location}"
    )
    others = opened_ledger.other_names(name, tags) if tags else []
    for other in others:
        screen.print_line(
            f"The same data are registered as {other}, too, and what is spent there does not count under "
            f"{name}. To count it, name {other} instead: graphveil ledger raise {quote(other)} --unit "
            f"{account.unit} --epsilon E --delta D --reason WHY gives it a budget",
            style="bold",
        )
    screen.emit_json(
        {"name": name, "place": opened_ledger.location, **account_to_dict(account), "same_data": others}
    )


def list_(ledger: options.LedgerPlace = None, json: options.Json = False) -> None:
    """List the registered data sets, with what is spent of each budget."""
    screen = Screen(as_json=json)
    opened_ledger = open_ledger_or_none(ledger)
    if opened_ledger is None:
        screen.print_line(NO_LEDGER_MESSAGE)
        screen.emit_json({"place": default_ledger_location(), "data_sets": []})
        return
    found = opened_ledger.accounts()
    bare = sorted(set(opened_ledger.names()) - {one.data_set for one in found})
    cells = [(one.data_set, *_cells(one)) for one in found] + [
        (name, "-", "0", "-", "-", "-", "") for name in bare
    ]
    if not cells:
        screen.print_line(NO_LEDGER_MESSAGE)
    else:
        screen.table(("data set", *_HEAD), cells, right=(2,), spare=(6,))
    screen.print_line(f"The ledger is {opened_ledger.location}", style="dim")
    screen.emit_json(
        {
            "place": opened_ledger.location,
            "data_sets": [{"name": one.data_set, **account_to_dict(one)} for one in found],
        }
    )


def verify(name: AnyName = None, ledger: options.LedgerPlace = None, json: options.Json = False) -> None:
    """Compute every hash and every total again; exit 1 where one does not hold."""
    from dataclasses import asdict

    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    names, breaks = [name] if name else opened_ledger.names(), opened_ledger.verify(name)
    if not names:
        raise ConfigError(
            f"{opened_ledger.location} has no data set, so there is nothing to verify; check --ledger"
        )
    _print_breaks(screen, breaks)
    if not breaks:
        screen.print_line(f"All chains hold: {len(names)} data sets in {opened_ledger.location}.")
    screen.emit_json(
        {"place": opened_ledger.location, "data_sets": names, "breaks": [asdict(found) for found in breaks]}
    )
    if breaks:
        raise typer.Exit(1)


def _print_breaks(screen: Screen, breaks: "Sequence[IntegrityViolation]") -> None:
    for found in breaks:
        where = f"{found.data_set}, entry {found.entry}: " if found.data_set else ""
        screen.print_line(f"{where}{found.why}")


def check_runs(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Run folders, or folders of them.")
    ],
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Compare the receipts in run folders with the ledger; exit 1 if it lacks one."""
    from dataclasses import asdict

    from graphveil.runs.accounts.run_receipts import receipts_below

    screen = Screen(as_json=json)
    found = [receipt for folder in folders for receipt in receipts_below(folder)]
    if not found:
        raise ConfigError("no receipt is in these folders, so nothing can be compared. Give run folders.")
    opened_ledger = open_ledger(ledger)
    breaks = opened_ledger.missing_receipts(found)
    _print_breaks(screen, breaks)
    if breaks:
        screen.print_line(
            f"The ledger {opened_ledger.location} lacks {len(breaks):,} of {len(found):,} recorded entries."
        )
    else:
        screen.print_line(
            f"The ledger {opened_ledger.location} has all {len(found):,} entries that these runs recorded."
        )
    known = {"place": opened_ledger.location, "receipts": len(found)}
    screen.emit_json(known | {"breaks": [asdict(one) for one in breaks]})
    if breaks:
        raise typer.Exit(1)


def unbind(name: Name, ledger: options.LedgerPlace = None, json: options.Json = False) -> None:
    """Unbind a data set without releases from its data; the next run binds it."""
    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    opened_ledger.unbind(name)
    screen.print_line(f"{name} is bound to no data; the next run that names it binds it")
    screen.emit_json({"name": name, "place": opened_ledger.location})


def backup(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new file for the copy.")],
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Copy the ledger to a new file, of one moment, also while runs write to it."""
    check_not_existing(path, "a backup is a new file; choose another PATH")
    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    opened_ledger.backup(path)
    screen.print_line(f"{path} is a copy of the ledger {opened_ledger.location}")
    screen.emit_json({"place": opened_ledger.location, "path": str(path)})


def restore(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file that `ledger backup` wrote.")],
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", help="Run folders whose receipts the backup must contain; may be repeated."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Accept a backup that lacks releases; they are not counted.")
    ] = False,
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Verify a backup and put it in the place of the ledger, which is kept next to it."""
    from graphveil.ledger import restore as restored
    from graphveil.runs.accounts.run_receipts import receipts_below

    receipts = [receipt for folder in runs or [] for receipt in receipts_below(folder)]
    opened_ledger = restored(path, ledger_location(ledger), receipts=receipts, force=force)
    screen = Screen(as_json=json)
    screen.print_line(f"The ledger {opened_ledger.location} is the backup {path}")
    screen.emit_json({"place": opened_ledger.location, "path": str(path), "data_sets": opened_ledger.names()})


def export(
    name: Name,
    out: Annotated[Path, typer.Option("--out", help="A new file: one entry a line, as JSON.")],
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Write a data set's entries with their hashes, for an auditor who checks the chain alone."""
    from graphveil._util.files import write_atomic

    check_not_existing(out, "an export is a new file; choose another --out")
    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    rows = [json_text.dumps(row, sort_keys=True) for row in opened_ledger.export(name)]
    write_atomic(out, "".join(f"{row}\n" for row in rows).encode())
    screen.print_line(f"{len(rows):,} entries of {name} are in {out}")
    screen.emit_json({"name": name, "entries": len(rows), "path": str(out)})


def raise_(
    name: Name,
    unit: options.Unit = None,
    epsilon: options.Budget = None,
    delta: options.Delta = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; it stays in the ledger.")] = "",
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Raise a limit, for a reason that stays in the ledger."""
    from graphveil.ledger import unit_key

    if unit is None or epsilon is None or delta is None:
        raise ConfigError("say which limit and how far: pass --unit, --epsilon and --delta")
    opened_ledger, screen = open_ledger(ledger), Screen(as_json=json)
    opened_ledger.raise_limit(name, unit, epsilon=epsilon, delta=delta, reason=reason)
    (account,) = [one for one in opened_ledger.accounts(name) if one.unit == unit_key(unit)]
    screen.print_line(f"{name}, unit {account.unit}: {format_limit(account)} from now on")
    screen.emit_json({"name": name, "place": opened_ledger.location, **account_to_dict(account)})


_HEAD = ("unit", "releases", "spent", "limit", "delta", "")


def open_ledger(named: str | None) -> "Ledger":
    """Open the ledger that a flag names, which has to be there."""
    from graphveil.ledger import Ledger

    return Ledger(ledger_location(named), create=False)


def open_ledger_or_none(named: str | None) -> "Ledger | None":
    """Open the ledger that a flag names; None if it is the user's own, which is not there yet."""
    from graphveil.ledger.locations import VARIABLE, default_location, file_of

    if named in (None, os.environ.get(VARIABLE)):
        own = file_of(default_location())
        if own is not None and not own.exists() and not Path(f"{own}-mark").exists():
            return None
    return open_ledger(named)


def default_ledger_location() -> str:
    """Return where the user's own ledger would lie."""
    from graphveil.ledger.locations import default_location, file_of

    return str(file_of(default_location()))


def ledger_location(named: str | None) -> str | None:
    """Return the place of a ledger that a flag names: a URL, or a path."""
    from graphveil.ledger import split_name

    if named is None or "://" not in named:
        return named
    return split_name(named)[0]


def _read(tables: TableOptions, columns: ColumnOptions, origin: SourceOptions) -> "Graph":
    """Read the data that are registered: with labels as a run would read them, else who is connected."""
    from graphveil.data.tables.encoding import EncodingOptions

    if origin.dataset is not None or origin.graph is not None or columns.label or columns.classes:
        return origin.source(tables, columns).load()
    ends = {"id": columns.id, "source": columns.source, "target": columns.target}
    read = Connections(nodes=tables.nodes, edges=tables.edges, directed=columns.directed, **ends)
    choices = EncodingOptions.from_arguments(delimiter=columns.delimiter, decimal=columns.decimal)
    return read_edge_list(None, None, read, choices.csv_format)


def _cells(account: "Account") -> tuple[str, ...]:
    from graphveil.privacy.formatting import format_delta

    limit = "none" if account.limit is None else str(account.limit.epsilon)
    delta = format_delta(delta_of(account))
    return (
        account.unit,
        f"{account.releases:,}",
        format_epsilon(epsilon_of(account)),
        limit,
        delta,
        format_bar(account),
    )
