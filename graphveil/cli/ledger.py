"""``ledger``: what was ever released of which data, how much more may be, and whether the book is whole."""

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil.cli import options
from graphveil.cli.connections import Columns, read_connections
from graphveil.cli.console import Screen
from graphveil.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from graphveil.ledger import Account, Ledger

Name = Annotated[str, typer.Argument(metavar="NAME", help="The data set.", show_default=False)]
AnyName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="One data set; by default all.", show_default=False)
]
_BAR = 24  # characters of a full budget


def init(
    name: Name,
    unit: options.Unit = None,
    epsilon: options.Budget = None,
    delta: options.Delta = None,
    dataset: options.Dataset = None,
    root: options.Root = None,
    nodes: options.Nodes = None,
    edges: options.Edges = None,
    id: options.Id = None,
    label: options.Label = None,
    source: options.SourceColumn = None,
    target: options.TargetColumn = None,
    directed: options.Directed = False,
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Register a data set with a budget under one unit; its files are given now, or by the first run.

    Given again with the files of data that have grown, it registers the new version, which adds to the same
    budget.
    """
    from graphveil.experiment.graph_tags import parts_of
    from graphveil.ledger import Ledger, unit_key

    if unit is None:
        raise ConfigError("a budget protects something: pass --unit (undirected-edge, node-owner, ...)")
    if (epsilon is None) != (delta is None):
        raise ConfigError(
            "a budget is an epsilon and a delta: pass --epsilon and --delta, or neither for no limit"
        )
    book, tags = Ledger(_place(ledger)), None
    if nodes is not None or edges is not None or dataset is not None:
        graph = _read(dataset, root, nodes, edges, id, label, source, target, directed)
        tags = book.fingerprints(parts_of(graph))
    book.init(name, unit, epsilon=epsilon, delta=delta, tags=tags)
    (account,) = [one for one in book.accounts(name) if one.unit == unit_key(unit)]
    screen = Screen(as_json=json)
    known = "bound to these data" if tags else "bound by the first run that names it"
    screen.say(
        f"{name} is registered under unit {account.unit}: {_limit(account)}; {known}. The book is "
        f"{book.place}"
    )
    screen.emit({"name": name, "place": book.place, **_plain(account)})


def list_(ledger: options.LedgerPlace = None, json: options.Json = False) -> None:
    """List the registered data sets, with what is spent of each budget."""
    from graphveil.ledger import Ledger

    book, screen = Ledger(_place(ledger)), Screen(as_json=json)
    found = book.accounts()
    bare = sorted(set(book.names()) - {one.data_set for one in found})
    cells = [(one.data_set, *_cells(one)) for one in found] + [
        (name, "-", "0", "-", "-", "") for name in bare
    ]
    if not cells:
        screen.say(
            "No data set is registered. `graphveil ledger init NAME --unit UNIT --epsilon E --delta D` does."
        )
    else:
        screen.table(("data set", *_HEAD), cells, right=(2,))
    screen.say(f"The book is {book.place}", style="dim")
    screen.emit({"place": book.place, "data_sets": [{"name": one.data_set, **_plain(one)} for one in found]})


def show(
    name: Name,
    unit: options.Unit = None,
    ledger: options.LedgerPlace = None,
    json: options.Json = False,
) -> None:
    """Show what was spent of a data set, release by release."""
    from graphveil.ledger import Ledger, unit_key

    book, screen = Ledger(_place(ledger)), Screen(as_json=json)
    found = [one for one in book.accounts(name) if unit is None or one.unit == unit_key(unit)]
    if not found:
        raise ConfigError(
            f"data set {name!r} has no budget and no release under this unit; see `graphveil ledger list`"
        )
    lines = [line for one in found for line in _lines(book, one)]
    for one in found:
        screen.say(f"{name}, unit {one.unit}", style="bold")
        screen.say(f"  {_spent(one)}")
        mine = [line for line in lines if line["unit"] == one.unit]
        cells = [
            (
                str(x["entry"]),
                x["time"][:16].replace("T", " "),
                x["label"],
                _shown(x["epsilon"]),
                _total(x, one),
            )
            for x in mine
        ]
        if cells:
            screen.table(("entry", "time (UTC)", "release", "epsilon", "total so far"), cells, right=(0, 3))
        screen.say("")
    if len(found) > 1:
        screen.say(
            "What is spent under different units does not add up: they protect different things.", style="dim"
        )
    screen.say(f"The book is {book.place}", style="dim")
    head = {"name": name, "place": book.place}
    screen.emit(
        head
        | (
            _plain(found[0]) | {"entries": lines}
            if len(found) == 1
            else {"units": [_plain(one) for one in found], "entries": lines}
        )
    )


def verify(name: AnyName = None, ledger: options.LedgerPlace = None, json: options.Json = False) -> None:
    """Compute every hash and every total anew; exit 1 where one does not hold."""
    from dataclasses import asdict

    from graphveil.ledger import Ledger

    book, screen = Ledger(_place(ledger)), Screen(as_json=json)
    names, breaks = [name] if name else book.names(), book.verify(name)
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

    if out.exists():
        raise ArtifactError(f"{out} exists; choose another --out")
    book, screen = Ledger(_place(ledger)), Screen(as_json=json)
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
    book, screen = Ledger(_place(ledger)), Screen(as_json=json)
    book.raise_limit(name, unit, epsilon=epsilon, delta=delta, reason=reason)
    (account,) = [one for one in book.accounts(name) if one.unit == unit_key(unit)]
    screen.say(f"{name}, unit {account.unit}: {_limit(account)} from now on")
    screen.emit({"name": name, "place": book.place, **_plain(account)})


_HEAD = ("unit", "releases", "spent", "limit", "")


def _place(named: str | None) -> str | None:
    """Return the place of a ledger that a flag names: a URL, or a path."""
    from graphveil.ledger import split_name

    if named is None or "://" not in named:
        return named
    return split_name(named)[0]


def _read(
    dataset: str | None,
    root: Path | None,
    nodes: Path | None,
    edges: Path | None,
    id: str | None,
    label: str | None,
    source: str | None,
    target: str | None,
    directed: bool,
) -> Any:
    """Read the data that are registered: with a label column their records too, else who is connected."""
    from graphveil.experiment.source import Source

    if dataset is None and label is None:
        columns = Columns(nodes=nodes, edges=edges, id=id, source=source, target=target, directed=directed)
        return read_connections(None, None, columns)
    names: dict[str, Any] = {"id": id, "label": label, "source": source, "target": target}
    return Source(dataset=dataset, root=root, nodes=nodes, edges=edges, directed=directed, **names).load()


def _cells(account: "Account") -> tuple[str, ...]:
    limit = "none" if account.limit is None else str(account.limit.epsilon)
    return account.unit, f"{account.releases:,}", _shown(_epsilon(account)), limit, _bar(account)


def _epsilon(account: "Account") -> float | None:
    """Return what is spent, at the limit's delta or at the unit's default one."""
    found = account.total.epsilon(_delta(account))
    return found if found < float("inf") else None


def _delta(account: "Account") -> float:
    from graphveil.experiment.ledger_account import unit_delta

    return unit_delta(account.unit) if account.limit is None else float(account.limit.delta)


def _shown(epsilon: float | None) -> str:
    from graphveil.privacy.figures import figure_up

    return "no bound" if epsilon is None else figure_up(epsilon)


def _limit(account: "Account") -> str:
    from graphveil.privacy.figures import delta_up

    if account.limit is None:
        return "no limit"
    return f"at most epsilon {account.limit.epsilon} at delta {delta_up(float(account.limit.delta))}"


def _spent(account: "Account") -> str:
    from graphveil.privacy.figures import delta_up

    at = f"at delta {delta_up(_delta(account))}"
    count = "1 release" if account.releases == 1 else f"{account.releases:,} releases"
    limit = "no limit" if account.limit is None else f"of {account.limit.epsilon} {_bar(account)}"
    return f"{count}, epsilon {_shown(_epsilon(account))} {at}, {limit}"


def _bar(account: "Account", spent: float | None = None) -> str:
    """Return how much of a budget is spent, as a bar."""
    if account.limit is None or not account.limit.epsilon:
        return ""
    epsilon = _epsilon(account) if spent is None else spent
    share = 1.0 if epsilon is None else min(1.0, epsilon / float(account.limit.epsilon))
    full = round(_BAR * share)
    return "█" * full + "░" * (_BAR - full)


def _lines(book: "Ledger", account: "Account") -> list[dict[str, Any]]:
    """Return a line for each release that was not given back: what it cost, and the total with it."""
    from graphveil.ledger import Total
    from graphveil.privacy import Entry
    from graphveil.privacy.serialization import events_from_plain

    rows = list(book.export(account.data_set))
    gone = {row["reference"] for row in rows if row["kind"] == "withdraw"}
    total, lines, delta = Total(), [], _delta(account)
    for row in rows:
        if row["kind"] != "reserve" or row["unit"] != account.unit or row["reference"] in gone:
            continue
        cost = Total.of(Entry(row["reference"], row["label"], events_from_plain(row["events"]), row["slack"]))
        total = total.plus(cost)
        alone, together = cost.epsilon(delta), total.epsilon(delta)
        figures = {"epsilon": _finite(alone), "total": _finite(together)}
        about = {"entry": row["number"], "reference": row["reference"], "hash": row["hash"]}
        lines.append({**about, "unit": row["unit"], "time": row["time"], "label": row["label"], **figures})
    return lines


def _total(line: dict[str, Any], account: "Account") -> str:
    shown = _shown(line["total"])
    return f"{shown:>8} {_bar(account, line['total'])}" if line["total"] is not None else shown


def _plain(account: "Account") -> dict[str, Any]:
    limit, spent = account.limit, _epsilon(account)
    left = None
    if limit is not None:
        left = account.total.room(limit)
    return {
        "unit": account.unit,
        "limit": None if limit is None else {"epsilon": float(limit.epsilon), "delta": float(limit.delta)},
        "spent": spent,
        "delta": _delta(account),
        "remaining": left,
        "releases": account.releases,
    }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
