"""A trained model as a folder that may be published: written whole, read back without executing anything.

The folder holds weights and noisy rows (safetensors), configuration and guarantee (JSON), predictions
(parquet) and two pages for people. Where records are protected, what tells about the record of its own node
is no part of it: such rows go to a second folder, ``per_node``. Reading treats both as hostile: closed tables
of methods and event kinds, checked types, no links, no size that the files do not pay for, and every figure
accounted anew.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from graphveil._files import whole_folder, write_atomic
from graphveil.errors import ArtifactError, ConfigError
from graphveil.graph import tables
from graphveil.models import METHODS, cards
from graphveil.models.cards import Card, ReleaseRow
from graphveil.models.predictions import class_names, predictions_of, read_predictions
from graphveil.models.records import (
    GuaranteeRecord,
    ModelFile,
    PrivacyFile,
    ReleaseRecord,
    Shape,
    build,
    plain_parameters,
    read_record,
    refusing,
    write_record,
)
from graphveil.privacy import Guarantee, NodeOwner, NodePromise
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain

if TYPE_CHECKING:
    from graphveil.models.base import Estimator, State

MODEL, PRIVACY, PREDICTIONS = "model.json", "privacy.json", "predictions.parquet"
WEIGHTS, AGGREGATES = "model.safetensors", "aggregates.safetensors"
PRIVACY_PAGE, CARD_PAGE = "PRIVACY.md", "MODEL_CARD.md"
FILES = (WEIGHTS, MODEL, AGGREGATES, PREDICTIONS, PRIVACY, PRIVACY_PAGE, CARD_PAGE)
PER_NODE, ROWS_PAGE = "per_node", "README.md"
_SPARE_ELEMENTS = 1 << 20  # what a network may allocate beyond a few times its own weights


_WITHHELD: dict[str, tuple[str, ...]] = {
    NodeOwner.name: (PREDICTIONS,),  # aggregates are noisy sums of what others declare
    NodePromise.name: (PREDICTIONS, AGGREGATES),  # a node's own row is not covered
}


def withheld(unit: str) -> tuple[str, ...]:
    """Return the files that a release of this unit may not hold, because row v tells about v's own record.

    >>> withheld("undirected-edge"), withheld("node-owner")
    ((), ('predictions.parquet',))
    """
    return _WITHHELD.get(unit, ())


@dataclass(frozen=True)
class Promise:
    """What a release says about privacy: its guarantee, and each noisy answer's kind and noise."""

    guarantee: Guarantee
    releases: tuple[ReleaseRow, ...]
    sampler: str | None


def save_model(
    model: "Estimator", folder: Path, card: Card | None = None, *, per_node: Path | None = None
) -> None:
    """Write what may be published of a fitted model to a new folder, whole or not at all.

    Args:
        model: a fitted estimator.
        folder: a path that does not exist yet, or an empty folder.
        card: what the model card says about the data and the accuracy.
        per_node: a second such folder, for what the unit withholds from the first.

    Raises:
        ConfigError: a folder holds something, the model is not fitted, or nothing is withheld.
    """
    promise = promise_of(model)
    kept_back = withheld(promise.guarantee.unit)
    if per_node is not None and not kept_back:
        raise ConfigError(
            f"unit {promise.guarantee.unit!r} withholds nothing: predictions are part of the release; drop "
            "per_node"
        )
    for new in (folder, per_node):
        if new is not None:
            _check_new(new)
    if per_node is not None:
        with whole_folder(per_node, private=True) as work:
            _write_rows(model, work, kept_back)
            (work / ROWS_PAGE).write_text(cards.rows_page(promise.guarantee, kept_back), encoding="utf-8")
    with whole_folder(folder) as work:
        _write_tensors(work / WEIGHTS, model._state())
        _write_rows(model, work, [name for name in (AGGREGATES, PREDICTIONS) if name not in kept_back])
        write_record(work / MODEL, _model_file(model))
        write_record(work / PRIVACY, _privacy_file(promise))
        page = cards.privacy_page(promise.guarantee, promise.releases, card)
        (work / PRIVACY_PAGE).write_text(page, encoding="utf-8")
        (work / CARD_PAGE).write_text(cards.model_card(model, promise.guarantee, card), encoding="utf-8")


