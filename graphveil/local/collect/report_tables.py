"""Convert tables of records to tables of LDP reports, and these to tables of estimates; needs pyarrow.

A table of LDP reports has one row per report: the node id, and the report in base64. Errors name the row,
counted from 1 without the header, and never contain its values.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphveil._util.figures import counted
from graphveil.core.noise.sampling import Integers
from graphveil.data import tables
from graphveil.data.tables import Column, Table
from graphveil.data.tables.encoding import UNLABELED, class_codes
from graphveil.data.tables.files import FileSource, feature_columns
from graphveil.data.tables.ids import distinct_ids
from graphveil.errors import ConfigError, GraphError, LDPReportError
from graphveil.local.collect.client import MAX_EPS, randomize_records
from graphveil.local.collect.protocol import CollectionProtocol, Collector
from graphveil.mechanisms.features import Single
from graphveil.mechanisms.labels import MISSING

REPORT_COLUMN = "message"


@dataclass(frozen=True, eq=False)
class ClientRecords:
    """Records that a protocol collects. Private."""

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
        """Randomize every record and return the table of LDP reports, with ids in the column ``id``.

        Rows are sorted by id. The order of the private table could reveal information, such as one sorted by
        a private value.

        Privacy:
            Unit: each node record (LDP). Reads: the records. Charges: the budgets of ``protocol`` per record.
            The returned table is public.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if id == REPORT_COLUMN:
            raise ConfigError(
                f"The id column cannot be called {REPORT_COLUMN!r}, which is the name of the column of "
                "LDP reports. Rename it."
            )
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
        """Yield the bytes of each record that are randomized, in the order of the ids. Private."""
        import pyarrow.compute as pc

        for row in pc.array_sort_indices(self.ids).to_pylist():
            parts = [part[row] for part in (self.features, self.labels) if part is not None]
            yield b"".join(part.tobytes() for part in parts)

    @property
    def unlabeled(self) -> int:
        """Number of records without a valid label, which report a random class. Private."""
        return 0 if self.labels is None else int((self.labels == UNLABELED).sum())

    def outside(self, protocol: CollectionProtocol) -> int:
        """Return how many values lie outside the bounds of the protocol and are clipped. Private."""
        if protocol.features is None or self.features is None:
            return 0
        return protocol.features.bounds.outside(self.features)


def read_records(
    path: Path, protocol: CollectionProtocol, *, id: str, label: str | None = None
) -> ClientRecords:
    """Read the records that a protocol collects from a table of nodes, parquet or CSV.

    Features are the columns of the protocol, or all columns without another role if it names none. A record
    whose label is missing or not a class of the protocol also reports, with a random class. Excluding its row
    would reveal this fact.

    Privacy:
        Reads: the records, exactly. Charges: nothing. The result is private.
    """
    if (label is None) != (protocol.label is None):
        raise ConfigError(
            "the protocol collects a label: name its column with label= (--label)"
            if label is None
            else "the protocol collects no label; leave out label= (--label)"
        )
    roles = [id] if label is None else [id, label]
    columns: list[str] = []
    if protocol.features is not None:
        needs = f"the protocol collects {counted(protocol.features.dim, 'feature')}"
        columns = feature_columns(path, roles, protocol.columns or None, needs=needs)
    table = tables.read_ids(FileSource(path), roles, columns)
    if table.num_rows == 0:
        raise GraphError(
            f"{path.name} has no rows, so there are no records to report. Give at least one row."
        )
    features, labels = None, None
    if protocol.features is not None:
        features = tables.matrix(table, columns)
        if features.shape[1] != protocol.features.dim:
            raise GraphError(
                f"The table has {counted(features.shape[1], 'feature')}, but the protocol collects "
                f"{protocol.features.dim}. Give the table the same columns."
            )
    ids = distinct_ids(table, id)
    if label is not None and protocol.label is not None:
        names = protocol.class_names or [str(code) for code in range(protocol.label.classes)]
        labels, _ = class_codes(table, label, names)
        if (labels == UNLABELED).all():
            raise GraphError(
                f"Column {label!r} contains none of the labels of the protocol. Name the label column "
                "with --label."
            )
    return ClientRecords(ids, features, labels)


