"""The tables of ``topology.py``, from its JSON lines."""

import math
import statistics
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

Record = dict[str, Any]
Rows = dict[
    tuple[str, float, str], dict[float, list[Record]]
]  # by data, fraction, mechanism; then by epsilon

NAMES = {
    "exact": "exact graph, no privacy",
    "mlp": "baseline (MLP)",
    "gap": "GAP",
    "classcode": "ClassCode",
    "public": "public edges only",
}
ORDER = (*NAMES, "edge-rand", "lap-graph", "arr", "priv-hrg", "edge-rr")  # order of table rows
METRICS = {
    "overlap": "shared edges / edges of either",
    "degrees": "KL divergence of degrees",
    "walk": "distance of random walks, RMS",
}


def tables(records: Iterable[Record], command: str) -> Iterator[str]:
    """Yield the lines of the tables of a command."""
    rows: Rows = {}
    for record in records:
        name = record["data"], record["fraction"], record["mechanism"]
        rows.setdefault(name, {}).setdefault(record["epsilon"], []).append(record)
    yield from {"accuracy": accuracy, "queries": queries, "structure": structure}[command](rows)


def accuracy(rows: Rows) -> Iterator[str]:
    """Yield a table of accuracies in percent for each dataset, with a column for each epsilon."""
    for data in dict.fromkeys(name[0] for name in rows):
        own = {name[1:]: row for name, row in rows.items() if name[0] == data}
        levels = sorted({epsilon for row in own.values() for epsilon in row if epsilon})
        yield f"\n| {data} | private edges | {' | '.join(f'{epsilon:g}' for epsilon in levels)} |"
        yield f"|{'---|' * (2 + len(levels))}"
        for (fraction, mechanism), row in sorted(own.items(), key=_place):
            cells = [format_cell(row.get(e, []), percent) for e in _levels(row, levels)]
            share = f"{100 * fraction:g} %"
            yield f"| {NAMES.get(mechanism, mechanism)} | {share} | {' | '.join(cells)} |"


def queries(rows: Rows) -> Iterator[str]:
    """Yield a table of the errors of the fifteen queries for each dataset and epsilon."""
    for data in dict.fromkeys(name[0] for name in rows):
        own = {name[2]: row for name, row in sorted(rows.items(), key=_place) if name[0] == data}
        for epsilon in sorted({epsilon for row in own.values() for epsilon in row}):
            yield f"\n| {data}, epsilon {epsilon:g} | {' | '.join(own)} |\n|{'---|' * (1 + len(own))}"
            cells = [row.get(epsilon, []) for row in own.values()]
            made = [record for cell in cells for record in cell if "errors" in record]
            for name in made[0]["errors"] if made else ():
                line = [
                    format_cell(cell, lambda record, name=name: record["errors"][name], ".2g")
                    for cell in cells
                ]
                yield f"| {name} | {' | '.join(line)} |"


def structure(rows: Rows) -> Iterator[str]:
    """Yield a table for each metric."""
    for metric, title in METRICS.items():
        levels = sorted({epsilon for row in rows.values() for epsilon in row if epsilon})
        yield f"\n| {title} | private edges | {' | '.join(f'{epsilon:g}' for epsilon in levels)} |"
        yield f"|{'---|' * (2 + len(levels))}"
        value = itemgetter(metric)
        for (_, fraction, mechanism), row in sorted(rows.items(), key=_place):
            cells = [format_cell(row.get(e, []), value, ".3g") for e in _levels(row, levels)]
            yield f"| {NAMES.get(mechanism, mechanism)} | {100 * fraction:g} % | {' | '.join(cells)} |"


def percent(record: Record) -> float:
    """Return the accuracy of a run in percent."""
    return 100 * float(record["accuracy"])


def format_cell(cell: list[Record], value: Any, form: str = ".1f", *, whole: int = 3) -> str:
    """Return mean and standard error, with the number of runs if few, or the size of a rejected release."""
    if not cell:
        return ""
    if "rejected" in cell[0]:
        expected = cell[0]["rejected"].split(" is expected to add ")[-1].split(" edges")[0]
        return f"*{int(expected.replace(',', '')) / 1e6:.0f}M edges*"
    values = [value(record) for record in cell]
    known = [one for one in values if one is not None]
    if not known:
        return "undefined"
    text = f"{statistics.fmean(known):{form}}"
    if len(known) > 1:
        error = ".1g" if form.endswith("g") else form
        text += f" ± {statistics.stdev(known) / math.sqrt(len(known)):{error}}"
    return text if len(known) >= whole else f"{text} ({len(known)})"


def _levels(row: dict[float, list[Record]], levels: list[float]) -> list[float]:
    """Return the epsilons of the cells of a row; a row without epsilon has one cell."""
    return [0.0] + [-1.0] * (len(levels) - 1) if 0.0 in row else levels


def _place(item: tuple[tuple[Any, ...], Any]) -> tuple[float, int]:
    """Return the sort key of a row: methods for all edges, then fractions, then mechanisms."""
    fraction, mechanism = item[0][-2:]
    return 0.0 if mechanism in ("exact", "mlp", "gap", "classcode") else fraction, ORDER.index(mechanism)
