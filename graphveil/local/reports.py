"""LDP reports of nodes: keywords, how a record is randomized, and what the server estimates from reports.

A fit has handles of node records. ``collect_reports`` charges the ledger and passes the records to a
randomizer; later steps read reports only.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil._util import checks
from graphveil.core.collection import ReportFile, collect
from graphveil.core.features import Features, rows, to_dense
from graphveil.core.ledger import Entry, ledger_of
from graphveil.core.unit import LocalAttributes
from graphveil.core.view import LABEL_FIELDS, map_records
from graphveil.data import Graph
from graphveil.data.recipes import unit_interval
from graphveil.errors import ConfigError
from graphveil.estimators.method import State
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import members
from graphveil.estimators.session import Session
from graphveil.local.collect.protocol import Part, report_guarantee
from graphveil.mechanisms import (
    Bounds,
    EvenAllocation,
    FeatureMechanism,
    FeatureRR,
    LabelMechanism,
    LDPReports,
    LocalDPClaim,
    LocalHashing,
    LocalNoise,
    MultiBit,
    WeightedAllocation,
)
from graphveil.mechanisms.feature_mechanisms import Decode
from graphveil.mechanisms.feature_mechanisms import Mode as Rounding
from graphveil.mechanisms.features import Ends, check_budget
from graphveil.mechanisms.labels import LABELS, LabelName
from graphveil.nn.lpgnn import FeatureEstimates
from graphveil.privacy import Guarantee
from graphveil.publish.queries import QueryRow

Scaling = Literal["none", "row", "columns"]
SCALINGS: tuple[Scaling, ...] = ("none", "row", "columns")
UNKNOWN = -1  # no reported label
_BLOCK_VALUES = 1 << 24  # raw feature values that are dense at a time


@dataclass(frozen=True, eq=False)
class RandomizedRecords:
    """Randomized records of all nodes, as the server stores them.

    Shapes: ``labels`` int64 (N), or (N, k) if nodes report k classes. They are -1 for nodes outside the
    training and validation parts and, if labels are not randomized, for nodes without a label.

    Args:
        clipped: Clipped values of each node, a handle; None if only the clients know them.
        guarantee: Guarantee of the model that was fitted to them first; None for no such model.
    """

    features: FeatureEstimates
    labels: Tensor
    clipped: Any = None
    guarantee: Guarantee | None = None


@dataclass(frozen=True, kw_only=True)
class Randomizer:
    """Randomizes the features of all nodes, and the labels of training and validation nodes.

    The split alone determines which nodes report a label. A node without a label reports a random class, so
    the guarantee also covers the presence of a label. Labels of test nodes are not reported; they are read
    only for the final score.

    Args:
        mechanism: None if no features are reported.
        label: None if no labels are reported.
    """

    mechanism: FeatureMechanism | None
    label: LabelMechanism | None
    scaling: Scaling = "none"

    @property
    def claims(self) -> dict[Part, LocalDPClaim]:
        parts: dict[Part, Any] = {"features": self.mechanism, "label": self.label}
        return {part: law.claim for part, law in parts.items() if law is not None}

    def collect(
        self,
        view: Graph,
        session: Session,
        name: str,
        *,
        x: Any = None,
        stored: str | None = None,
        **facts: object,
    ) -> State:
        """Charge the claims to the ledger and return the reports, or those of an interrupted fit.

        Args:
            name: Name of the ledger entry.
            x: Features of the nodes that report; those of ``view`` if None.
            stored: Name of the file of reports in the workspace of a fit; None for no file.
            facts: Further public facts that the file is bound to.

        Privacy:
            Unit: ``local-attributes``. Reads: node records, through the mechanisms. Charges: the claims,
            once. Public: the reports.
        """
        event, report_file = report_guarantee(self.claims).event, None
        nothing = torch.empty(0, dtype=torch.bool)
        reporting = nothing if self.label is None else label_report_nodes(view)
        if stored is not None and session.workspace is not None:
            path = session.workspace / f"{stored}.safetensors"
            report_file = ReportFile(path, self.binding(view, reporting) | facts)

        def entry(release_id: str) -> Entry:
            return Entry(release_id, name, event, unit=LocalAttributes())

        reported = (
            None if self.label is None else view.y,
            None if self.mechanism is None else view.x if x is None else x,
        )
        randomize = partial(self.randomize, reporting, session)
        return collect_reports(view, session, entry, randomize, reported, report_file)

    def randomize(self, reporting: Tensor, session: Session, y: Tensor | None, x: Features | None) -> State:
        """Return the reports, with one stream of noise for each part and collection."""
        noise, number = LocalNoise(session.noise_seed), session.collection_index
        found = {"reproducible": torch.tensor(bool(noise.deviations))}
        if self.label is not None and y is not None:
            labels, nodes = self.label.missing_reports(len(y)), np.flatnonzero(reporting.numpy())
            labels[nodes] = self.label.perturb(y.numpy()[nodes], stream=noise.stream("labels"), rows=nodes)
            found["labels"] = torch.from_numpy(labels)
        if self.mechanism is not None and x is not None:
            purpose = "features" if number is None else f"features, collection {number}"
            found |= randomize_features(self.mechanism, scaled(x, self.scaling), noise, purpose)
        return found

    def estimates(self, found: State, x: Any) -> FeatureEstimates:
        """Return the estimates of the server from the reports; ``x`` is read if it is public."""
        if self.mechanism is None:
            return FeatureEstimates(torch.zeros((x.shape[0], 0)))
        return estimate_features(self.mechanism, found, x, self.scaling)

    def binding(self, view: Graph, reporting: Tensor) -> dict[str, object]:
        """Return the public facts that a file of reports is bound to: nodes, split and mechanisms.

        Reports belong to nodes by index, so the nodes must be the same and in the same order.
        """
        return {
            "mechanism": repr(self.mechanism),
            "label": repr(self.label),
            "scaling": self.scaling,
            "nodes": view.num_nodes,
            "telling": array_digest(np.packbits(reporting.numpy())),
            "ids": digest_of_ids(view),
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
    found = members(view, split)
    return found[known(labels)[found]]


def known(labels: Tensor) -> Tensor:
    return labels.reshape(len(labels), -1)[:, 0] != UNKNOWN


def array_digest(*arrays: npt.NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def digest_of_ids(view: Graph) -> str | None:
    """Return the digest of the ids, numbers or text, encoded without collisions between lists."""
    if view.ids is None:
        return None
    return array_digest(np.frombuffer(json.dumps(list(map(str, view.ids.tolist()))).encode(), dtype=np.uint8))


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


def clipped(mechanism: FeatureMechanism, x: Features) -> Features:
    """Return unprotected features, clipped to their range; zeros stay implicit if 0 is in the range."""
    low, high = np.asarray(mechanism.bounds.low), np.asarray(mechanism.bounds.high)
    if not isinstance(x, Tensor) and low.ndim == 0 and low <= 0 <= high:
        parts: Any = (x.data.clip(float(low), float(high)), x.indices, x.indptr)
        return sparse.csr_array(parts, shape=x.shape)
    dense = to_dense(x).numpy()
    return torch.from_numpy(np.clip(dense, low, high).astype(np.float32))


def _blocks(x: Features) -> Iterator[Tensor]:
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


Samples = int | Literal["best", "floor"]
BinCount = int | Literal["auto"]
NO_FEATURE_REPORTS_NOTE = "features are not reported, so their budget is not spent"
ROW_SCALED = (
    "each node brings its features to [0, 1] by its own smallest and largest one, before anything else"
)
GAUSSIAN_DELTA = 1e-10  # LPGNN's
IDENTITY_MECHANISM = "as it is"
_PAPERS = "graphveil.papers.per_feature"  # imported for the mechanisms of papers only
_PLAIN_BINS = ("auto", "stochastic", "unbiased")
WEIGHTED_MECHANISMS = (
    *("lpm", "duchi", "piecewise", "pm-sub", "hybrid", "three-outputs"),
    *("feature-rr", "feature-rr-naive"),
)
FEATURES = ("multi-bit", "1bm", "lpm", "agm", *WEIGHTED_MECHANISMS[1:])


# -- keywords ----


@dataclass(kw_only=True, eq=False, repr=False)
class LabelKeywords:
    """Keywords for the local randomization of labels.

    Args:
        eps_y: Budget of a node's label; inf reports it without protection.
        labels: ``"subset"`` is subset selection and reports several classes if there are many for the
            budget. Otherwise it is ``"rr"``, randomized response, which always reports one class.
            ``"hashing"`` reports one of a few public groups of classes. It is nearly as accurate as
            ``"subset"``, and gives malicious clients the least influence.
    """

    eps_y: float | None = None
    labels: LabelName = "subset"


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureKeywords:
    """Keywords for the local randomization of features.

    Args:
        eps_x: Budget of a node's features; inf reports them without protection.
        features: Mechanism: ``"multi-bit"``, ``"1bm"``, ``"lpm"``, ``"agm"``, ``"duchi"``, ``"piecewise"``,
            ``"pm-sub"``, ``"hybrid"``, ``"three-outputs"`` (a sample of features each), ``"feature-rr"`` or
            ``"feature-rr-naive"``.
        m: For ``"multi-bit"``: ``"best"``, ``"floor"`` (as in the paper) or a number of features.
        theta: Public feature weights, which sum to one: feature i has the budget eps_x theta_i. For
            ``"feature-rr"``, ``"lpm"`` and the mechanisms that otherwise sample features.
        k, rounding, decode: For ``"feature-rr"``: its bins, see ``FeatureRR``.
        low, high: Public range of all features, or one bound per feature; values outside are clipped. The
            number of clipped values is ``clipped_``, which is private.
        scaling: How features are scaled to that range: ``"none"``, ``"row"`` (by the smallest and largest
            feature of each node) or ``"columns"`` (by those of all nodes, as in the paper).
        data_dependent_bounds: Set True to accept ``"columns"``, which depends on the records that it is
            computed from and makes the guarantee invalid.
    """

    eps_x: float | None = None
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


# -- table rows ----


def feature_row(mechanism: FeatureMechanism) -> QueryRow:
    """Return the table row that describes the feature report of each node.

    >>> feature_row(MultiBit(epsilon=1.0, dim=500)).words
    'MultiBit, 1 of 500 features reported, epsilon 1, cut to [0, 1]'
    """
    reported = int(getattr(mechanism, "samples", mechanism.dim))
    low, high = np.min(mechanism.bounds.low), np.max(mechanism.bounds.high)
    cut = f"cut to [{low:g}, {high:g}]"
    if math.isinf(mechanism.epsilon):
        words = f"{IDENTITY_MECHANISM}, {cut}"
    else:
        weighted = isinstance(getattr(mechanism, "allocation", None), WeightedAllocation)
        weights = " by public weights" if weighted else ""
        features = f"{reported} of {mechanism.dim} features reported{weights}"
        words = f"{type(mechanism).__name__}, {features}, epsilon {mechanism.epsilon:g}, {cut}"
    return QueryRow(
        kind="features",
        sensitivity=float(np.max(mechanism.bounds.width)),
        noise_std=[math.sqrt(mechanism.worst_variance)],
        values_per_node=reported,
        words=words,
    )


def label_row(label: LabelMechanism) -> QueryRow:
    """Return the table row that describes the label report of each node.

    >>> label_row(LABELS["subset"](epsilon=1.0, classes=7)).words
    '2 of 7 classes said, its own among them with probability 0.5209'
    """
    if math.isinf(label.epsilon):
        words = IDENTITY_MECHANISM
    elif isinstance(label, LocalHashing):
        groups = f"one of {label.groups} public groups of {label.classes} classes reported"
        words = f"{groups}, its own with probability {label.keep:.4g}"
    elif label.size > 1:
        among = f"its own among them with probability {label.keep:.4g}"
        words = f"{label.size} of {label.classes} classes said, {among}"
    else:
        words = f"kept with probability {label.keep:.4g}, else another of {label.classes}"
    # A hash is public and not reported, so local hashing reports one value.
    values = 1 if isinstance(label, LocalHashing) else label.size
    return QueryRow(kind="label", sensitivity=1.0, noise_std=[], values_per_node=values, words=words)


# -- a record ----


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """How a node randomizes its record, before the numbers of features and classes are known.

    Args:
        features: Keywords of features; None if no features are reported.
        label: Keywords of the label; None if no labels are reported.
        delta: For ``"agm"``.
        exact: Whether nothing is reported, and exact records are read: the reference without privacy.

    >>> ReportConfig(features=FeatureKeywords(eps_x=1.0)).mechanism(500).samples
    1
    """

    features: FeatureKeywords | None = None
    label: LabelKeywords | None = None
    delta: float = GAUSSIAN_DELTA
    exact: bool = False

    @classmethod
    def from_privacy_config(
        cls, config: PrivacyConfig, *, features: FeatureKeywords | None, label: LabelKeywords | None
    ) -> "ReportConfig":
        delta = GAUSSIAN_DELTA if isinstance(config.delta, str) else config.delta
        return cls(features=features, label=label, delta=delta, exact=not config.protects)

    def __post_init__(self) -> None:
        """Reject parameters that the mechanism does not have, instead of ignoring them."""
        if self.label is not None:
            checks.one_of(tuple(LABELS), labels=self.label.labels)
        given = self.features
        if given is None:
            return
        checks.one_of(SCALINGS, scaling=given.scaling)
        if (given.scaling == "columns") != given.data_dependent_bounds:
            raise ConfigError(
                "scaling='columns' and data_dependent_bounds=True must be set together. Column minima "
                "and maxima depend on the private records, so there is no valid guarantee. Set both, or "
                "use scaling='row', which each node computes on its own."
            )
        _ = self.bounds  # checks the range
        checks.one_of(FEATURES, features=given.features)
        if given.theta is not None and given.features not in WEIGHTED_MECHANISMS:
            raise ConfigError(
                f"theta weights the features of {', '.join(WEIGHTED_MECHANISMS)}, but "
                f"features={given.features!r} has no budget per feature. Remove theta."
            )
        if given.m != "best" and given.features != "multi-bit":
            raise ConfigError(
                f"m={given.m!r} is only for features='multi-bit', not {given.features!r}. Remove it."
            )
        if given.features != "feature-rr" and (given.k, given.rounding, given.decode) != _PLAIN_BINS:
            raise ConfigError(
                f"k, rounding and decode are only for features='feature-rr', not {given.features!r}. Remove "
                "them."
            )

    @property
    def scaling(self) -> Scaling:
        return "none" if self.features is None else self.features.scaling

    @cached_property
    def bounds(self) -> Bounds:
        """The public range of features."""
        if self.features is None:
            return Bounds()
        return Bounds(self.features.low, self.features.high, from_data=self.features.scaling == "columns")

    @property
    def protects_features(self) -> bool:
        return self.features is not None and not math.isinf(_budget(self.features.eps_x))

    @property
    def protects_labels(self) -> bool:
        """Whether labels, and the presence of a label, are protected."""
        return self.label is not None and not math.isinf(_budget(self.label.eps_y))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the guarantee of a collection mentions."""
        unreported = (NO_FEATURE_REPORTS_NOTE,) if self.features is None and not self.exact else ()
        return (*unreported, *((ROW_SCALED,) if self.scaling == "row" else ()))

    def exact_records(self, view: Graph) -> RandomizedRecords:
        labels = torch.where(view.labeled_in("train", "val"), view.y, UNKNOWN)
        return RandomizedRecords(FeatureEstimates(scaled(view.x, self.scaling)), labels)

    @property
    def public_fields(self) -> tuple[str, ...]:
        """The fields of a graph that a fit reads as they are; features that are not reported are not read.

        No guarantee covers features if eps_x is infinite, or if their range is computed from all records.
        """
        public = self.features is not None and (not self.protects_features or self.bounds.from_data)
        features = ("x",) if public else ()
        return features if self.protects_labels else (*features, *LABEL_FIELDS)

    def mechanism(self, dim: int) -> FeatureMechanism | None:
        given = self.features
        if given is None:
            return None
        common: dict[str, Any] = {"epsilon": _budget(given.eps_x), "dim": dim, "bounds": self.bounds}
        even = EvenAllocation() if given.theta is None else WeightedAllocation(given.theta)
        match given.features:
            case "multi-bit":
                return MultiBit(**common, m=given.m)
            case "1bm":
                return MultiBit(**common, m="all")
            case "feature-rr":
                bins: dict[str, Any] = {"k": given.k, "mode": given.rounding, "decode": given.decode}
                return FeatureRR(**common, allocation=even, **bins)
            case "feature-rr-naive":
                return FeatureRR(**common, allocation=even, k=10, mode="ceil", decode="naive")
        of_paper: FeatureMechanism = import_module(_PAPERS).feature_mechanism(
            given.features, theta=given.theta, delta=self.delta, **common
        )
        return of_paper

    def label_mechanism(self, classes: int) -> LabelMechanism | None:
        if self.label is None:
            return None
        return LABELS[self.label.labels](epsilon=_budget(self.label.eps_y), classes=classes)

    def rows(self, features: int, classes: int) -> tuple[QueryRow, ...]:
        mechanism, label = self.mechanism(features), self.label_mechanism(classes)
        found = [] if mechanism is None else [feature_row(mechanism)]
        if label is not None:
            found.append(label_row(label))
        return () if self.exact else tuple(found)

    def randomizer(self, features: int, classes: int) -> Randomizer:
        mechanism, label = self.mechanism(features), self.label_mechanism(classes)
        return Randomizer(mechanism=mechanism, label=label, scaling=self.scaling)

    def clipped(self, x: Any) -> Any:
        """Return how many features each node clips to their range: a handle if features are protected."""
        return map_records(lambda own: outside(self.bounds, scaled(own, self.scaling)), x)


