"""Targets of the report on weighted aggregations for GAP: learned attention, and similarity."""

from graphveil.lab.papers.target import Axis, ReproductionTarget, TargetLine

_SHARED = {"delta": 1e-5, "hops": 1}
_PAPER, _STRICT = {"unit": "directed-edge"}, {"unit": "undirected-edge"}
_PMA, _SIMILAR, _LEARNED = "unweighted (GAP)", "similarity", "learned attention"


def _weighted(name: str, weights: str) -> TargetLine:
    return TargetLine(
        name=name,
        method="gap",
        parameters={**_SHARED, **({} if weights == "one" else {"weights": weights})},
        paper=_PAPER,
        strict=_STRICT,
    )


FIGURE3 = ReproductionTarget(
    name="weighted:figure3",
    title="Weights of neighbors: none, by similarity, by learned attention",
    source="Weighted Aggregations under Edge-Level Differential Privacy, Figure 3",
    lines=(
        _weighted(_PMA, "one"),
        _weighted(_SIMILAR, "sigmoid_cos"),
        _weighted(_LEARNED, "attention"),
        TargetLine(name="MLP", method="mlp", parameters={"unit": "undirected-edge"}, level=True),
    ),
    axis=Axis(label="epsilon", keyword="epsilon", values=(1.0, 2.0, 4.0, 8.0), quick=(1.0, 8.0)),
    datasets=("facebook_pages", "amazon/computers"),
    recipe="weighted",
    compared=(("", _SIMILAR, _PMA), ("", _LEARNED, _PMA), ("", _SIMILAR, _LEARNED)),
    needs="the paper's Reddit is not here (by download only); --datasets synthetic/reddit stands in",
    deviations=(
        "the paper prints a plot and no table, so only its claims can be judged: similarity is competitive "
        "and does not outperform, learned attention is worse and cannot be trained at epsilon 1 and 2",
        "10 % of the training nodes are kept for validation",
    ),
    minutes=(15, 6, 8),
)
TARGETS = {FIGURE3.name: FIGURE3}
