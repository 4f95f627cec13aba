"""Each node randomizes its record; the server stores what it gets. Nothing after this sees a raw record.

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

from graphveil.data import Features, Graph, rows, to_dense
from graphveil.estimators.method import State
from graphveil.estimators.public_sizes import members
from graphveil.estimators.session import Session
from graphveil.ledger import Entry, ledger_of
from graphveil.mechanisms import Bounds, FeatureMechanism, LabelMechanism, LDPReports, LocalNoise
from graphveil.nn.inputs import FeatureEstimates
from graphveil.training import snapshot

UNKNOWN = -1  # a label that nobody told
_BLOCK_VALUES = 1 << 24  # raw features that are made dense at a time


@dataclass(frozen=True, eq=False)
class RandomizedRecords:
    """What the server has of all records.

    Shapes: ``labels`` int64 (N), or (N, k) where nodes say k classes; -1 for nodes that are not in train or
    val and, where labels are not randomized, for those without one.
    """

    features: FeatureEstimates
    labels: Tensor
    release_id: str
    reproducible: bool


@dataclass(frozen=True, kw_only=True)
class Randomizer:
    """Randomizes the features of all nodes, and the labels of training and validation nodes.

    Who is asked for a label is read from the split alone: a node without one says a class at random, so that
    what is covered includes who has a label. Labels of test nodes stay where they are: they are read for the
    final score only.
    """

    mechanism: FeatureMechanism | None  # none if nothing is told about features
    label: LabelMechanism

    def __call__(self, graph: Graph, x: Features, seed: int | None) -> State:
        """Return what leaves all nodes, as tensors to be kept.

        Args:
            graph: labels and split.
            x: features, one row per node.
            seed: makes the noise reproducible; None for a key of the operating system.
        """
        noise = LocalNoise(seed)
        labels = self.label.missing_reports(graph.num_nodes)
        reporting = np.flatnonzero(label_report_nodes(graph).numpy())
        labels[reporting] = self.label.perturb(
            graph.y.numpy()[reporting], stream=noise.stream("labels"), rows=reporting
        )
        return self._report_tensors(labels, x, noise, "features")

    def randomize_features_only(self, x: Features, seed: int | None, collection_index: int) -> State:
        """Return the randomized features of nodes that tell no label.

        Args:
            x: features, one row per node.
            seed: makes the noise reproducible; None for a key of the operating system.
            collection_index: the number of this collection: no two have the same noise, whatever the seed.
        """
        return self._report_tensors(
            self.label.missing_reports(x.shape[0]),
            x,
            LocalNoise(seed),
            f"features, collection {collection_index}",
        )

    def _report_tensors(self, labels: Any, x: Features, noise: LocalNoise, purpose: str) -> State:
        """Return labels that were randomized already, beside features that are randomized here."""
        return {
            "labels": torch.from_numpy(labels),
            "reproducible": torch.tensor(bool(noise.deviations)),
            **({} if self.mechanism is None else randomize_features(self.mechanism, x, noise, purpose)),
        }

    def received(self, found: State, x: Features) -> RandomizedRecords:
        """Return what the server makes of what was told."""
        return RandomizedRecords(
            FeatureEstimates(torch.zeros((x.shape[0], 0)))
            if self.mechanism is None
            else estimate_features(self.mechanism, found, x),
            found["labels"],
            release_id_of(found),
            bool(found["reproducible"]),
        )

    def binding(self, graph: Graph) -> dict[str, object]:
        """Return what a file of reports is bound to: whose they are, and by which law; all of it is public.

        Reports belong to nodes by their number, so the nodes must be the same and in the same order.
        """
        # Numbers or text, as bytes that no two lists share.
        ids = None if graph.ids is None else json.dumps(list(map(str, graph.ids.tolist())))
        return {
            "mechanism": repr(self.mechanism),
            "label": repr(self.label),
            "telling": _digest(np.packbits(label_report_nodes(graph).numpy())),
            "ids": None if ids is None else _digest(np.frombuffer(ids.encode(), dtype=np.uint8)),
            "edges": _digest(graph.adjacency.indptr.numpy(), graph.adjacency.indices.numpy()),
        }


def randomize_features(mechanism: FeatureMechanism, x: Features, noise: LocalNoise, purpose: str) -> State:
    """Return what leaves all nodes of their features, to be kept: nothing where nothing is hidden."""
    if math.isinf(mechanism.epsilon):
        return {}
    reports = perturb_rows(mechanism, x, noise, purpose)
    indices = {} if reports.indices is None else {"indices": torch.from_numpy(reports.indices)}
    return {"values": torch.from_numpy(reports.values), **indices}


def estimate_features(mechanism: FeatureMechanism, found: State, x: Features) -> FeatureEstimates:
    """Return the estimates of what was told; features that are not hidden are only cut to their range."""
    if "values" not in found:
        return FeatureEstimates(clipped(mechanism, x))
    if "indices" not in found:
        reports = LDPReports(found["values"].numpy())
        return FeatureEstimates(torch.from_numpy(mechanism.estimate(reports)))
    return sparse_estimates(mechanism, LDPReports(found["values"].numpy(), found["indices"].numpy()))


def label_report_nodes(graph: Graph) -> Tensor:
    """Return the nodes that are asked for a label, with or without one: training and validation, bool (N)."""
    found = torch.zeros(graph.num_nodes, dtype=torch.bool)
    found[torch.cat([members(graph, "train"), members(graph, "val")])] = True
    return found


def reported_nodes(graph: Graph, labels: Tensor, split: str) -> Tensor:
    """Return the nodes of a part of the split that told a label, int64."""
    found = members(graph, split)
    return found[known(labels)[found]]


def known(labels: Tensor) -> Tensor:
    """Return which nodes told a label, or several classes, bool (N)."""
    return labels.reshape(len(labels), -1)[:, 0] != UNKNOWN


def extend_without_labels(labels: Tensor, nodes: int) -> Tensor:
    """Return labels for so many nodes: those that there are, and of the nodes after them none."""
    return torch.cat([labels, torch.full((nodes - len(labels), *labels.shape[1:]), UNKNOWN)])


def _digest(*arrays: npt.NDArray[Any]) -> str:
    """Return a digest of public arrays, their types and shapes included."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def perturb_rows(
    mechanism: FeatureMechanism, x: Features, noise: LocalNoise, purpose: str = "features"
) -> LDPReports:
    """Return the reports of all rows, of which few are dense at a time."""
    stream, parts = noise.stream(purpose), list[LDPReports]()
    for part in _blocks(x):
        dense = to_dense(rows(x, part)).numpy()
        parts.append(mechanism.perturb(dense, stream=stream, rows=part.numpy()))
    indices = [part.indices for part in parts if part.indices is not None]
    return LDPReports(
        np.concatenate([part.values for part in parts]), np.concatenate(indices) if indices else None
    )


