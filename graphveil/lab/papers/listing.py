"""What a target is, before it is run: what it needs, how long it takes, what was published."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphveil.data import list_datasets
from graphveil.lab.papers.cells import ReproductionOptions, cells_of
from graphveil.lab.papers.target import MODES, ReproductionTarget

RUNS = 3


def overview(target: ReproductionTarget, root: Path | None) -> dict[str, Any]:
    """Return one row: the target, what it shows, whether its data are here, how many cells, how long."""
    return {
        "target": target.name,
        "title": target.title,
        "source": target.source,
        "datasets": list(target.datasets),
        "data": "here" if not missing(target, root) else f"missing: {', '.join(missing(target, root))}",
        "needs": target.needs,
        "cells": _cells(target),
        "minutes": ", ".join(f"{minutes:g}" if minutes else "-" for minutes in target.minutes),
        "published_figures": len(target.published),
    }


def missing(target: ReproductionTarget, root: Path | None) -> list[str]:
    """Return the target's data sets that would have to be fetched."""
    here = {row["name"] for row in list_datasets(root) if row["local"]}
    return [name for name in target.datasets if name not in here]


def _cells(target: ReproductionTarget) -> int:
    return len(
        {cell.work.name for cell in cells_of(target, ReproductionOptions(mode=target.modes[0], runs=RUNS))}
    )


def describe(target: ReproductionTarget, root: Path | None) -> list[tuple[str, str]]:
    """Return everything that a target declares, as names and words."""
    return list(_facts(target, root))


def _facts(target: ReproductionTarget, root: Path | None) -> Iterator[tuple[str, str]]:
    yield "shows", target.title
    yield "from", target.source
    away = missing(target, root)
    yield "data sets", ", ".join(f"{name}{' (not here)' if name in away else ''}" for name in target.datasets)
    yield "compared with", "; ".join(dict.fromkeys(map(target.comparison_note, target.datasets)))
    if target.needs:
        yield "needs", target.needs
    if target.axis is not None:
        axis = target.axis
        yield axis.label, ", ".join(f"{x:g}" for x in axis.values)
        yield f"{axis.label}, --quick", ", ".join(f"{x:g}" for x in axis.quick)
    for line in target.lines:
        search = "; ".join(f"{key} in {', '.join(map(str, values))}" for key, values in line.search.items())
        only = "" if line.modes == MODES else f"; {line.modes[0]} mode alone"
        words = f"{line.method}{f', searched: {search}' if search else ''}{only}"
        yield f"{line.panel + ': ' if line.panel else ''}{line.name}", words
    yield from (("not run", words) for words in target.left_out(target.modes[0], quick=False))
    yield "cells", f"{_cells(target):,} in {target.modes[0]} mode, {RUNS} runs"
    kinds = zip(("in paper mode", "with --quick", "in strict mode"), target.minutes, strict=True)
    known = ", ".join(f"{minutes:g} {how}" for how, minutes in kinds if minutes)
    yield "minutes", f"{known}; {RUNS} runs, two jobs"
    yield "published", f"{len(target.published)} figures"
    yield from (("deviation of paper mode", words) for words in target.deviations)
    yield from (("remark", words) for words in target.remarks)
