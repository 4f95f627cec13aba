"""Tables of records to tables of LDP reports, and those to tables of estimates. This side needs pyarrow.

A table of LDP reports has a row for each: whose it is, and the LDP report in base64. What is wrong with
one is told by its row, counted from 1 without the header, and never by what it says.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphveil.data import tables
from graphveil.data.tables import Column, Table
from graphveil.data.tables.files import check_columns, feature_columns
from graphveil.data.tables.ids import distinct_ids
from graphveil.data.tables.labels import AS_WRITTEN, UNLABELED, class_codes
from graphveil.errors import ConfigError, GraphError, LDPReportError
from graphveil.local.collect.client import MAX_EPS, randomize_records
from graphveil.local.collect.encoded_report import Collector
from graphveil.local.collect.protocol import CollectionProtocol
from graphveil.mechanisms.features import Single
from graphveil.mechanisms.labels import MISSING
from graphveil.mechanisms.sampling import Integers
from graphveil.privacy.statements import counted

REPORT_COLUMN = "message"


@dataclass(frozen=True, eq=False)
class ClientRecords:
    """Some people's records as a survey asks for them. Private."""

    ids: Column
    features: Single | None
    labels: Integers | None

    def encoded_reports(
        self,
        protocol: CollectionProtocol,
        id: str,
        *,
        secret: bytes,
        max_eps: float = MAX_EPS,
        allow_unprotected_label: bool = False,
    ) -> Table:
        """Randomize every record and return the table of LDP reports, whose ids are in the column ``id``.

        Rows are in the order of the ids: that of the private table may tell, as one sorted by a secret does.

        Raises:
            BudgetError, ConfigError, GraphError: see :func:`~graphveil.local.collect.randomize_records`.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if id == REPORT_COLUMN:
            raise ConfigError(f"the column of ids cannot be called {REPORT_COLUMN!r}; rename it")
        made = randomize_records(
            protocol,
            nodes=self.ids.to_pylist(),
            secret=secret,
            features=self.features,
            labels=self.labels,
            max_eps=max_eps,
            allow_unprotected_label=allow_unprotected_label,
        )
        table = pa.table({id: self.ids, REPORT_COLUMN: [base64.b64encode(one).decode() for one in made]})
        return table.take(pc.array_sort_indices(self.ids))

    def each(self) -> Iterator[bytes]:
        """Yield what is randomized of each record, in the order of the ids. Private."""
        import pyarrow.compute as pc

        for row in pc.array_sort_indices(self.ids).to_pylist():
            parts = [part[row] for part in (self.features, self.labels) if part is not None]
            yield b"".join(part.tobytes() for part in parts)

    @property
    def unlabeled(self) -> int:
        """How many records have no label of the survey's, and answer a class at random. Private."""
        return 0 if self.labels is None else int((self.labels == UNLABELED).sum())

    def outside(self, protocol: CollectionProtocol) -> int:
        """Return how many values lie outside the survey's bounds and are clipped. Private."""
        if protocol.features is None or self.features is None:
            return 0
        return protocol.features.bounds.outside(self.features)


def read_records(
    path: Path, protocol: CollectionProtocol, *, id: str, label: str | None = None
) -> ClientRecords:
    """Read the records that a survey asks for from a table of nodes, parquet or CSV.

    Features are the survey's columns, or all columns without another role if it names none. A label that is
    missing, or none of the survey's classes, is answered like any other, by a class at random: a row that was
    left out for it would tell.

    Raises:
        ConfigError: ``label`` is missing, or the survey asks for none.
        GraphError: a file or column is missing or unusable, ids are repeated, features are not finite numbers
            or not as many as the survey asks for, or no label is one of the survey's classes.
    """
    if (label is None) != (protocol.label is None):
        raise ConfigError(
            "the survey asks for a label: name its column with label= (--label)"
            if label is None
            else "the survey asks for no label; leave out label= (--label)"
        )
    roles = [id] if label is None else [id, label]
    columns: list[str] = []
    if protocol.features is not None:
        needs = f"the survey asks for {counted(protocol.features.dim, 'feature')}"
        columns = feature_columns(path, roles, protocol.columns or None, (), needs=needs)
    check_columns(path, [*roles, *columns])
    types = tables.id_types(path, [id]) | ({} if label is None else {label: AS_WRITTEN})
    table = tables.read(path, [*roles, *columns], types)
    if table.num_rows == 0:
        raise GraphError(f"{path.name} has no rows, so nobody answers; give at least one")
    features = None if protocol.features is None else _features(table, columns, protocol.features.dim)
    return ClientRecords(distinct_ids(table, id), features, _labels(table, label, protocol))