def sparse_estimates(mechanism: FeatureMechanism, reports: LDPReports) -> FeatureEstimates:
    """Return the estimates of reports on sampled features: k numbers a node, and the middle of the range."""
    assert reports.indices is not None
    low, width = np.asarray(mechanism.bounds.low), mechanism.bounds.width
    middle = np.broadcast_to(low + width / 2, (mechanism.dim,)).astype(np.float32)
    reported_values = mechanism.reported_values(reports) - middle[reports.indices]
    starts = np.arange(len(reports) + 1) * reported_values.shape[1]
    entries: Any = (reported_values.ravel(), reports.indices.ravel(), starts)
    deviations = sparse.csr_array(entries, shape=(len(reports), mechanism.dim))
    return FeatureEstimates(deviations, torch.from_numpy(middle.copy()))


def outside(bounds: Bounds, x: Features) -> int:
    """Return how many features lie outside their public range. This is private: never publish it."""
    if not isinstance(x, Tensor) and isinstance(bounds.low, float) and bounds.outside(np.zeros(1)) == 0:
        return bounds.outside(x.data)
    return sum(bounds.outside(to_dense(rows(x, part)).numpy()) for part in _blocks(x))


def clipped(mechanism: FeatureMechanism, x: Features) -> Features:
    """Return features that nobody randomizes, cut to their range; zeros stay unstored if 0 is inside it."""
    low, high = np.asarray(mechanism.bounds.low), np.asarray(mechanism.bounds.high)
    if not isinstance(x, Tensor) and low.ndim == 0 and low <= 0 <= high:
        parts: Any = (x.data.clip(float(low), float(high)), x.indices, x.indptr)
        return sparse.csr_array(parts, shape=x.shape)
    dense = to_dense(x).numpy()
    return torch.from_numpy(np.clip(dense, low, high).astype(np.float32))


