"""Recommendations from a released item-item matrix: which items are on lists together.

Two noisy sums are released: the popularity of every item, and the products of lists over popular items,

    M = sum_u z_u z_u^T + noise,    z_u = 1 / sqrt(max(n_u, D)) at each of the n_u items on the list of u.

Noise alone has eigenvalues up to s = sigma sqrt(2 m) for m items. From the positive part M+ of M follows the
closed form of a linear model that predicts each item from the other items on a list (Steck: Embarrassingly
shallow autoencoders for sparse data, 2019), with a ridge penalty in proportion to the noise:

    P = (M+ + c s I)^-1,    B_ij = -P_ij / P_jj,    B_jj = 0.

A user's scores are the sum of the rows of B over the user's own list.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil._util.files import as_path
from graphveil._util.threads import one_thread
from graphveil.core.noise.random import PublicStreams
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
from graphveil.core.unit import DirectedEdge, NodeRecord, NoUnit, Unit, parse_unit
from graphveil.core.view import map_records, protected_view
from graphveil.data.interactions import Interactions, Lists, as_lists, lists_of, positions
from graphveil.errors import ConfigError, GraphError, UnitError
from graphveil.estimators.method import FitPreview
from graphveil.estimators.privacy_config import SEEDED, PrivacyConfig, plan_guarantee
from graphveil.estimators.session import Session
from graphveil.links.folder import LinkRecord, card_metrics, read_link_folder, write_link_folder
from graphveil.privacy import Guarantee
from graphveil.publish.cards import PairCard
from graphveil.publish.queries import release_rows
from graphveil.publish.results import RECOMMENDER
from graphveil.training.metrics import Interval

_POPULARITY, _METRICS = 0.1, 0.05  # shares of mu^2; the products have the rest
_ABOVE_NOISE = 3.0  # standard deviations of the noise that the popularity of a modeled item exceeds
_PENALTY = 0.6  # of the largest eigenvalue of the noise
_MIN_PENALTY = 3.0  # without noise: lists of length one are not predicted with certainty
_EDGE_LENGTH = 20  # D under an edge-level unit: shorter lists count less, and noise falls with 1 / sqrt(D)
_HELD_OUT = 0.1  # share of users whose lists measure the hit rate only
_TOP = 10  # items of the hit rate
_AT_ONCE = 1 << 24  # scores held at once
_LIMITS = (
    "Recommendations for a user read the exact list of this user. They are not covered by the guarantee: "
    "show them to this user only.",
    "Items outside the matrix are ranked by popularity, after all others.",
)

Floats = npt.NDArray[np.float64]


class Recommendations(NamedTuple):
    """The best items of each user, best first: ids (Q, k), and scores float64 (Q, k).

    Both are masked arrays: the places of a user with fewer than k items left are masked at the end of the
    row, and ``items[u].compressed()`` returns the items of user u.
    """

    items: "np.ma.MaskedArray[Any, Any]"
    scores: "np.ma.MaskedArray[Any, Any]"


@dataclass(frozen=True, eq=False)
class ItemModel:
    """The released part of a recommender: all of it may be published.

    Args:
        item_ids: Id of each item (I).
        popularity: Noisy sum over users of 1 / sqrt(length of the list), or noisy number of users, (I).
        modeled: Items with a row in ``similarity``, most popular first (m).
        similarity: Score that an item on a list (row) adds to another item (column), (m, m).
    """

    item_ids: npt.NDArray[Any]
    popularity: Floats
    modeled: npt.NDArray[np.int64]
    similarity: Floats

    @cached_property
    def ranking(self) -> npt.NDArray[np.int64]:
        """All items: those with a row in ``similarity``, then all others, both by popularity (I)."""
        by_popularity = np.argsort(-self.popularity, kind="stable")
        return np.concatenate([self.modeled, by_popularity[~np.isin(by_popularity, self.modeled)]])

    def best(self, lists: Lists, k: int, *, omit_own: bool = True) -> tuple[npt.NDArray[np.int64], Floats]:
        """Return indices and scores of the k best items for some lists, (Q, k) each, best first.

        Items without a row in ``similarity`` come after all others. Popularity decides ties.
        """
        found, values = [np.empty((0, k), dtype=np.int64)], [np.empty((0, k))]
        longest = int(np.diff(lists.indptr).max(initial=0))
        candidates = self.ranking[: len(self.modeled) + k + longest]  # no other item can be among the best
        behind = -np.arange(1, len(candidates) + 1) / len(self.ranking)  # the same in every call
        at_once = max(1, _AT_ONCE // len(candidates))
        for first in range(0, lists.shape[0], at_once):
            own = lists[first : first + at_once][:, candidates].astype(np.float64)
            scores = np.tile(behind, (own.shape[0], 1))
            if len(self.modeled):
                modeled = np.asarray(own[:, : len(self.modeled)] @ self.similarity)
                scores += modeled.min(axis=1, keepdims=True)
                scores[:, : len(self.modeled)] = modeled
            if omit_own:
                scores[own.nonzero()] = -np.inf
            top = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            found.append(candidates[top])
            values.append(np.take_along_axis(scores, top, axis=1))
        return np.concatenate(found), np.concatenate(values)


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender:
    """Recommend items to users from the lists of all users, and protect each list or each entry.

    One release of two noisy sums gives the popularity of items and an item-item matrix, which are public.
    Recommendations for a user combine them with the user's own list. Popular items are modeled, as far as
    their noisy popularity exceeds its noise; all others are ranked by popularity after them.

    Args:
        unit: ``"node-record"`` for the whole list of a user, ``"directed-edge"`` for one entry of a list, or
            ``"none"`` for a non-private reference.
        epsilon, delta: Budget of a fit. ``delta="auto"`` depends on the public number of users.
        replace_one: Whether neighboring datasets have two different lists of a user, instead of a list and an
            empty one.
        max_items: Maximum number of modeled items.
        private_metrics: Whether a fit also releases the hit rate of ``private_metrics_``. A public random
            tenth of the users is then held out, and their lists are not fitted.
        seed: Seed of the held-out users.
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

    unit: str = "node-record"
    epsilon: float | None = None
    delta: float | str = "auto"
    replace_one: bool = False
    max_items: int = 1024
    private_metrics: bool = False
    seed: int = 0
    unsafe_noise_seed: int | None = None
    max_units: int | None = None
    guarantee: Guarantee | None = field(init=False, default=None)
    plan_: ReleasePlan | None = field(init=False, default=None)
    _items: ItemModel | None = field(init=False, default=None)
    _metrics: dict[str, Interval] | None = field(init=False, default=None)
    _users: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        checks.plain_fields(self)
        _ = self._config

    def __repr__(self) -> str:
        """Show parameters and whether the model is fitted."""
        state = "fitted" if self._items is not None else "not fitted"
        return f"Recommender(unit={self.unit!r}, epsilon={self.epsilon}, {state})"

    @property
    def items_(self) -> ItemModel:
        """The released item model."""
        if self._items is None:
            raise ConfigError("This recommender is not fitted. Call fit(table) first.")
        return self._items

    @property
    def private_metrics_(self) -> dict[str, Interval] | None:
        """The released hit rate of held-out users; None without ``private_metrics``."""
        return self._metrics

    @property
    def _config(self) -> PrivacyConfig:
        """Return unit and budget, checked."""
        checks.switch(replace_one=self.replace_one, private_metrics=self.private_metrics)
        checks.integer_at_least(1, max_items=self.max_items)
        checks.within(1, MAX_COLUMNS, max_items=self.max_items)
        checks.integer_at_least(0, seed=self.seed)
        for name in ("max_units", "unsafe_noise_seed"):
            if getattr(self, name) is not None:
                checks.integer_at_least(int(name == "max_units"), **{name: getattr(self, name)})
        unit: Unit = parse_unit(self.unit, max_degree=1)
        if not isinstance(unit, NodeRecord | DirectedEdge | NoUnit):
            raise UnitError(
                "A recommender protects the whole list of a user or one entry of it, but unit "
                f"{unit.name!r} protects neither. Use unit='node-record' for lists, or "
                "unit='directed-edge' for single entries."
            )
        if not isinstance(unit, NodeRecord) and (self.replace_one or self.private_metrics):
            raise UnitError(
                "replace_one and private_metrics need a unit that protects whole lists, but unit "
                f"{unit.name!r} does not. Remove both, or use unit='node-record'."
            )
        if isinstance(unit, NodeRecord):
            unit = NodeRecord(replace_one=self.replace_one)
        if isinstance(unit, NoUnit):
            return PrivacyConfig(unit=unit)
        if self.epsilon is None:
            raise ConfigError(
                f"Unit {unit.name!r} needs a privacy budget. Pass epsilon=, for example epsilon=1.0, or "
                "unit='none' for the non-private reference."
            )
        checks.positive(epsilon=self.epsilon)
        config = PrivacyConfig(
            unit=unit,
            epsilon=float(self.epsilon),
            delta=self.delta,
            max_units=self.max_units,
            unsafe_noise_seed=self.unsafe_noise_seed,
        )
        config.delta_for(1)
        return config

    @one_thread()
    def plan(self) -> ReleasePlan:
        """Return the query plan of a fit with ``max_units`` users or entries; no size affects its noise."""
        return self._plan(self.max_units or 1, self.max_items)

    @one_thread()
    def preview(self, table: Interactions) -> FitPreview:
        """Return plan, guarantee and outputs of a fit. No list is read and nothing is charged.

        Args:
            table: Table to fit.

        Returns:
            Query plan, guarantee, and a description of each output.

        Raises:
            GraphError: If it is no ``Interactions``.
            ConfigError: If the budget is too small for any noise.
            UnitError: Under unit ``none``, which has no plan.

        Privacy:
            Reads: public sizes. Charges: nothing.

        >>> table = Interactions.from_matrix(np.eye(30))
        >>> Recommender(epsilon=1.0, delta=1e-5).preview(table).guarantee.epsilon <= 1.0
        True
        """
        plan, guarantee = self._prepare(table)
        if plan is None or guarantee is None:
            raise UnitError("Unit 'none' protects nothing and has no query plan. Use unit='node-record'.")
        return FitPreview(plan, guarantee, release_rows(plan))

    @one_thread()
    def fit(self, table: Interactions, workspace: Path | str | None = None) -> "Recommender":
        """Release popularity and products of lists, and compute the item model.

        Args:
            table: User-item table.
            workspace: Private folder in which an interrupted fit can be resumed without another charge.

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
        plan, guarantee = self._prepare(table)
        self._metrics = None
        folder = None if workspace is None else as_path(workspace, "workspace")
        if plan is None:
            lists = table.lists().astype(np.float64)
            lengths = np.maximum(np.diff(lists.indptr), 1)
            popularity = np.asarray(lists.sum(axis=0), dtype=np.float64).ravel()
            modeled = self._modeled(popularity, 0.0)
            lists = lists[:, modeled]
            products = (lists.T.multiply(1 / lengths) @ lists).toarray()
            self._items = item_model(table.item_ids, popularity, modeled, products, 0.0)
        else:
            assert guarantee is not None
            seen = replace(table, graph=protected_view(table.graph, plan.unit))
            guarantee = self._release(seen, plan, guarantee, folder)
        self.plan_, self.guarantee, self._users = plan, guarantee, table.num_users
        return self

    @one_thread()
    def recommend(
        self, lists: Interactions | Sequence[Sequence[Any]] | Any, k: int = _TOP, *, omit_own: bool = True
    ) -> Recommendations:
        """Return the best items for each list.

        Args:
            lists: Lists of item ids, a sparse or dense matrix (Q, I) in the order of the catalog, or
                ``Interactions`` with the same catalog for all of its users.
            k: Number of items, at most I.
            omit_own: Whether items on the list itself are omitted. If fewer than k others are left, the row
                has fewer items, and its last places are masked.

        Returns:
            Ids and scores, one row per list, as masked arrays.

        Raises:
            ConfigError: Before ``fit``.
            GraphError: If an id is unknown, or a matrix or table has another catalog.
            ConfigError: If k is outside its range.

        Privacy:
            Reads: the lists, exactly. Charges: nothing. Row u depends on released values and on list u only.
            It is private: show it to the user whose list it is, and to people authorized to access that
            list. With ``omit_own`` the omitted items alone reveal the list.

        >>> table = Interactions.from_matrix([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]])
        >>> Recommender(unit="none").fit(table).recommend([[0], [3]], k=1).items.tolist()
        [[1], [2]]
        """
        items = self.items_
        checks.switch(omit_own=omit_own)
        checks.integer_at_least(1, k=k)
        checks.within(1, len(items.item_ids), k=k)
        top, scores = items.best(_own_lists(lists, items.item_ids), int(k), omit_own=omit_own)
        none_left = np.isneginf(scores)
        found = items.item_ids[top]
        found[none_left] = -1 if found.dtype.kind == "i" else ""  # of nobody's list, also under the mask
        scores = np.where(none_left, np.nan, scores)
        return Recommendations(np.ma.masked_array(found, none_left), np.ma.masked_array(scores, none_left))

    def save(self, folder: Path | str, *, dataset: str | None = None) -> Path:
        """Write the item model, the guarantee and a model card to a new folder, atomically.

        Args:
            folder: Path that does not exist.
            dataset: Name of the data on the model card.

        Returns:
            The folder.

        Raises:
            ConfigError: If the folder exists, or cannot be written.
            ConfigError: Before ``fit``, or under unit ``none``.

        Privacy:
            Charges: nothing. The folder contains no list and no recommendation. It is safe to publish.
        """
        items = self.items_
        if self.guarantee is None or self.plan_ is None:
            raise ConfigError(
                "Unit 'none' has no guarantee, and its exact sums cannot be saved. Fit again with "
                "unit='node-record' and epsilon=1.0."
            )
        plain = {
            "parameters": {name: getattr(self, name) for name in _PARAMETERS},
            "users": self._users,
            "item_ids": items.item_ids.tolist(),
            "metrics": {name: asdict(one) for name, one in (self._metrics or {}).items()},
        }
        arrays = {"popularity": items.popularity, "modeled": items.modeled, "similarity": items.similarity}
        tensors = {name: torch.from_numpy(part) for name, part in arrays.items()}
        card = PairCard(
            method=RECOMMENDER,
            task="recommendation",
            subject=f"An item-item matrix of {len(items.modeled):,} of {len(items.item_ids):,} items, from "
            f"lists of {self._users:,} users.",
            dataset=dataset,
            metrics=card_metrics(self._metrics),
            limits=_LIMITS,
            loader="Recommender",
            call="model.recommend([[first_item, second_item]], k=10)",
        )
        return write_link_folder(folder, RECOMMENDER, plain, tensors, self.guarantee, self.plan_, card)

    @classmethod
    def load(cls, folder: Path | str) -> "Recommender":
        """Read a folder that ``save`` wrote. Its guarantee is computed again from the stored mechanism.

        Args:
            folder: Folder that ``save`` wrote.

        Returns:
            The fitted recommender.

        Raises:
            ArtifactError: If the folder holds no recommender, or is damaged.

        Privacy:
            Unit: that of the release. Reads and charges: nothing.
        """
        return read_link_folder(folder, RECOMMENDER, cls._from_record)

    @classmethod
    def _from_record(cls, record: LinkRecord) -> "Recommender":
        """Return the model of a folder's contents."""
        plain = record.plain
        model = cls(**{name: plain["parameters"][name] for name in _PARAMETERS})
        arrays = {name: part.numpy() for name, part in record.tensors.items()}
        ids, users = np.asarray(plain["item_ids"]), int(plain["users"])
        modeled, shape = arrays["modeled"], (len(arrays["modeled"]),) * 2
        fits = arrays["popularity"].shape == ids.shape and arrays["similarity"].shape == shape
        if not fits or ids.dtype.kind not in "iU" or users < 1:
            raise ValueError
        ids = ids.astype(object) if ids.dtype.kind == "U" else ids
        if len(modeled) and not 0 <= modeled.min() <= modeled.max() < len(ids):
            raise ValueError
        model._items = ItemModel(ids, arrays["popularity"], modeled, arrays["similarity"])
        model._metrics = {name: Interval(**one) for name, one in plain["metrics"].items()} or None
        model.guarantee, model.plan_, model._users = record.guarantee, model._plan(users, len(ids)), users
        return model

    # -- the release ----

    def _prepare(self, table: Interactions) -> tuple[ReleasePlan | None, Guarantee | None]:
        """Return plan and guarantee for a table; both None under unit ``none``."""
        if not isinstance(table, Interactions):
            raise GraphError(
                f"A recommender needs a user-item table, not a {type(table).__name__}. Create one with "
                "gv.Interactions.from_columns, from_matrix or from_pyg."
            )
        config, graph = self._config, table.graph
        if isinstance(config.unit, NoUnit):
            return None, None
        plan = self._plan(table.num_users, table.num_items)
        deviations = () if self.unsafe_noise_seed is None else (SEEDED,)
        return plan, plan_guarantee(
            config, plan, graph, deviations=deviations, notes=graph.notes, edge_use="lists"
        )

    def _plan(self, users: int, items: int) -> ReleasePlan:
        """Return the query plan for a table of this size."""
        config = self._config
        return calibrate_plan(
            config.unit,
            config.budget,
            config.delta_for(users if config.on_records else users + items),
            lambda mu: self._queries(config.unit, mu, items),
            num_nodes=users + items,
        )

    def _queries(self, unit: Unit, mu: float, items: int) -> tuple[Query, ...]:
        """Return the queries of a total mu."""
        of_metrics = _METRICS if self.private_metrics else 0.0
        shares = _POPULARITY, 1 - _POPULARITY - of_metrics
        popularity_mu, products_mu = (mu * math.sqrt(share) for share in shares)
        products = ListProductQuery(
            columns=min(items, self.max_items),
            sigma=1.0,
            out_degree_bound=_EDGE_LENGTH if isinstance(unit, DirectedEdge) else 1,
        )
        products = replace(products, sigma=products.sensitivity(unit) / products_mu)
        if isinstance(unit, DirectedEdge):
            return NeighborSumQuery(GroupWeights.unit_weights(), (1 / popularity_mu,), 1), products
        assert isinstance(unit, NodeRecord)
        queries: tuple[Query, ...] = (OutEdgeSumQuery(dim=1, sigma=unit.change / popularity_mu), products)
        if of_metrics:
            sigma = math.sqrt(unit.change / of_metrics) / mu
            queries = (*queries, OutcomeCountQuery(sigma=sigma))
        return queries

    def _release(
        self, table: Interactions, plan: ReleasePlan, guarantee: Guarantee, workspace: Path | None
    ) -> Guarantee:
        """Answer the plan's queries, store the item model and the hit rate, and return the guarantee."""
        users, nodes, streams = table.num_users, table.graph.num_nodes, PublicStreams(self.seed)
        held_out = np.zeros(users, dtype=bool)
        if self.private_metrics:
            held_out = streams.numpy("held-out users").random(users) < _HELD_OUT
        counted = torch.zeros(nodes, dtype=torch.bool)
        counted[:users] = torch.from_numpy(~held_out)
        session = Session(
            streams=streams,
            plan=plan,
            guarantee=guarantee,
            label="recommender",
            noise_seed=self.unsafe_noise_seed,
            workspace=workspace,
        )
        view = table.graph
        release, (first, products) = session.open(view), plan.queries[:2]
        sent = counted.to(torch.float64)[:, None]
        data = NeighborSumData(sent) if isinstance(first, NeighborSumQuery) else OutEdgeSumData(sent)
        popularity = release.answer(data)[users:, 0].numpy().astype(np.float64)
        assert isinstance(products, ListProductQuery)
        modeled = self._modeled(popularity, first.noise[0])
        columns = torch.full((nodes,), NO_COLUMN, dtype=torch.int64)
        columns[users + torch.from_numpy(modeled)] = torch.arange(len(modeled))
        triangle = release.answer(ListProductData(columns, counted))
        matrix = unpack_products(triangle, products.columns)[: len(modeled), : len(modeled)]
        self._items = items = item_model(table.item_ids, popularity, modeled, matrix, products.sigma)
        if self.private_metrics:
            lists = own_lists(view.adjacency).at(torch.arange(users))
            place = streams.numpy("removed items").random(users)
            tested = torch.from_numpy(held_out), torch.from_numpy(place)
            correct, wrong = map_records(partial(_outcomes, items), lists, *tested)
            hits, misses = release.answer(OutcomeCountData(correct, wrong)).tolist()
            noise = plan.noise_std[-1]
            share = _share(hits, misses, noise, int(held_out.sum()))
            self._metrics = {f"hit_rate_at_{_TOP}": share}
        release.close()
        return session.with_seed(guarantee)

    def _modeled(self, popularity: Floats, noise: float) -> npt.NDArray[np.int64]:
        """Return the items whose popularity exceeds its noise, most popular first."""
        order = np.argsort(-popularity, kind="stable")
        return order[popularity[order] > _ABOVE_NOISE * noise][: self.max_items]


