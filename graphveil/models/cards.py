"""The pages of a release that people read: what is promised, in whose words, and what the model is."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphveil.privacy import DirectedEdge, Guarantee, NoUnit
from graphveil.privacy.guarantee import figure_up

if TYPE_CHECKING:
    from graphveil.aggregate import ReleasePlan
    from graphveil.models.base import Estimator

_SECRET = {
    "undirected-edge": "whether two particular people are connected",
    DirectedEdge.name: "whether one particular person's stored link to another exists",
}
NEVER_COVERED = (
    "running times, memory and file sizes, which this release does not contain",
    "what can be inferred about a person from the features and labels alone",
)


@dataclass(frozen=True)
class ReleaseRow:
    """One noisy answer about the edges: its kind, its sensitivity, and its noise by group of rows."""

    kind: str
    sensitivity: float
    noise_std: list[float]
    values_per_node: int | None


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a model card says about the data and the results; all of it covered by the guarantee."""

    dataset: str
    recipe: str | None = None
    accuracies: dict[str, float] = field(default_factory=dict)
    other_runs: str = ""


def release_rows(plan: "ReleasePlan") -> tuple[ReleaseRow, ...]:
    """Return a plan's answers in order."""
    from graphveil.aggregate import HopQuery

    return tuple(
        ReleaseRow(
            kind="rows" if isinstance(query, HopQuery) else "counts",
            sensitivity=query.sensitivity(plan.unit),
            noise_std=list(query.sigma),
            values_per_node=query.dim if isinstance(query, HopQuery) else None,
        )
        for query in plan.queries
    )


def catch_rate(guarantee: Guarantee) -> str:
    """Return the attacker's figure in words.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> catch_rate(Guarantee.of(UndirectedEdge(), Gaussian(0.21373627), delta=1e-7, releases=1))
    'catch rate at 1 % false alarms: at most 1.74 %'
    """
    return f"catch rate at 1 % false alarms: at most {percent_up(guarantee.attacker_rate)} %"


def percent_up(rate: float) -> str:
    """Return a rate in percent with two decimals, rounded up: what stands after "at most" has to be true.

    >>> percent_up(0.01732), percent_up(0.01)
    ('1.74', '1.00')
    """
    hundredths = math.ceil(1e4 * rate * (1 - 1e-9))  # which a figure's own rounding may exceed
    return f"{hundredths / 100:.2f}"


def plain_words(guarantee: Guarantee) -> str:
    """Return what the guarantee means for somebody who does not know differential privacy."""
    if guarantee.unit == NoUnit.name:
        return (
            "Nothing is hidden: whoever sees the model or its predictions may learn which edges it was "
            "trained on. Use it inside, as a reference, and do not publish it."
        )
    secret = _SECRET[guarantee.unit]
    if guarantee.releases == 0:
        return f"The model was trained without looking at the edges, so it cannot tell {secret}."
    return (
        f"Suppose that an attacker knows everything except {secret}: all other edges, everybody's features "
        "and labels, and all that this run gives out. If the attacker accepts a false alarm for 1 in 100 of "
        f"the edges that do not exist, any test finds at most {percent_up(guarantee.attacker_rate)} in 100 "
        "of those that do; guessing blindly finds 1. This holds for every method and any computing power."
    )


def other_runs(seed: int, runs: int, together: Guarantee) -> str:
    """Return what is to be said about the runs that are not in the release, if there are any."""
    if runs == 1 or not together.releases:
        return ""
    return (
        f"This is the run of seed {seed}, chosen beforehand, of {runs} runs on the same edges. Nothing in "
        "this folder comes from the others. Whatever is told about all of them, a mean accuracy for example, "
        f"is ({figure_up(together.epsilon)}, {together.delta:g})-indistinguishable only."
    )


def privacy_page(guarantee: Guarantee, rows: tuple[ReleaseRow, ...], card: Card | None = None) -> str:
    """Return PRIVACY.md."""
    parts = [
        "# Privacy",
        guarantee.statement(),
        *([card.other_runs] if card is not None and card.other_runs else []),
        "## In plain words",
        plain_words(guarantee),
        "## What was released about the edges",
        _release_table(rows),
        f"Unit: `{guarantee.unit}`. Epsilon {figure_up(guarantee.epsilon)}, delta {guarantee.delta:g}. "
        f"{catch_rate(guarantee).capitalize()}.",
        "## Not covered",
        "\n".join(f"* {line}" for line in not_covered(guarantee)),
    ]
    if guarantee.deviations:
        parts += ["## Deviations", "\n".join(f"* {line}" for line in guarantee.deviations)]
    return "\n\n".join(parts) + "\n"


def not_covered(guarantee: Guarantee) -> tuple[str, ...]:
    """Return what the guarantee says nothing about, a line each."""
    return (guarantee.not_covered, *NEVER_COVERED)


def model_card(model: "Estimator", guarantee: Guarantee, card: Card | None) -> str:
    """Return MODEL_CARD.md."""
    names = model.class_names_
    parts = [
        f"# Model card: {model.method}",
        f"A node classifier with {model._shape['features']} input features and {model._shape['classes']} "
        f"classes{': ' + ', '.join(names) if 0 < len(names) <= 30 else ''}.",
        *([] if card is None else _results(card)),
        "## Privacy",
        f"{guarantee.statement()}\n\nDetails: `PRIVACY.md`.",
        "## Limits",
        "* Predictions are for the nodes of the graph it was trained on; another graph's edges are asked "
        "anew, at a price of their own.\n* Other models trained on the same edges add to what is given "
        "away.\n* Accuracy on other data is unknown.",
        "## Use",
        '```\nimport graphveil as gv\n\nmodel = gv.load_model("this folder")\nmodel.predict()\n```',
        "Loading executes nothing that the folder holds.",
    ]
    return "\n\n".join(parts) + "\n"


def _results(card: Card) -> list[str]:
    recipe = f", prepared by the recipe `{card.recipe}`" if card.recipe else ""
    lines = [f"* {name}: {100 * value:.1f} %" for name, value in card.accuracies.items()]
    return ["## Data and results", f"Data: {card.dataset}{recipe}.", "\n".join(lines)]


def release_cells(rows: tuple[ReleaseRow, ...]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the lines of a table of noisy answers."""
    head = ("#", "kind", "sensitivity", "noise standard deviation", "values a node")
    lines: list[tuple[str, ...]] = [
        (
            str(number),
            row.kind,
            f"{row.sensitivity:.6g}",
            ", ".join(f"{sigma:.5g}" for sigma in dict.fromkeys(row.noise_std)),
            str(row.values_per_node or "-"),
        )
        for number, row in enumerate(rows, start=1)
    ]
    return head, lines


def _release_table(rows: tuple[ReleaseRow, ...]) -> str:
    if not rows:
        return "Nothing: no release was made."
    head, lines = release_cells(rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *lines))
