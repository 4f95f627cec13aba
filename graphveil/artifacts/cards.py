"""The pages of a release that people read: what is guaranteed, in which words, and what the model is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphveil._util.templates import render
from graphveil.artifacts.rows import ReleaseRow, charged_to_text
from graphveil.privacy import (
    DirectedEdge,
    EdgeSubset,
    Guarantee,
    LocalAttributes,
    NodeBoundedDegree,
    NodeRecord,
    NoUnit,
)
from graphveil.privacy.formatting import format_delta, format_upper_bound

if TYPE_CHECKING:
    from graphveil.artifacts.snapshot import Snapshot

NOT_COVERED = "not covered: internal"  # beside every exact accuracy under a unit of records
NOT_VALID = "not valid"  # beside every epsilon and true-positive rate that deviations void
_PROTECTED_EDGE = {
    "undirected-edge": "whether two particular people are connected",
    EdgeSubset.name: "whether two particular people of the list have a private edge",
    DirectedEdge.name: "whether one particular person's stored link to another exists",
}
_KINDS = {
    "rows": "noisy rows",
    "counts": "counts of edges",
    "graph": "a noisy graph",
    "total": "the number of edges",
    "tree": "a tree over the nodes",
    "blocks": "counts of blocks of pairs",
    "neighbor_counts": "counts of neighbors by class",
    "steps": "training",
    "attention": "training on edges",
    "tally": "counts of correct predictions",
    "outcomes": "counts of correct and wrong predictions",
    "features": "randomized features",
    "label": "randomized label",
}
_RECORD = {
    NodeRecord.name: "features, label and the edges that the person declares",
    NodeBoundedDegree.name: "features, label and all of the person's edges",
}
_ROW_DISCLOSES = {
    "predictions.parquet": "the prediction for v was computed from v's own record",
    "aggregates.safetensors": "the noisy sums for v are covered for all records but v's own",
}
TEST_LABELS = (
    "Each run has test nodes of its own, and reads their labels in the clear for its test score: over all "
    "runs that may be everybody's."
)
_SIDE_CHANNELS = "running times, memory and file sizes, which this release does not contain"


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a model card says about the data and the results; all of it covered by the guarantee."""

    dataset: str
    recipe: str | None = None
    accuracies: dict[str, float] = field(default_factory=dict)
    other_runs: str = ""


def attack_bound_text(guarantee: Guarantee) -> str:
    """Return the attacker's figure in words.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> attack_bound_text(Guarantee.from_event(UndirectedEdge(), Gaussian(0.21373627), delta=1e-7,
    ...     releases=1))
    'true-positive rate at 1 % false positives: at most 1.74 %'
    """
    figure = f"true-positive rate at 1 % false positives: at most {percent_up(guarantee.max_tpr())} %"
    return f"{figure}{invalid_mark(valid=guarantee.valid, unit=guarantee.unit)}"


def invalid_mark(*, valid: bool, unit: str) -> str:
    """Return what stands beside a figure that a guarantee does not keep; unit ``none`` guarantees nothing.

    >>> invalid_mark(valid=False, unit="node-record"), invalid_mark(valid=False, unit="none")
    (' (not valid)', '')
    """
    return "" if valid or unit == NoUnit.name else f" ({NOT_VALID})"


def percent_up(rate: float) -> str:
    """Return a rate in percent with two decimals, rounded up: what stands after "at most" has to be true.

    >>> percent_up(0.01732), percent_up(0.01)
    ('1.74', '1.00')
    """
    hundredths = math.ceil(1e4 * rate * (1 - 1e-9))  # which a figure's own rounding may exceed
    return f"{hundredths / 100:.2f}"


def guarantee_summary(guarantee: Guarantee) -> str:
    """Return what the guarantee means for somebody who does not know differential privacy.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> void = Guarantee.from_event(UndirectedEdge(), Gaussian(1.0), delta=1e-5, releases=1,
    ...     deviations=("a flaw",))
    >>> guarantee_summary(void).startswith("No valid guarantee")
    True
    """
    words = guarantee_text(guarantee, _guarantee_summary(guarantee))
    return " ".join([words, *(guarantee_summary(one) for one in guarantee.additional)])


def guarantee_text(guarantee: Guarantee, words: str) -> str:
    """Return a sentence on what a guarantee keeps, taken back where it keeps nothing."""
    if not invalid_mark(valid=guarantee.valid, unit=guarantee.unit):
        return words
    return f"No valid guarantee, because of the deviations that are listed. Without them: {words}"


