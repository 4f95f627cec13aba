"""The contract of an estimator: public configuration in, a graph to fit, predictions and a guarantee out."""

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil._threads import one_thread
from graphveil.errors import ArtifactError, ConfigError, GraphError, NotYetError, UnitError
from graphveil.graph import EdgeSet, Graph
from graphveil.graph.graph import CLASSES_FROM_LABELS
from graphveil.graph.recipes import CLASSES_PUBLIC, RANGES_PUBLIC
from graphveil.models.cards import ReleaseRow, release_rows
from graphveil.models.inference.cache import Answer, PredictionCache
from graphveil.models.inference.ledger import PredictionLedger
from graphveil.models.inference.requests import PredictionRequest, check_subject, questions
from graphveil.models.requirements import check_kind, check_parameters, check_promise
from graphveil.models.session import OnProgress, Session, pick_device, silent
from graphveil.models.training.private import check_members, members
from graphveil.privacy import (
    Composed,
    DirectedEdge,
    Guarantee,
    NodeFeatures,
    NodeUnit,
    NoUnit,
    UndirectedEdge,
    Unit,
    check_delta,
    ledger_of,
    parse_unit,
)
from graphveil.privacy.figures import delta_up, figure_up
from graphveil.privacy.gaussian import epsilon_of
from graphveil.privacy.guarantee import Mode
from graphveil.privacy.wording import EdgeUse
from graphveil.release import (
    AccuracyCountQuery,
    DPSGDQuery,
    Engine,
    PushQuery,
    Release,
    ReleaseKey,
    ReleasePlan,
)
from graphveil.release.release import check_weights
from graphveil.train import EpochRecord

State = dict[str, Tensor]

SEEDED = "the noise is reproducible from a seed"
_SAID_ANYWAY = (
    CLASSES_FROM_LABELS,
    CLASSES_PUBLIC,
    RANGES_PUBLIC,
)  # every statement about an edge begins with it


