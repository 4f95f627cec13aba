"""A target of seconds, and what runs it."""

import math
from pathlib import Path

from graphveil.papers.as_published.grid import ReproductionGrid
from graphveil.papers.as_published.target import (
    Axis,
    Mode,
    PublishedValue,
    ReproductionOptions,
    ReproductionTarget,
    TargetLine,
)
from graphveil.runs.run_folder import RunFolder

QUICK = {"epochs": 2}
SMALL = ReproductionTarget(
    name="small",
    title="A grid of seconds",
    source="nowhere",
    lines=(
        TargetLine(
            name="GAP",
            method="gap",
            parameters={**QUICK, "delta": 1e-4},
            paper={"unit": "directed-edge"},
            strict={"unit": "undirected-edge"},
            search={"hops": (1, 2)},
            xs=(1.0, 4.0),
        ),
        TargetLine(
            name="budget of any size",
            method="mlp",
            parameters={**QUICK, "delta": 1e-4, "unit": "undirected-edge", "tuned": False},
            free={**QUICK, "unit": "none", "tuned": False},
            xs=(4.0, math.inf),
            modes=("strict",),
        ),
        TargetLine(
            name="MLP", method="mlp", parameters={**QUICK, "unit": "none", "tuned": False}, level=True
        ),
        TargetLine(
            name="SAGE-NDP",
            method="sage",
            parameters={"unit": "node-record", "out_degree_bound": 5, "delta": 1e-4},
            modes=("strict",),
        ),
    ),
    axis=Axis(label="epsilon", keyword="epsilon", values=(1.0, 4.0, math.inf), quick=(4.0,)),
    datasets=("synthetic/tiny",),
    published={("synthetic/tiny", "", "GAP", 4.0): PublishedValue(99.0, 0.5)},
    compared=(("", "GAP", "MLP"),),
    deviations=("a made-up source",),
)


def grid_in(folder: Path, mode: Mode = "paper", *, runs: int = 2, jobs: int = 1) -> ReproductionGrid:
    return ReproductionGrid(
        target=SMALL,
        run_options=ReproductionOptions(mode=mode, runs=runs),
        folder=RunFolder(folder),
        jobs=jobs,
    )
