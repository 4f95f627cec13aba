"""Classification of persons under unit ``row``: two noisy tables of counts, each row in one of them.

Labeled persons are divided publicly into two parts, R and V. Rows of R are counted at their far ends, by the
label of their owner. Far ends get *codes* from these noisy counts and from public attributes. All other rows
are counted at their owner, by table, value and code. A classifier of these counts is fitted to V. A row is
in one count only, so its noise has the whole epsilon, for any number of tables.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.features import Features, to_dense
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_counts import MAX_EPSILON, NOT_COUNTED
from graphveil.core.queries.row_counts import RowCountData, RowCountQuery
from graphveil.data import Graph
from graphveil.data.graph import SPLITS
from graphveil.data.relational import Relation, RelationalGraph
from graphveil.errors import GraphError, NotImplementedGuaranteeError
from graphveil.estimators.features.crossfit import public_posteriors
from graphveil.estimators.method import FitResult, FittedGraphModel, Method, State
from graphveil.estimators.public_sizes import PublicSizes, nodes_of
from graphveil.estimators.session import Session

COUNTED, OTHERS = range(2)  # the groups of owners: R, and all other persons
PARTITION = "counted at far ends/at owners"
_SHARE, _SHARE_OF_PERSONS = 0.6, 0.1  # of labeled persons in R; the second if all far ends are persons
_FEW, _MANY, _FROM = 4, 8, 2.0  # codes of far ends below epsilon 2, and from there on
_LEAST_SHARE = 0.1  # of a class in the prior of a far end's mix
_PENALTIES = (0.03, 0.001, 0.003, 0.01, 0.1, 0.3, 1.0)  # inverse; the first without a comparison
_FOLDS, _ITERATIONS, _MOST_COMPARED = 5, 300, 5000
_PRIOR_WEIGHT = 3.0  # of log-posteriors, which are penalized less than counts
_CERTAIN = 10.0  # logit of a class that V has alone

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RowMethod(Method):
    """The row method with all keywords resolved.

    Args:
        codes: Number of codes of far ends; None for 4 below epsilon 2 and 8 from there on.
    """

    selects_by_metric: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    trains_on_sample: ClassVar[bool] = True
    tables: ClassVar[float] = 8.0

    codes: int | None = None

    def sizes_of(self, view: Graph) -> PublicSizes:
        labeled = int(view.labeled_in("train", "val").sum())
        assert isinstance(view, RelationalGraph)
        return replace(super().sizes_of(view), labeled=labeled, relations=view.relations)

    def check(self, view: Graph) -> None:
        super().check(view)
        if int(view.labeled_in("train", "val").sum()) < 2 * view.num_classes:
            raise GraphError(
                f"Unit 'row' needs at least {2 * view.num_classes} labeled persons in train and val, because "
                "one part encodes far ends and the other trains the classifier. Label more persons."
            )

    @property
    def num_codes(self) -> int:
        if self.codes is not None:
            return self.codes
        return _FEW if self.privacy_config.budget < _FROM else _MANY

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        layout = Layout.from_sizes(sizes, self.num_codes)
        epsilon = min(self.privacy_config.budget, MAX_EPSILON)  # from here on a count is hardly ever wrong
        queries = tuple(
            RowCountQuery(PARTITION, pays, epsilon, max(1, cells))  # none are known without the tables
            for pays, cells in (((True, False), layout.far_cells), ((False, True), layout.owner_cells))
        )
        return ReleasePlan(self.privacy_config.unit, queries, self.privacy_config.delta_for(sizes.nodes))

    def fit(self, view: Graph, session: Session) -> FitResult:
        assert isinstance(view, RelationalGraph)
        layout = Layout.from_sizes(self.sizes_of(view), self.num_codes)
        with session.stage("features"):
            public = public_posteriors(view, session, self.objective).log.to(torch.float64)
        labeled = nodes_of(view.labeled_in("train", "val")).numpy()
        drawn = session.streams.numpy("counted persons").permutation(labeled)
        counted, of_v = drawn[: layout.counted], drawn[layout.counted :]
        places = Places.of(view, layout, counted)
        release, sigma = session.open(view, places.groups), session.query(0, RowCountQuery).law.sigma
        with session.stage("count at far ends"):
            at_far = release.answer(places.at_far_ends(view.y.numpy())).numpy().astype(np.float64)
        with session.stage("codes"), _without_convergence_warnings():
            seed = session.streams.derive("codes")
            parts = zip(layout.relations, layout.of_far_ends(at_far), layout.codes, strict=True)
            codes = [far_codes(relation, part, count, sigma, seed) for relation, part, count in parts]
        with session.stage("count at owners"):
            guess = public.argmax(dim=1).numpy()
            data = places.at_owners(codes, view.y.numpy(), guess if layout.guesses > 1 else 0 * guess)
            at_owners = release.answer(data).numpy().astype(np.float64)
        release.close()
        with session.stage("classifier"), _without_convergence_warnings():
            prior = public[torch.from_numpy(places.others)]
            inputs = classifier_inputs(prior, places.blocks(at_far, at_owners), sigma)
            weights = self.objective.weights(view)
            labels = view.y.numpy()[of_v]
            classifier = CountClassifier.fit(
                inputs[places.row[of_v]],
                labels,
                view.num_classes,
                None if weights is None else weights.numpy()[labels],
            )
            decided = public.clone()
            decided[torch.from_numpy(places.others)] = classifier.log_posteriors(inputs)
        counts = {"at_far_ends": torch.from_numpy(at_far), "at_owners": torch.from_numpy(at_owners)}
        proba = decided.softmax(dim=1).to(torch.float32)
        return FitResult(trained=TrainedRows(classifier.weights), proba=proba, released=counts)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedRows":
        return TrainedRows(state["weights"])


@contextmanager
def _without_convergence_warnings() -> Iterator[None]:
    """Ignore warnings about fewer distinct mixes than codes, and about a regression that did not converge."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@dataclass(frozen=True, eq=False)