def read_reports(path: Path, *, id: str) -> tuple[Column, list[str | None]]:
    """Read a table of LDP reports: whose each is, and its text.

    Raises:
        GraphError: a file or column is missing or unusable, or a row has no id.
    """
    import pyarrow as pa

    check_columns(path, [id, REPORT_COLUMN])
    table = tables.read(path, [id, REPORT_COLUMN], tables.id_types(path, [id]))
    if table.num_rows == 0:
        raise GraphError(f"{path.name} has no rows, so there are no LDP reports; give at least one")
    try:
        texts = tables.column(table, REPORT_COLUMN).cast(pa.large_string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise GraphError(f"column {REPORT_COLUMN!r} must hold text: LDP reports in base64") from None
    ids = tables.keys(tables.column(table, id), id)
    return (_as_numbers(ids) if tables.is_csv(path) else ids), texts


def _as_numbers(ids: Column) -> Column:
    """Return ids that were read as text as whole numbers, if writing the numbers gives the same text.

    The ids of a parquet table of records are then the same numbers after a table of LDP reports in CSV.
    """
    import pyarrow as pa

    try:
        numbers = ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return ids
    return numbers if numbers.cast(ids.type).equals(ids) else ids


@dataclass(frozen=True, eq=False)
class ReceivedReports:
    """LDP reports that were checked: what was accepted, of whom, and why rows were refused."""

    collector: Collector
    ids: Column  # every node with a row, in the order of its first, then others
    refused: dict[int, str]  # row, counted from 1, and the reason

    @property
    def accepted(self) -> int:
        """How many LDP reports were taken."""
        return int(self.collector.answered.sum())

    def check(self) -> None:
        """Require that every LDP report was taken.

        Raises:
            LDPReportError: one was refused; the first one's row and reason, and how many there are.
        """
        if self.refused:
            row, reason = next(iter(self.refused.items()))
            raise LDPReportError(
                f"LDP reports refused: {len(self.refused)}, the first in row {row}: {reason}"
            )

    def estimates(self, id: str, label: str) -> Table:
        """Return a table of nodes: ids, estimated features, randomized labels.

        A node whose LDP reports were all refused has the middle of each feature's range, which tells nothing,
        and no label. Where nodes say several classes, each has a column of its own (``label_1``, ...).
        """
        import pyarrow as pa

        protocol = self.collector.protocol
        parts: list[tuple[str, Any]] = [(id, self.ids)]
        if protocol.features is not None:
            names = protocol.columns or [f"x{number}" for number in range(protocol.features.dim)]
            parts += zip(names, self._features().T, strict=True)
        if protocol.label is not None:
            parts += [(name, pa.array(column)) for name, column in self._labels(label).items()]
        if len(dict(parts)) < len(parts):
            raise ConfigError("ids, labels and features need different names; choose other --id and --label")
        return pa.table(dict(parts))

    def _features(self) -> Single:
        law = self.collector.protocol.features
        assert law is not None
        rows = law.bounds.real(np.full((self.collector.nodes, law.dim), 0.5, dtype=np.float32))
        rows[self.collector.answered] = self.collector.features()
        return rows.astype(np.float32)

    def _labels(self, label: str) -> dict[str, list[str | int | None]]:
        """Return the column of labels, or one for each of the classes that a node says."""
        labels = self.collector.labels()
        columns = labels.reshape(len(labels), -1).T
        titles = [label] if labels.ndim == 1 else [f"{label}_{place}" for place in range(1, 1 + len(columns))]
        return {title: self._classes(codes) for title, codes in zip(titles, columns, strict=True)}

    def _classes(self, codes: Integers) -> list[str | int | None]:
        names: Sequence[str | int] = self.collector.protocol.class_names
        reported: list[str | int | None] = [None] * self.collector.nodes
        for node, code in zip(np.flatnonzero(self.collector.answered), codes, strict=True):
            if code != MISSING:  # of a group that is smaller than others
                reported[node] = names[code] if names else int(code)
        return reported


def receive_reports(
    protocol: CollectionProtocol, ids: Column, texts: Sequence[str | None], *, others: Column | None = None
) -> ReceivedReports:
    """Check LDP reports in order, and take at most one a node, none twice.

    Args:
        protocol: the public parameters.
        ids: whose each LDP report is.
        texts: the LDP reports.
        others: ids of further nodes, which may have no LDP report; of the same type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    nodes = ids.dictionary_encode()
    known = nodes.dictionary if others is None else pc.unique(pa.concat_arrays([nodes.dictionary, others]))
    collector = Collector(protocol, len(known), ids=known.to_pylist())
    refused = {}
    for row, (node, text) in enumerate(zip(nodes.indices.to_pylist(), texts, strict=True), start=1):
        try:
            collector.accept(_bytes(text), node)
        except LDPReportError as error:
            refused[row] = str(error)
    return ReceivedReports(collector, known, refused)


def _bytes(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        raise LDPReportError("an LDP report is not in base64") from None


def _features(table: Table, columns: Sequence[str], dim: int) -> Single:
    features = tables.matrix(table, columns)
    if features.shape[1] != dim:
        raise GraphError(
            f"the table has {counted(features.shape[1], 'feature')}, and the survey asks for {dim}"
        )
    return features


def _labels(table: Table, name: str | None, protocol: CollectionProtocol) -> Integers | None:
    if name is None or protocol.label is None:
        return None
    names = protocol.class_names or [str(code) for code in range(protocol.label.classes)]
    codes, _ = class_codes(table, name, names)
    if (codes == UNLABELED).all():
        raise GraphError(f"column {name!r} has no label of the survey's; name the column that has them")
    return codes
