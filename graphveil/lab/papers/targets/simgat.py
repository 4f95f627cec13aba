"""The target of SimGAT (Ameen, Emireddy, Stevens: a slide deck without numbers)."""

from graphveil.lab.papers.published.lpgnn import CORA, FACEBOOK, PUBMED
from graphveil.lab.papers.target import Axis, ReproductionTarget, TargetLine
from graphveil.lab.papers.targets.lpgnn import INF, OWN_ROW, QUIET, SCALED

_K = (2, 4, 8, 16)
_SHARED = {"unit": "local-attributes", "eps_y": INF, "y_steps": 0, **QUIET}
_KPROP, _NAMES = "KProp(k)", {"multihop": "multihop", "deepwalk": "deepwalk(length=40, window=5)"}


def _kprop(name: str, less: int) -> tuple[TargetLine, ...]:
    """Return KProp with k steps, or with as many as SimGAT has: one less."""
    return tuple(
        TargetLine(
            name=f"{name}, k = {k}",
            method="lpgnn",
            parameters={**_SHARED, "x_steps": k - less},
            by_dataset={PUBMED: SCALED},
            strict=OWN_ROW,
        )
        for k in _K
    )


def _simgat(kind: str) -> tuple[TargetLine, ...]:
    return tuple(
        TargetLine(
            name=f"SimGAT(k - 1, {kind}), k = {k}",
            method="simgat",
            parameters={**_SHARED, "x_steps": k - 1, "similarity": _NAMES[kind]},
            by_dataset={PUBMED: SCALED},
            strict=OWN_ROW,
        )
        for k in _K
    )


RESULTS = ReproductionTarget(
    name="simgat:results",
    title="Similar nodes in place of a hop: SimGAT with k - 1 hops against KProp with k",
    source="SimGAT (Ameen, Emireddy, Stevens; slides), Preliminary results",
    lines=(*_kprop(_KPROP, 0), *_kprop("KProp(k - 1)", 1), *_simgat("multihop"), *_simgat("deepwalk")),
    axis=Axis(label="eps_x", keyword="eps_x", values=(0.01, 0.1, 1.0, 2.0, 3.0), quick=(0.1, 1.0)),
    datasets=(CORA, PUBMED, FACEBOOK),
    recipe="lpgnn",
    compared=tuple(
        ("", f"SimGAT(k - 1, {kind}), k = {k}", f"{baseline}, k = {k}")
        for kind in _NAMES
        for baseline in (_KPROP, "KProp(k - 1)")
        for k in _K
    ),
    needs="deepwalk needs graphveil[simgat]; LastFM Asia is here without features",
    deviations=(
        "the slides print a plot without figures and do not define how similar nodes enter; ours is "
        "defined in docs/simgat.md",
        "walks of length 40 and a window of 5, a quarter of the work of DeepWalk's defaults",
    ),
    minutes=(300, 90, 300),
)
TARGETS = {RESULTS.name: RESULTS}
