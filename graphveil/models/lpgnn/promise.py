"""What methods on randomised records promise: their budgets, the law of a report, and the guarantee."""

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from graphveil import _check
from graphveil.artifacts.rows import ReleaseRow
from graphveil.errors import ConfigError, GraphError, NotYetError
from graphveil.graph import Graph
from graphveil.graph.recipes import RANGES_PUBLIC
from graphveil.mechanisms import Bounds, FeatureMechanism, LabelRR
from graphveil.mechanisms.claim import Claim, check_budget
from graphveil.mechanisms.local.bounds import FROM_DATA, Ends
from graphveil.mechanisms.local.feature_rr import Decode
from graphveil.mechanisms.local.feature_rr import Mode as Rounding
from graphveil.models.base import SEEDED, Estimator
from graphveil.models.lpgnn.laws import GAUSSIAN_DELTA, BinCount, FeatureLaw, Samples, report_rows
from graphveil.models.lpgnn.scaling import ROW_SCALED, SCALINGS, Scaling
from graphveil.privacy import Guarantee, LocalReport, NodeFeatures, compose
from graphveil.release import ReleasePlan

_PARTS: tuple[Literal["features", "label"], ...] = ("features", "label")


@dataclass(kw_only=True, eq=False)
class LocalPromise(Estimator):
    """How each node randomises its record, and what that promises, whatever is learned from the reports.

    Under unit ``node-features`` every node randomises its features, and training and validation nodes their
    label, before the method sees anything. Nodes of another graph randomise their features alone. Under unit
    ``none`` records are exact.

    Guarantee: eps_x-LDP for a node's features and eps_y-LDP for its label, so eps_x + eps_y for the record;
    eps_x for one of another graph. With ``features="agm"`` it is (epsilon, delta).

    Args:
        eps_x: the budget of a node's features; inf sends them as they are.
        eps_y: the budget of its label; inf sends it as it is.
        features: how features are randomised: ``"multi-bit"``, ``"1bm"``, ``"lpm"``, ``"agm"``, ``"duchi"``,
            ``"piecewise"``, ``"pm-sub"``, ``"hybrid"``, ``"three-outputs"`` (a sample of features each),
            ``"feature-rr"`` or ``"feature-rr-naive"``.
        m: of ``"multi-bit"``: ``"best"``, ``"floor"`` (the paper's) or a number of features.
        theta: public weights of the features, which add up to one: feature i tells at eps_x theta_i. Of
            ``"feature-rr"``, ``"lpm"`` and those that tell about a sample otherwise.
        k, rounding, decode: of ``"feature-rr"``: its bins, see :class:`~graphveil.mechanisms.FeatureRR`.
        low, high: the public range of all features, or one end a feature; what lies outside is cut. How many
            values are is counted in ``clipped_``, which is private.
        scaling: how features come into that range: ``"none"``, ``"row"`` (each node by its own smallest and
            largest feature) or ``"columns"`` (by everybody's, as in the paper: see below).
        data_dependent_bounds: your word for ``"columns"``, which tells about the records it is computed from
            and voids the guarantee.
    """

    local: ClassVar[bool] = True

    eps_x: float | None = None
    eps_y: float | None = None
    features: str = "multi-bit"
    m: Samples = "best"
    theta: tuple[float, ...] | None = None
    k: BinCount = "auto"
    rounding: Rounding = "stochastic"
    decode: Decode = "unbiased"
    low: Ends = 0.0
    high: Ends = 1.0
    scaling: Scaling = "none"
    data_dependent_bounds: bool = False

    def mechanism(self, dim: int) -> FeatureMechanism:
        """Return what randomises a vector of so many features."""
        return self._law().mechanism(dim)

    def label_mechanism(self, classes: int) -> LabelRR:
        """Return what randomises a label of so many classes."""
        return LabelRR(epsilon=self._budgets[1], classes=classes)

    # -- configuration -------------------------------------------------------------------------------------

    @property
    def _randomises(self) -> bool:
        return self.unit == NodeFeatures.name

    @property
    def _budgets(self) -> tuple[float, float]:
        """What features and label may cost; without a unit, nothing is hidden."""
        return (
            math.inf if self.eps_x is None else float(self.eps_x),
            math.inf if self.eps_y is None else float(self.eps_y),
        )

    @property
    def _spends(self) -> bool:
        """Whether a fit asks anything under a budget of the server's: a record pays before it leaves."""
        return False

    def _law(self) -> FeatureLaw:
        return FeatureLaw(
            name=self.features,
            epsilon=self._budgets[0],
            bounds=Bounds(self.low, self.high, from_data=self.scaling == "columns"),
            m=self.m,
            theta=self.theta,
            delta=GAUSSIAN_DELTA if isinstance(self.delta, str) else self.delta,
            k=self.k,
            rounding=self.rounding,
            decode=self.decode,
        )

    def _check_config(self) -> None:
        super()._check_config()
        self._check_budgets()
        _check.one_of(SCALINGS, scaling=self.scaling)
        if (self.scaling == "columns") != self.data_dependent_bounds:
            raise ConfigError(
                "scaling='columns' and data_dependent_bounds=True go together: the smallest and the largest "
                "value of a column tell about the records they come from, which voids the guarantee; give "
                "both, or scaling='row', which every node does on its own"
            )
        self._law()

    def _check_budgets(self) -> None:
        """Require both budgets where records are randomised, and none elsewhere."""
        given = {name: getattr(self, name) for name in ("eps_x", "eps_y")}
        if self.epsilon is not None:
            raise ConfigError(
                f"epsilon={self.epsilon:g}: {self.method} spends on features and on the label; pass eps_x= "
                "and eps_y= (--set eps_x=.. --set eps_y=..), which add up"
            )
        if not self._randomises:
            if any(value is not None for value in given.values()):
                raise ConfigError(
                    f"eps_x and eps_y are budgets of unit 'node-features', and unit {self.unit!r} adds no "
                    "noise; drop them"
                )
            return
        missing = [name for name, value in given.items() if value is None]
        if missing:
            verb, it = ("is", "it") if len(missing) == 1 else ("are", "them")
            flags = " ".join(f"--set {name}=1" for name in missing)
            raise ConfigError(
                f"unit 'node-features' needs the budgets eps_x of features and eps_y of the label, and "
                f"{' and '.join(missing)} {verb} missing: pass {it} ({flags}; inf for no protection)"
            )
        check_budget(**given)
        if self.delta != "auto" and self.features != "agm":
            raise ConfigError(f"delta={self.delta!r} is for features='agm'; {self.features!r} needs none")

    def _check_graph(self, graph: Graph) -> None:
        """Refuse a graph that cannot be used; no label is read."""
        self._check_unit(graph)
        for split in ("train", "val"):
            if not bool(graph.mask(split).any()):
                raise GraphError(f"the split has no labelled {split} nodes; give it some")

    # -- the guarantee -------------------------------------------------------------------------------------

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        raise NotYetError(f"{self.method} asks nothing of protected edges: its edges are public")

    def _guarantee_for(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        if not self._randomises:
            return super()._guarantee_for(plan, graph)
        promise = self.promise_for(graph.num_features, graph.num_classes)
        promise = promise.with_deviations(*_deviations_of(graph))
        return dataclasses.replace(promise, notes=self._notes(graph))

    def promise_for(self, features: int, classes: int) -> Guarantee:
        """Return the guarantee for records of so many features and classes, whatever the graph."""
        self._sizes = {"features": features, "classes": classes}
        claims = self.mechanism(features).claim, self.label_mechanism(classes).claim
        parts = [
            LocalReport(part, claim.epsilon, claim.delta) for part, claim in zip(_PARTS, claims, strict=True)
        ]
        return Guarantee.of(
            NodeFeatures(),
            compose(*parts),
            delta=sum(claim.delta for claim in claims),
            releases=len(parts),
            mode=self.mode,
            deviations=self._own_deviations(claims[0]),
        )

    def _own_deviations(self, claim: Claim) -> tuple[str, ...]:
        """Return why what a node tells about its features keeps no promise; empty if it does."""
        paper = self.paper_deviations if self.mode == "paper" else ()
        seeded = () if self.unsafe_noise_seed is None else (SEEDED,)
        return (*claim.deviations, *paper, *seeded)

    def _notes(self, graph: Graph) -> tuple[str, ...]:
        notes = tuple(note for note in graph.notes if note != RANGES_PUBLIC)
        return (*notes, ROW_SCALED) if self.scaling == "row" else notes

    def release_rows(self, plan: ReleasePlan | None) -> tuple[ReleaseRow, ...]:
        """Return what leaves each node."""
        if not self._randomises:
            return super().release_rows(plan)
        shape = self._shape or self._sizes  # as fitted or loaded, or as promised
        return report_rows(self.mechanism(shape["features"]), self.label_mechanism(shape["classes"]))

    def _price_of_features(self, graph: Graph) -> Guarantee:
        """Return the guarantee of one report on the features of each node, and on nothing else."""
        claim = self.mechanism(graph.num_features).claim
        report = LocalReport("features", claim.epsilon, claim.delta)
        alone = Guarantee.of(
            NodeFeatures(),
            compose(report),
            delta=claim.delta,
            releases=1,
            mode=self.mode,
            notes=self._notes(graph),
        )
        deviations = (*self._own_deviations(claim), *_deviations_of(graph), *self.guarantee.deviations)
        return alone.with_deviations(*deviations)


def _deviations_of(graph: Graph) -> tuple[str, ...]:
    """Return why a graph's records keep no promise: a recipe that scales columns reads everybody's data."""
    ranges = (FROM_DATA,) if RANGES_PUBLIC in graph.notes else ()
    return (*graph.deviations, *ranges)
