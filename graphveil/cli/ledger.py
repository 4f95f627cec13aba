"""``ledger``: what was ever released of which data, how much more may be, and whether the book is whole."""

import json as json_text
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from graphveil.cli import options
from graphveil.cli.budgets import bar_of, epsilon_of, limit_of, plain, shown
from graphveil.cli.collect import check_new
from graphveil.cli.connections import Columns as Connections
from graphveil.cli.connections import read_connections
from graphveil.cli.console import Screen
from graphveil.cli.groups import Columns, Origin, Tables, grouped
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.graph import Graph
    from graphveil.ledger import Account

Name = Annotated[str, typer.Argument(metavar="NAME", help="The data set.", show_default=False)]
AnyName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="One data set; by default all.", show_default=False)
]

NOTHING = "No data set is registered. `graphveil ledger init NAME --unit UNIT --epsilon E --delta D` does."


@grouped
def init(
    name: Name,
    tables: Tables,
    columns: Columns,
    origin: Origin,
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
    from graphveil.experiment.accounts.graph_tags import parts_of
    from graphveil.ledger import Ledger, unit_key

    if unit is None:
        raise ConfigError("a budget protects something: pass --unit (undirected-edge, node-owner, ...)")
    if (epsilon is None) != (delta is None):
        raise ConfigError(
            "a budget is an epsilon and a delta: pass --epsilon and --delta, or neither for no limit"
        )
    book, screen, tags = Ledger(place_of(ledger)), Screen(as_json=json), None
    if any(given is not None for given in (tables.nodes, tables.edges, origin.dataset, origin.graph)):
        tags = book.fingerprints(parts_of(_read(tables, columns, origin)))
    book.init(name, unit, epsilon=epsilon, delta=delta, tags=tags)
    (account,) = [one for one in book.accounts(name) if one.unit == unit_key(unit)]
    known = "bound to these data" if tags else "bound by the first run that names it"
    screen.say(
        f"{name} is registered under unit {account.unit}: {limit_of(account)}; {known}. The book is "
        f"{book.place}"
    )
    others = book.other_names(name, tags) if tags else []
    for other in others:
        screen.say(
            f"The same data are registered as {other}, too, and what is spent there does not count under "
            f"{name}. To count it, name {other} instead: graphveil ledger raise {quote(other)} --unit "
            f"{account.unit} --epsilon E --delta D --reason WHY gives it a budget",
            style="bold",
        )
    screen.emit({"name": name, "place": book.place, **plain(account), "same_data": others})


def list_(ledger: options.LedgerPlace = None, json: options.Json = False) -> None:
    """List the registered data sets, with what is spent of each budget."""
    from graphveil.ledger import Ledger

    book, screen = Ledger(place_of(ledger)), Screen(as_json=json)
    found = book.accounts()
    bare = sorted(set(book.names()) - {one.data_set for one in found})
    cells = [(one.data_set, *_cells(one)) for one in found] + [
        (name, "-", "0", "-", "-", "") for name in bare
    ]
    if not cells:
        screen.say(NOTHING)
    else:
        screen.table(("data set", *_HEAD), cells, right=(2,), spare=(5,))
    screen.say(f"The book is {book.place}", style="dim")
    screen.emit({"place": book.place, "data_sets": [{"name": one.data_set, **plain(one)} for one in found]})


def verify(name: AnyName = None, ledger: options.LedgerPlace = None, json: options.Json = False) -> None:
    """Compute every hash and every total anew; exit 1 where one does not hold."""
    from dataclasses import asdict

    from graphveil.ledger import Ledger

    book, screen = Ledger(place_of(ledger)), Screen(as_json=json)
    names, breaks = [name] if name else book.names(), book.verify(name)
    if not names:
        raise ConfigError(f"{book.place} has no data set, so there is nothing to verify; check --ledger")
    for found in breaks:
        screen.say(f"{found.data_set}, entry {found.entry}: {found.why}")
    if not breaks:
        screen.say(f"All chains hold: {len(names)} data sets in {book.place}.")
    screen.emit({"place": book.place, "data_sets": names, "breaks": [asdict(found) for found in breaks]})
    if breaks:
        raise typer.Exit(1)


def export(
    name: Name,
    out: Annotated[Path, typer.Option("--out", help="A new file: one entry a line, as JSON.")],
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Write a data set's entries with their hashes, for an auditor who checks the chain alone."""
    from graphveil._files import write_atomic
    from graphveil.ledger import Ledger

    check_new(out, "an export is a new file; choose another --out")
    book, screen = Ledger(place_of(ledger)), Screen(as_json=json)
    rows = [json_text.dumps(row, sort_keys=True) for row in book.export(name)]
    write_atomic(out, "".join(f"{row}\n" for row in rows).encode())
    screen.say(f"{len(rows):,} entries of {name} are in {out}")
    screen.emit({"name": name, "entries": len(rows), "path": str(out)})


def raise_(
    name: Name,
    unit: options.Unit = None,
    epsilon: options.Budget = None,
    delta: options.Delta = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; it stays in the book.")] = "",
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Raise a limit, for a reason that stays in the book."""
    from graphveil.ledger import Ledger, unit_key

    if unit is None or epsilon is None or delta is None:
        raise ConfigError("say which limit and how far: pass --unit, --epsilon and --delta")
    book, screen = Ledger(place_of(ledger)), Screen(as_json=json)
    book.raise_limit(name, unit, epsilon=epsilon, delta=delta, reason=reason)
    (account,) = [one for one in book.accounts(name) if one.unit == unit_key(unit)]
    screen.say(f"{name}, unit {account.unit}: {limit_of(account)} from now on")
    screen.emit({"name": name, "place": book.place, **plain(account)})


_HEAD = ("unit", "releases", "spent", "limit", "")


def place_of(named: str | None) -> str | None:
    """Return the place of a ledger that a flag names: a URL, or a path."""
    from graphveil.ledger import split_name

    if named is None or "://" not in named:
        return named
    return split_name(named)[0]


def _read(tables: Tables, columns: Columns, origin: Origin) -> "Graph":
    """Read the data that are registered: with labels as a run would read them, else who is connected."""
    if origin.dataset is not None or origin.graph is not None or columns.label or columns.classes:
        return origin.source(tables, columns).load()
    ends = {"id": columns.id, "source": columns.source, "target": columns.target}
    read = Connections(nodes=tables.nodes, edges=tables.edges, directed=columns.directed, **ends)
    return read_connections(None, None, read)


def _cells(account: "Account") -> tuple[str, ...]:
    limit = "none" if account.limit is None else str(account.limit.epsilon)
    return account.unit, f"{account.releases:,}", shown(epsilon_of(account)), limit, bar_of(account)
