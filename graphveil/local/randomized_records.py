"""Randomize node records as clients do, and estimate features from the reports.

A fit has handles of node records. ``collect_reports`` charges the ledger and passes the records to a
randomizer; later steps read reports only.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.collection import ReportFile, collect, release_id_of
from graphveil.core.features import Features, rows, to_dense
from graphveil.core.ledger import Entry, ledger_of
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.data.recipes import unit_interval
from graphveil.estimators.method import State
from graphveil.estimators.public_sizes import members
from graphveil.estimators.session import Session
from graphveil.mechanisms import Bounds, FeatureMechanism, LabelMechanism, LDPReports, LocalNoise
from graphveil.nn.lpgnn import FeatureEstimates

Scaling = Literal["none", "row", "columns"]
SCALINGS: tuple[Scaling, ...] = ("none", "row", "columns")
UNKNOWN = -1  # no reported label
_BLOCK_VALUES = 1 << 24  # raw feature values that are dense at a time


@dataclass(frozen=True, eq=False)
class RandomizedRecords:
    """Randomized records of all nodes, as the server stores them.

    Shapes: ``labels`` int64 (N), or (N, k) if nodes report k classes. They are -1 for nodes outside the
    training and validation parts and, if labels are not randomized, for nodes without a label.
    """

    features: FeatureEstimates
    labels: Tensor
    release_id: str
    reproducible: bool


@dataclass(frozen=True, kw_only=True)
class Randomizer:
    """Randomizes the features of all nodes, and the labels of training and validation nodes.

    The split alone determines which nodes report a label. A node without a label reports a random class, so
    the guarantee also covers the presence of a label. Labels of test nodes are not reported; they are read
    only for the final score.
    """

    mechanism: FeatureMechanism | None  # None if no features are reported
    label: LabelMechanism
    scaling: Scaling = "none"

    def parts(self, view: Graph) -> tuple[Any, ...]:
        """Return the parts of the records that are reported: labels, and possibly features."""
        return (view.y,) if self.mechanism is None else (view.y, view.x)

    def __call__(self, reporting: Tensor, seed: int | None, y: Tensor, x: Features | None = None) -> State:
        """Return the LDP reports of all nodes as tensors."""
        noise = LocalNoise(seed)
        labels, nodes = self.label.missing_reports(len(y)), np.flatnonzero(reporting.numpy())
        labels[nodes] = self.label.perturb(y.numpy()[nodes], stream=noise.stream("labels"), rows=nodes)
        return self._report_tensors(labels, x, noise, "features")

    def randomize_features_only(self, seed: int | None, collection_index: int, x: Features) -> State:
        """Return the randomized features of nodes that report no label."""
        return self._report_tensors(
            self.label.missing_reports(x.shape[0]),
            x,
            LocalNoise(seed),
            f"features, collection {collection_index}",
        )

    def _report_tensors(self, labels: Any, x: Features | None, noise: LocalNoise, purpose: str) -> State:
        """Return randomized labels, and features that are scaled and randomized here."""
        found = {"labels": torch.from_numpy(labels), "reproducible": torch.tensor(bool(noise.deviations))}
        if self.mechanism is None or x is None:
            return found
        return found | randomize_features(self.mechanism, scaled(x, self.scaling), noise, purpose)

    def received(self, found: State, x: Any) -> RandomizedRecords:
        """Return the estimates of the server from the reports; ``x`` is read if it is public."""
        return RandomizedRecords(
            FeatureEstimates(torch.zeros((x.shape[0], 0)))
            if self.mechanism is None
            else estimate_features(self.mechanism, found, x, self.scaling),
            found["labels"],
            release_id_of(found),
            bool(found["reproducible"]),
        )

    def binding(self, view: Graph) -> dict[str, object]:
        """Return the public facts that a file of reports is bound to: nodes, split, edges and mechanisms.

        Reports belong to nodes by index, so the nodes must be the same and in the same order.
        """
        # Numbers or text, encoded without collisions between lists.
        ids = None if view.ids is None else json.dumps(list(map(str, view.ids.tolist())))
        return {
            "mechanism": repr(self.mechanism),
            "label": repr(self.label),
            "telling": _digest(np.packbits(label_report_nodes(view).numpy())),
            "ids": None if ids is None else _digest(np.frombuffer(ids.encode(), dtype=np.uint8)),
            "edges": _digest(view.adjacency.indptr.numpy(), view.adjacency.indices.numpy()),
        }


def randomize_features(mechanism: FeatureMechanism, x: Features, noise: LocalNoise, purpose: str) -> State:
    """Return the feature reports of all nodes; empty if features are not protected.

    Only a block of rows is dense at a time.
    """
    if math.isinf(mechanism.epsilon):
        return {}
    stream, parts = noise.stream(purpose), list[LDPReports]()
    for block in _blocks(x):
        dense = to_dense(rows(x, block)).numpy()
        parts.append(mechanism.perturb(dense, stream=stream, rows=block.numpy()))
    indices = [part.indices for part in parts if part.indices is not None]
    found = {"values": torch.from_numpy(np.concatenate([part.values for part in parts]))}
    return found | ({"indices": torch.from_numpy(np.concatenate(indices))} if indices else {})


def estimate_features(
    mechanism: FeatureMechanism, found: State, x: Any, scaling: Scaling = "none"
) -> FeatureEstimates:
    """Return the estimated features; unprotected features are only scaled, and clipped to their range."""
    if "values" not in found:
        return FeatureEstimates(clipped(mechanism, scaled(x, scaling)))
    if "indices" not in found:
        reports = LDPReports(found["values"].numpy())
        return FeatureEstimates(torch.from_numpy(mechanism.estimate(reports)))
    return sparse_estimates(mechanism, LDPReports(found["values"].numpy(), found["indices"].numpy()))


def label_report_nodes(view: Graph) -> Tensor:
    """Return which nodes report a label, with or without having one: training and validation, bool (N)."""
    found = torch.zeros(view.num_nodes, dtype=torch.bool)
    found[torch.cat([members(view, "train"), members(view, "val")])] = True
    return found


def reported_nodes(view: Graph, labels: Tensor, split: str) -> Tensor:
    """Return the nodes of a part of the split with a reported label, int64."""
    found = members(view, split)
    return found[known(labels)[found]]


def known(labels: Tensor) -> Tensor:
    """Return which nodes have reported a label, or several classes, bool (N)."""
    return labels.reshape(len(labels), -1)[:, 0] != UNKNOWN


def _digest(*arrays: npt.NDArray[Any]) -> str:
    """Return a digest of public arrays, including their types and shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def sparse_estimates(mechanism: FeatureMechanism, reports: LDPReports) -> FeatureEstimates:
    """Return the estimates of reports on sampled features: k values per node, and the middle of the range."""
    assert reports.indices is not None
    low, width = np.asarray(mechanism.bounds.low), mechanism.bounds.width
    middle = np.broadcast_to(low + width / 2, (mechanism.dim,)).astype(np.float32)
    reported_values = mechanism.reported_values(reports) - middle[reports.indices]
    starts = np.arange(len(reports) + 1) * reported_values.shape[1]
    entries: Any = (reported_values.ravel(), reports.indices.ravel(), starts)
    deviations = sparse.csr_array(entries, shape=(len(reports), mechanism.dim))
    return FeatureEstimates(deviations, torch.from_numpy(middle.copy()))


