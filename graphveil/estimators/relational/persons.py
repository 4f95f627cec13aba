"""Prediction of persons under unit ``person``: functions of a person's own rows, and one private training.

What is computed from the own record and public catalogs does not spend privacy budget: how many rows a person
owns, their values, the attributes of their far ends, and the far ends themselves. One linear model of these
features is trained by noisy full-batch steps.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.accounting.gaussian import calibrate_mu
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.features import Features, rows, to_dense
from graphveil.core.guarantee import EdgeUse
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.out_edge_sums import own_lists
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.query import Query
from graphveil.core.unit import NodeUnit
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.data.relational import Relation, RelationalGraph
from graphveil.errors import GraphError
from graphveil.estimators.method import FeatureModel, FitResult, Method, State, check_fits
from graphveil.estimators.private_training import descend_softmax, full_batch_steps, metric_queries
from graphveil.estimators.public_sizes import PublicSizes, charged_members, nodes_of, record_groups
from graphveil.estimators.session import Session
from graphveil.training.heads import MULTICLASS, RegressionHead, TaskHead

STEPS, _MOMENTUM, _RATE, _FASTEST = 40, 0.8, 0.0075, 100.0
_CAP = 9.0  # of the binary logarithm of the number of rows
# mu times the number of training records from which the far ends themselves help: in total, or for each
_ENOUGH, _ENOUGH_FOR_EACH = 600.0, 5.0
# Shares of the squared norm: more for wide attributes, such as words; that of far ends is of the rest.
_ATTRIBUTES, _OF_WIDE, _WIDE, _ITEMS = 0.1, 0.5, 100, 0.65
_NORM = 5.0  # of a row of features: most gradients are then clipped

Matrix = sparse.csr_array


def own_features(relations: tuple[Relation, ...], items: bool, x: Features, lists: Any) -> Matrix:
    """Return features of persons from their own records, (n, f) with rows of norm at most five.

    Args:
        relations: Public parts of the tables.
        items: Whether far ends have a feature each.
        x: Attributes (n, d).
        lists: Own rows (n, nodes), one column per person, far end and value.
    """
    attributes = sparse.csr_array(x if sparse.issparse(x) else to_dense(x).numpy()).astype(np.float64)
    blocks, bags = [sparse.csr_array(np.ones((attributes.shape[0], 1)))], []
    for relation in relations:
        own = sparse.csr_array(lists[:, relation.first : relation.stop]).astype(np.float64)
        counts = np.minimum(np.log2(1 + np.asarray(own.sum(axis=1)).ravel()), _CAP) / _CAP
        blocks.append(sparse.csr_array(np.stack([counts, 1 - counts], axis=1) / math.sqrt(2)))
        entity, value = np.divmod(np.arange(own.shape[1]), relation.values)
        if relation.values > 1:
            blocks.append(unit_rows((own @ _indicator(value, relation.values)).sqrt()))
        if relation.features is not None:
            profile = _indicator(entity, relation.entities) @ sparse.csr_array(
                to_dense(relation.features).numpy()
            )
            blocks.append(unit_rows((own @ profile).sqrt()))
        bags.append(unit_rows(own))
    width = attributes.shape[1]
    wide = _ATTRIBUTES + _OF_WIDE * width / (width + _WIDE)
    far = (1 - wide) * _ITEMS if items else 0.0
    groups = [(wide, [unit_rows(attributes)]), (1 - wide - far, blocks), (far, bags if items else [])]
    parts = [part * (_NORM * math.sqrt(share / len(group))) for share, group in groups for part in group]
    found: Matrix = sparse.csr_array(sparse.hstack(parts, format="csr"))
    return found


def num_features(sizes: PublicSizes, items: bool) -> int:
    """Return the number of ``own_features``."""
    width = 1 + sizes.width
    for relation in sizes.relations:
        width += 2 + (relation.values if relation.values > 1 else 0)
        width += 0 if relation.features is None else int(relation.features.shape[1])
        width += relation.entities * relation.values if items else 0
    return width


def unit_rows(matrix: Matrix) -> Matrix:
    """Return the rows scaled to norm one; zero rows stay zero.

    >>> unit_rows(sparse.csr_array([[3.0, 4.0], [0.0, 0.0]])).toarray().tolist()
    [[0.6000000000000001, 0.8], [0.0, 0.0]]
    """
    squares = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
    scales = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    found: Matrix = sparse.csr_array(sparse.diags_array(scales) @ matrix)
    return found


def _indicator(column: npt.NDArray[np.int64], columns: int) -> Matrix:
    ones = np.ones(len(column))
    return sparse.csr_array((ones, (np.arange(len(column)), column)), shape=(len(column), columns))


def schedule(mu: float, records: int) -> PrivateSchedule:
    """Return full-batch steps; the step size is a function of the budget and the public number of records."""
    rate = min(_FASTEST, max(1.0, _RATE * mu * records))
    return PrivateSchedule.full_batch(steps=STEPS, learning_rate=rate, momentum=_MOMENTUM)


@dataclass(frozen=True, kw_only=True)
class PersonMethod(Method):
    """The person method with all keywords resolved.

    Args:
        items: Whether far ends have a feature each; None to decide by the budget and the number of records.
    """

    weighs_classes: ClassVar[bool] = True
    copies: ClassVar[float] = 16.0

    items: bool | None = None

    def sizes_of(self, view: Graph) -> PublicSizes:
        assert isinstance(view, RelationalGraph)
        return replace(super().sizes_of(view), relations=view.relations)

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        return "read"

    def notes(self, view: Graph) -> tuple[str, ...]:
        """Add what the data owner asserts about rows that name a person."""
        assert isinstance(view, RelationalGraph)
        return super().notes(view) + tuple(
            f"rows of table {each.name!r} that name a person belong to their owner alone, as the data owner "
            "asserts"
            for each in view.relations
            if each.persons == "one-sided"
        )

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        if not self.privacy_config.protects:
            return None
        return self.privacy_config.calibrated(sizes, partial(self._queries, sizes))

    def uses_items(self, sizes: PublicSizes) -> bool:
        """Whether far ends have a feature each; a function of public sizes."""
        if self.items is not None or not self.privacy_config.protects:
            return self.items is not False
        delta = self.privacy_config.delta_for(sizes.nodes)
        far_ends = sum(each.entities * each.values for each in sizes.relations)
        needed = min(_ENOUGH, _ENOUGH_FOR_EACH * far_ends)
        return calibrate_mu(self.privacy_config.budget, delta) * sizes.records >= needed

    def _queries(self, sizes: PublicSizes, mu: float) -> tuple[Query, ...]:
        unit, metrics = self.privacy_config.unit, self.privacy_config.private_metrics
        assert isinstance(unit, NodeUnit)
        parameters = (num_features(sizes, self.uses_items(sizes)) + 1) * sizes.classes
        steps = full_batch_steps(parameters, STEPS, unit.change * math.sqrt(STEPS) / mu, metrics=metrics)
        return steps, *(metric_queries(unit, sizes.classes, mu) if metrics else ())

    def fit(self, view: Graph, session: Session) -> FitResult:
        assert isinstance(view, RelationalGraph)
        sizes = self.sizes_of(view)
        if session.plan is None:
            return self._fit_exactly(view, self.uses_items(sizes), session)
        query, items = session.query(0, DPSGDQuery), self.uses_items(sizes)
        with session.stage("own rows"):
            features = features_of(view, items)
        release = session.open(view, record_groups(view))
        with session.stage("classifier"):
            nodes = nodes_of(charged_members(view, query.pays))
            weights = descend_softmax(
                release,
                rows(features, nodes),
                rows(self.objective.clipped_targets(view, self.head), nodes),
                torch.zeros(features.shape[1] + 1, view.num_classes, dtype=torch.float64),
                schedule(math.sqrt(STEPS) / query.noise_multiplier, len(nodes)),
                on_step=session.epochs("classifier", query.steps),
            )
        trained = TrainedPersons(weights, items, catalogs_of(view), self.head)
        return self.closed(release, trained, trained.proba(view), view, session)

    def _fit_exactly(self, view: RelationalGraph, items: bool, session: Session) -> FitResult:
        """Fit the same model without noise, by libraries."""
        from sklearn.linear_model import LogisticRegression, Ridge

        with session.stage("classifier"):
            features, head = features_of(view, items), self.head.fitted(view)
            some = view.labeled_in("train", "val")
            x, targets = rows(features, some), head.labels(view)[some].numpy()
            regresses = isinstance(head, RegressionHead)
            model = (Ridge() if regresses else LogisticRegression(max_iter=300)).fit(x, targets)
            columns, bias = np.atleast_2d(model.coef_).T, np.atleast_1d(model.intercept_)
            if len(bias) < view.num_classes:  # two classes: one column, for the second
                columns = np.concatenate([-columns, columns], axis=1) / 2
                bias = np.array([-bias[0], bias[0]]) / 2
            weights = torch.from_numpy(np.concatenate([columns, bias[None]]))
        trained = TrainedPersons(weights, items, catalogs_of(view), head)
        return FitResult(trained=trained, proba=trained.proba(view))

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedPersons":
        digests = bytes(state["catalogs"].tolist()).decode().split("\n")
        check_fits(state["weights"].shape[1] == sizes.classes, sizes)
        head = self.head.restored(state)
        return TrainedPersons(state["weights"], bool(state["items"]), tuple(digests), head)


def catalogs_of(view: RelationalGraph) -> tuple[str, ...]:
    """Return names, sizes and digests of the catalogs and values of all tables."""
    return tuple(
        f"{each.name}/{each.entities}/{each.values}/{0 if each.features is None else each.features.shape[1]}/"
        f"{each.digest}"
        for each in view.relations
    )


def features_of(view: RelationalGraph, items: bool) -> Any:
    """Return ``own_features`` of all persons, a handle if they are protected."""
    persons = torch.arange(view.num_nodes)
    lists = rows(own_lists(view.adjacency), persons)
    return map_records(partial(own_features, view.relations, items), view.x, lists)


@dataclass(frozen=True, eq=False)
class TrainedPersons(FeatureModel):
    """A linear model of features that follow from a person's own record.

    Args:
        weights: Released parameters (f + 1, C), the last row the bias.
        items: Whether far ends have a feature each.
        catalogs: Digests of the catalogs' ids, which other tables must share.
    """

    weights: Tensor
    items: bool
    catalogs: tuple[str, ...]
    head: TaskHead = MULTICLASS

    def check(self, view: Graph, class_names: tuple[str, ...]) -> None:
        if not isinstance(view, RelationalGraph) or catalogs_of(view) != self.catalogs:
            raise GraphError(
                "The tables have other catalogs than the fitted ones. Build gv.Tables with the same rows= "
                "and public=."
            )

    def proba(self, view: Graph) -> Any:
        assert isinstance(view, RelationalGraph)

        def of(features: Matrix) -> Tensor:
            logits = features @ self.weights[:-1].numpy() + self.weights[-1].numpy()
            return self.head.proba(torch.from_numpy(logits)).to(torch.float32)

        return map_records(of, features_of(view, self.items))

    def state(self) -> State:
        digests = torch.tensor(list("\n".join(self.catalogs).encode()), dtype=torch.uint8)
        own = {"weights": self.weights, "items": torch.tensor(self.items), "catalogs": digests}
        return own | self.head.state()