@dataclass(kw_only=True, eq=False)
class Estimator(ABC):
    """Base of all models. Every constructor keyword is public configuration; data are call arguments.

    Args:
        unit: what is protected; never guessed.
        epsilon: the budget; not needed for unit ``none`` or a model that does not read the edges.
        delta: a number, or ``"auto"``.
        mode: ``"strict"``, or ``"paper"`` to reproduce a paper with its own accounting and flaws.
        seed: fixes public randomness (splits, weights, batches); None draws a fresh one.
        unsafe_noise_seed: also fixes the noise, for tests and paper mode, and voids the guarantee.
        max_units: public bound on the number of protected units, for ``delta="auto"``.
        degree_budget: D of unit ``node-owner``: a node of at most D own edges sends at full weight, one of
            more shares the weight of D. Any public D is safe.
        assured_max_degree: the degree that the data owner promises, for unit ``node-promise``.
        replace_one: for node units: hide which of two records a node has, not only whether it has one.
        private_metrics: for node units: also release noisy counts of correct predictions, so that accuracies
            are covered. Validation and test nodes pay for them, with what training leaves of their budget.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
    """

    method: ClassVar[str]
    reads_edges: ClassVar[bool] = True
    local: ClassVar[bool] = False  # whether records are randomised before the method sees them
    grows: ClassVar[bool] = False  # whether a graph that has grown can be asked for its new rows alone
    node_units: ClassVar[tuple[str, ...]] = ()  # those whose guarantee the method can give
    needs_degree_budget: ClassVar[bool] = False  # for unit node-owner
    paper_deviations: ClassVar[tuple[str, ...]] = ("a paper's own algorithm and accounting, not proved here",)

    unit: str | None = None
    epsilon: float | None = None
    delta: float | str = "auto"
    mode: Mode = "strict"
    seed: int | None = None
    unsafe_noise_seed: int | None = None
    max_units: int | None = None
    degree_budget: int | None = None
    assured_max_degree: int | None = None
    replace_one: bool = False
    private_metrics: bool = False
    device: str = "auto"

    guarantee_: Guarantee | None = field(default=None, init=False, repr=False)
    proba_: Tensor | None = field(default=None, init=False, repr=False)
    history_: list[tuple[str, EpochRecord]] = field(default_factory=list, init=False, repr=False)
    seconds_: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    private_accuracy_: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    class_names_: tuple[str, ...] = field(default=(), init=False, repr=False)
    aggregates_: State = field(default_factory=dict, init=False, repr=False)
    plan_: ReleasePlan | None = field(default=None, init=False, repr=False)
    ids_: npt.NDArray[Any] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the configuration."""
        self._answers = PredictionCache()
        self._told = PredictionLedger(EdgeSet())  # of a model from a file: edges that nobody here has
        self._without_rows = False  # loaded from a release that may not hold its predictions
        self._shape: dict[str, int] = {}  # what the networks are built for
        self._sizes: dict[str, int] = {}  # further public sizes of the graph that a plan is for
        self._check_config()

    # -- configuration -------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor keywords."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}

    def set_params(self, **params: Any) -> Self:
        """Set constructor keywords; an unknown one is an error that suggests the nearest."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ConfigError(
                    f"{name!r} is not a parameter of {self.method}{_check.suggestion(name, known)}; "
                    f"parameters are {', '.join(known)}"
                )
        self._assign(params)
        try:
            self._check_config()
        except Exception:
            self._assign(known)
            raise
        return self

    def _configuration(self) -> str:
        """Return what a resumed fit has to have in common with the first one, as text."""
        shared = {k: v for k, v in self.get_params().items() if k not in ("device", "unsafe_noise_seed")}
        return repr(sorted(shared.items()))

    def _assign(self, params: dict[str, Any]) -> None:
        for name, value in params.items():
            setattr(self, name, value)

    @property
    def protected_unit(self) -> Unit:
        """The unit of protection."""
        return parse_unit(self.unit, replace_one=self.replace_one, max_degree=self.assured_max_degree)

    # -- fitting -------------------------------------------------------------------------------------------

    def plan(self, *, num_nodes: int, num_classes: int) -> ReleasePlan | None:
        """Return what a fit would ask of the protected data and what that costs, or None for nothing.

        Only public shapes go in; nothing is spent.
        """
        if not self._spends:
            return None
        return self._plan(self._delta(num_nodes), num_nodes, num_classes)

    def promise(self, graph: Graph) -> tuple[ReleasePlan | None, Guarantee]:
        """Check the graph as ``fit`` does, and return the plan and the guarantee of a fit; nothing is spent.

        Only public shapes and flags of the graph are read.
        """
        check_kind(graph)
        pick_device(self.device)  # a fit would find out that it is missing after it has booked
        self._check_graph(graph)
        self._sizes = {"features": graph.num_features, "records": len(members(graph, "train"))}
        plan = self._plan_for(graph)
        if plan is not None:
            check_weights(plan, graph.adjacency)
        return plan, self._guarantee_for(plan, graph)

    @one_thread()
    def fit(self, graph: Graph, *, on_progress: OnProgress = silent, workspace: Path | None = None) -> Self:
        """Train on a graph's training nodes, select on its validation nodes, and predict all its nodes.

        The release is booked in the graph's budget before the edges are read; a second ``fit`` books a second
        one. With a ``workspace`` folder an interrupted fit resumes there, at no further cost.

        Raises:
            UnitError: the unit does not fit the graph.
            GraphError: the graph has no split or a part of it is empty.
            BudgetError: the graph's budget refuses the release.
        """
        started = time.perf_counter()
        context = Session(
            PublicStreams(self.seed),
            on_progress,
            workspace,
            device=pick_device(self.device),
            configuration=self._configuration(),
        )
        with context.stage("calibrate"):
            plan, self.guarantee_ = self.promise(graph)
        self.proba_, self.aggregates_, self.private_accuracy_ = None, {}, {}
        self._answers, self._told = PredictionCache(), PredictionLedger(graph.edge_set)
        self._shape = {"features": graph.num_features, "classes": graph.num_classes}
        self.plan_, self.class_names_, self.ids_ = plan, graph.class_names, graph.ids
        self.proba_ = self._fit(graph, plan, context)
        rows = tuple(self.aggregates_.values())
        self._answers.keep(graph.adjacency.version, graph.x, Answer(plan, rows, self.proba_))
        self.history_ = context.history
        self.seconds_ = {**context.seconds, "total": time.perf_counter() - started}
        return self

    @one_thread()
    def predict_proba(
        self, graph: Graph | None = None, *, disjoint_edges: bool = False, disjoint_people: bool = False
    ) -> Tensor:
        """Return class probabilities (N, C): of the fitted graph for free, of another one at its price.

        What was predicted once is free from then on, and the same to the last bit, as long as the graph's
        edges are in memory. A graph that has grown (:meth:`Graph.grow`) from one that was predicted pays for
        its new edges alone, and its old nodes keep their predictions. Other features on the same edges are
        another question.

        Args:
            graph: by default the fitted one.
            disjoint_edges: your word that the graph shares no edge with the fitted one, nor with any other
                that this model has predicted: its release is then booked on its own edges only, and counts
                beside the others, not on top of them. Without it, it counts on top of all of them.
            disjoint_people: the same for people, under unit ``node-features``: your word that nobody in the
                graph is in the fitted one, nor in any other that this model has predicted.

        Raises:
            UnitError: the unit does not fit the graph, or protects records, of which edges say nothing.
            ConfigError: the edges are known to be those of the fitted graph.
            GraphError: the graph has other features than the fitted one.
            BudgetError: a budget refuses the release, which is then not booked; of a graph that has grown in
                several steps, those before it may be, and are kept.
            NotYetError: the method does not predict other graphs.
        """
        if graph is None:
            return self._fitted()
        self._check_fitted()
        for question in self._questions(graph, disjoint_edges, disjoint_people):
            question.ask(self)
        known = self._answers.find(graph.adjacency.version, graph.x)
        return self._predict_other(graph) if known is None else known.proba

    def price(
        self, graph: Graph, *, disjoint_edges: bool = False, disjoint_people: bool = False
    ) -> Guarantee | None:
        """Return what predicting another graph would cost, or None if that asks nothing under a budget.

        It is the guarantee of that graph's release alone, and no more valid than the model's own; a graph
        that was predicted before has no price. Nothing is spent. Arguments and errors are those of
        :meth:`predict_proba`; :meth:`guarantee_after` says what everything together would then be.
        """
        self._check_fitted()
        asked = self._questions(graph, disjoint_edges, disjoint_people)
        if not asked:
            return None
        first, *others = asked
        told = PredictionLedger(first.graph.edge_set)
        for question in others:
            question.enter(told)
        return told.with_fit(first.price)

    def guarantee_after(
        self, graph: Graph, *, disjoint_edges: bool = False, disjoint_people: bool = False
    ) -> Guarantee:
        """Return what :attr:`guarantee_with_predictions` would be after predicting this graph, too."""
        self._check_fitted()
        told = self._told.copy()
        for question in self._questions(graph, disjoint_edges, disjoint_people):
            question.enter(told)
        return told.with_fit(self.guarantee)

    def predict(
        self, graph: Graph | None = None, *, disjoint_edges: bool = False, disjoint_people: bool = False
    ) -> Tensor:
        """Return class numbers, shape (N); see :meth:`predict_proba`."""
        proba = self.predict_proba(graph, disjoint_edges=disjoint_edges, disjoint_people=disjoint_people)
        return proba.argmax(dim=1)

    def score(self, graph: Graph, split: str = "test") -> float:
        """Return the accuracy on one part of a graph's split."""
        mask = graph.mask(split)
        return float((self.predict(graph)[mask] == graph.y[mask]).float().mean())

    @property
    def guarantee(self) -> Guarantee:
        """What the fitted object promises: its weights, its rows, its predictions of the fitted graph."""
        if self.guarantee_ is None:
            raise ConfigError("the model is not fitted yet; call fit(graph) first")
        return self.guarantee_

    @property
    def guarantee_with_predictions(self) -> Guarantee:
        """What the fit and all predictions of other graphs promise together.

        Releases that may have told about one edge add up; graphs that were asserted to share no edge, and
        the steps in which a graph grew, count with the largest figure.
        """
        return self._told.with_fit(self.guarantee)

    # -- files ---------------------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, per_node: str | Path | None = None) -> None:
        """Write the publishable part of a run to a folder, atomically (``graphveil.load_model`` reads it).

        Under node units predictions are no part of it; ``per_node`` names a second folder for what is
        withheld, of which row v is only for someone entitled to v's record.
        """
        from graphveil.models.storage import save_model

        save_model(self, Path(folder), per_node=None if per_node is None else Path(per_node))

    # -- what a method defines -----------------------------------------------------------------------------

    @abstractmethod
    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        """Return the calibrated plan of a method that reads private edges."""

    @abstractmethod
    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: Session) -> Tensor:
        """Train, keep what later predictions need, and return probabilities (N, C)."""

    @abstractmethod
    def _predict_other(self, graph: Graph) -> Tensor:
        """Return probabilities of a graph that was not fitted, where that asks nothing under a budget."""

    def _answer(self, graph: Graph, plan: ReleasePlan, context: Session, kept: Answer | None) -> Answer:
        """Ask the edges of a graph that was not fitted, under the plan, and return rows and probabilities.

        With ``kept``, what is known of its first nodes, the graph has the new edges alone, and the rows of
        its other nodes alone are asked for.
        """
        return Answer(plan, (), self._predict_other(graph))

    @abstractmethod
    def _state(self) -> State:
        """Return the trained weights."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Rebuild the networks from ``self._shape`` and the weights."""

    def _plan_for(self, graph: Graph) -> ReleasePlan | None:
        """Return the plan for a graph; only its public shape and split may be read."""
        return self.plan(num_nodes=graph.num_nodes, num_classes=graph.num_classes)

    def _plan_of_other(self, graph: Graph) -> ReleasePlan | None:
        """Return the plan for predicting a graph that was not fitted; only its public shape may be read."""
        return self.plan(num_nodes=graph.num_nodes, num_classes=self._shape["classes"])

    def _check_other(self, plan: ReleasePlan) -> None:
        """Refuse a plan for another graph that the method has no answer from."""
        if any(query.groups > 1 for query in plan.queries):
            raise NotYetError(
                f"{self.method} with unit {self.unit!r} asks by who has a public label, which another graph "
                "need not say, and does not yet predict one; fit it on that graph (its own release and "
                "budget), or use gap, which predicts other graphs"
            )

    def _edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return how edges are used under a node unit: ``read`` is for a prediction from its own list."""
        of_edges = [query for query in plan.queries if not isinstance(query, DPSGDQuery | AccuracyCountQuery)]
        return "asked" if of_edges else "never"

    # -- shared parts --------------------------------------------------------------------------------------

    def _questions(
        self, graph: Graph, disjoint_edges: bool, disjoint_people: bool
    ) -> Sequence[PredictionRequest]:
        """Return what predicting a graph asks under a budget: nothing if it was predicted before."""
        check_subject(self, disjoint_edges, disjoint_people)
        if self._answers.find(graph.adjacency.version, graph.x) is not None:
            return []
        self._check_unit(graph)
        self._check_features(graph)
        plan = self._plan_of_other(graph)
        if plan is None:
            return []
        check_weights(plan, graph.adjacency)
        self._check_other(plan)
        return questions(self, graph, plan, disjoint_edges)

    def release_rows(self, plan: ReleasePlan | None) -> tuple[ReleaseRow, ...]:
        """Return what a fit under a plan releases, in order, after :meth:`promise` or :meth:`fit`."""
        return () if plan is None else release_rows(plan)

    def _price_of(self, plan: ReleasePlan, graph: Graph) -> Guarantee:
        """Return the guarantee of another graph's release alone, no more valid than the model's own."""
        return self._guarantee_for(plan, graph).with_deviations(*self.guarantee.deviations)

    def _release(
        self,
        plan: ReleasePlan,
        graph: Graph,
        context: Session,
        groups: Tensor | None = None,
        *,
        engine: Engine | None = None,
    ) -> Release:
        """Open this method's release on a graph: booked here, before its edges are read.

        A release that was begun with a seed stays reproducible in a fit that resumes it without one.
        """
        key = (
            None
            if self.unsafe_noise_seed is None
            else ReleaseKey.from_seed(self.unsafe_noise_seed, self.method)
        )
        release = Release(
            plan,
            graph.adjacency,
            groups,
            budget=context.budget or ledger_of(graph.edge_set),
            key=key,
            engine=engine,
            journal=context.journal(),
            label=self.method,
        )
        context.on_booked()
        if release.reproducible:
            self.guarantee_ = self.guarantee.with_deviations(SEEDED)
        return release

    def _guarantee_for(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        unit = self.protected_unit
        delta = self._delta(graph.num_nodes) if plan is None else plan.delta
        if isinstance(unit, NoUnit):
            return Guarantee.of(unit, Composed(()), delta=delta, releases=0, mode=self.mode)
        guarantee = Guarantee.of(
            unit,
            Composed(()) if plan is None else plan.event,
            delta=delta,
            releases=0 if plan is None else len(plan.queries),
            slack=0.0 if plan is None else plan.slack,
            mode=self.mode,
            deviations=(() if plan is None else self._deviations(plan, graph)) + graph.deviations,
            notes=self._notes(graph),
            one_way=plan is None or plan.one_way,
            edge_use="asked" if plan is None else self._edge_use(plan),
            edge_mu=None if plan is None else _edge_mu(plan, graph.num_nodes),
        )
        twice = plan is not None and isinstance(unit, DirectedEdge) and not graph.directed
        return guarantee.with_deviations(_stored_twice(guarantee)) if twice else guarantee

    def _deviations(self, plan: ReleasePlan, graph: Graph) -> tuple[str, ...]:
        """Return why this method's release keeps no promise, in words; empty if it does."""
        found = list[str]()
        if self.mode == "paper":
            found += self.paper_deviations
        if self.unsafe_noise_seed is not None:
            found.append(SEEDED)
        return tuple(found)

    def _notes(self, graph: Graph) -> tuple[str, ...]:
        """Return what the statement has to add about the data."""
        if isinstance(self.protected_unit, NodeUnit):
            return tuple(dict.fromkeys((CLASSES_PUBLIC, *graph.notes)))
        return tuple(note for note in graph.notes if note not in _SAID_ANYWAY)

    @property
    def _spends(self) -> bool:
        """Whether a fit asks anything under a budget: of secret edges, or of secret records."""
        unit = self.protected_unit
        return isinstance(unit, NodeUnit) or (self.reads_edges and not isinstance(unit, NoUnit))

    def _budgeted(self) -> float:
        """Return epsilon, which every unit but ``none`` was checked to have."""
        if self.epsilon is None:
            raise ConfigError(f"{self.method} needs epsilon= for unit {self.unit!r}")
        return self.epsilon

    def _delta(self, num_nodes: int) -> float:
        return check_delta(self.protected_unit, self.delta, self.max_units or num_nodes)

    def _check_fitted(self) -> None:
        if self.proba_ is None and not self._without_rows:
            raise ConfigError("the model is not fitted yet; call fit(graph) first")

    def _fitted(self) -> Tensor:
        self._check_fitted()
        if self.proba_ is None:
            raise ArtifactError(
                f"this release holds no predictions: under unit {self.unit!r} the prediction for a node is "
                "only for someone entitled to its record. Load the run folder that has per_node/ beside "
                "release/, or name that folder: load_model(..., per_node=...)"
            )
        return self.proba_

    def _check_config(self) -> None:
        """Check every public parameter; called on construction and by ``set_params``."""
        _check.switch(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.type is bool})
        unit = self.protected_unit
        check_parameters(self, unit)
        _check.one_of(("strict", "paper"), mode=self.mode)
        _check.one_of(("auto", "cpu", "cuda"), device=self.device)
        if self.epsilon is not None:
            _check.positive(epsilon=self.epsilon)
        elif self._spends:
            raise ConfigError(
                f"{self.method} with unit {unit.name!r} needs a budget: pass epsilon= (or --epsilon), "
                "for example 1.0, or unit 'none' for the non-private reference"
            )
        if self.delta != "auto":
            check_delta(unit, self.delta, 1)
        for name in ("seed", "unsafe_noise_seed"):
            if getattr(self, name) is not None:
                _check.integer_at_least(0, **{name: getattr(self, name)})
        for name in ("max_units", "degree_budget", "assured_max_degree"):
            if getattr(self, name) is not None:
                _check.integer_at_least(1, **{name: getattr(self, name)})

    def _check_graph(self, graph: Graph) -> None:
        """Refuse a graph that the unit or the training cannot use, before anything is spent.

        Under a node unit labels are secret, so membership in the split is all that may be asked about them.
        """
        self._check_unit(graph)
        if isinstance(self.protected_unit, NodeUnit):
            check_members(graph, "train", *(("val", "test") if self.private_metrics else ()))
            return
        if torch.unique(graph.y[graph.labelled]).numel() < 2:
            raise GraphError("the labels hold fewer than two classes, so there is nothing to learn")
        for split in ("train", "val"):
            if not bool(graph.mask(split).any()):
                raise GraphError(f"the split has no labelled {split} nodes; give it some")

    def _check_unit(self, graph: Graph) -> None:
        """Refuse a graph whose edges are not what the unit protects."""
        unit = self.protected_unit
        if (
            isinstance(unit, DirectedEdge)
            and not graph.directed
            and self.mode == "strict"
            and self.reads_edges
        ):
            self._refuse_directed(graph)
        if isinstance(unit, UndirectedEdge) and graph.directed and self.reads_edges:
            raise UnitError(
                "the graph is directed and unit 'undirected-edge' protects friendships: use "
                "unit='directed-edge', or load the graph with directed=False (without --directed)"
            )
        if self.reads_edges:
            check_promise(graph, unit)
        weighted = self.reads_edges and graph.adjacency.weights is not None
        if weighted and isinstance(unit, NoUnit | NodeUnit | NodeFeatures):
            raise NotYetError(
                f"{self.method} with unit {unit.name!r} does not yet read the weights of edges; drop them "
                "(adjacency.without_weights(), or no --weight)"
            )

    def _check_features(self, graph: Graph) -> None:
        """Refuse a graph whose rows the fitted networks cannot read."""
        if graph.num_features != self._shape["features"]:
            raise GraphError(
                f"the graph has {graph.num_features} features and the model was trained on "
                f"{self._shape['features']}; give it the same columns"
            )

    def _refuse_directed(self, graph: Graph) -> None:
        if self.epsilon is None:
            return
        delta = self._delta(graph.num_nodes)
        from graphveil.privacy.gaussian import mu_of

        actual = epsilon_of(2**0.5 * mu_of(self.epsilon, delta), delta)
        raise UnitError(
            f"unit 'directed-edge' at epsilon {figure_up(self.epsilon)} protects one stored edge, and this "
            "graph is undirected: every friendship is stored as two edges, which are protected together at "
            f"epsilon {figure_up(actual)} (delta {delta_up(delta)}) only. Use unit='undirected-edge' (--unit "
            "undirected-edge), or mode='paper' (--mode paper) to reproduce the paper with this deviation "
            "listed"
        )


def _stored_twice(guarantee: Guarantee) -> str:
    """Return what is wrong with a claim about stored edges where every friendship is stored twice."""
    return (
        "an undirected edge is stored twice and the claim is about one stored edge: a friendship is "
        f"protected at eps = {figure_up(guarantee.mutual_epsilon)} only"
    )


def _edge_mu(plan: ReleasePlan, num_nodes: int) -> float | None:
    """Return the mu of one mutual edge under unit ``node-owner``, which stands on two lists; None without.

    Steps and tallies are the same for both graphs, given what was released before them.
    """
    pushes = [query for query in plan.queries if isinstance(query, PushQuery)]
    return math.hypot(*(push.edge_shift(num_nodes) / push.sigma for push in pushes)) if pushes else None


def nodes_of(mask: Tensor) -> Tensor:
    """Return the node indices of a mask."""
    return torch.from_numpy(np.flatnonzero(mask.numpy()))