def _blocks(x: Features) -> Iterator[Tensor]:
    """Yield the numbers of consecutive rows."""
    yield from torch.split(torch.arange(x.shape[0]), max(1, _BLOCK_VALUES // x.shape[1]))


def exact_records(graph: Graph, x: Features) -> RandomizedRecords:
    """Return exact records in the place of randomized ones: the reference without privacy."""
    labels = torch.where(graph.mask("train") | graph.mask("val"), graph.y, UNKNOWN)
    return RandomizedRecords(FeatureEstimates(x), labels, "", False)


@dataclass(frozen=True, eq=False)
class ReportFile:
    """A file of what was told, and what it is bound to: public facts about who was asked, and how."""

    path: Path
    binding: snapshot.Binding

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the system's lock on the folder: another fit there waits, and then finds what was told.

        Else both would ask under one id, which pays for one answer. The lock ends with the process.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock"), mode=0o600):
            yield

    def load(self) -> State:
        """Return what is there; nothing if the file is not."""
        return snapshot.load(self.path, self.binding) if self.path.exists() else {}

    def save(self, found: State) -> None:
        """Write what there is."""
        snapshot.save(self.path, found, self.binding)


def collect_reports(
    graph: Graph,
    session: Session,
    entry: Callable[[str], Entry],
    randomize: Callable[[], State],
    report_file: ReportFile | None = None,
) -> State:
    """Return what nodes told, from the file of an interrupted fit or, once it is booked, from them.

    The id is written down before it is booked, so a fit that is killed at any point is resumed under it. What
    was told and not kept has been seen by nobody: they are asked again under the same id.

    Args:
        graph: of those who are asked.
        session: names the ledger, by default that of all nodes of the graph.
        entry: what is booked under an id.
        randomize: asks them, and says in ``reproducible`` whether their noise has a seed.
        report_file: the file.

    Raises:
        ArtifactError: the file is of another configuration, or of other nodes, edges or another split.
        BudgetError: the ledger refuses; nothing is told, and nothing is left to resume.
    """
    ledger = session.ledger or ledger_of(graph.edge_set)
    if report_file is None or not report_file.path.exists():
        ledger.check(entry("unbooked"))  # a refusal leaves no folder
    with nullcontext() if report_file is None else report_file.lock():
        found = {} if report_file is None else report_file.load()
        if not found:
            found = {"release": torch.frombuffer(bytearray(secrets.token_bytes(16)), dtype=torch.uint8)}
            if report_file is not None:
                report_file.save(found)
        if not ledger.contains(release_id_of(found)):
            ledger.record(entry(release_id_of(found)))
        ledger.commit(release_id_of(found))  # nobody gives back what is told from here on
        session.on_recorded()
        if "reproducible" not in found:
            found |= randomize()
            if report_file is not None:
                report_file.save(found)
    session.reproducible |= bool(found["reproducible"])
    return found


def release_id_of(found: State) -> str:
    """Return the id under which something was told."""
    return bytes(found["release"].tolist()).hex()