def _budget(epsilon: float | None) -> float:
    return math.inf if epsilon is None else float(epsilon)


def check_budgets(
    privacy_config: PrivacyConfig, name: str, label: LabelKeywords, features: FeatureKeywords | None
) -> None:
    """Require the budgets of method ``name`` under ``local-attributes``, and none for other units."""
    budgets = ({} if features is None else {"eps_x": features.eps_x}) | {"eps_y": label.eps_y}
    if privacy_config.epsilon is not None:
        raise ConfigError(
            f"epsilon={privacy_config.epsilon:g}: {name} spends on "
            + (
                "features and on the label; pass eps_x= and eps_y=, which add up"
                if len(budgets) > 1
                else "the label alone; pass eps_y="
            )
        )
    if not privacy_config.protects:
        if any(value is not None for value in budgets.values()):
            raise ConfigError(
                "eps_x and eps_y are budgets of unit 'local-attributes', but unit "
                f"{privacy_config.unit.name!r} adds no noise. Remove them."
            )
        return
    if missing := [budget for budget, value in budgets.items() if value is None]:
        verb, it = ("is", "it") if len(missing) == 1 else ("are", "them")
        flags = " ".join(f"--set {budget}=1" for budget in missing)
        needed = (
            "budgets eps_x of features and eps_y of the label"
            if len(budgets) > 1
            else "budget eps_y of the label"
        )
        raise ConfigError(
            f"Unit 'local-attributes' needs the {needed}, but {' and '.join(missing)} {verb} missing. "
            f"Pass {it} ({flags}; inf means no protection)."
        )
    check_budget(**{budget: value for budget, value in budgets.items() if value is not None})
    if privacy_config.delta not in ("auto", 0) and features is not None and features.features != "agm":
        raise ConfigError(
            f"delta={privacy_config.delta!r} is only for features='agm', not {features.features!r}. "
            "Remove it."
        )