def _guarantee_summary(guarantee: Guarantee) -> str:
    if guarantee.unit == NoUnit.name:
        return (
            "Nothing is hidden: whoever sees the model or its predictions may learn which edges it was "
            "trained on. Use it inside, as a reference, and do not publish it."
        )
    if guarantee.labels_public:
        return _summary_of_features(guarantee)
    if guarantee.unit == LocalAttributes.name:
        return _summary_of_reports(guarantee)
    if guarantee.unit in _RECORD:
        return _summary_of_records(guarantee)
    secret = _PROTECTED_EDGE[guarantee.unit]
    if guarantee.releases == 0:
        return f"The model was trained without looking at the edges, so it cannot tell {secret}."
    return (
        f"Suppose that an attacker knows everything except {secret}: all other edges, everybody's features "
        "and labels, and all that this run gives out. If the attacker accepts a false alarm for 1 in 100 of "
        f"the edges that do not exist, any test finds at most {percent_up(guarantee.max_tpr())} in 100 "
        "of those that do; guessing blindly finds 1. "
        f"{_ATTACKS}."
    )


# Noise comes from AES-CTR under keys that HMAC derives: delta holds against bounded attackers.
_ATTACKS = "This bound holds for any attack, assuming that AES-256 and HMAC-SHA256 are secure"


def _summary_of_records(guarantee: Guarantee) -> str:
    record = _RECORD[guarantee.unit]
    attacker_question = f"which of two records ({record}) a particular person has"
    classes = "people with the one record", "those with the other"
    if not guarantee.replace_one:
        attacker_question = f"whether a particular person's record ({record}) was used"
        classes = "people who were left out", "those who were not"
    return (
        f"Suppose that an attacker knows everybody else's record and asks {attacker_question}. The attacker "
        "sees all that "
        "this run gives out, except what was made for that person alone. Accepting a false alarm for 1 in "
        f"100 of the {classes[0]}, any test finds at most {percent_up(guarantee.max_tpr())} in 100 of "
        f"{classes[1]}; guessing blindly finds 1. "
        f"{_ATTACKS}."
        f"{_proviso(guarantee)}"
    )


def _summary_of_reports(guarantee: Guarantee) -> str:
    if not math.isfinite(guarantee.epsilon):
        return (
            "A part of each person's record is used as it is, and whoever sees what this run gives out may "
            "learn it. What is randomized, and how strongly, stands above."
        )
    return (
        "Suppose that an attacker sees everything that was computed here, the randomized records included, "
        "and asks which of two records (features and label) a particular person has. Accepting a false alarm "
        "for 1 in 100 of those with the one, any test finds at most "
        f"{percent_up(guarantee.max_tpr())} in 100 of those with the other; guessing blindly finds 1. "
        f"{_ATTACKS}, and nobody who collects the randomized "
        "records has to be trusted. It is not about labels of "
        "test nodes, which the test score reads, nor about who is connected with whom."
    )


def _summary_of_features(guarantee: Guarantee) -> str:
    if not math.isfinite(guarantee.epsilon):
        return "Everybody's features are used as they are, and what this run gives out may show them."
    return (
        "Suppose instead that an attacker sees all that this run gives out, knows every edge and label, "
        "and asks which of two lists of features a particular person has. Accepting a false alarm for 1 in "
        f"100 of those with the one, any test finds at most {percent_up(guarantee.max_tpr())} in 100 of "
        "those with the other; guessing blindly finds 1."
    )


def _proviso(guarantee: Guarantee) -> str:
    if guarantee.edge_use == "never":
        return ""
    if guarantee.unit == NodeBoundedDegree.name:
        return (
            " All of it rests on the data owner's assumption that no node exceeds the stated number of edges."
        )
    return " A friendship that both friends declare stands in two records and is protected less well."


def other_runs(seed: int, runs: int, together: Guarantee, *, compared: bool = False) -> str:
    """Return what is to be said about the releases that are not in the folder, if there are any.

    ``compared`` says that an MLP beside each run asked the same records.
    """
    if not together.releases or (runs == 1 and not compared):
        return ""
    data, mark = protected_parts(together), invalid_mark(valid=together.valid, unit=together.unit)
    bound = f"({format_upper_bound(together.epsilon)}, {format_delta(together.delta)})"
    for one in together.additional:
        bound += f", and as to features ({format_upper_bound(one.epsilon)}, {format_delta(one.delta)})"
    own_test = f" {TEST_LABELS}" if together.unit == LocalAttributes.name else ""
    if runs == 1:
        return (
            f"An MLP was trained on the same {data} for comparison. Nothing in this folder comes from it. "
            f"Whatever is told about both is {bound}-indistinguishable only{mark}."
        )
    mlps = f", and an MLP was trained beside each on the same {data}" if compared else ""
    return (
        f"This is the run of seed {seed}, chosen beforehand, of {runs} runs on the same {data}{mlps}. "
        "Nothing in this folder comes from the others. Whatever is told about all of them, a mean accuracy "
        f"for example, is {bound}-indistinguishable only{mark}.{own_test}"
    )


def privacy_page(guarantee: Guarantee, rows: tuple[ReleaseRow, ...], card: Card | None = None) -> str:
    """Return PRIVACY.md."""
    head, lines = release_cells(rows)
    return render(
        "release_privacy.md",
        summary=guarantee_summary(guarantee),
        statement=guarantee.formal_statement(),
        other_runs="" if card is None else card.other_runs,
        subject=release_subject(guarantee),
        head=head,
        rows=lines,
        figures=[
            f"Unit: `{one.unit}`. Epsilon {format_upper_bound(one.epsilon)}, "
            f"delta {format_delta(one.delta)}. {attack_bound_text(one).capitalize()}."
            for one in (guarantee, *guarantee.additional)
        ],
        not_covered=not_covered(guarantee),
        deviations=all_deviations(guarantee),
    )


