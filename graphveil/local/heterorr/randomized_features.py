"""What all nodes told about their features, once: booked, kept to be resumed, and public from then on."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import torch

from graphveil.artifacts.rows import ReleaseRow
from graphveil.data import Features, Graph
from graphveil.estimators.privacy_config import SEEDED, PrivacyConfig
from graphveil.estimators.session import Session
from graphveil.local.lpgnn.feature_reports import FeatureReportConfig, feature_row
from graphveil.local.lpgnn.method import record_deviations
from graphveil.local.lpgnn.randomized_records import estimate_features, outside, randomize_features
from graphveil.local.lpgnn.report_store import ReportFile, State, collect_reports
from graphveil.local.lpgnn.scaling import ROW_SCALED, Scaling, scaled
from graphveil.mechanisms import LocalNoise
from graphveil.privacy import Composed, Entry, Guarantee, LocalAttributes, LocalReport, compose

PUBLIC_WEIGHTS_NOTE = (
    "the source weighs features by scores of each record, which no budget of its covers: here weights are "
    "public, the same for all records, and add up to one"
)
_PARTS = ("values", "indices")  # of reports, as they are kept and released


@dataclass(frozen=True, eq=False)
class RandomizedFeatures:
    """One collection: features as a network reads them, what is released, and what was cut (private)."""

    x: Features
    released: State
    clipped: int


@dataclass(frozen=True, kw_only=True)
class FeatureRandomizer:
    """How all nodes of a graph randomize their features, whatever is learned from them.

    Args:
        method: the name that the ledger has for it.
        report_config: how one node does.
        scaling: how features come into their public range.
    """

    method: str
    report_config: FeatureReportConfig
    scaling: Scaling

    def event(self, features: int) -> Composed:
        """Return what one node gives away of so many features."""
        claim = self.report_config.mechanism(features).claim
        return compose(LocalReport("features", claim.epsilon, claim.delta))

    def guarantee(self, graph: Graph, privacy_config: PrivacyConfig) -> Guarantee:
        """Return the guarantee for the features of this graph's nodes."""
        claim = self.report_config.mechanism(graph.num_features).claim
        seeded = () if privacy_config.unsafe_noise_seed is None else (SEEDED,)
        return Guarantee.from_event(
            LocalAttributes(),
            self.event(graph.num_features),
            delta=claim.delta,
            releases=1,
            mode=privacy_config.mode,
            deviations=(*claim.deviations, *record_deviations(graph), *seeded),
            notes=(
                *((ROW_SCALED,) if self.scaling == "row" else ()),
                *((PUBLIC_WEIGHTS_NOTE,) if privacy_config.paper else ()),
            ),
            labels_public=True,
        )

    def row(self, features: int) -> ReleaseRow:
        """Return what leaves each node, as a line of a table."""
        return feature_row(self.report_config.mechanism(features))

    def randomize(self, graph: Graph, session: Session) -> RandomizedFeatures:
        """Have every node randomize its features, which is booked, and return what is known then.

        An interrupted fit that is resumed has what they told before.
        """
        mechanism, x = self.report_config.mechanism(graph.num_features), scaled(graph.x, self.scaling)
        with session.stage("features"):
            folder, binding = session.workspace, self._binding(graph)
            report_file = None if folder is None else ReportFile(folder / "features.safetensors", binding)
            found = collect_reports(
                graph, session, self._entry_of(graph), lambda: self._perturb(x, session), report_file
            )
            clipped = outside(self.report_config.bounds, x)
            estimates = estimate_features(mechanism, found, x)
        return RandomizedFeatures(estimates.deviations, _released(found), clipped)

    def seen(self, graph: Graph, released: State) -> Graph:
        """Return a graph with its features as they were told, from what was released of them."""
        mechanism, x = self.report_config.mechanism(graph.num_features), scaled(graph.x, self.scaling)
        reported = {part: released[f"feature_{part}"] for part in _PARTS if f"feature_{part}" in released}
        return graph.replace(x=estimate_features(mechanism, reported, x).deviations)

    def _perturb(self, x: Features, session: Session) -> State:
        """Return what leaves all nodes."""
        noise = LocalNoise(session.noise_seed)
        mechanism = self.report_config.mechanism(x.shape[1])
        purpose = (
            "features"
            if session.collection_index is None
            else f"features, collection {session.collection_index}"
        )
        reproducible = torch.tensor(bool(noise.deviations))
        return {"reproducible": reproducible, **randomize_features(mechanism, x, noise, purpose)}

    def _entry_of(self, graph: Graph) -> Callable[[str], Entry]:
        label, event = f"{self.method}: features", self.event(graph.num_features)
        return lambda release_id: Entry(release_id, label, event, unit=LocalAttributes())

    def _binding(self, graph: Graph) -> dict[str, object]:
        """Return what reports are bound to: whose they are, and by which law. Edges are private: none."""
        ids = None if graph.ids is None else json.dumps(list(map(str, graph.ids.tolist())))
        return {
            "mechanism": repr(self.report_config.mechanism(graph.num_features)),
            "scaling": self.scaling,
            "nodes": graph.num_nodes,
            "ids": None if ids is None else hashlib.sha256(ids.encode()).hexdigest(),
        }


def _released(found: State) -> State:
    """Return what may be published: reports, and nothing where features were not randomized."""
    return {f"feature_{part}": found[part] for part in _PARTS if part in found}
