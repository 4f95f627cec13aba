"""The grid of a target as cells: each is one run of one setting, and is computed once."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from graphveil import __version__
from graphveil.lab.papers.target import Keywords, Mode, ReproductionTarget, TargetLine

_NAME = 10  # letters of a digest in a file's name
_PACKAGE = Path(__file__).parents[1]


@cache
def code_digest() -> str:
    """Return a digest of the package's own code, read once: one version has many states of it."""
    return digest_of(_PACKAGE)


def digest_of(package: Path) -> str:
    """Return a digest of a folder's Python files, by name and content: any of them can change a figure."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        for part in (path.relative_to(package).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:_NAME]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a cell computes, as plain values: it is named by them, and can be sent to another process."""

    measure: str
    method: str
    dataset: str
    recipe: str
    seed: int
    parameters: Keywords
    options: Keywords = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its file: two cells of the same work share one, whatever line they stand in."""
        code = {"version": __version__, "code": code_digest()}
        plain = json.dumps({**asdict(self), **code}, sort_keys=True)
        digest = hashlib.sha256(plain.encode()).hexdigest()[:_NAME]
        data = self.dataset.replace("/", "-")
        return f"{self.measure}-{self.method}-{data}-{self.seed}-{digest}"


@dataclass(frozen=True, kw_only=True)
class ReproductionCell:
    """One run of one setting, at its place in the target.

    Args:
        panel, line: the line's panel and name.
        x: the place on the axis; None without one.
        settings: what of the line's search it tries.
        work: what is computed.
    """

    panel: str
    line: str
    x: float | None
    settings: Keywords
    work: Work

    @property
    def place(self) -> tuple[str, str, str, float | None]:
        """Where its figure stands: data set, panel, line, place on the axis."""
        return self.work.dataset, self.panel, self.line, self.x


@dataclass(frozen=True, kw_only=True)
class ReproductionOptions:
    """What a call asks of a target.

    Args:
        mode: ``"paper"`` or ``"strict"``.
        runs: how many runs a setting.
        seed: of the first; run r has ``seed + r``.
        quick: fewer places, and a smaller search.
    """

    mode: Mode
    runs: int
    seed: int = 0
    quick: bool = False


def cells_of(target: ReproductionTarget, run_options: ReproductionOptions) -> tuple[ReproductionCell, ...]:
    """Return the cells of a target, the first run of everything first, one data set after the other."""
    return tuple(
        cell
        for dataset in target.datasets
        for run in range(run_options.runs)
        for line in target.lines_in(run_options.mode)
        if line.runs_on(dataset)
        for cell in _cells(target, run_options, dataset, line, run_options.seed + run)
    )


def _cells(
    target: ReproductionTarget, run_options: ReproductionOptions, dataset: str, line: TargetLine, seed: int
) -> Iterator[ReproductionCell]:
    search = line.searched(run_options.mode, quick=run_options.quick)
    for x in target.places(line, dataset, quick=run_options.quick):
        for values in product(*search.values()):
            settings = dict(zip(search, values, strict=True))
            yield ReproductionCell(
                panel=line.panel,
                line=line.name,
                x=x,
                settings=settings,
                work=Work(
                    measure=line.measure,
                    method=line.method,
                    dataset=dataset,
                    recipe=target.recipe,
                    seed=seed,
                    parameters=_keywords(target, line, run_options.mode, dataset, x, settings, seed),
                    options=line.options,
                ),
            )


def _keywords(
    target: ReproductionTarget,
    line: TargetLine,
    mode: Mode,
    dataset: str,
    x: float | None,
    settings: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    keywords = {**line.keywords(mode, dataset), **settings}
    if x is not None and target.axis is not None:
        keywords[line.keyword or target.axis.keyword] = x
        if x == math.inf and line.free is not None:
            keywords = {**line.free, **line.by_dataset.get(dataset, {}), **settings}
    if mode == "strict":
        return keywords
    noise = {} if keywords.get("unit", "none") == "none" else {"unsafe_noise_seed": seed}
    return {**keywords, "mode": "paper", **noise}  # without privacy, too: all lines have one graph and split
