"""The pages of a release for readers, and the metadata files for other programs.

PRIVACY.md states the guarantee, and MODEL_CARD.md describes the model. README.md is a model card for Hugging
Face, and MLmodel the description for MLflow. They repeat contents of the release and add nothing. Their texts
are written as JSON strings, which YAML reads unchanged, so an untrusted name cannot add a line.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphveil._util.escape import render
from graphveil._util.figures import format_delta, format_upper_bound, percent_up
from graphveil.core.unit import UNITS, LocalAttributes, NoUnit, Person, Row
from graphveil.privacy import Guarantee
from graphveil.publish.queries import QueryRow, release_table

if TYPE_CHECKING:
    from graphveil.publish.schemas import Snapshot

NOT_COVERED = "not covered: internal"  # next to exact accuracies under node-level units
NOT_VALID = "not valid"  # next to every epsilon and true-positive rate with deviations
_PROTECTED = {"edge": "edges", "node": "records", "local": "records", "none": "edges"}
_OF_TABLES = {Row.name: "rows", Person.name: "persons"}  # units of several tables
_OF_GRAPHS = (
    "Predictions are for the nodes of the graph it was trained on; another graph's edges are queried at a "
    "privacy cost of their own.",
    "models trained on",
    "model.predict()",
)
_SERVED = {  # by level: which predictions there are, what else adds to the privacy loss, and a first call
    "edge": _OF_GRAPHS,
    "node": (
        "This release contains no predictions: each is only for people authorized to see its node's record.",
        "models trained on",
        "model.guarantee",
    ),
    "local": (
        "Predictions are for the nodes of the graph it was trained on; nodes of another one randomize their "
        "features first, which is charged to them.",
        "collections of",
        "model.predict()",
    ),
    "none": _OF_GRAPHS,
}
_ROW_DISCLOSES = {
    "predictions.parquet": "the prediction for v was computed from v's own record",
    "aggregates.safetensors": "the noisy sums for v are covered for all records but v's own",
}
_AND_LIST = ", which includes the list of v's edges"
TEST_LABELS = (
    "Each run has its own test nodes and reads their exact labels for its test score. Over all runs these "
    "may be the labels of all nodes."
)
_SIDE_CHANNELS = "running times, memory and file sizes, which this release does not contain"


@dataclass(frozen=True, kw_only=True)
class PairCard:
    """The contents of the model card of a link predictor or a recommender.

    Args:
        metrics: Released metrics: key and name of each, value, and ends of its interval.
    """

    method: str
    task: str
    subject: str
    dataset: str | None
    metrics: Sequence[tuple[str, str, float, float, float]]
    limits: Sequence[str]
    loader: str
    call: str


@dataclass(frozen=True, kw_only=True)
class Card:
    """The contents of a model card on the data and the results; all of it covered by the guarantee."""

    dataset: str
    recipe: str | None = None
    accuracies: dict[str, float] = field(default_factory=dict)
    other_runs: str = ""
    metrics: dict[str, str] = field(default_factory=dict)  # of test nodes, with their intervals


def attack_bound_text(guarantee: Guarantee) -> str:
    """Return the attack bound as text.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> attack_bound_text(Guarantee.from_event(UndirectedEdge(), Gaussian(0.21373627), delta=1e-7,
    ...     releases=1))
    'true-positive rate at 1 % false positives: at most 1.74 %'
    """
    figure = f"true-positive rate at 1 % false positives: at most {percent_up(guarantee.max_tpr())} %"
    return f"{figure}{invalid_mark(valid=guarantee.valid, unit=guarantee.unit)}"


def invalid_mark(*, valid: bool, unit: str) -> str:
    """Return a mark for numbers without a valid guarantee; empty for unit ``none``, which has none.

    >>> invalid_mark(valid=False, unit="node-record"), invalid_mark(valid=False, unit="none")
    (' (not valid)', '')
    """
    return "" if valid or unit == NoUnit.name else f" ({NOT_VALID})"


def guarantee_text(guarantee: Guarantee, words: str) -> str:
    """Return a sentence on what a guarantee covers, negated if it is not valid."""
    if guarantee.violated:
        return f"No valid guarantee, because of the deviations that are listed. Without them: {words}"
    return words


def other_runs(seed: int, runs: int, together: Guarantee, *, compared: bool = False) -> str:
    """Return a note on releases that are not in the folder, if there are any.

    ``compared`` is whether a no-graph baseline of each run queried the same records.
    """
    if not together.releases or (runs == 1 and not compared):
        return ""
    data, mark = protected_parts(together), invalid_mark(valid=together.valid, unit=together.unit)
    bound = f"({format_upper_bound(together.epsilon)}, {format_delta(together.delta)})"
    for one in together.additional:
        bound += f", and as to features ({format_upper_bound(one.epsilon)}, {format_delta(one.delta)})"
    own_test = {LocalAttributes.name: f" {TEST_LABELS}"}.get(together.unit, "")
    if runs == 1:
        return (
            f"An MLP was trained on the same {data} for comparison. Nothing in this folder comes from it. "
            f"Outputs about both together are only {bound}-indistinguishable{mark}."
        )
    mlps = f", and an MLP was trained next to each on the same {data}" if compared else ""
    return (
        f"This is the run of seed {seed}, chosen beforehand, of {runs} runs on the same {data}{mlps}. "
        "Nothing in this folder comes from the others. Outputs about all of them together, such as a mean "
        f"accuracy, are only {bound}-indistinguishable{mark}.{own_test}"
    )


def privacy_page(guarantee: Guarantee, rows: tuple[QueryRow, ...], card: Card | None = None) -> str:
    head, lines = release_table(rows)
    return render(
        "release_privacy.md",
        guarantee=guarantee,
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
    listed = (why for one in (guarantee, *guarantee.additional) for why in one.deviations)
    return tuple(dict.fromkeys(listed))


def not_covered(guarantee: Guarantee) -> tuple[str, ...]:
    inferred = {
        "lists": "a user from what the lists of other users have in common",
        "records": "a person from what others' records have in common",
        "persons": "a person from what the records of others have in common",
        "rows": "a person from attributes and labels alone",
        "edges": f"a person from the {'labels' if guarantee.additional else 'features and labels'} alone",
    }[protected_parts(guarantee)]
    return (guarantee.not_covered, _SIDE_CHANNELS, f"what can be inferred about {inferred}")


def protected_parts(guarantee: Guarantee) -> str:
    """Return what the guarantee protects: edges, records, rows, persons or lists.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> protected_parts(Guarantee.from_event(UndirectedEdge(), Gaussian(1.0), delta=1e-5, releases=1))
    'edges'
    """
    return "lists" if guarantee.edge_use == "lists" else protected_things(guarantee.unit)


def release_subject(guarantee: Guarantee) -> str:
    return "edges and features" if guarantee.additional else protected_parts(guarantee)


def protected_things(unit: str) -> str:
    return _OF_TABLES.get(unit) or _PROTECTED[UNITS[unit].level]


def model_card(snapshot: "Snapshot", card: Card | None) -> str:
    return render("model_card.md", **_card_values(snapshot, card))


def _card_values(snapshot: "Snapshot", card: Card | None) -> dict[str, Any]:
    return {
        "snapshot": snapshot,
        "card": card,
        "names": snapshot.class_names if len(snapshot.class_names) <= 30 else (),
        "limits": _limits(snapshot.guarantee),
        "call": _SERVED[snapshot.guarantee.protected.level][2],
    }


def rows_page(guarantee: Guarantee, names: Sequence[str]) -> str:
    """Return README.md of the folder of per-node results, which are not public.

    >>> from graphveil.privacy import Gaussian
    >>> owner = Guarantee.from_event(UNITS["node-record"](), Gaussian(1.0), delta=1e-5, releases=1)
    >>> "row v only for people authorized" in rows_page(owner, ["predictions.parquet"])
    True
    """
    listed = "" if guarantee.covers_predictions else _AND_LIST
    files = [(name, _ROW_DISCLOSES[name] + listed) for name in names]
    return render("per_node.md", files=files, unit=guarantee.unit)


def _limits(guarantee: Guarantee) -> list[str]:
    about, (served, others, _) = protected_parts(guarantee), _SERVED[guarantee.protected.level]
    other_releases = f"Other {others} the same {about} add to the privacy loss."
    return [served, other_releases, "Accuracy on other data is unknown."]


# -- pages for other programs ----------------------------------------------------------------------------

LOADER = "graphveil.estimators.pyfunc"  # what MLflow imports to read the folder
TASK, NUMBER_TASK = "node-classification", "node-regression"


def hub_card(snapshot: "Snapshot", card: Card | None) -> str:
    return render("hub_card.md", metadata=_hub_metadata(snapshot, card), **_card_values(snapshot, card))


def mlmodel(snapshot: "Snapshot") -> str:
    from graphveil import __version__

    guarantee = snapshot.guarantee
    about = {"method": snapshot.method, "unit": guarantee.unit, "valid": guarantee.valid}
    figures = {"epsilon": _rounded_up(guarantee.epsilon), "delta": guarantee.delta}
    own = {"version": __version__, **about, **figures}
    return render("mlmodel.yaml", flavor=own, loader=LOADER, metadata={**about, **figures})


def pair_card(card: PairCard, guarantee: Guarantee) -> str:
    figures = [{"type": key, "name": name, "value": round(value, 6)} for key, name, value, *_ in card.metrics]
    results = (card.dataset or "private data", figures) if figures else None
    return render(
        "pair_card.md",
        metadata=_metadata(card.method, card.task, guarantee, results),
        card=card,
        guarantee=guarantee,
        others=f"Other releases of the same {protected_parts(guarantee)} add to the privacy loss.",
    )


def _hub_metadata(snapshot: "Snapshot", card: Card | None) -> dict[str, Any]:
    task = NUMBER_TASK if snapshot.classes == 1 else TASK
    results = None
    if card is not None and card.accuracies:
        figures = [
            {"type": "accuracy" if task == TASK else "r2", "name": name, "value": round(value, 6)}
            for name, value in card.accuracies.items()
            if math.isfinite(value)
        ]
        results = (card.dataset, figures)
    return _metadata(snapshot.method, task, snapshot.guarantee, results)


def _metadata(
    method: str, task: str, guarantee: Guarantee, results: tuple[str, list[dict[str, Any]]] | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "library_name": "graphveil",
        "pipeline_tag": "graph-ml",
        "tags": [task, "differential-privacy", method, guarantee.unit],
        "privacy": {
            "unit": guarantee.unit,
            "protects": protected_parts(guarantee),
            "epsilon": _rounded_up(guarantee.epsilon),
            "delta": guarantee.delta,
            "valid": guarantee.valid,
        },
    }
    if results is None:
        return found
    dataset, figures = results
    source = {"name": dataset, "type": dataset}
    result = {"task": {"type": task}, "dataset": source, "metrics": figures}
    return found | {"model-index": [{"name": f"graphveil {method}", "results": [result]}]}


def _rounded_up(epsilon: float) -> float | None:
    return float(format_upper_bound(epsilon)) if math.isfinite(epsilon) else None