def promise_of(model: "Estimator") -> Promise:
    """Return a fitted model's guarantee together with what was released."""
    sampler = None if model.plan_ is None else model.plan_.sampler.__name__
    return Promise(model.guarantee, model.release_rows(model.plan_), sampler)


def load_model(folder: str | Path, *, per_node: str | Path | None = None) -> "Estimator":
    """Read a saved model from a run folder, or from its ``release`` part alone.

    Its guarantee and statement are there without the graph, and so are its predictions, where the unit lets
    them be published; otherwise they are read from ``per_node``, by default the run folder's own, and missing
    if there is none. Predicting another graph works where the method can, and is charged to that graph's
    budget.

    Raises:
        ArtifactError: the folder holds no model, is damaged, or does not agree with itself.
    """
    release = find_release(folder)
    file = read_record(release / MODEL, ModelFile)
    model = _unfitted(file, release / MODEL)
    model.guarantee_ = read_promise(release).guarantee
    if model.guarantee_.protected != model.protected_unit:
        raise ArtifactError(f"{MODEL} and {PRIVACY} name two units; take the folder from the original run")
    _read_rows(model, release, _rows_folder(Path(folder), release, per_node))
    state = _read_tensors(release / WEIGHTS)
    with refusing(release / WEIGHTS), _Allowance(sum(tensor.numel() for tensor in state.values())):
        model._restore(state)
    return model


def read_promise(folder: str | Path) -> Promise:
    """Read the privacy part of a run or release folder; the guarantee is accounted anew and compared."""
    release = find_release(folder)
    path = release / PRIVACY
    file = read_record(path, PrivacyFile)
    with refusing(path):
        guarantee = guarantee_from_plain(file.record.model_dump())
        agree = _agree(guarantee.as_dict(), file.guarantee)
    if not agree:
        raise ArtifactError(
            f"{path.name} was changed after it was written: its figures do not follow from its events; take "
            "it from the original run"
        )
    _check_parts(release, guarantee.unit)
    return Promise(guarantee, tuple(ReleaseRow(**row.model_dump()) for row in file.releases), file.sampler)


def find_release(folder: str | Path) -> Path:
    """Return the release part of a run folder, or the release folder itself; it may hold no links."""
    root = Path(folder)
    release = root if (root / MODEL).exists() else root / "release"
    if not (release / MODEL).exists():
        raise ArtifactError(f"{root} holds no saved model ({MODEL}); give the folder of a finished run")
    if (release != root and release.is_symlink()) or any((release / name).is_symlink() for name in FILES):
        raise ArtifactError(f"{release} is or holds a link, which a release may not; copy the files instead")
    _require(release, (WEIGHTS, MODEL, PRIVACY, PRIVACY_PAGE, CARD_PAGE))
    return release


def _check_parts(release: Path, unit: str) -> None:
    """Refuse a release without its rows, and one with rows that its unit withholds."""
    names = withheld(unit)
    _require(release, [name for name in FILES if name not in names])
    for name in names:
        if (release / name).exists():
            raise ArtifactError(
                f"{release} holds {name}, which a release of unit {unit!r} may not: a row of it is only for "
                f"someone entitled to its node's record. Move it to {PER_NODE}/ before anything is published"
            )


