"""Results from a ``results.csv`` that was kept: its page and figures can be made again without the runs."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from graphveil.errors import ArtifactError
from graphveil.lab.papers.cells import ReproductionCell, ReproductionOptions, cells_of
from graphveil.lab.papers.measures.measurement import Measurement
from graphveil.lab.papers.outputs import COLUMNS, COSTS, Results
from graphveil.lab.papers.target import VAL, Mode, ReproductionTarget

_Key = tuple[str, ...]


def read_results_csv(text: str, target: ReproductionTarget, mode: Mode, *, quick: bool = False) -> Results:
    """Return the results that a CSV file holds; cells that are not in it are left out.

    Deviations of single guarantees are not in the file, and so on no page that is made from it.

    Raises:
        ArtifactError: the file is not one of this target's.
    """
    rows = {_key_of(row): row for row in csv.DictReader(io.StringIO(text))}
    seeds = sorted({int(key[-1]) for key in rows})
    datasets = dict.fromkeys(key[0] for key in rows)
    if not rows:
        raise ArtifactError("the file has no rows; make it again with `graphveil reproduce`")
    run_options = ReproductionOptions(mode=mode, runs=1 + seeds[-1] - seeds[0], seed=seeds[0], quick=quick)
    target = _at_places(target.on(list(datasets)), run_options, {float(key[3]) for key in rows if key[3]})
    runs = tuple(_runs(cells_of(target, run_options), rows, target))
    if len(runs) != len(rows):
        raise ArtifactError(
            f"{len(rows) - len(runs)} of {len(rows)} rows belong to no cell of {target.name} in {mode} mode; "
            "make the file again with `graphveil reproduce`"
        )
    return Results(target, run_options, runs)


def _at_places(
    target: ReproductionTarget, run_options: ReproductionOptions, found: set[float]
) -> ReproductionTarget:
    """Return the target at the places that a file has, if these are not all that were to be expected."""
    expected = {cell.x for cell in cells_of(target, run_options)} - {None}
    return target if found == expected else target.at(sorted(found))


def _key_of(row: Mapping[str, Any]) -> _Key:
    try:
        return tuple(row[name] for name in COLUMNS if name != "chosen")
    except KeyError:
        raise ArtifactError("the file is no results.csv: it lacks a column") from None


def _runs(
    cells: tuple[ReproductionCell, ...], rows: Mapping[_Key, Mapping[str, str]], target: ReproductionTarget
) -> Iterator[tuple[ReproductionCell, Measurement]]:
    for cell in cells:
        dataset, panel, line, x = cell.place
        settings = " ".join(f"{key}={value}" for key, value in cell.settings.items())
        place = (dataset, panel, line, "" if x is None else f"{x:g}", settings, str(cell.work.seed))
        if place in rows:
            row = rows[place]
            yield cell, Measurement(values=_values(row, target), cost=_cost(row), refused=row["refused"])


def _values(row: Mapping[str, str], target: ReproductionTarget) -> dict[str, float]:
    return {name: float(row[name]) for name in (*target.metrics, VAL) if row.get(name)}


def _cost(row: Mapping[str, str]) -> dict[str, Any] | None:
    if not row["unit"]:
        return None
    epsilon, delta = (float(row[name]) if row[name] else None for name in ("epsilon", "delta"))
    return dict(zip(COSTS, (row["unit"], epsilon, delta, row["valid"] == "True"), strict=True))
