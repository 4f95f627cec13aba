"""A survey from the texts of flags."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import numpy as np
import numpy.typing as npt

from graphveil.errors import ConfigError, GraphError
from graphveil.runs.parameters import list_items, parse_value, read_settings, read_theta

if TYPE_CHECKING:
    from graphveil.core.edges.adjacency import Adjacency
    from graphveil.data.tables import Column
    from graphveil.local.collect import CollectionProtocol
    from graphveil.local.collect.report_tables import CheckedReports
    from graphveil.mechanisms import FeatureRR, MultiBit
    from graphveil.mechanisms.labels import LabelLaw

MULTI_BIT: Literal["multi-bit"] = "multi-bit"
FEATURE_RR: Literal["feature-rr"] = "feature-rr"
RR: Literal["rr"] = "rr"


@dataclass(frozen=True, kw_only=True)
class ProtocolBuilder:
    """What ``collect protocol`` was given. The fields are its flags; lists are comma-separated texts.

    Privacy:
        eps_x: Privacy budget epsilon of all features of a record.
        mechanism: Mechanism that randomizes features.
        theta (FILE): JSON file with one public weight per feature, which sum to 1. For feature-rr.
        set (NAME=VALUE): Parameter of the mechanism: m of multi-bit; k, mode and decode of feature-rr.
            Repeatable.
        eps_y: Privacy budget epsilon of a record's label, or inf for no protection.
        label_mechanism: Mechanism that randomizes the label: rr (randomized response), subset (subset
            selection), or hashing (local hashing).

    Collection:
        columns (NAME,...): Comma-separated feature names.
        dim: Number of features, instead of --columns.
        low (NUMBER,...): Public lower bound of features: one number for all, or a comma-separated list. Lower
            values are clipped.
        high (NUMBER,...): Public upper bound of features: one number for all, or a comma-separated list.
        classes (NAME,...): Comma-separated class labels, or the number of classes.
        purpose: Purpose of the collection, shown to clients.
    """

    eps_x: float | None = None
    eps_y: float | None = None
    columns: str | None = None
    dim: int | None = None
    low: str = "0"
    high: str = "1"
    classes: str | None = None
    mechanism: Literal["multi-bit", "feature-rr"] = MULTI_BIT
    label_mechanism: Literal["rr", "subset", "hashing"] = RR
    theta: Path | None = None
    purpose: str = ""
    set: list[str] | None = None

    def protocol(self) -> "CollectionProtocol":
        """Return the collection protocol.

        >>> given = {"columns": "age, height", "high": "120,2.5", "classes": "red,blue"}
        >>> protocol = ProtocolBuilder(eps_x=1.0, eps_y=2.0, **given).protocol()
        >>> protocol.features.bounds.high, protocol.columns, protocol.class_names
        ((120.0, 2.5), ('age', 'height'), ('red', 'blue'))
        """
        from graphveil.local.collect import CollectionProtocol
        from graphveil.mechanisms.labels import LABELS

        columns, names = list_items("--columns", self.columns), list_items("--classes", self.classes)
        if columns and self.dim is not None:
            raise ConfigError("--columns already determines the number of features. Remove --dim.")
        dim = len(columns) or self.dim
        if (dim is None) != (self.eps_x is None):
            raise ConfigError(
                "Features need both a budget and a number or names of columns. Set --eps-x with "
                "--columns or --dim."
            )
        if (self.classes is None) != (self.eps_y is None):
            raise ConfigError("A label needs both a budget and its classes. Set --eps-y with --classes.")
        if self.eps_y is None and self.label_mechanism != RR:
            raise ConfigError("--label-mechanism needs a label. Set --eps-y and --classes, or remove it.")
        if dim is None and self.eps_y is None:
            raise ConfigError(
                "The protocol collects nothing. Set --eps-x with --columns or --dim for features, "
                "--eps-y with --classes for a label, or both."
            )
        counted = len(names) == 1 and names[0].isdecimal()
        classes = int(names[0]) if counted else len(names)
        features = None if dim is None or self.eps_x is None else self._features(self.eps_x, dim)
        label: LabelLaw | None = None
        if self.eps_y is not None:
            label = LABELS[self.label_mechanism](epsilon=self.eps_y, classes=classes)
        return CollectionProtocol(
            features=features,
            label=label,
            purpose=self.purpose,
            columns=columns,
            class_names=() if counted else names,
        )

    def _features(self, epsilon: float, dim: int) -> "MultiBit | FeatureRR":
        from graphveil.mechanisms import Bounds, FeatureMechanism, FeatureRR, MultiBit

        kind: type[MultiBit | FeatureRR] = MultiBit if self.mechanism == MULTI_BIT else FeatureRR
        low, high = (parse_value(name, getattr(self, name), _ENDS) for name in ("low", "high"))
        bounds = Bounds(_like(low, high), _like(high, low))
        given: dict[str, Any] = {"epsilon": epsilon, "dim": dim, "bounds": bounds}
        # Settings are the keywords that only this mechanism has; an allocation is a file, and no text.
        hints, common = get_type_hints(kind), {part.name for part in fields(FeatureMechanism)}
        own = [part.name for part in fields(kind) if part.name not in {*common, "allocation"}]
        given |= read_settings(self.set or (), {name: hints[name] for name in own}, self.mechanism)
        if self.theta is not None:
            if kind is MultiBit:
                raise ConfigError(
                    f"--theta is only for --mechanism {FEATURE_RR}, because {MULTI_BIT} samples features. "
                    "Remove --theta."
                )
            given["allocation"] = read_theta(self.theta)
        return kind(**given)


_ENDS = float | tuple[float, ...]


def _like(end: Any, other: Any) -> Any:
    """Return one bound for all features as one each, where the other bound is."""
    return (end,) * len(other) if isinstance(other, tuple) and not isinstance(end, tuple) else end


def receive_on_edges(
    protocol: "CollectionProtocol",
    encoded_reports: Path,
    edges: Path,
    *,
    id: str,
    source: str,
    target: str,
    directed: bool,
    nodes: Path | None = None,
    features: bool = True,
) -> tuple["CheckedReports", "Adjacency", "npt.NDArray[np.float32] | None"]:
    """Validate LDP reports, and return them with the public edges between their nodes, and public features.

    Nodes are numbered by first occurrence of their ids: in the LDP reports, then in the edges, then in the
    table of public features. A node without an LDP report is included without values.
    """
    import pyarrow as pa

    from graphveil.core.edges.adjacency import Adjacency
    from graphveil.local.collect.report_tables import read_reports, receive_reports
    from graphveil.local.local_estimator import check_public_features

    check_public_features(protocol, given=nodes is not None, reads=features)
    ids, texts = read_reports(encoded_reports, id=id)
    ends, public = _ends(edges, source, target), None if nodes is None else _public(nodes, id)
    others = {f"{name!r} of the edges": end for name, end in ends.items()}
    others |= {} if public is None else {f"{id!r} of the nodes": public[0]}
    if any(other.type != ids.type for other in others.values()):
        # A CSV has text alone. A report is bound to the text of its id, so whole numbers match as text, too.
        ids, others = _text(ids), {name: _text(other) for name, other in others.items()}
        ends = {name: _text(end) for name, end in ends.items()}
        public = None if public is None else (_text(public[0]), public[1])
    received = receive_reports(protocol, ids, texts, others=pa.concat_arrays(list(others.values())))
    tail, head = (_positions(end, received.ids) for end in ends.values())
    count = received.collector.nodes
    adjacency = Adjacency.from_edges(tail, head, num_nodes=count, directed=directed)
    return received, adjacency, None if public is None else _in_order(public, received.ids)


def _text(ids: "Column") -> "Column":
    from graphveil.data.tables.ids import as_text

    text = as_text(ids)
    assert text is not None  # ids are whole numbers or text
    return text


def _public(path: Path, id: str) -> tuple["Column", npt.NDArray[np.float32]]:
    from graphveil.data import tables
    from graphveil.data.tables.files import FileSource, feature_columns
    from graphveil.data.tables.ids import distinct_ids

    needs = "public features are what labels are learned from"
    columns = feature_columns(path, [id], None, needs=needs)
    table = tables.read_ids(FileSource(path), [id], columns)
    return distinct_ids(table, id), tables.matrix(table, columns).astype(np.float32)


def _in_order(public: tuple["Column", npt.NDArray[np.float32]], ids: "Column") -> npt.NDArray[np.float32]:
    own, features = public
    if len(own) < len(ids):
        raise GraphError(
            f"{len(ids) - len(own)} nodes of the LDP reports and edges have no row in the table of "
            "public features. Add a row for every node."
        )
    rows = np.empty_like(features)
    rows[_positions(own, ids)] = features
    return rows


def _ends(path: Path, source: str, target: str) -> dict[str, "Column"]:
    from graphveil.data import tables
    from graphveil.data.tables.files import FileSource

    table = tables.read_ids(FileSource(path), [source, target])
    if table.num_rows == 0:
        raise GraphError(
            f"{path.name} has no rows, so there are no edges to train on. Give at least one row."
        )
    return {name: tables.keys(tables.column(table, name), name) for name in (source, target)}


def _positions(ids: "Column", nodes: "Column") -> npt.NDArray[np.integer]:
    import pyarrow.compute as pc

    return np.asarray(pc.index_in(ids, value_set=nodes).to_numpy(zero_copy_only=False))