_PARAMETERS = tuple(one.name for one in fields(Recommender) if one.init)


def item_model(
    item_ids: npt.NDArray[Any],
    popularity: Floats,
    modeled: npt.NDArray[np.int64],
    products: Floats,
    sigma: float,
) -> ItemModel:
    """Return the item model of released sums; it is post-processing.

    Args:
        item_ids: Id of each item.
        popularity: Released popularity of each item.
        modeled: Items of the rows of ``products``.
        products: Released products (m, m), symmetric.
        sigma: Standard deviation of the noise on the diagonal; 0 for exact products.
    """
    values, vectors = np.linalg.eigh(products)
    penalty = max(_MIN_PENALTY, _PENALTY * sigma * math.sqrt(2 * len(modeled)))
    inverse = (vectors / (np.maximum(values, 0.0) + penalty)) @ vectors.T
    similarity = -inverse / np.diag(inverse)
    np.fill_diagonal(similarity, 0.0)
    return ItemModel(item_ids, popularity, modeled, similarity)


def _own_lists(given: Any, item_ids: npt.NDArray[Any]) -> Lists:
    """Return given lists as sparse rows over the catalog.

    Raises:
        GraphError: If an id is unknown, or a matrix or table has another catalog.
    """
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
    """Whether a value is no list of ids."""
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