def all_deviations(guarantee: Guarantee) -> tuple[str, ...]:
    """Return the deviations of a guarantee, and of what stands beside it, each once."""
    listed = (why for one in (guarantee, *guarantee.additional) for why in one.deviations)
    return tuple(dict.fromkeys(listed))


def not_covered(guarantee: Guarantee) -> tuple[str, ...]:
    """Return what the guarantee says nothing about, a line each."""
    if protected_parts(guarantee) == "records":
        return (
            guarantee.not_covered,
            _SIDE_CHANNELS,
            "what can be inferred about a person from what others' records have in common",
        )
    known = "labels" if guarantee.additional else "features and labels"
    return (
        guarantee.not_covered,
        _SIDE_CHANNELS,
        f"what can be inferred about a person from the {known} alone",
    )


def protected_parts(guarantee: Guarantee) -> str:
    """Return what the unit is about, in one word: edges or records.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> protected_parts(Guarantee.from_event(UndirectedEdge(), Gaussian(1.0), delta=1e-5, releases=1))
    'edges'
    """
    return protected_things(guarantee.unit)


def release_subject(guarantee: Guarantee) -> str:
    """Return what a release is about, in words: of two guarantees, both things."""
    return "edges and features" if guarantee.additional else protected_parts(guarantee)


def protected_things(unit: str) -> str:
    """Return what a unit of this name is about, in one word."""
    return "records" if unit in (*_RECORD, LocalAttributes.name) else "edges"


def model_card(snapshot: "Snapshot", card: Card | None) -> str:
    """Return MODEL_CARD.md."""
    return render("model_card.md", **card_values(snapshot, card))


def card_values(snapshot: "Snapshot", card: Card | None) -> dict[str, Any]:
    """Return what the template of the model card shows."""
    names, guarantee = snapshot.class_names, snapshot.guarantee
    return {
        "method": snapshot.method,
        "features": snapshot.features,
        "classes": snapshot.classes,
        "names": names if len(names) <= 30 else (),
        "card": card,
        "summary": guarantee_summary(guarantee),
        "statement": guarantee.formal_statement(),
        "limits": _limits(guarantee),
        "call": "model.guarantee" if guarantee.unit in _RECORD else "model.predict()",
    }


def rows_page(guarantee: Guarantee, names: Sequence[str]) -> str:
    """Return README.md of the folder of rows that are not for everybody.

    >>> from graphveil.privacy import Gaussian
    >>> owner = Guarantee.from_event(NodeRecord(), Gaussian(1.0), delta=1e-5, releases=1)
    >>> "row v only for someone entitled to v's record" in rows_page(owner, ["predictions.parquet"])
    True
    """
    files = [(name, _ROW_DISCLOSES[name]) for name in names]
    return render("per_node.md", files=files, unit=guarantee.unit)


def _limits(guarantee: Guarantee) -> list[str]:
    about = protected_parts(guarantee)
    if guarantee.unit == LocalAttributes.name:
        return [
            "Predictions are for the nodes of the graph it was trained on; nodes of another one randomize "
            "their features first, at a price of their own.",
            f"Other collections of the same {about} add to what is given away.",
            "Accuracy on other data is unknown.",
        ]
    served = (
        "Predictions are no part of this release: each is only for someone entitled to its node's record."
        if about == "records"
        else "Predictions are for the nodes of the graph it was trained on; another graph's edges are "
        "queried at a privacy cost of their own."
    )
    return [
        served,
        f"Other models trained on the same {about} add to what is given away.",
        "Accuracy on other data is unknown.",
    ]


def query_kind_text(kind: str) -> str:
    """Return what a kind of answer is called where people read it."""
    return _KINDS.get(kind, kind)


def release_cells(rows: tuple[ReleaseRow, ...]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the lines of a table of noisy answers."""
    head = ["#", "kind", "sensitivity", "noise standard deviation", "values a node"]
    lines = [
        [
            str(number),
            query_kind_text(row.kind),
            f"{row.sensitivity:.6g}",
            _noise_of(row),
            str(row.values_per_node or "-"),
        ]
        for number, row in enumerate(rows, start=1)
    ]
    if any(row.pays for row in rows):
        head.append("paid by")
        for line, row in zip(lines, rows, strict=True):
            line.append(charged_to_text(row.pays))
    return tuple(head), [tuple(line) for line in lines]


def _noise_of(row: ReleaseRow) -> str:
    if row.words:
        return row.words
    stds = ", ".join(f"{sigma:.5g}" for sigma in dict.fromkeys(row.noise_std))
    return stds if row.steps is None else f"{stds} x the clipping norm, {row.steps:,} times"
