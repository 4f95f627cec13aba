"""Load estimators from release folders."""

import dataclasses
import json
import math
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from torch.utils._python_dispatch import TorchDispatchMode

from graphveil._util.files import as_path
from graphveil.errors import ArtifactError, GraphveilError
from graphveil.estimators import METHODS
from graphveil.estimators.base import Estimator
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.fitted import FittedModel
from graphveil.estimators.inference import read_graph_fingerprint
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.publish.release_folder import (
    INTERNAL,
    MODEL,
    PRIVACY,
    WEIGHTS,
    find_release,
    read_release,
)
from graphveil.publish.schemas import INFINITE, MAX_INTEGER, Snapshot, first_complaint, rejecting

_UNBOUNDED = ("seed", "unsafe_noise_seed", "max_units")
_EXTRA_ELEMENTS = 1 << 20  # bytes that a network may allocate in addition to a few times its own parameters


def load_model(folder: str | Path, *, per_node: str | Path | None = None) -> Estimator:
    """Load a saved model from a run folder, or from its ``release`` part alone.

    A model from a run folder can recognize the fitted graph. A model from a release alone cannot. Guarantee
    and guarantee summary are available without the graph. Predictions are available if the unit allows
    publishing them. Otherwise they are read from ``per_node``, if it exists.

    Args:
        folder: Run folder, or its ``release`` folder.
        per_node: Folder with withheld predictions; by default that of the run folder.

    Returns:
        The fitted model.

    Raises:
        ArtifactError: If the folder holds no model, is damaged, or is inconsistent.

    Privacy:
        Charges: nothing. Predicting another graph is charged to that graph's ledger.
    """
    root = as_path(folder, "folder")
    release = find_release(root)
    rows = None if per_node is None else as_path(per_node, "per_node")
    snapshot = read_release(root, release, rows)
    method = snapshot.method
    if snapshot.parameters.get("mode") == "paper":  # of older folders
        method = f"{method}-paper"
    if method not in METHODS:
        raise ArtifactError(
            f"{MODEL} names a method that this version of graphveil does not support. Supported "
            f"methods are {', '.join(METHODS)}."
        )
    model = build(METHODS[method], dict(snapshot.parameters), release / MODEL)
    if snapshot.guarantee.protected != model.protected_unit:
        raise ArtifactError(
            f"{MODEL} and {PRIVACY} name different privacy units. Copy the model folder from the "
            "original run again."
        )
    own = read_graph_fingerprint(root / INTERNAL) if release != root else None
    return model._set_fit(_fitted(snapshot, model, release / WEIGHTS), own=own)


def _fitted(snapshot: Snapshot, model: Estimator, weights: Path) -> FittedModel:
    method, state, released = model.config, dict(snapshot.state), dict(snapshot.released)
    scaling = FeatureScaling.from_plain(snapshot.scaling)
    sizes = PublicSizes(
        nodes=snapshot.nodes or 1,
        classes=snapshot.classes,
        features=snapshot.features,
        train_records=snapshot.train_records,
        learned_columns=len(scaling.learned),
    )
    with rejecting(weights), _AllocationLimit(sum(tensor.numel() for tensor in state.values())):
        trained = method.restore(state, sizes, released)
    return FittedModel(
        method=method,
        parameters=model.recorded_params(),
        sizes=sizes,
        guarantee=snapshot.guarantee,
        trained=trained,
        proba=snapshot.proba,
        released=released,
        rows=snapshot.rows,
        sampler=snapshot.sampler,
        class_names=snapshot.named_classes,
        ids=snapshot.ids,
        scaling=scaling,
        encoding=snapshot.encoding,
    )


@cache
def parameter_types(cls: type[Any]) -> dict[str, Any]:
    """Return the types of all constructor keywords of a method, a dataclass, that can affect results."""
    hints = get_type_hints(cls)
    named = [field.name for field in dataclasses.fields(cls) if field.init]
    return {name: hints[name] for name in named if name != "backend"}


def build(cls: type[Estimator], parameters: dict[str, Any], path: Path) -> Estimator:
    """Return an unfitted model from stored parameters: all present, none unknown, each of its type."""
    # A stored infinity is a text, and stays one where the type of the parameter allows texts.
    hints = parameter_types(cls)
    parameters = {
        name: value
        for name, value in parameters.items()
        if name in hints or not (name in _REMOVED or (name, value) in cls.removed.items())
    }
    texts = {name for name, hint in hints.items() if str in (hint, *get_args(hint))}
    given = {
        name: math.inf if value == INFINITE and name not in texts else value
        for name, value in parameters.items()
    }
    try:
        checked = dict(_parameters_of(cls).model_validate_json(json.dumps(given)))
    except ValidationError as error:
        raise ArtifactError(
            f"{path.name} is invalid: parameters.{first_complaint(error)}. Copy the model folder from "
            "the original run again."
        ) from None
    for name, value in checked.items():
        if isinstance(value, int) and abs(value) > MAX_INTEGER and name not in _UNBOUNDED:
            raise ArtifactError(
                f"{path.name} is invalid: parameters.{name} is above {MAX_INTEGER}. Copy the model folder "
                "from the original run again."
            )
    try:
        return cls(**checked)
    except GraphveilError as error:
        raise ArtifactError(f"{path.name}: {error}") from None


_REMOVED = ("mode", "batch_size", "clip", "clip_per")  # keywords that only older folders have
_ADDED = {
    "task": "classification",
    "target_range": None,
    "residual": False,
}  # keywords that older folders do not have


@cache
def _parameters_of(cls: type[Estimator]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        name: (hint, _ADDED.get(name, ...)) for name, hint in parameter_types(cls).items()
    }
    config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    return create_model(f"{cls.__name__}Parameters", __config__=config, **fields)


class _AllocationLimit(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch ships no annotation for it
    """Limits tensor allocations by the size of the stored parameters, before memory is allocated."""

    def __init__(self, elements: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nor for this
        self._left = 4 * elements + _EXTRA_ELEMENTS

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        size = args[0] if args else None
        if isinstance(size, list | tuple) and all(isinstance(edge, int) for edge in size):
            self._left -= math.prod(size)
            if self._left < 0:
                raise ArtifactError(
                    f"{MODEL} describes a larger network than {WEIGHTS} contains. Copy the model folder from "
                    "the original run again."
                )
        return func(*args, **(kwargs or {}))