def outside(bounds: Bounds, x: Features) -> Tensor:
    """Return how many features of each node lie outside their public range, int64 (N). This is private."""
    if not isinstance(x, Tensor) and isinstance(bounds.low, float) and bounds.outside(np.zeros(1)) == 0:
        upto = np.concatenate([[0], np.cumsum(bounds.beyond(x.data))])  # zeros that are not stored are inside
        return torch.from_numpy(np.diff(upto[x.indptr]))
    counts = [bounds.beyond(to_dense(rows(x, part)).numpy()).sum(axis=1) for part in _blocks(x)]
    return torch.from_numpy(np.concatenate(counts))


def clipped_values(bounds: Bounds, x: Any, scaling: Scaling) -> Any:
    """Return how many features each node clips to their public range: a handle if features are protected."""
    return map_records(lambda own: outside(bounds, scaled(own, scaling)), x)


def clipped(mechanism: FeatureMechanism, x: Features) -> Features:
    """Return unprotected features, clipped to their range; zeros stay implicit if 0 is in the range."""
    low, high = np.asarray(mechanism.bounds.low), np.asarray(mechanism.bounds.high)
    if not isinstance(x, Tensor) and low.ndim == 0 and low <= 0 <= high:
        parts: Any = (x.data.clip(float(low), float(high)), x.indices, x.indptr)
        return sparse.csr_array(parts, shape=x.shape)
    dense = to_dense(x).numpy()
    return torch.from_numpy(np.clip(dense, low, high).astype(np.float32))


def _blocks(x: Features) -> Iterator[Tensor]:
    """Yield the indices of consecutive rows."""
    yield from torch.split(torch.arange(x.shape[0]), max(1, _BLOCK_VALUES // x.shape[1]))


def scaled(x: Features, how: Scaling) -> Features:
    """Return the scaled features.

    ``"row"`` reads one record at a time, so each node can apply it before it randomizes. ``"columns"`` reads
    all records (the preparation of LPGNN).

    >>> scaled(torch.tensor([[2.0, 4.0, 3.0], [5.0, 5.0, 5.0]]), "row")
    tensor([[0.0000, 1.0000, 0.5000],
            [0.0000, 0.0000, 0.0000]])
    """
    if how == "none":
        return x
    if how == "columns":
        return unit_interval(x)
    if not isinstance(x, Tensor) and not x.min(axis=1).toarray().any():  # then zeros stay implicit
        inverse = _inverse(torch.from_numpy(x.max(axis=1).toarray().ravel())).numpy()
        parts: Any = (x.data * np.repeat(inverse, np.diff(x.indptr)), x.indices, x.indptr)
        return sparse.csr_array(parts, shape=x.shape)
    dense = to_dense(x)
    low, high = dense.amin(dim=1, keepdim=True), dense.amax(dim=1, keepdim=True)
    return (dense - low) * _inverse(high - low)


def _inverse(width: Tensor) -> Tensor:
    return torch.where(width > 0, 1 / width.clamp(min=torch.finfo(torch.float32).tiny), 0.0)


def exact_records(view: Graph, scaling: Scaling) -> RandomizedRecords:
    """Return exact records in place of randomized ones: the reference without privacy."""
    labels = torch.where(view.labeled_in("train", "val"), view.y, UNKNOWN)
    return RandomizedRecords(FeatureEstimates(scaled(view.x, scaling)), labels, "", False)


def collect_reports(
    view: Graph,
    session: Session,
    entry: Callable[[str], Entry],
    randomize: Callable[..., State],
    records: Sequence[Any],
    report_file: ReportFile | None = None,
) -> State:
    """Charge a collection and return its reports, or return those of an interrupted fit; see ``collect``.

    Privacy:
        Unit: that of ``entry``. Reads: node records, through ``randomize``. Charges: ``entry``, once.
    """
    ledger = session.ledger or ledger_of(view.edge_set)
    found = collect(records, randomize, entry, ledger, session.on_recorded, report_file)
    session.reproducible |= bool(found["reproducible"])
    return found