def _require(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        if not (folder / name).is_file():
            raise ArtifactError(f"{name} is missing from {folder}; take the folder from the original run")


def _rows_folder(folder: Path, release: Path, per_node: str | Path | None) -> Path | None:
    """Return the folder of withheld rows: the one that is named, or the run's own if it is there."""
    rows = folder / PER_NODE if per_node is None else Path(per_node)
    if per_node is None and (release == folder or not rows.exists()):
        return None
    if rows.is_symlink() or any((rows / name).is_symlink() for name in FILES):
        raise ArtifactError(f"{rows} is or holds a link; copy the files instead")
    return rows


def _read_rows(model: "Estimator", release: Path, per_node: Path | None) -> None:
    """Read predictions and aggregates from where they are; what is withheld may be missing altogether."""
    names = withheld(model.guarantee.unit)
    if names and per_node is not None:
        _require(per_node, names)
    places = {name: per_node if name in names else release for name in (PREDICTIONS, AGGREGATES)}
    predictions, aggregates = places[PREDICTIONS], places[AGGREGATES]
    if predictions is not None:
        with refusing(predictions / PREDICTIONS):
            model.proba_, model.ids_ = read_predictions(predictions / PREDICTIONS, class_names(model))
    model._without_rows = predictions is None
    if aggregates is not None:
        model.aggregates_ = _read_tensors(aggregates / AGGREGATES)


def _model_file(model: "Estimator") -> ModelFile:
    from graphveil import __version__

    return ModelFile(
        library=__version__,
        method=model.method,
        parameters=plain_parameters(model.get_params()),
        shape=Shape(**model._shape),
        class_names=list(class_names(model)),
    )


def _privacy_file(promise: Promise) -> PrivacyFile:
    record = json.loads(json.dumps(guarantee_to_plain(promise.guarantee)))
    return PrivacyFile(
        guarantee=promise.guarantee.as_dict(),
        record=GuaranteeRecord(**record),
        sampler=promise.sampler,
        releases=[ReleaseRecord(**asdict(row)) for row in promise.releases],
    )


def _unfitted(file: ModelFile, path: Path) -> "Estimator":
    if file.method not in METHODS:
        raise ArtifactError(
            f"{path.name} names a method that this version does not have; it has {', '.join(METHODS)}"
        )
    if not len(file.class_names) == len(set(file.class_names)) == file.shape.classes:
        raise ArtifactError(f"{path.name} must hold one distinct class name for each class")
    model = build(METHODS[file.method], file.parameters, path)
    model._shape = file.shape.model_dump()
    model.class_names_ = tuple(file.class_names)
    return model


def _check_new(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise ConfigError(f"{folder} exists and is not an empty folder; save to a new one")


def _write_rows(model: "Estimator", folder: Path, names: Sequence[str]) -> None:
    """Write the aggregates, the predictions, or both."""
    if AGGREGATES in names:
        _write_tensors(folder / AGGREGATES, model.aggregates_)
    if PREDICTIONS in names:
        write_atomic(folder / PREDICTIONS, tables.encode(predictions_of(model), ".parquet"))


def _write_tensors(path: Path, tensors: "State") -> None:
    from safetensors.torch import save

    write_atomic(path, save({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}))


def _read_tensors(path: Path) -> "State":
    from safetensors.torch import load_file

    with refusing(path):
        return load_file(path)


class _Allowance(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch ships no annotation for it
    """Refuses to create tensors that the weights in the file do not account for, before they exist."""

    def __init__(self, elements: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nor for this
        self._left = 4 * elements + _SPARE_ELEMENTS

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Charge a factory call, whose first argument is a size."""
        size = args[0] if args else None
        if isinstance(size, list | tuple) and all(isinstance(edge, int) for edge in size):
            self._left -= math.prod(size)
            if self._left < 0:
                raise ArtifactError(f"{MODEL} describes a larger network than {WEIGHTS} holds")
        return func(*args, **(kwargs or {}))


def _agree(computed: dict[str, Any], written: dict[str, Any]) -> bool:
    """Return whether a written guarantee says what was computed; figures may differ by rounding."""
    exact = ("valid", "unit", "releases", "mode", "deviations", "notes", "replace_one", "max_degree")
    figures = ("epsilon", "delta", "mu", "tpr_at_1pct_fpr", "edge_epsilon", "eps_x", "eps_y")
    return (
        computed.keys() == written.keys()  # the last of each are there under node units only
        and all(computed.get(name) == written.get(name) for name in exact)
        and all(_close(computed.get(name), written.get(name)) for name in figures)
    )


def _close(ours: float | None, theirs: object) -> bool:
    if ours is None or not isinstance(theirs, int | float):
        return ours is theirs
    return math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-12)
