"""A trained model as a public folder: written atomically, read back without executing code.

The folder contains parameters and noisy aggregates (safetensors), configuration and guarantee (JSON),
predictions (parquet) and two pages for readers. Under node-level privacy units, results that depend on the
record of their own node go to a second folder, ``per_node``. Both are read as untrusted input: closed tables
of methods and event kinds, checked types, no links, sizes bounded by those of the files. Every guarantee is
recomputed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util.files import atomic_folder, name_in_utf8, write_atomic
from graphveil.core.unit import Node, NodeBoundedDegree, NodeRecord, Person
from graphveil.data import tables
from graphveil.data.tables.encoding import Encoding
from graphveil.errors import ArtifactError, ConfigError
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import GuaranteeRecord, guarantee_from_record, guarantee_to_plain
from graphveil.publish import cards
from graphveil.publish.cards import Card
from graphveil.publish.queries import QueryRow
from graphveil.publish.schemas import (
    ModelFile,
    PrivacyFile,
    ReleasedShape,
    ReleaseSchema,
    ScalingSchema,
    Snapshot,
    plain_parameters,
    read_schema,
    rejecting,
    write_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa

MODEL, PRIVACY, PREDICTIONS = "model.json", "privacy.json", "predictions.parquet"
WEIGHTS, AGGREGATES = "model.safetensors", "aggregates.safetensors"
PRIVACY_PAGE, CARD_PAGE = "PRIVACY.md", "MODEL_CARD.md"
HUB_PAGE, MLMODEL = "README.md", "MLmodel"
# For other programs: nothing here reads them, and older releases lack them.
OTHER_FRAMEWORK_FILES = (HUB_PAGE, MLMODEL)
FILES = (WEIGHTS, MODEL, AGGREGATES, PREDICTIONS, PRIVACY, PRIVACY_PAGE, CARD_PAGE, *OTHER_FRAMEWORK_FILES)
PAIR_MODELS = ("links.json", "recommender.json")  # in place of MODEL, in folders of models of pairs
PER_NODE, INTERNAL, ROWS_PAGE = "per_node", "internal", "README.md"

_WITHHELD: dict[str, tuple[str, ...]] = {
    Node.name: (PREDICTIONS,),
    NodeRecord.name: (PREDICTIONS,),  # aggregates are noisy sums of what others declare
    NodeBoundedDegree.name: (PREDICTIONS, AGGREGATES),  # a node's own row is not covered
    Person.name: (PREDICTIONS,),
}


def withheld_files(unit: str) -> tuple[str, ...]:
    """Return the files that a release of this unit excludes, because row v depends on v's own record.

    >>> withheld_files("undirected-edge"), withheld_files("node-record")
    ((), ('predictions.parquet',))
    """
    return _WITHHELD.get(unit, ())


@dataclass(frozen=True)
class ReleaseGuarantee:
    """The privacy part of a release: its guarantee, and kind and noise of each noisy query result."""

    guarantee: Guarantee
    releases: tuple[QueryRow, ...]
    sampler: str | None


def write_release(
    snapshot: Snapshot, folder: Path, card: Card | None = None, *, per_node: Path | None = None
) -> None:
    """Write the public part of a fit to a new folder, atomically.

    Args:
        per_node: A second such folder, for what the unit excludes from the first.
    """
    guarantee, kept_back = snapshot.guarantee, withheld_files(snapshot.guarantee.unit)
    if per_node is not None and not kept_back:
        raise ConfigError(
            f"Under unit {guarantee.unit!r} predictions are already part of the release. Remove per_node."
        )
    for new in (folder, per_node):
        if new is None or not (new.is_symlink() or new.exists()):
            continue
        if new.is_symlink() or not new.is_dir() or any(new.iterdir()):
            raise ConfigError(f"{new} exists and is not an empty folder. Save to a new folder.")
    if per_node is not None:
        with atomic_folder(per_node, private=True) as work:
            _write_rows(snapshot, work, kept_back)
            (work / ROWS_PAGE).write_text(cards.rows_page(guarantee, kept_back), encoding="utf-8")
    with atomic_folder(folder) as work:
        _write_tensors(work / WEIGHTS, snapshot.state)
        _write_rows(snapshot, work, [name for name in (AGGREGATES, PREDICTIONS) if name not in kept_back])
        write_schema(work / MODEL, _model_file(snapshot))
        write_guarantee(work, guarantee, snapshot.rows, snapshot.sampler, card)
        (work / CARD_PAGE).write_text(cards.model_card(snapshot, card), encoding="utf-8")
        (work / HUB_PAGE).write_text(cards.hub_card(snapshot, card), encoding="utf-8")
        (work / MLMODEL).write_text(cards.mlmodel(snapshot), encoding="utf-8")


def write_guarantee(
    folder: Path,
    guarantee: Guarantee,
    rows: tuple[QueryRow, ...],
    sampler: str | None,
    card: Card | None = None,
) -> None:
    privacy_file = PrivacyFile(
        guarantee=guarantee.as_dict(),
        record=GuaranteeRecord(**guarantee_to_plain(guarantee)),
        sampler=sampler,
        releases=[ReleaseSchema(**row.as_release()) for row in rows],
    )
    write_schema(folder / PRIVACY, privacy_file)
    page = cards.privacy_page(guarantee, rows, card)
    (folder / PRIVACY_PAGE).write_text(page, encoding="utf-8")


def read_release(folder: Path, release: Path, per_node: str | Path | None = None) -> Snapshot:
    """Return the contents of a release folder as plain data, with per-node results if they are available.

    Args:
        per_node: Folder of the per-node results, by default that of the run folder.
    """
    file, privacy_file = read_schema(release / MODEL, ModelFile), read_guarantee(release)
    named = 0 if file.shape.classes == 1 else file.shape.classes  # a single output is a number
    if not len(file.class_names) == len(set(file.class_names)) == named:
        raise ArtifactError(
            f"{MODEL} must contain a different class name for each class. Restore it from the original run."
        )
    if per_node is not None:
        rows_folder: Path | None = Path(per_node)
    else:
        own = folder / PER_NODE  # a release that was copied without its run has none
        rows_folder = own if release != folder and own.exists() else None
    if rows_folder is not None and (
        rows_folder.is_symlink() or any((rows_folder / name).is_symlink() for name in FILES)
    ):
        raise ArtifactError(f"{rows_folder} is or contains a symbolic link. Copy the files instead.")
    rows = _read_rows(privacy_file.guarantee.unit, file, release, rows_folder)
    encoding = None
    if file.columns is not None:  # how columns became features
        encoding = Encoding(rules=tuple(file.columns))
        names = [rule.name for rule in encoding.rules]
        width = sum(rule.columns for rule in encoding.rules)
        if len(set(names)) < len(names) or width != file.shape.features:
            raise ArtifactError(
                f"{MODEL} names columns that its model does not read. Restore it from the original run."
            )
    return Snapshot(
        method=file.method,
        parameters=file.parameters,
        **file.shape.model_dump(),
        class_names=tuple(file.class_names),
        scaling=None if file.scaling is None else file.scaling.model_dump(),
        encoding=encoding,
        guarantee=privacy_file.guarantee,
        rows=privacy_file.releases,
        sampler=privacy_file.sampler,
        state=_read_tensors(release / WEIGHTS),
        **rows,
    )


def read_guarantee(folder: str | Path) -> ReleaseGuarantee:
    """Read the privacy part of a run or release folder; the guarantee is recomputed and compared."""
    root = Path(folder)
    for place in (root, root / "release"):
        if any((place / record).is_file() for record in PAIR_MODELS):
            return read_privacy_file(place / PRIVACY)
    release = find_release(folder)
    found = read_privacy_file(release / PRIVACY)
    _check_parts(release, found.guarantee.unit)
    return found


def read_privacy_file(path: Path) -> ReleaseGuarantee:
    """Read ``privacy.json``; the guarantee is recomputed and compared."""
    file = read_schema(path, PrivacyFile)
    with rejecting(path):
        guarantee = guarantee_from_record(file.record)
        agree = _agree(guarantee.as_dict(), file.guarantee)
    if not agree:
        raise ArtifactError(
            f"{path.name} was changed after it was written: its results do not match its events. "
            "Restore it from the original run."
        )
    return ReleaseGuarantee(
        guarantee, tuple(QueryRow(**row.model_dump()) for row in file.releases), file.sampler
    )


def find_release(folder: str | Path) -> Path:
    """Return the release part of a run folder, or the release folder itself; links are rejected."""
    root = Path(folder)
    release = root if (root / MODEL).exists() else root / "release"
    for record, loader in zip(PAIR_MODELS, ("LinkPredictor", "Recommender"), strict=True):
        if any((place / record).is_file() for place in (root, root / "release")):
            raise ArtifactError(
                f"{root} contains a model of pairs, but a classifier is needed. For pairs use `graphveil "
                f"predict --top-k`, or gv.{loader}.load({str(root)!r})."
            )
    if not (release / MODEL).exists():
        raise ArtifactError(
            f"{root} does not contain a saved model ({MODEL}). Pass the folder of a finished run."
        )
    if (release != root and release.is_symlink()) or any((release / name).is_symlink() for name in FILES):
        raise ArtifactError(
            f"{release} is or contains a symbolic link, which a release must not. Copy the files instead."
        )
    _require(release, (WEIGHTS, MODEL, PRIVACY, PRIVACY_PAGE, CARD_PAGE))
    return release


def _check_parts(release: Path, unit: str) -> None:
    """Raise an error for a release without its results, or with results that its unit excludes."""
    names = withheld_files(unit)
    _require(release, [name for name in FILES if name not in (*names, *OTHER_FRAMEWORK_FILES)])
    for name in names:
        if (release / name).exists():
            raise ArtifactError(
                f"{release} contains {name}, but under unit {unit!r} each row of it is only for people "
                f"authorized to access the record of that node. Move it to {PER_NODE}/ before you publish "
                "the release."
            )


def _require(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        if not (folder / name).is_file():
            raise ArtifactError(f"{name} is missing from {folder}. Restore the folder from the original run.")


def _read_rows(unit: str, file: ModelFile, release: Path, per_node: Path | None) -> dict[str, Any]:
    """Read predictions and aggregates from either folder; per-node results may be missing altogether."""
    names, found = withheld_files(unit), dict[str, Any]()
    if names and per_node is not None:
        _require(per_node, names)
    places = {name: per_node if name in names else release for name in (PREDICTIONS, AGGREGATES)}
    predictions, aggregates = places[PREDICTIONS], places[AGGREGATES]
    if predictions is not None:
        with rejecting(predictions / PREDICTIONS):
            proba, ids = read_predictions(predictions / PREDICTIONS, tuple(file.class_names))
        found |= {"proba": proba, "ids": ids}
    if aggregates is not None:
        found["released"] = _read_tensors(aggregates / AGGREGATES)
    return found


def _model_file(snapshot: Snapshot) -> ModelFile:
    from graphveil import __version__

    sizes = ("features", "classes", "nodes", "train_records")
    return ModelFile(
        library=__version__,
        method=snapshot.method,
        parameters=plain_parameters(dict(snapshot.parameters)),
        shape=ReleasedShape(**{name: getattr(snapshot, name) for name in sizes}),
        class_names=list(snapshot.named_classes),
        scaling=None
        if snapshot.scaling is None
        else ScalingSchema.model_validate_json(json.dumps(snapshot.scaling)),
        columns=None if snapshot.encoding is None else list(snapshot.encoding.rules),
    )


def _write_rows(snapshot: Snapshot, folder: Path, names: Sequence[str]) -> None:
    if AGGREGATES in names:
        _write_tensors(folder / AGGREGATES, snapshot.released)
    if PREDICTIONS in names:
        table = predictions_table(snapshot.own_proba, snapshot.named_classes, snapshot.ids)
        write_atomic(folder / PREDICTIONS, tables.encode(table, ".parquet"))


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save

    write_atomic(path, save({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}))


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    with rejecting(path):
        return load_file(path)


# Names whose values must agree: texts may be those of another version.
_ACCOUNTED = {
    *("valid", "unit", "releases", "deviations", "notes", "replace_one", "max_degree", "additional"),
    *("epsilon", "delta", "mu", "max_tpr_at_1pct_fpr", "edge_epsilon", "eps_x", "eps_y"),
}


def _agree(computed: Any, written: Any) -> bool:
    """Return whether a written guarantee equals the computed one; numbers may differ by rounding."""
    if isinstance(computed, dict):  # some names exist under some units only
        return (
            isinstance(written, dict)
            and computed.keys() == written.keys()
            and all(_agree(computed[name], written[name]) for name in computed.keys() & _ACCOUNTED)
        )
    if isinstance(computed, list):
        return (
            isinstance(written, list)
            and len(computed) == len(written)
            and all(map(_agree, computed, written))
        )
    if isinstance(computed, float) and isinstance(written, int | float):
        return math.isclose(computed, written, rel_tol=1e-6, abs_tol=1e-12)
    return bool(computed == written)


# -- predictions as a table: node, predicted class, one probability a class ------------------------------

Table: TypeAlias = "pa.Table"
Ids: TypeAlias = npt.NDArray[Any] | None

NODE, PREDICTION = "node", "prediction"
_MAX_EXPANSION = 200  # of a compressed table
_SPARE_BYTES = 1 << 26
_CODECS = {"SNAPPY", "UNCOMPRESSED"}  # what we write; others make gigabytes of kilobytes


def predictions_table(proba: Tensor, names: tuple[str, ...], ids: Ids = None) -> Table:
    """Return predictions as a table; nodes without ids are named by their numbers.

    A single output without a class is a predicted number.
    """
    import pyarrow as pa

    if not names:
        nodes = np.arange(len(proba)) if ids is None else ids
        return pa.table({NODE: nodes, PREDICTION: proba[:, 0].float().numpy()})
    columns = {f"p_{name}": proba[:, index].float().numpy() for index, name in enumerate(names)}
    chosen = pa.array(names).take(pa.array(proba.argmax(dim=1).numpy()))
    return pa.table({NODE: np.arange(len(proba)) if ids is None else ids, PREDICTION: chosen, **columns})


def read_predictions(path: Path, names: tuple[str, ...]) -> tuple[Tensor, Ids]:
    """Read probabilities (N, C), or numbers (N, 1) without names, and node ids of an untrusted parquet file.

    Memory is bounded by the size of the file: pages only in codecs with bounded expansion, rows by their
    size as numbers, and ids as a dictionary, so that a repeated one is stored once.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    columns = [f"p_{name}" for name in names] or [PREDICTION]
    _check_pages(path, len(columns))
    name = name_in_utf8(path)
    schema = parquet.read_schema(name)
    if schema.names != [NODE, PREDICTION, *(columns if names else ())]:
        raise ArtifactError(
            f"{path.name} does not have the columns of the classes of this model. Restore it from the "
            "original run."
        )
    if any(schema.field(name).type != pa.float32() for name in columns):
        what = "probability for each class" if names else "number"
        raise ArtifactError(f"{path.name} must contain one float32 {what}. Restore it from the original run.")
    table = parquet.read_table(name, columns=[NODE, *columns], read_dictionary=[NODE])
    proba = np.column_stack([table.column(name).to_numpy() for name in columns])
    ids = _ids(table.column(NODE))
    if ids is None or not np.isfinite(proba).all():
        raise ArtifactError(
            f"{path.name} must contain a node id (at most 1,000 bytes) and finite probabilities in "
            "every row. Restore it from the original run."
        )
    return torch.from_numpy(proba), ids


def _check_pages(path: Path, columns: int) -> None:
    """Raise an error for a parquet file that would expand far beyond its size, before reading any page."""
    import pyarrow.parquet as parquet

    metadata = parquet.read_metadata(name_in_utf8(path))
    parts = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    codecs = {part.column(number).compression for part in parts for number in range(part.num_columns)}
    if not codecs <= _CODECS:
        raise ArtifactError(
            f"{path.name} uses a compression or encoding that graphveil does not write. Restore it "
            "from the original run."
        )
    if metadata.num_rows * columns * 4 > _MAX_EXPANSION * path.stat().st_size + _SPARE_BYTES:
        raise ArtifactError(
            f"{path.name} states more rows than fit into its size. Restore it from the original run."
        )


def _ids(column: Any) -> Ids:
    """Return a column of ids without gaps as an array; None if it is of another type, or one is too long."""
    import pyarrow as pa

    ids = column.unify_dictionaries().combine_chunks()
    if ids.null_count:
        return None
    if not pa.types.is_dictionary(ids.type):
        return tables.id_array(ids) if pa.types.is_integer(ids.type) else None
    if not pa.types.is_string(ids.type.value_type) or tables.too_long(ids.dictionary):
        return None
    return tables.id_array(ids)