class TrainedRows(FittedGraphModel):
    """The classifier of counts, (inputs + 1, C). Its inputs are released with a fit."""

    weights: Tensor

    def other_graph_error(self) -> NotImplementedGuaranteeError:
        return NotImplementedGuaranteeError(
            "Under unit 'row' predictions depend on noisy counts of a person's rows, which only a fit "
            "releases. Fit the other tables, which is a new release, or use unit 'person'."
        )

    def state(self) -> State:
        return {"weights": self.weights}


@dataclass(frozen=True)
class Layout:
    """The cells of both answers, by public sizes.

    At far ends: for each table one row of C cells per entity, or, if far ends are persons, E C cells for each
    person outside of R. At owners: for each person outside of R one row, with E codes cells per table, or
    E times the columns of persons if far ends are persons.
    """

    relations: tuple[Relation, ...]
    classes: int
    persons: int
    counted: int  # persons in R
    codes: tuple[int, ...]  # of each table
    guesses: int  # classes that attributes predict

    @classmethod
    def from_sizes(cls, sizes: PublicSizes, codes: int) -> "Layout":
        alone = all(relation.persons is not None for relation in sizes.relations)
        counted = round((_SHARE_OF_PERSONS if alone else _SHARE) * (sizes.labeled or 0))
        each = tuple(min(codes, relation.entities) for relation in sizes.relations)
        guesses = sizes.classes if sizes.width > 1 else 1
        return cls(sizes.relations, sizes.classes, sizes.nodes, counted, each, guesses)

    @property
    def others(self) -> int:
        return self.persons - self.counted

    @property
    def far_widths(self) -> list[tuple[int, int]]:
        """The shape of each table's counts at far ends."""
        return [
            (each.entities, self.classes)
            if each.persons is None
            else (self.others, each.values * self.classes)
            for each in self.relations
        ]

    @property
    def owner_widths(self) -> list[int]:
        return [
            each.values * (codes if each.persons is None else self.person_columns)
            for each, codes in zip(self.relations, self.codes, strict=True)
        ]

    @property
    def person_columns(self) -> int:
        """Columns of one value if far ends are persons: received, and given, by guess; given, by label."""
        return 2 * self.guesses + self.classes

    @property
    def far_cells(self) -> int:
        return sum(rows * columns for rows, columns in self.far_widths)

    @property
    def owner_cells(self) -> int:
        return self.others * sum(self.owner_widths)

    def of_far_ends(self, counts: Floats) -> list[Floats]:
        """Return each table's counts at far ends."""
        ends = np.cumsum([rows * columns for rows, columns in self.far_widths])[:-1]
        return [
            part.reshape(shape) for part, shape in zip(np.split(counts, ends), self.far_widths, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Places:
    """The cells in which rows are counted, given which persons are in R.

    Args:
        others: Persons outside of R, ascending.
        row: Index of each person among them, or -1.
        in_split: Persons in a part of the split, whose counts are used to train or to predict.
        nodes: Number of persons and far ends.
    """

    layout: Layout
    is_counted: npt.NDArray[np.bool_]
    others: Ids
    row: Ids
    in_split: npt.NDArray[np.bool_]
    nodes: int

    @classmethod
    def of(cls, view: RelationalGraph, layout: Layout, counted: Ids) -> "Places":
        inside = np.zeros(layout.persons, dtype=bool)
        inside[counted] = True
        others = np.flatnonzero(~inside)
        row = np.full(layout.persons, NOT_COUNTED)
        row[others] = np.arange(len(others))
        in_split = torch.stack([view.members(part) for part in SPLITS]).any(dim=0).numpy()
        return cls(layout, inside, others, row, in_split, layout.persons + view.num_far_ends)

    @property
    def groups(self) -> Tensor:
        """The group of each node's own rows; far ends own none."""
        groups = torch.full((self.nodes,), OTHERS)
        groups[: self.layout.persons] = torch.from_numpy(np.where(self.is_counted, COUNTED, OTHERS))
        return groups

    def at_far_ends(self, labels: Ids) -> RowCountData:
        """Return the cells in which rows of R are counted: at their far ends, by the label of the owner."""
        layout, (ranks, starts, columns) = self.layout, self._nothing()
        columns[: layout.persons] = np.where(self.is_counted, labels, NOT_COUNTED)
        ranks[layout.persons :], first = 1, 0
        for relation, (rows, width) in zip(layout.relations, layout.far_widths, strict=True):
            entity, value = self._far_ends(relation)
            if relation.persons is None:
                place = first + entity * layout.classes
            else:  # not at persons of R, who are predicted by features
                inside = self.row[entity]
                place = np.where(
                    inside == NOT_COUNTED, NOT_COUNTED, first + inside * width + value * layout.classes
                )
            starts[relation.first : relation.stop] = place
            first += rows * width
        return RowCountData(*map(torch.from_numpy, (ranks, starts, columns)))

    def at_owners(self, codes: list[Ids], known: Ids, guess: Ids) -> RowCountData:
        """Return the cells in which all other rows are counted: at owners, by value and code of the far end.

        Between two persons outside of R it counts at the one that is in the split, or a public hash decides.

        Args:
            codes: Code of each entity, by table.
            known: Label of each person in R.
            guess: Class that features predict for each person.
        """
        layout, (ranks, starts, columns) = self.layout, self._nothing()
        width, offset = sum(layout.owner_widths), 0
        starts[: layout.persons] = np.where(self.row == NOT_COUNTED, NOT_COUNTED, self.row * width)
        rank = np.where(self.in_split, 2, 1)
        columns[: layout.persons], ranks[: layout.persons] = guess, rank
        for k, (relation, own) in enumerate(zip(layout.relations, layout.owner_widths, strict=True)):
            entity, value = self._far_ends(relation)
            some = slice(relation.first, relation.stop)
            if relation.persons is None:
                columns[some] = offset + value * layout.codes[k] + codes[k][entity]
            else:
                inside, row = self.is_counted[entity], self.row[entity]
                given = layout.guesses + np.where(inside, layout.guesses + known[entity], guess[entity])
                columns[some] = offset + value * layout.person_columns + given
                received = row * width + offset + value * layout.person_columns
                starts[some] = np.where(inside, NOT_COUNTED, received)
                ranks[some] = np.where(inside, 0, rank[entity])
            offset += own
        return RowCountData(*map(torch.from_numpy, (ranks, starts, columns)))

    def blocks(self, at_far: Floats, at_owners: Floats) -> list[Floats]:
        """Return the counts of each table at persons outside of R, (others, columns)."""
        layout = self.layout
        rows = at_owners.reshape(layout.others, -1)
        own = np.split(rows, np.cumsum(layout.owner_widths)[:-1], axis=1)
        far = layout.of_far_ends(at_far)
        return [
            mine if relation.persons is None else np.concatenate([mine, received], axis=1)
            for relation, mine, received in zip(layout.relations, own, far, strict=True)
        ]

    def _nothing(self) -> tuple[Ids, Ids, Ids]:
        ranks = np.zeros(self.nodes, dtype=np.int64)
        starts, columns = (np.full(self.nodes, NOT_COUNTED, dtype=np.int64) for _ in range(2))
        return ranks, starts, columns

    def _far_ends(self, relation: Relation) -> tuple[Ids, Ids]:
        entity, value = np.divmod(np.arange(relation.entities * relation.values), relation.values)
        return entity, value


def far_codes(relation: Relation, counts: Floats, codes: int, sigma: float, seed: int) -> Ids:
    """Return the code of each entity: clusters of noisy class mixes, weighted by their volume.

    A mix is shrunk to a prior, which follows from public attributes if there are any. Codes of far ends that
    are persons are their classes, and not computed here.
    """
    if relation.persons is not None or codes < 2:
        return np.zeros(relation.entities, dtype=np.int64)
    total = np.maximum(counts.sum(axis=0), 1.0)
    prior = np.tile(total / total.sum(), (len(counts), 1))
    if relation.features is not None:
        predicted = predicted_mixes(relation.features, counts)
        prior = (1 - _LEAST_SHARE) * predicted + _LEAST_SHARE / counts.shape[1]
    volume = np.maximum(counts.sum(axis=1), 0.0)
    strength = 4 + 2 * sigma * np.sqrt(counts.shape[1])
    positive = np.maximum(counts, 0.0)
    mixes = (positive + strength * prior) / (positive.sum(axis=1, keepdims=True) + strength)
    from sklearn.cluster import KMeans

    points = np.log(mixes + 0.02)
    clusters = KMeans(min(codes, len(np.unique(points, axis=0))), n_init=1, random_state=seed % 2**32)
    found: Ids = clusters.fit(points, sample_weight=volume + 0.3).labels_.astype(np.int64)
    return found


def predicted_mixes(features: Features, counts: Floats) -> Floats:
    """Return the class mix that public attributes predict for each entity, by a softmax regression."""
    x = to_dense(features)
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1).to(torch.float64)
    targets = torch.from_numpy(counts)
    total = float(targets.clamp_min(0).sum()) or 1.0
    weights = torch.zeros(x.shape[1], counts.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=0.02)
    for _ in range(120):
        optimizer.zero_grad()
        loss = -(targets * (x @ weights).log_softmax(dim=1)).sum() / total + 1e-4 * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        found: Floats = (x @ weights).softmax(dim=1).numpy()
    return found


@dataclass(frozen=True, eq=False)
class CountClassifier:
    """A multinomial logistic regression on log-posteriors of features and logarithms of noisy counts.

    Args:
        weights: Parameters (C + K + 1, C), the last row the bias.
    """

    weights: Tensor

    @classmethod
    def fit(
        cls, inputs: Floats, labels: Ids, classes: int, sample_weight: Floats | None
    ) -> "CountClassifier":
        """Fit it with the penalty that predicts best in five folds; only labels of V are read."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import log_loss
        from sklearn.model_selection import cross_val_predict

        weights = np.zeros((inputs.shape[1] + 1, classes))
        known, counts = np.unique(labels, return_counts=True)
        if len(known) == 1:
            weights[-1, known[0]] = _CERTAIN
            return cls(torch.from_numpy(weights))
        folds, best = min(_FOLDS, int(counts.min())), _PENALTIES[0]
        logistic = partial(LogisticRegression, max_iter=_ITERATIONS)
        if folds > 1:
            some, own = inputs[:_MOST_COMPARED], labels[:_MOST_COMPARED]
            found = [
                cross_val_predict(logistic(C=each), some, own, cv=folds, method="predict_proba")
                for each in _PENALTIES
            ]
            best = _PENALTIES[int(np.argmin([log_loss(own, each, labels=known) for each in found]))]
        model = logistic(C=best).fit(inputs, labels, sample_weight=sample_weight)
        coefficients, bias = model.coef_, model.intercept_
        if len(known) == 2:  # one row, for the second class
            coefficients, bias = (np.concatenate([-each, each]) / 2 for each in (coefficients, bias))
        weights[-1] = -_CERTAIN  # of classes that V lacks
        weights[:-1, known], weights[-1, known] = coefficients.T, bias
        return cls(torch.from_numpy(weights))

    def log_posteriors(self, inputs: Floats) -> Tensor:
        logits = torch.from_numpy(inputs) @ self.weights[:-1] + self.weights[-1]
        return logits.log_softmax(dim=1)


def classifier_inputs(log_posteriors: Tensor, blocks: list[Floats], sigma: float) -> Floats:
    """Return one row per person: centered log-posteriors, and logarithms of counts above the noise."""
    centered = (log_posteriors - log_posteriors.mean(dim=1, keepdim=True)).numpy()
    logs = [np.log(np.maximum(each, 0.0) + 1 + sigma) for each in blocks]
    inputs: Floats = np.concatenate([_PRIOR_WEIGHT * centered, *logs], axis=1)
    return inputs
