"""Randomize node records locally and store the reports: later steps read no raw record.

A collection is recorded in the ledger first, and its reports are kept, so that an interrupted fit is
charged once.
"""

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
from scipy import sparse
from torch import Tensor

from graphveil.core.clipping import snapshot
from graphveil.core.features import Features, rows, to_dense
from graphveil.core.ledger import Entry, ledger_of
from graphveil.data import Graph
from graphveil.estimators.method import State
from graphveil.estimators.public_sizes import members
from graphveil.estimators.session import Session
from graphveil.mechanisms import Bounds, FeatureMechanism, LabelMechanism, LDPReports, LocalNoise
from graphveil.nn.inputs import FeatureEstimates

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

    def __call__(self, graph: Graph, x: Features, seed: int | None) -> State:
        """Return the LDP reports of all nodes as tensors.

        Args:
            graph: Labels and split.
            x: Features, one row per node.
            seed: Makes the noise reproducible; None to use the randomness of the operating system.
        """
        noise = LocalNoise(seed)
        labels = self.label.missing_reports(graph.num_nodes)
        reporting = np.flatnonzero(label_report_nodes(graph).numpy())
        labels[reporting] = self.label.perturb(
            graph.y.numpy()[reporting], stream=noise.stream("labels"), rows=reporting
        )
        return self._report_tensors(labels, x, noise, "features")

    def randomize_features_only(self, x: Features, seed: int | None, collection_index: int) -> State:
        """Return the randomized features of nodes that report no label.

        Args:
            x: Features, one row per node.
            seed: Makes the noise reproducible; None to use the randomness of the operating system.
            collection_index: Number of this collection, so that its noise is independent of others.
        """
        return self._report_tensors(
            self.label.missing_reports(x.shape[0]),
            x,
            LocalNoise(seed),
            f"features, collection {collection_index}",
        )

    def _report_tensors(self, labels: Any, x: Features, noise: LocalNoise, purpose: str) -> State:
        """Return randomized labels, and features that are randomized here."""
        return {
            "labels": torch.from_numpy(labels),
            "reproducible": torch.tensor(bool(noise.deviations)),
            **({} if self.mechanism is None else randomize_features(self.mechanism, x, noise, purpose)),
        }

    def received(self, found: State, x: Features) -> RandomizedRecords:
        """Return the estimates of the server from the reports."""
        return RandomizedRecords(
            FeatureEstimates(torch.zeros((x.shape[0], 0)))
            if self.mechanism is None
            else estimate_features(self.mechanism, found, x),
            found["labels"],
            release_id_of(found),
            bool(found["reproducible"]),
        )

    def binding(self, graph: Graph) -> dict[str, object]:
        """Return the public facts that a file of reports is bound to: nodes, split, edges and mechanisms.

        Reports belong to nodes by index, so the nodes must be the same and in the same order.
        """
        # Numbers or text, encoded without collisions between lists.
        ids = None if graph.ids is None else json.dumps(list(map(str, graph.ids.tolist())))
        return {
            "mechanism": repr(self.mechanism),
            "label": repr(self.label),
            "telling": _digest(np.packbits(label_report_nodes(graph).numpy())),
            "ids": None if ids is None else _digest(np.frombuffer(ids.encode(), dtype=np.uint8)),
            "edges": _digest(graph.adjacency.indptr.numpy(), graph.adjacency.indices.numpy()),
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


def estimate_features(mechanism: FeatureMechanism, found: State, x: Features) -> FeatureEstimates:
    """Return the estimated features; unprotected features are only clipped to their range."""
    if "values" not in found:
        return FeatureEstimates(clipped(mechanism, x))
    if "indices" not in found:
        reports = LDPReports(found["values"].numpy())
        return FeatureEstimates(torch.from_numpy(mechanism.estimate(reports)))
    return sparse_estimates(mechanism, LDPReports(found["values"].numpy(), found["indices"].numpy()))


def label_report_nodes(graph: Graph) -> Tensor:
    """Return which nodes report a label, with or without having one: training and validation, bool (N)."""
    found = torch.zeros(graph.num_nodes, dtype=torch.bool)
    found[torch.cat([members(graph, "train"), members(graph, "val")])] = True
    return found


def reported_nodes(graph: Graph, labels: Tensor, split: str) -> Tensor:
    """Return the nodes of a part of the split with a reported label, int64."""
    found = members(graph, split)
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


def outside(bounds: Bounds, x: Features) -> int:
    """Return how many features lie outside their public range; this number is private."""
    if not isinstance(x, Tensor) and isinstance(bounds.low, float) and bounds.outside(np.zeros(1)) == 0:
        return bounds.outside(x.data)
    return sum(bounds.outside(to_dense(rows(x, part)).numpy()) for part in _blocks(x))


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


def exact_records(graph: Graph, x: Features) -> RandomizedRecords:
    """Return exact records in place of randomized ones: the reference without privacy."""
    labels = torch.where(graph.labeled_in("train", "val"), graph.y, UNKNOWN)
    return RandomizedRecords(FeatureEstimates(x), labels, "", False)


@dataclass(frozen=True, eq=False)
class ReportFile:
    """A file of reports, and the public facts that it is bound to."""

    path: Path
    binding: snapshot.Binding

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, so that a concurrent fit waits and then uses the stored reports.

        Otherwise both fits would collect under one ledger entry. The lock ends with the process.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock"), mode=0o600):
            yield

    def load(self) -> State:
        """Return the stored tensors; empty if the file does not exist."""
        return snapshot.load(self.path, self.binding) if self.path.exists() else {}

    def save(self, found: State) -> None:
        """Write the tensors."""
        snapshot.save(self.path, found, self.binding)


def collect_reports(
    graph: Graph,
    session: Session,
    entry: Callable[[str], Entry],
    randomize: Callable[[], State],
    report_file: ReportFile | None = None,
) -> State:
    """Return the reports of an interrupted fit, or charge the ledger and collect reports.

    The release id is stored before the ledger records it, so an interrupted fit is resumed under the same id.
    Reports that were not stored were not used, so nodes report again under the same id.

    Args:
        graph: The reporting nodes.
        session: Names the ledger; the default is that of all nodes of the graph.
        entry: Returns the ledger entry for a release id.
        randomize: Randomizes records; its ``reproducible`` is whether the noise has a seed.
        report_file: File of the reports.

    Raises:
        ArtifactError: The file belongs to another configuration, or to other nodes, edges or another split.
        BudgetError: The ledger rejects the entry. Nothing is reported, and nothing is left to resume.

    Privacy:
        Unit: that of ``entry``. Reads: node records, through ``randomize``. Charges: ``entry``, once.
    """
    ledger = session.ledger or ledger_of(graph.edge_set)
    if report_file is None or not report_file.path.exists():
        ledger.check(entry("unbooked"))  # an error leaves no folder
    with nullcontext() if report_file is None else report_file.lock():
        found = {} if report_file is None else report_file.load()
        if not found:
            found = {"release": torch.frombuffer(bytearray(secrets.token_bytes(16)), dtype=torch.uint8)}
            if report_file is not None:
                report_file.save(found)
        if not ledger.contains(release_id_of(found)):
            ledger.record(entry(release_id_of(found)))
        ledger.commit(release_id_of(found))  # no refund after this point
        session.on_recorded()
        if "reproducible" not in found:
            found |= randomize()
            if report_file is not None:
                report_file.save(found)
    session.reproducible |= bool(found["reproducible"])
    return found


def release_id_of(found: State) -> str:
    """Return the release id of reports."""
    return bytes(found["release"].tolist()).hex()