def read_reports(path: Path, *, id: str) -> tuple[Column, list[str | None]]:
    import pyarrow as pa

    table = tables.read_ids(FileSource(path), [id], [REPORT_COLUMN])
    if table.num_rows == 0:
        raise GraphError(f"{path.name} has no rows, so there are no LDP reports. Give at least one row.")
    try:
        texts = tables.column(table, REPORT_COLUMN).cast(pa.large_string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise GraphError(f"Column {REPORT_COLUMN!r} must contain LDP reports as base64 text.") from None
    ids = tables.keys(tables.column(table, id), id)
    return (_as_numbers(ids) if tables.is_csv(path) else ids), texts


def _as_numbers(ids: Column) -> Column:
    """Convert ids that were read as text to integers, if this does not change their text.

    This gives the ids of a parquet table of records again after a table of LDP reports in CSV.
    """
    import pyarrow as pa

    try:
        numbers = ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return ids
    return numbers if numbers.cast(ids.type).equals(ids) else ids


@dataclass(frozen=True, eq=False)
class CheckedReports:
    """Checked LDP reports: the accepted reports, the ids, and why rows were rejected."""

    collector: Collector
    ids: Column  # every node with a row, in order of first appearance, then others
    rejected: dict[int, str]  # row, counted from 1, and the reason

    @property
    def accepted(self) -> int:
        return int(self.collector.answered.sum())

    def check(self) -> None:
        if self.rejected:
            row, reason = next(iter(self.rejected.items()))
            raise LDPReportError(
                f"{len(self.rejected)} LDP report(s) were rejected. The first is in row {row}: {reason}"
            )

    def estimates(self, id: str, label: str) -> Table:
        """Return a table of nodes: ids, estimated features, randomized labels.

        A node whose reports were all rejected gets the middle of each feature's range, and no label. If nodes
        report several classes, each has its own column (``label_1``, ...).
        """
        import pyarrow as pa

        protocol, answered = self.collector.protocol, self.collector.answered
        parts: list[tuple[str, Any]] = [(id, self.ids)]
        if protocol.features is not None:
            law = protocol.features
            rows = law.bounds.real(np.full((len(answered), law.dim), 0.5, dtype=np.float32))
            rows[answered] = self.collector.features()
            names = protocol.columns or [f"x{number}" for number in range(law.dim)]
            parts += zip(names, rows.astype(np.float32).T, strict=True)
        if protocol.label is not None:
            labels = self.collector.labels()
            titles = [label]
            if labels.ndim > 1:
                titles = [f"{label}_{place}" for place in range(1, 1 + labels.shape[1])]
            classes: Sequence[str | int] = protocol.class_names or range(protocol.label.classes)
            for title, codes in zip(titles, labels.reshape(len(labels), -1).T, strict=True):
                reported: list[str | int | None] = [None] * len(answered)
                for node, code in zip(np.flatnonzero(answered), codes, strict=True):
                    if code != MISSING:  # padding of smaller groups
                        reported[node] = classes[code]
                parts.append((title, pa.array(reported)))
        if len(dict(parts)) < len(parts):
            raise ConfigError(
                "The columns of ids, labels and features need different names. Change --id or --label."
            )
        return pa.table(dict(parts))


def receive_reports(
    protocol: CollectionProtocol, ids: Column, texts: Sequence[str | None], *, others: Column | None = None
) -> CheckedReports:
    """Check LDP reports in order, and accept at most one per node."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nodes = ids.dictionary_encode()
    known = nodes.dictionary if others is None else pc.unique(pa.concat_arrays([nodes.dictionary, others]))
    collector = Collector(protocol, len(known), ids=known.to_pylist())
    rejected = {}
    for row, (node, text) in enumerate(zip(nodes.indices.to_pylist(), texts, strict=True), start=1):
        try:
            encoded_report = base64.b64decode(text or "", validate=True)
        except ValueError:  # binascii.Error, or text that is not ASCII
            rejected[row] = "an LDP report is not in base64"
            continue
        try:
            collector.accept(encoded_report, node)
        except LDPReportError as error:
            rejected[row] = str(error)
    return CheckedReports(collector, known, rejected)
