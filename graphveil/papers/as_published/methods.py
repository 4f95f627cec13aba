"""Other methods of papers as published: on released graphs, on LDP reports, and HeteroRR."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from graphveil.estimators import full_graph
from graphveil.estimators.full_graph import FullGraphMethod, Shape
from graphveil.estimators.method import Method
from graphveil.local import heterorr, lpgnn
from graphveil.local.heterorr import HeteroMethod
from graphveil.local.lpgnn import NetworkMethod
from graphveil.local.reports import FeatureKeywords
from graphveil.nn.message_passing import GcnNetwork
from graphveil.papers import simgat
from graphveil.papers.as_published.graph_mechanisms import PUBLISHED
from graphveil.papers.as_published.published import AsPublished, PublishedMethod, rebuilt
from graphveil.papers.simgat import SimGATMethod
from graphveil.perturb import GraphMechanism
from graphveil.training import TrainingSchedule

_EPOCHS, _PATIENCE = 2000, 50  # of HeteroRR
_BINS: dict[str, Any] = {
    "features": "feature-rr-naive",
    "k": "auto",
    "rounding": "stochastic",
    "decode": "unbiased",
}
PUBLIC_WEIGHTS_NOTE = (
    "the source weighs features by scores of each record, which no budget of its covers: here weights are "
    "public, the same for all records, and add up to one"
)


class PublishedFullGraph(PublishedMethod, FullGraphMethod):
    """A network over exact edges, or over those that a mechanism of published code releases."""


class GCN(AsPublished, full_graph.GCN):
    """GCN on graphs that mechanisms release as in published code. Arguments are those of ``graphveil.GCN``.

    Privacy:
        Unit: as ``graphveil.GCN``. No valid guarantee.
    """

    method: ClassVar[str] = "gcn-paper"
    deviations: ClassVar[tuple[str, ...]] = ()  # the mechanism has its own
    mechanisms: ClassVar[Mapping[str, type[GraphMechanism]]] = PUBLISHED

    def _build_method(self) -> Method:
        return rebuilt(super()._build_method(), PublishedFullGraph)


class GAT(AsPublished, full_graph.GAT):
    """GAT on graphs that mechanisms release as in published code. Arguments are those of ``graphveil.GAT``.

    Privacy:
        Unit: as ``graphveil.GAT``. No valid guarantee.
    """

    method: ClassVar[str] = "gat-paper"
    deviations: ClassVar[tuple[str, ...]] = ()  # the mechanism has its own
    mechanisms: ClassVar[Mapping[str, type[GraphMechanism]]] = PUBLISHED

    def _build_method(self) -> Method:
        return rebuilt(super()._build_method(), PublishedFullGraph)


class PublishedLocal(PublishedMethod, NetworkMethod):
    """A method on LDP reports, without a claim about them."""


class PublishedSimGAT(PublishedMethod, SimGATMethod):
    """SimGAT, without a claim about LDP reports."""


class LPGNN(AsPublished, lpgnn.LPGNN):
    """LPGNN for the tables of its paper. Arguments are those of ``graphveil.LPGNN``.

    Privacy:
        Unit: as ``graphveil.LPGNN``. No valid guarantee.
    """

    method: ClassVar[str] = "lpgnn-paper"

    def _build_method(self) -> NetworkMethod:
        return rebuilt(super()._build_method(), PublishedLocal)


class SimGAT(AsPublished, simgat.SimGAT):
    """SimGAT for the figures of its source. Arguments are those of ``SimGAT``.

    Privacy:
        Unit: as ``SimGAT``. No valid guarantee.
    """

    method: ClassVar[str] = "simgat-paper"

    def _build_method(self) -> NetworkMethod:
        return rebuilt(super()._build_method(), PublishedSimGAT)


@dataclass(frozen=True, kw_only=True)
class PublishedHetero(PublishedMethod, HeteroMethod):
    """HeteroRR as in its source."""


class HeteroRR(AsPublished, heterorr.HeteroRR):
    """HeteroRR as in its source.

    The dendrogram uses alternating walks with the exponent eps / Delta, for which no guarantee is proved. The
    bins are tenths without unbiased decoding, and there is no batch norm. Arguments are those of
    ``graphveil.HeteroRR``.

    Privacy:
        Unit: ``edge-subset``. No valid guarantee.
    """

    method: ClassVar[str] = "heterorr-paper"
    deviations: ClassVar[tuple[str, ...]] = (
        "the source's own algorithm, whose budget for private edges is not proved",
    )
    mechanisms: ClassVar[Mapping[str, type[GraphMechanism]]] = PUBLISHED

    def _build_method(self) -> HeteroMethod:
        return rebuilt(super()._build_method(), PublishedHetero, feature_notes=(PUBLIC_WEIGHTS_NOTE,))

    def _shape(self) -> Shape:
        shape = super()._shape()
        if shape.func is not GcnNetwork:
            return shape
        return partial(shape, style={**shape.keywords["style"], "batch_norm": bool(self.batch_norm)})

    def _feature_keywords(self) -> FeatureKeywords:
        given = super()._feature_keywords()
        usual = all(getattr(given, name) == value for name, value in _BINS.items() if name != "features")
        return replace(given, **_BINS) if given.features == "feature-rr" and usual else given

    def _schedule(self) -> TrainingSchedule:
        given = super()._schedule()
        return replace(
            given,
            epochs=_EPOCHS if self.epochs is None else self.epochs,
            patience=_PATIENCE if self.patience is None else self.patience,
        )
