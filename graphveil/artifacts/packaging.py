"""What makes a release folder a model elsewhere: a card as Hugging Face reads it, and MLflow's description.

Both hold what the rest of the release says, and nothing else. Texts are written as JSON strings, which YAML
reads as they are: a name from outside cannot add a line of its own.
"""

import json
import math
from typing import TYPE_CHECKING, Any

from graphveil.artifacts.cards import Card, model_card, protected_parts

if TYPE_CHECKING:
    from graphveil.artifacts.snapshot import Snapshot

LOADER = "graphveil.estimators.pyfunc"  # what MLflow imports to read the folder
TASK = "node-classification"


def hub_card(snapshot: "Snapshot", card: Card | None) -> str:
    """Return README.md: the model card under a block of metadata."""
    return f"---\n{_yaml(_metadata(snapshot, card))}---\n\n{model_card(snapshot, card)}"


def mlmodel(snapshot: "Snapshot") -> str:
    """Return MLmodel, by which MLflow finds what loads the folder (its ``python_function`` flavour)."""
    from graphveil import __version__

    guarantee = snapshot.guarantee
    flavour = {"loader_module": LOADER, "python_version": "3.11.0"}
    about = {"method": snapshot.method, "unit": guarantee.unit, "valid": guarantee.valid}
    figures = {"epsilon": _finite(guarantee.epsilon), "delta": guarantee.delta}
    own = {"version": __version__, **about, **figures}
    return _yaml(
        {"flavors": {"graphveil": own, "python_function": flavour}, "metadata": {**about, **figures}}
    )


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


def _yaml(values: dict[str, Any]) -> str:
    """Return a mapping as YAML: a key a line, each value as JSON, which is YAML, too.

    >>> _yaml({"name": "a: b"})
    'name: "a: b"\\n'
    """
    return "".join(f"{name}: {_value(value)}\n" for name, value in values.items())


def _value(value: Any) -> str:
    """Return JSON that YAML 1.1 reads as the same numbers: its floats have a point before an exponent."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_value(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        digits, mark, exponent = repr(value).partition("e")
        return digits if not mark else f"{digits if '.' in digits else digits + '.0'}e{int(exponent):+03d}"
    return json.dumps(value)
