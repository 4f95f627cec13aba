"""Recommendations from a released item-item matrix: which items are on lists together.

Two noisy sums are released: the popularity of every item, and the products of lists over popular items,

    M = sum_u z_u z_u^T + noise,    z_u = 1 / sqrt(max(n_u, D)) at each of the n_u items on the list of u.

Noise alone has eigenvalues up to s = sigma sqrt(2 m) for m items. From the positive part M+ of M follows the
closed form of a linear model that predicts each item from the other items on a list (Steck: Embarrassingly
shallow autoencoders for sparse data, 2019), with a ridge penalty in proportion to the noise:

    P = (M+ + c s I)^-1,    B_ij = -P_ij / P_jj,    B_jj = 0.

The factor c is the one with the least estimated error. Public noise splits M into two matrices with
independent noise, so that one is fitted and the other measures the error. A user's scores are the sum of the
rows of B over the user's own list.

Items without a row in M follow after all others. With public features of items their order is that of a ridge
regression, from features and popularity to the user's own scores of modeled items. They then follow after the
better half of the modeled items: the best of them has the user's median score.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.threads import one_thread
from graphveil.core.guarantee import EdgeUse
from graphveil.core.plan import ReleasePlan, calibrate_plan
from graphveil.core.queries.list_products import (
    MAX_COLUMNS,
    NO_COLUMN,
    ListProductData,
    ListProductQuery,
    unpack_products,
)
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumData, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery, own_lists
from graphveil.core.queries.record_counts import OutcomeCountData, OutcomeCountQuery
from graphveil.core.query import Query
from graphveil.core.unit import UNITS, DirectedEdge, NodeRecord, NoUnit, Person, Row
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.data.interactions import Interactions, Lists, as_lists, lists_of, positions
from graphveil.data.relational import Tables, check_tables
from graphveil.errors import ConfigError, GraphError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.fitted import FittedModel
from graphveil.estimators.method import FitResult, FittedGraphModel, Method, PreparedFit, State
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.requirements import Rejections, rejected
from graphveil.estimators.session import OnProgress, Session
from graphveil.links.pairs import PairModel
from graphveil.privacy import Guarantee
from graphveil.publish.cards import PairCard
from graphveil.publish.results import RECOMMENDER
from graphveil.training.metrics import Interval

_POPULARITY, _METRICS = 0.1, 0.05  # shares of mu^2; the products have the rest
_ABOVE_NOISE = 3.0  # standard deviations of the noise that the popularity of a modeled item exceeds
_FEW, _FEW_ABOVE_NOISE = 100, 2.0  # the same for this many items: a model of few items is worse than noise
_PENALTIES = 0.3, 0.45, 0.6, 0.9, 1.3, 2.0, 3.0  # c: shares of the largest eigenvalue of the noise
_SPLIT = 0.5  # noise that is added to the fitted half of the split, of that of the release
_MIN_PENALTY = 3.0  # without noise: lists of length one are not predicted with certainty
_EDGE_LENGTH = 20  # D under an edge-level unit: shorter lists count less, and noise falls with 1 / sqrt(D)
_HELD_OUT = 0.1  # share of users whose lists measure the hit rate only
_TOP = 10  # items of the hit rate
_FEATURE_PENALTY = 3000.0  # of the regression from features with unit variance to scores
_TIES = 1e-6  # weight of popularity in scores by features: it decides if a list is empty
_AT_ONCE = 1 << 24  # scores held at once
_READS_LIST = (
    "Recommendations for a user read the exact list of this user. They are not covered by the guarantee: "
    "show them to this user only."
)
_BY_POPULARITY = "Items outside the matrix are ranked by popularity, after all others."
_BY_FEATURES = "Items outside the matrix are ranked by public features, after the better half of all others."

Floats = npt.NDArray[np.float64]


class Recommendations(NamedTuple):
    """The best items of each user, best first: ids (Q, k), and scores float64 (Q, k).

    Both are masked arrays: the places of a user with fewer than k items left are masked at the end of the
    row, and ``items[u].compressed()`` returns the items of user u.
    """

    items: "np.ma.MaskedArray[Any, Any]"
    scores: "np.ma.MaskedArray[Any, Any]"


@dataclass(frozen=True, eq=False)
class ItemModel(FittedGraphModel):
    """The released part of a recommender: all of it may be published.

    Args:
        item_ids: Id of each item (I).
        popularity: Noisy sum over users of 1 / sqrt(length of the list), or noisy number of users, (I).
        modeled: Items with a row in ``similarity``, most popular first (m).
        similarity: Score that an item on a list (row) adds to another item (column), (m, m).
        features: Public features of each item, float32 (I, d), or None.
    """

    item_ids: npt.NDArray[Any]
    popularity: Floats
    modeled: npt.NDArray[np.int64]
    similarity: Floats
    features: npt.NDArray[np.float32] | None = None

    @cached_property
    def ranking(self) -> npt.NDArray[np.int64]:
        """All items: those with a row in ``similarity``, then all others, both by popularity (I)."""
        by_popularity = np.argsort(-self.popularity, kind="stable")
        return np.concatenate([self.modeled, by_popularity[~np.isin(by_popularity, self.modeled)]])

    def other_graph_error(self) -> NotImplementedGuaranteeError:
        """Return the error of a prediction for another graph."""
        return NotImplementedGuaranteeError(
            "The items of a recommender are those of the fitted table. Fit the other table, which is a new "
            "release."
        )

    def state(self) -> State:
        """Return the parameters as tensors by name."""
        arrays = {"popularity": self.popularity, "modeled": self.modeled, "similarity": self.similarity}
        known = {} if self.features is None else {"features": self.features}
        return {name: torch.from_numpy(part) for name, part in (arrays | known).items()}

    @cached_property
    def _regression(self) -> tuple[Floats, Floats] | None:
        """Weights (m, d) from scores of modeled items to coefficients, and regressors (I - m, d) of others.

        Regressors are the features that vary over modeled items, within their range there, and the root of
        popularity. All have unit variance over modeled items. None if no feature varies.
        """
        count = len(self.modeled)
        if self.features is None or not count:
            return None
        known = self.features[self.ranking].astype(np.float64)
        low, high = known[:count].min(axis=0), known[:count].max(axis=0)
        if not (varies := low < high).any():
            return None
        root = np.sqrt(np.maximum(self.popularity[self.ranking], 0.0))
        known = np.column_stack([np.clip(known, low, high)[:, varies], root])
        known = (known - known[:count].mean(axis=0)) / np.maximum(known[:count].std(axis=0), 1e-30)
        inner, outer = known[:count], known[count:]
        return np.linalg.solve(inner @ inner.T + _FEATURE_PENALTY * np.eye(count), inner), outer

    def _by_features(self, own: Any, scores: Floats, weights: Floats, known: Floats) -> Floats:
        """Return scores of items that are not modeled, at most the median, in the order of ``ranking``.

        Args:
            own: Lists of modeled items (Q, m).
            scores: Their scores of modeled items (Q, m).
            weights, known: As ``_regression``.
        """
        own_scores = own @ sparse.diags_array(self.similarity.max(axis=0))  # as of the most similar item
        fitted = scores + own_scores.toarray() + _TIES * self.popularity[self.modeled]
        found = ((fitted - fitted.mean(axis=1, keepdims=True)) @ weights) @ known.T
        best = found.max(axis=1, keepdims=True, initial=-np.inf)
        placed: Floats = np.median(scores, axis=1, keepdims=True) + (found - best)
        return placed

    def best(
        self,
        lists: Lists,
        k: int,
        *,
        among: npt.NDArray[np.bool_] | None = None,
        omit_own: bool = True,
    ) -> tuple[npt.NDArray[np.int64], Floats]:
        """Return indices and scores of the k best items for some lists, (Q, k) each, best first.

        Items without a row in ``similarity`` come after all others, or with ``features`` after the better
        half of them. Popularity decides ties. ``among`` marks the items to choose from (I), by default all;
        the score of an omitted item is -inf.
        """
        found, values = [np.empty((0, k), dtype=np.int64)], [np.empty((0, k))]
        count, longest = len(self.modeled), int(np.diff(lists.indptr).max(initial=0))
        candidates = self.ranking
        if among is None and (self._regression is None or k + longest <= count // 2):
            candidates = candidates[: count + k + longest]  # no other item can be among the best
        behind = -np.arange(1, len(candidates) + 1) / len(self.ranking)  # the same in every call
        at_once = max(1, _AT_ONCE // len(candidates))
        for first in range(0, lists.shape[0], at_once):
            own = lists[first : first + at_once][:, candidates].astype(np.float64)
            scores = np.tile(behind, (own.shape[0], 1))
            if count:
                modeled = np.asarray(own[:, :count] @ self.similarity)
                scores += modeled.min(axis=1, keepdims=True)
                scores[:, :count] = modeled
                if self._regression is not None and len(candidates) == len(self.ranking):
                    scores[:, count:] = self._by_features(own[:, :count], modeled, *self._regression)
            if among is not None:
                scores[:, ~among[candidates]] = -np.inf
            if omit_own:
                scores[own.nonzero()] = -np.inf
            top = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            found.append(candidates[top])
            values.append(np.take_along_axis(scores, top, axis=1))
        return np.concatenate(found), np.concatenate(values)


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(PairModel):
    """Recommend items to users from the lists of all users, and protect each list or each entry.

    One release of two noisy sums gives the popularity of items and an item-item matrix, which are public.
    Recommendations for a user combine them with the user's own list. Popular items are modeled, as far as
    their noisy popularity exceeds its noise. All others, such as new items, are ranked after them by
    popularity. If the table has public ``item_features``, they are ranked by these, after the better half of
    the modeled items of a user. A user without a list gets the most popular items.

    Args:
        unit: ``"node-record"`` for the whole list of a user, ``"directed-edge"`` for one entry of a list, or
            ``"none"`` for a non-private reference. For ``Tables`` they are ``"person"`` and ``"row"``.
        epsilon, delta: Budget of a fit. ``delta="auto"`` depends on the public number of users.
        replace_one: Whether neighboring datasets have two different lists of a user, instead of a list and an
            empty one.
        max_items: Maximum number of modeled items.
        private_metrics: Whether a fit also releases the hit rate of ``private_metrics_``. A public random
            tenth of the users is then held out, and their lists are not fitted.
        seed: Seed of the held-out users, and of the public noise that chooses the ridge penalty.
        unsafe_noise_seed: Makes the noise reproducible, for tests. The guarantee is then invalid.
        max_units: Public bound on the number of protected users or entries, for ``delta="auto"``.

    Attributes:
        guarantee: Guarantee of the released sums.
        plan_: Query plan of the release; None under unit ``none``.
        items_: The released item model, an ``ItemModel``.
        private_metrics_: With ``private_metrics``, ``{"hit_rate_at_10": Interval}``: the share of held-out
            users whose ten best items contain one item that was removed from their list, with an interval of
            95 % for the noise.

    Raises:
        ConfigError: If an argument is of another type or outside its range.
        UnitError: If the unit is another one, or has no effect on ``replace_one`` or ``private_metrics``.

    Privacy:
        Unit: ``node-record`` or ``directed-edge``. Reads: all lists. Charges: one release, recorded in the
        ledger of the table before the lists are read. Under ``node-record`` a list moves the popularity by 1
        and the products by 1 (``replace_one``: 2 and sqrt(2)). Under ``directed-edge`` an entry moves a count
        by 1 and the products by sqrt(2 D - 1) / D with D = 20. Public: ``items_``, ``private_metrics_``, the
        guarantee, and a saved folder. Recommendations are not public: they are for the user whose list they
        use.

    >>> rng = np.random.default_rng(0)
    >>> kind = rng.integers(2, size=400)
    >>> lists = rng.random((400, 20)) < np.where(np.arange(20) // 10 == kind[:, None], 0.5, 0.05)
    >>> table = Interactions.from_matrix(lists)
    >>> model = Recommender(epsilon=4.0, delta=1e-6).fit(table)
    >>> found = model.recommend([[0, 1, 2]], k=5)
    >>> found.items.shape, int((found.items < 10).sum())
    ((1, 5), 5)
    """

    method: ClassVar[str] = RECOMMENDER
    rejections: ClassVar[Rejections] = rejected(
        "A recommender protects the whole list of a user or one entry of it, but unit {unit!r} protects "
        "neither. Use unit='node-record' for lists, or unit='directed-edge' for single entries.",
        *(UNITS.keys() - {NodeRecord.name, DirectedEdge.name, Person.name, Row.name, NoUnit.name}),
    )

    unit: str = "node-record"
    epsilon: float | None = None
    delta: float | str = "auto"
    replace_one: bool = False
    max_items: int = 1024
    private_metrics: bool = False
    seed: int = 0
    unsafe_noise_seed: int | None = None
    max_units: int | None = None

    def _build_privacy_config(self) -> PrivacyConfig:
        config = super()._build_privacy_config()
        units = {kind.name: kind(replace_one=self.replace_one) for kind in (NodeRecord, Person)}
        return replace(config, unit=units.get(config.unit.name, config.unit))

    def _check_config(self) -> None:
        super()._check_config()
        config = self.privacy_config
        without_effect = {"replace_one", "private_metrics"} - config.unit.keywords
        if any(getattr(self, name) for name in without_effect):
            raise UnitError(
                "replace_one and private_metrics need a unit that protects whole lists, but unit "
                f"{self.unit!r} does not. Remove both, or use unit='node-record'."
            )
        if config.protects and self.epsilon is None:
            raise ConfigError(
                f"Unit {self.unit!r} needs a privacy budget. Pass epsilon=, for example epsilon=1.0, or "
                "unit='none' for the non-private reference."
            )
        checks.integer_at_least(1, max_items=self.max_items)
        checks.within(1, MAX_COLUMNS, max_items=self.max_items)

    def _build_method(self) -> "RecommenderMethod":
        return self._method(RecommenderMethod)

    def _method_of(self, table: Interactions) -> "RecommenderMethod":
        method = self._build_method()
        return replace(method, item_ids=table.item_ids, item_features=table.item_features)

    @property
    def items_(self) -> ItemModel:
        """The released item model."""
        trained = self.fitted.trained
        assert isinstance(trained, ItemModel)
        return trained

    @property
    def private_metrics_(self) -> dict[str, Interval] | None:
        """The released hit rate of held-out users; None without ``private_metrics``."""
        return self._metrics

    @one_thread()
    def plan(self) -> ReleasePlan | None:
        """Return the query plan of a fit with ``max_units`` users or entries; no size affects its noise."""
        return self.config.plan(_sizes(self.max_units or 1, self.max_items))

    @one_thread()
    def prepare(self, table: Interactions | Tables) -> PreparedFit:
        """Check the table as ``fit`` does, and plan the fit.

        Args:
            table: Table to fit.

        Returns:
            The planned fit. Pass it to ``fit`` in place of the table to execute exactly this plan.

        Raises:
            GraphError: If it is neither ``Interactions`` nor ``Tables``.
            UnitError: If tables and unit do not fit.
            ConfigError: If the budget is too small for any noise, or ``Tables`` have several tables or
                values: pass ``tables.interactions(...)`` then.

        Privacy:
            Reads: public sizes. Charges: nothing.

        >>> table = Interactions.from_matrix(np.eye(30))
        >>> Recommender(epsilon=1.0, delta=1e-5).prepare(table).guarantee.epsilon <= 1.0
        True
        """
        if isinstance(table, Tables):
            check_tables(table.graph, self.unit)
            table = table.interactions()
        if not isinstance(table, Interactions):
            raise GraphError(
                f"A recommender needs a user-item table, not a {type(table).__name__}. Create one with "
                "gv.Interactions.from_columns, from_matrix or from_pyg."
            )
        ready = self._method_of(table).prepare(table.graph, FeatureScaling())
        return replace(ready, method=self.config, graph=table)

    def preview(self, table: Interactions | Tables) -> PreparedFit:
        """Return plan, guarantee and outputs of a fit, as ``prepare``.

        Args:
            table: Table to fit.

        Returns:
            The planned fit.

        Raises:
            GraphError, ConfigError: As ``prepare``.

        Privacy:
            Reads: public sizes. Charges: nothing.
        """
        return self.prepare(table)

    @partial(checked, skip=("table", "workspace"))  # checked inside
    def fit(
        self,
        table: Interactions | Tables | PreparedFit,
        workspace: Path | str | None = None,
        *,
        on_progress: OnProgress | None = None,
        progress: bool = False,
    ) -> Self:
        """Release popularity and products of lists, and compute the item model.

        Args:
            table: User-item table, ``Tables`` with one table of rows without values, or ``PreparedFit``.
            workspace: Private folder in which an interrupted fit can be resumed without another charge.
            on_progress: Called with stage, done and total.
            progress: Show progress bars on a terminal or in a notebook.

        Returns:
            The fitted recommender.

        Raises:
            GraphError: If ``table`` is no ``Interactions``.
            BudgetError: If the ledger of the table rejects the release.
            ReleaseError: If ``workspace`` holds another fit.

        Privacy:
            Unit: ``unit``. Reads: all lists. Charges: one release, before the lists are read. Public: all
            attributes of the fitted recommender.
        """
        return self._fit_with(table, workspace, on_progress, progress=progress)

    def _result(self, ready: PreparedFit, session: Session) -> tuple[FitResult, PreparedFit]:
        method = self._method_of(ready.graph)
        return method.fit(method.view(ready.scaled), session), ready

    @one_thread()
    def recommend(
        self,
        lists: Interactions | Sequence[Sequence[Any]] | Any,
        k: int = _TOP,
        *,
        items: Sequence[Any] | Any = None,
        omit_own: bool = True,
    ) -> Recommendations:
        """Return the best items for each list.

        Args:
            lists: Lists of item ids, a sparse or dense matrix (Q, I) in the order of the catalog, or
                ``Interactions`` with the same catalog for all of its users.
            k: Number of items, at most the number of items to choose from.
            items: Ids of the items to choose from, for example new items only. By default the catalog.
            omit_own: Whether items on the list itself are omitted. If fewer than k others are left, the row
                has fewer items, and its last places are masked.

        Returns:
            Ids and scores, one row per list, as masked arrays.

        Raises:
            ConfigError: Before ``fit``.
            GraphError: If an id is unknown, ``items`` is empty, or a matrix or table has another catalog.
            ConfigError: If k is outside its range.

        Privacy:
            Reads: the lists, exactly. Charges: nothing. Row u depends on released values and on list u only.
            It is private: show it to the user whose list it is, and to people authorized to access that
            list. With ``omit_own`` the omitted items alone reveal the list.

        >>> table = Interactions.from_matrix([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]])
        >>> Recommender(unit="none").fit(table).recommend([[0], [3]], k=1).items.tolist()
        [[1], [2]]
        """
        model, among = self.items_, None
        checks.switch(omit_own=omit_own)
        checks.integer_at_least(1, k=k)
        if items is not None:
            among = np.zeros(len(model.item_ids), dtype=bool)
            among[positions(model.item_ids, items, "items")] = True
            if not among.any():
                raise GraphError("items is empty. Pass the ids of the items to choose from, or leave it out.")
        checks.within(1, len(model.item_ids) if among is None else int(among.sum()), k=k)
        own = _own_lists(lists, model.item_ids)
        top, scores = model.best(own, int(k), among=among, omit_own=omit_own)
        none_left = np.isneginf(scores)
        found = model.item_ids[top]
        found[none_left] = -1 if found.dtype.kind == "i" else ""  # of nobody's list, also under the mask
        scores = np.where(none_left, np.nan, scores)
        return Recommendations(np.ma.masked_array(found, none_left), np.ma.masked_array(scores, none_left))

    def _card(self, dataset: str | None) -> PairCard:
        items, users = self.items_, self.fitted.sizes.records
        return PairCard(
            method=RECOMMENDER,
            task="recommendation",
            subject=f"An item-item matrix of {len(items.modeled):,} of {len(items.item_ids):,} items, from "
            f"lists of {users:,} users.",
            dataset=dataset,
            metrics=self._card_metrics,
            limits=(_READS_LIST, _BY_POPULARITY if items.features is None else _BY_FEATURES),
            loader="Recommender",
            call="model.recommend([[first_item, second_item]], k=10)",
        )

    def _plain(self) -> dict[str, Any]:
        return {
            "parameters": self.get_params(),
            "users": self.fitted.sizes.records,
            "item_ids": self.items_.item_ids.tolist(),
            "metrics": {name: asdict(one) for name, one in (self._metrics or {}).items()},
        }

    def _restored(self, plain: Mapping[str, Any], state: State, guarantee: Guarantee) -> FittedModel:
        ids, users = np.asarray(plain["item_ids"]), int(plain["users"])
        if ids.dtype.kind not in "iU" or users < 1:
            raise ValueError
        method = replace(self._build_method(), item_ids=ids.astype(object) if ids.dtype.kind == "U" else ids)
        sizes = _sizes(users, len(ids))
        plan = method.plan(sizes)
        assert plan is not None  # of unit none nothing is saved
        trained = method.restore(state, sizes, {})
        return self._fit_of(sizes, guarantee, plan, trained, metrics=plain["metrics"] or None)


@dataclass(frozen=True, kw_only=True)
class RecommenderMethod(Method):
    """A recommender with all constructor keywords resolved."""

    max_items: int = 1024
    item_ids: npt.NDArray[Any] | None = field(default=None, compare=False)
    item_features: npt.NDArray[np.float32] | None = field(default=None, compare=False)

    @property
    def _catalog(self) -> npt.NDArray[Any]:
        assert self.item_ids is not None
        return self.item_ids

    def check_task(self, graph: Graph) -> None:
        """Do nothing: lists have no labels."""

    def check(self, view: Graph) -> None:
        """Do nothing: a table was checked when it was built."""

    def notes(self, view: Graph) -> tuple[str, ...]:
        return view.notes

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        return "lists"

    def sizes_of(self, view: Graph) -> PublicSizes:
        return _sizes(view.num_nodes - len(self._catalog), len(self._catalog))

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        config = self.privacy_config
        if not config.protects:
            return None
        queries, protected = {
            "node": (self._list_queries, sizes.records),
            "edge": (self._entry_queries, sizes.nodes),
        }[config.unit.level]
        return calibrate_plan(
            config.unit,
            config.budget,
            config.delta_for(protected),
            partial(queries, sizes.width),
            num_nodes=sizes.nodes,
        )

    def _entry_queries(self, items: int, mu: float) -> tuple[Query, ...]:
        popularity_mu, products_mu = (mu * math.sqrt(share) for share in (_POPULARITY, 1 - _POPULARITY))
        popularity = NeighborSumQuery(GroupWeights.unit_weights(), (1 / popularity_mu,), 1)
        return popularity, self._products(items, _EDGE_LENGTH, products_mu)

    def _list_queries(self, items: int, mu: float) -> tuple[Query, ...]:
        unit, of_metrics = self.privacy_config.unit, _METRICS if self.privacy_config.private_metrics else 0.0
        assert isinstance(unit, NodeRecord)
        shares = _POPULARITY, 1 - _POPULARITY - of_metrics
        popularity_mu, products_mu = (mu * math.sqrt(share) for share in shares)
        popularity = OutEdgeSumQuery(dim=1, sigma=unit.change / popularity_mu)
        products = self._products(items, 1, products_mu)
        if not of_metrics:
            return popularity, products
        return popularity, products, OutcomeCountQuery(sigma=math.sqrt(unit.change / of_metrics) / mu)

    def _products(self, items: int, out_degree_bound: int, mu: float) -> ListProductQuery:
        query = ListProductQuery(
            columns=min(items, self.max_items), sigma=1.0, out_degree_bound=out_degree_bound
        )
        return replace(query, sigma=query.sensitivity(self.privacy_config.unit) / mu)

    def fit(self, view: Graph, session: Session) -> FitResult:
        ids, nodes = self._catalog, view.num_nodes
        users, streams = nodes - len(ids), session.streams
        if session.plan is None:
            return FitResult(trained=self._exact(view, users), proba=None, learned={"metrics": None})
        private_metrics = self.privacy_config.private_metrics
        held_out = np.zeros(users, dtype=bool)
        if private_metrics:
            held_out = streams.numpy("held-out users").random(users) < _HELD_OUT
        counted = torch.zeros(nodes, dtype=torch.bool)
        counted[:users] = torch.from_numpy(~held_out)
        release, first = session.open(view), session.plan.queries[0]
        products = session.query(1, ListProductQuery)
        sent = counted.to(torch.float64)[:, None]
        data = NeighborSumData(sent) if isinstance(first, NeighborSumQuery) else OutEdgeSumData(sent)
        popularity = release.answer(data)[users:, 0].numpy().astype(np.float64)
        modeled = self._modeled(popularity, first.noise[0])
        columns = torch.full((nodes,), NO_COLUMN, dtype=torch.int64)
        columns[users + torch.from_numpy(modeled)] = torch.arange(len(modeled))
        triangle = release.answer(ListProductData(columns, counted))
        matrix = unpack_products(triangle, products.columns)[: len(modeled), : len(modeled)]
        chosen = _penalty(matrix, products.sigma, streams.numpy("penalty"))
        items = item_model(ids, popularity, modeled, matrix, chosen, self.item_features)
        metrics = None
        if private_metrics:
            lists = own_lists(view.adjacency).at(torch.arange(users))
            place = streams.numpy("removed items").random(users)
            tested = torch.from_numpy(held_out), torch.from_numpy(place)
            correct, wrong = map_records(partial(_outcomes, items), lists, *tested)
            hits, misses = release.answer(OutcomeCountData(correct, wrong)).tolist()
            share = _share(hits, misses, session.plan.noise_std[-1], int(held_out.sum()))
            metrics = {f"hit_rate_at_{_TOP}": share}
        release.close()
        return FitResult(trained=items, proba=None, learned={"metrics": metrics})

    def _exact(self, view: Graph, users: int) -> ItemModel:
        table = Interactions(view, np.arange(users), self._catalog)
        lists = table.lists().astype(np.float64)
        lengths = np.maximum(np.diff(lists.indptr), 1)
        popularity = np.asarray(lists.sum(axis=0), dtype=np.float64).ravel()
        modeled = self._modeled(popularity, 0.0)
        lists = lists[:, modeled]
        products = (lists.T.multiply(1 / lengths) @ lists).toarray()
        return item_model(self._catalog, popularity, modeled, products, _MIN_PENALTY, self.item_features)

    def _modeled(self, popularity: Floats, noise: float) -> npt.NDArray[np.int64]:
        order = np.argsort(-popularity, kind="stable")
        least = np.where(np.arange(len(order)) < _FEW, _FEW_ABOVE_NOISE, _ABOVE_NOISE)
        return order[popularity[order] > least * noise][: self.max_items]

    def restore(self, state: State, sizes: PublicSizes, released: State) -> ItemModel:
        arrays, ids = {name: part.numpy() for name, part in state.items()}, self._catalog
        modeled, shape = arrays["modeled"], (len(arrays["modeled"]),) * 2
        if arrays["popularity"].shape != ids.shape or arrays["similarity"].shape != shape:
            raise ValueError
        if len(modeled) and not 0 <= modeled.min() <= modeled.max() < len(ids):
            raise ValueError
        features = arrays.get("features")
        if features is not None and (features.ndim != 2 or len(features) != len(ids)):
            raise ValueError
        return ItemModel(ids, arrays["popularity"], modeled, arrays["similarity"], features)


def _sizes(users: int, items: int) -> PublicSizes:
    """Return the sizes of a table: a user is a record, and an item is a feature of it."""
    return PublicSizes(nodes=users + items, classes=0, features=items, train_records=users)


def item_model(
    item_ids: npt.NDArray[Any],
    popularity: Floats,
    modeled: npt.NDArray[np.int64],
    products: Floats,
    penalty: float,
    features: npt.NDArray[np.float32] | None = None,
) -> ItemModel:
    """Return the item model of released sums; it is post-processing.

    Args:
        products: Released products (m, m), symmetric.
        penalty: Ridge penalty.
        features: Public features of items, (I, d).
    """
    values, vectors = np.linalg.eigh(products)
    inverse = (vectors / (np.maximum(values, 0.0) + penalty)) @ vectors.T
    similarity = -inverse / np.diag(inverse)
    np.fill_diagonal(similarity, 0.0)
    return ItemModel(item_ids, popularity, modeled, similarity, features)


def _penalty(products: Floats, sigma: float, rng: np.random.Generator) -> float:
    """Return the ridge penalty with the least estimated error of the linear model; it is post-processing.

    With noise W as in M, the noise of M + a W and of M - W / a is independent. So B is fitted to the first,
    and the second estimates its error tr((I - B)^T M (I - B)) without bias. Columns of I - B are those of P
    divided by their diagonal.

    Args:
        products: Released products M (m, m), symmetric.
        sigma: Standard deviation of the noise on the diagonal.
        rng: Public randomness.
    """
    noise = rng.normal(scale=sigma, size=products.shape)
    noise = (noise + noise.T) / 2  # of variance sigma^2 on the diagonal, and half of it elsewhere
    largest = sigma * math.sqrt(2 * len(products))
    values, vectors = np.linalg.eigh(products + _SPLIT * noise)
    rotated = vectors.T @ (products - noise / _SPLIT) @ vectors

    def error(penalty: float) -> float:
        inverse = vectors / (np.maximum(values, 0.0) + penalty * math.hypot(1.0, _SPLIT))
        diagonal = (inverse * vectors).sum(axis=1)
        return float((((inverse @ rotated) * inverse).sum(axis=1) / diagonal**2).sum())

    return min((max(_MIN_PENALTY, share * largest) for share in _PENALTIES), key=error)


def _own_lists(given: Any, item_ids: npt.NDArray[Any]) -> Lists:
    if isinstance(given, Tables):
        given = given.interactions()
    if isinstance(given, Interactions):
        if not np.array_equal(given.item_ids, item_ids):
            raise GraphError(
                "The item ids of this table differ from those of the fitted one. Create it with the same "
                "item_ids."
            )
        return given.lists()
    if sparse.issparse(given) or getattr(given, "ndim", 0) == 2:
        lists = as_lists(given)
        if lists.shape[1] != len(item_ids):
            raise GraphError(
                f"The matrix has {lists.shape[1]} columns, but the catalog has {len(item_ids)} items. "
                "Pass one column per item."
            )
        return lists
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or any(map(_is_no_list, given)):
        raise GraphError(
            "lists must be a list of lists of item ids, a matrix (users, items) or gv.Interactions. "
            "Put a single list in brackets: recommend([items])."
        )
    rows = np.repeat(np.arange(len(given)), [len(one) for one in given])
    listed = [item for one in given for item in one]
    columns = positions(item_ids, listed, "lists") if listed else np.empty(0, dtype=np.int64)
    return lists_of(rows, columns, (len(given), len(item_ids)))


def _is_no_list(value: Any) -> bool:
    return isinstance(value, str | bytes) or not (
        isinstance(value, Sequence) or getattr(value, "ndim", 0) == 1
    )


def _outcomes(
    items: ItemModel, lists: Lists, held_out: torch.Tensor, place: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which held-out users find an item again that was removed from their list, and which do not.

    The place of the removed item on the list is public, so an outcome depends on the user's own list only.
    Users with fewer than two items are neither. Columns of ``lists`` are users and then items.
    """
    lists = lists[:, lists.shape[1] - len(items.item_ids) :]
    lengths = np.diff(lists.indptr)
    users = np.flatnonzero(held_out.numpy() & (lengths >= 2))
    at = lists.indptr[users] + (place.numpy()[users] * lengths[users]).astype(np.int64)
    removed = lists.indices[at]
    kept = np.ones(lists.nnz, dtype=bool)
    kept[at] = False
    starts = np.concatenate([[0], np.cumsum(kept)])[lists.indptr]
    rest = sparse.csr_array((lists.data[kept], lists.indices[kept], starts), shape=lists.shape)[users]
    top, _ = items.best(rest, min(_TOP, len(items.item_ids)))
    correct, wrong = (torch.zeros(len(held_out), dtype=torch.bool) for _ in range(2))
    hit = (top == removed[:, None]).any(axis=1)
    correct[users[hit]], wrong[users[~hit]] = True, True
    return correct, wrong


def _share(correct: float, wrong: float, noise: float, most: int) -> Interval:
    """Return c / (c + w) of noisy counts with an interval; its error is ((1 - a) Z_c - a Z_w) / (c + w)."""
    total = min(max(1.0, correct + wrong), max(1.0, float(most)))
    value = min(1.0, max(0.0, correct / total))
    half = 1.96 * noise * math.hypot(value, 1 - value) / total
    return Interval(value, max(0.0, value - half), min(1.0, value + half))
