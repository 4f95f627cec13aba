"""What makes a release folder a model elsewhere: a card as Hugging Face reads it, and MLflow's description.

Both hold what the rest of the release says, and nothing else. Texts are written as JSON strings, which YAML
reads as they are: a name from outside cannot add a line of its own.
"""

import math
from typing import TYPE_CHECKING, Any

from graphveil._util.escape import render
from graphveil.artifacts.cards import Card, card_values, protected_parts

if TYPE_CHECKING:
    from graphveil.artifacts.snapshot import Snapshot

LOADER = "graphveil.estimators.pyfunc"  # what MLflow imports to read the folder
TASK = "node-classification"


def hub_card(snapshot: "Snapshot", card: Card | None) -> str:
    """Return README.md: the model card under a block of metadata."""
    return render("hub_card.md", metadata=_metadata(snapshot, card), **card_values(snapshot, card))


def mlmodel(snapshot: "Snapshot") -> str:
    """Return MLmodel, by which MLflow finds what loads the folder (its ``python_function`` flavour)."""
    from graphveil import __version__

    guarantee = snapshot.guarantee
    about = {"method": snapshot.method, "unit": guarantee.unit, "valid": guarantee.valid}
    figures = {"epsilon": _finite(guarantee.epsilon), "delta": guarantee.delta}
    own = {"version": __version__, **about, **figures}
    return render("mlmodel.yaml", flavor=own, loader=LOADER, metadata={**about, **figures})


def _metadata(snapshot: "Snapshot", card: Card | None) -> dict[str, Any]:
    guarantee = snapshot.guarantee
    found: dict[str, Any] = {
        "library_name": "graphveil",
        "pipeline_tag": "graph-ml",
        "tags": [TASK, "differential-privacy", snapshot.method, guarantee.unit],
        "privacy": {
            "unit": guarantee.unit,
            "protects": protected_parts(guarantee),
            "epsilon": _finite(guarantee.epsilon),
            "delta": guarantee.delta,
            "valid": guarantee.valid,
        },
    }
    if card is None or not card.accuracies:
        return found
    figures = [
        {"type": "accuracy", "name": name, "value": round(value, 6)}
        for name, value in card.accuracies.items()
        if math.isfinite(value)
    ]
    source = {"name": card.dataset, "type": card.dataset}
    result = {"task": {"type": TASK}, "dataset": source, "metrics": figures}
    return found | {"model-index": [{"name": f"graphveil {snapshot.method}", "results": [result]}]}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
