"""One experiment as plain public configuration, and its plan before anything is computed or spent."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from graphveil._util import checks
from graphveil._util.figures import counted
from graphveil.core.unit import LocalAttributes, NodeRecord, NoUnit, Person, Row, parse_unit
from graphveil.data.tables.encoding import empty_part_message
from graphveil.errors import ConfigError, GraphError, PrivacyError, UnitError
from graphveil.privacy import Guarantee
from graphveil.publish.queries import QueryRow, stages_of
from graphveil.publish.results import LINK_METRICS, RECOMMENDER
from graphveil.runs.parameters import method_class, model_class
from graphveil.runs.source import ListSource, PublicFlags, Source

if TYPE_CHECKING:
    from graphveil.data import Graph, Interactions
    from graphveil.data.recipes import DatasetRecipe
    from graphveil.estimators.base import Estimator
    from graphveil.estimators.method import PreparedFit

_NO_LABELS = ("0", "1")
DEFAULT_RECIPE, LOCAL_RECIPE = "gap", "lpgnn"
MAX_RUNS = 100

_BYTES_A_FEATURE = 12  # float32 features, their encoding, and a gradient's worth of scratch
_BYTES_AN_EDGE = 24  # the tables as they are read, sorted, and stored in compressed rows
_BASE_BYTES = 450 << 20  # the interpreter and its libraries
_SECONDS_A_FEATURE = 1.2e-6
_SECONDS_AN_EDGE = 1.5e-6
_BASE_SECONDS = 2.0


@dataclass(frozen=True)
class Experiment:
    """R runs of one method on one graph: seeds S, S+1, ..., each with its own split.

    Args:
        method: A name of ``METHODS``, or ``"links"`` or ``"recommender"``, which have no recipe and no split.
        source: Source of the graph, or of the lists of all users.
        parameters: Constructor keywords, all but ``seed``.
        recipe: How to prepare and split; None for the default, or for files with a split.
        seed: S, public randomness only.
        compare: Whether to train the no-graph baseline in every run. It reads no edge and has no privacy cost
            at edge level. Under a node-level privacy unit it is another release on the same records, with the
            same budget. Under ``local-attributes`` it learns from the LDP reports of the method, which does
            not spend privacy budget (post-processing).
        public: Under ``edge-subset``: the public edges, and the nodes that may have private ones.
    """

    method: str
    source: Source
    parameters: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    runs: int = 1
    seed: int = 0
    compare: bool = True
    public: PublicFlags = field(default_factory=PublicFlags)

    def __post_init__(self) -> None:
        """Check what can be checked without data; every model of the experiment is built once here."""
        from graphveil.data.recipes import RECIPES

        checks.integer_at_least(1, runs=self.runs)
        checks.within(1, MAX_RUNS, runs=self.runs)
        checks.integer_at_least(0, seed=self.seed)
        if self.recipe is not None:
            checks.one_of(tuple(RECIPES), recipe=self.recipe)
        if self.pairs:
            self._check_pairs()
        self._check_tables()
        _ = self._first
        self.public.check(self.parameters.get("unit"))

    @property
    def pairs(self) -> bool:
        """Whether it is of a link predictor or a recommender."""
        return self.method in LINK_METRICS

    def _check_pairs(self) -> None:
        if parse_unit(self.parameters.get("unit"), max_degree=1).name == NoUnit.name:
            raise UnitError(
                f"A run of {self.method} publishes results, and unit none does not protect them. Choose a "
                "unit, for example --unit undirected-edge for links or --unit node-record for "
                "recommender."
            )
        if self.parameters.get("epsilon") is None:
            raise ConfigError("Missing privacy budget. Set --epsilon, for example --epsilon 1.")
        lists = isinstance(self.source, ListSource)
        if lists != (self.method == RECOMMENDER):
            needs = "has no items" if lists else "needs --items, a table of all items"
            raise ConfigError(f"Method {self.method} {needs}. Correct the command.")

    def _check_tables(self) -> None:
        fits = "graph" if self.pairs else method_class(self.method).fits
        persons = self.source.has_persons
        if persons and (self.pairs or not method_class(self.method).reads_tables):
            raise ConfigError(
                f"Method {self.method} learns from one graph, and these are several tables. Use method "
                "relational, or mlp for the attributes of persons alone."
            )
        if fits == "tables" and not persons:
            raise ConfigError(
                f"Method {self.method} learns from several tables. Set --persons FILE --id COLUMN --label "
                "COLUMN --rows FILE:owner=COLUMN instead of a graph."
            )
        if persons and self.recipe is not None:
            raise ConfigError(
                f"Recipe {self.recipe!r} prepares a graph, and these are several tables. Remove --recipe."
            )

    @cached_property
    def as_published(self) -> bool:
        """Whether the experiment reproduces a paper, flaws included."""
        return not self.pairs and method_class(self.method).as_published

    @property
    def recipe_name(self) -> str | None:
        """The recipe in force: the one named, none for files with a split column, else the method's own."""
        if self.pairs:
            return None
        local = method_class(self.method).is_local(self.parameters.get("unit"))
        default = LOCAL_RECIPE if local else DEFAULT_RECIPE
        return self.recipe or (None if self.source.fixed_split else default)

    @cached_property
    def local(self) -> bool:
        """Whether every node randomizes its record, so that nothing may be computed from raw ones."""
        return self.parameters.get("unit") == "local-attributes"

    @property
    def _recipe(self) -> "DatasetRecipe | None":
        from graphveil.data.recipes import RECIPES

        if self.recipe_name is None:
            return None
        recipe = RECIPES[self.recipe_name]
        by_id = self.local or (self.records and not self.as_published)  # a paper has its own split
        return recipe.on_clients() if by_id else recipe

    @cached_property
    def records(self) -> bool:
        """Whether protected records are held in raw form."""
        from graphveil.core.unit import NodeUnit

        return isinstance(self.model(0).protected_unit, NodeUnit)

    @property
    def preparation(self) -> tuple[str | None, bool, bool]:
        """The key of the prepared graph: experiments with equal keys can share it."""
        return self.recipe_name, self.records or self.local, self.as_published

    @cached_property
    def _first(self) -> "tuple[Any, Estimator | None]":
        """Model and baseline of the first run, built and checked with the experiment; copies are fitted."""
        model = model_class(self.method)(**self._parameters(0))
        return model, self._build_baseline(model)

    def model(self, run: int) -> Any:
        return model_class(self.method)(**self._parameters(run)) if run else copy(self._first[0])

    def baseline(self, run: int) -> "Estimator | None":
        """Return an unfitted no-graph baseline of a run, if there is to be one.

        If nodes randomize their records, or their features, it is fitted on their reported values: raw
        records are not available anywhere.
        """
        return self._build_baseline(self.model(run)) if run else copy(self._first[1])

    def _build_baseline(self, model: Any) -> "Estimator | None":
        from graphveil.estimators.base import Estimator
        from graphveil.estimators.lifecycle import parameter_names

        if (
            self.pairs
            or self.method == model.baseline
            or not self.compare
            or self.parameters.get("multi_label")
        ):
            return None
        # Without noise no node reports, and a method of LDP reports has the baseline of the others.
        noiseless = model.is_local(self.parameters.get("unit")) and not self.local
        own: Estimator | None = None if noiseless else model.no_graph_baseline()
        if own is not None:
            return own
        shared = {*parameter_names(Estimator), *model.baseline_keywords} - {"out_degree_bound", "backend"}
        kept = {name: value for name, value in model.get_params().items() if name in shared}
        return method_class(model.baseline)(**kept)

    def _parameters(self, run: int) -> dict[str, Any]:
        parameters = {"seed": self.seed + run, **self.parameters}
        if parameters.get("unsafe_noise_seed") is not None:
            parameters["unsafe_noise_seed"] += run
        return parameters

    def read(self) -> "Graph | Interactions":
        if isinstance(self.source, ListSource):
            return self.source.interactions()
        # A graph has classes, also where no node has a label.
        unlabeled = self.pairs and self.source.nodes is not None and self.source.label is None
        return (replace(self.source, classes=_NO_LABELS) if unlabeled else self.source).load()

    def load(self) -> Any:
        return self.prepared(self.read())

    def prepared(self, data: Any) -> Any:
        if self.pairs:
            return data
        graph, recipe = data, self._recipe
        graph = graph.replace(public=self.public.part(graph, self.source, seed=self.seed))
        return graph if recipe is None else recipe.prepare(graph, paper=self.as_published)

    def split(self, data: Any, run: int) -> Any:
        """Return the prepared graph with the split of a run; there must be test nodes.

        Under a unit of records the split comes from ids alone, except a paper's own. If
        records are protected, unlabeled test nodes count too, because labels may not affect this check.
        """
        if self.pairs:
            return data
        graph, recipe = data, self._recipe
        if recipe is not None:
            graph = recipe.split(graph, self.seed + run)
        tested = graph.labeled_in("test")
        members = graph.members("test") if self.records or self.local else tested
        if not bool(members.any()):
            raise GraphError(empty_part_message("test"))
        return graph

    def as_dict(self) -> dict[str, Any]:
        from graphveil.publish.schemas import plain_parameters

        parameters = plain_parameters(dict(self.parameters))
        return {
            "method": self.method,
            **({} if self.pairs else {"recipe": self.recipe_name, "baseline": self.compare}),
            "runs": self.runs,
            "seed": self.seed,
            **{f"data.{name}": value for name, value in self.source.as_dict().items()},
            **{f"public.{name}": value for name, value in self.public.given.items()},
            **{f"set.{name}": value for name, value in sorted(parameters.items())},
        }


# -- the plan ----------------------------------------------------------------------------------------------


def _estimate(graph: "Graph", edges: int, runs: int) -> str:
    cells = graph.num_nodes * graph.num_features
    memory = _BASE_BYTES + cells * _BYTES_A_FEATURE + edges * _BYTES_AN_EDGE
    seconds = _BASE_SECONDS + runs * (cells * _SECONDS_A_FEATURE + edges * _SECONDS_AN_EDGE)
    return f"about {round(memory / 2**20) / 1000:.1f} GB and {seconds:.0f} s for this number of edges"


@dataclass(frozen=True, kw_only=True, eq=False)
class Preview:
    """The plan that is shown before anything is spent.

    ``baseline`` is the guarantee of the no-graph baseline, if that is a separate release. ``fits`` are the
    planned fits of the first run, of the method and of the baseline, which the first run executes.
    """

    experiment: Experiment
    data: "Graph | Interactions"  # prepared, not split yet
    guarantee: Guarantee
    baseline: Guarantee | None
    guarantee_all_runs: Guarantee
    releases: tuple[QueryRow, ...]
    stages: tuple[QueryRow, ...]
    noise_std: tuple[float, ...]
    delta_source: str
    estimate: str = ""  # memory and time
    sample: str = ""  # which nodes are learned from, if not all training nodes
    scaled: str = ""  # which feature columns are scaled, and how
    decision: str = ""  # what a fit decides by what, if it chooses a method
    public: str = ""  # number of public edges, if they are distinguished from private ones
    fits: "tuple[PreparedFit, PreparedFit | None] | None" = None

    @property
    def graph(self) -> "Graph":
        return graph_of(self.data)

    @property
    def sizes(self) -> str:
        data: Any = self.data
        if data is not self.graph:
            return f"{counted(data.num_users, 'user')}, {counted(data.num_items, 'item')}"
        node = "person" if self.experiment.source.has_persons else "node"
        return f"{counted(data.num_nodes, node)}, {counted(data.num_features, 'feature')}"


def graph_of(data: "Graph | Interactions") -> "Graph":
    given: Any = data
    graph: Graph = getattr(given, "graph", given)
    return graph


def preview(experiment: Experiment, data: Any, *, expect_edges: int | None = None) -> Preview:
    """Check everything that can be checked, and return the plan; nothing is spent.

    Args:
        data: The prepared graph, not split yet, or the lists of all users.
    """
    model, baseline, split = experiment.model(0), experiment.baseline(0), experiment.split(data, 0)
    prepared = model.prepare(split)
    prepared_baseline = None if baseline is None else baseline.prepare(split)
    plan, guarantee = prepared.plan, prepared.guarantee
    baseline_guarantee = None if prepared_baseline is None else charged_guarantee(prepared_baseline.guarantee)
    a_run = [guarantee] if baseline_guarantee is None else [guarantee, baseline_guarantee]
    graph, public = graph_of(data), graph_of(split).public
    return Preview(
        experiment=experiment,
        data=data,
        guarantee=guarantee,
        baseline=baseline_guarantee,
        guarantee_all_runs=combined_guarantee(a_run * experiment.runs),
        releases=prepared.rows,
        stages=stages_of(plan),
        noise_std=() if plan is None else tuple(plan.noise_std),
        delta_source=_delta_source(model, guarantee, data),
        sample="" if experiment.pairs else model.training_sample_note(split),
        scaled=prepared.scaling_summary,
        decision=prepared.method.decision,
        public=""
        if public is None
        else f"{public.num_edges:,} public edges; {public.num_private_nodes:,} of "
        f"{graph.num_nodes:,} nodes may have private ones",
        estimate="" if expect_edges is None else _estimate(graph, expect_edges, experiment.runs),
        fits=(prepared, prepared_baseline),
    )


def charged_guarantee(baseline: Guarantee) -> Guarantee | None:
    """Return the guarantee of a baseline that is charged, as under node-level privacy units.

    Under ``local-attributes`` it learns from the method's own LDP reports.
    """
    return baseline if baseline.releases and baseline.unit != LocalAttributes.name else None


def combined_guarantee(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Return the guarantee of several runs on the same data, everything printed about them included.

    Raises:
        PrivacyError: the noise's finite resolution alone would use up delta.
    """
    first, slack = guarantees[0], sum(guarantee.slack for guarantee in guarantees)
    if len(guarantees) == 1:
        return first
    if 0 < slack >= first.delta and first.releases:
        raise PrivacyError(
            f"The numerical resolution of the noise alone would use all of delta = {first.delta:g} in "
            f"{len(guarantees)} runs. Use fewer --runs."
        )
    return Guarantee.compose(guarantees)


def _delta_source(model: Any, guarantee: Guarantee, data: Any) -> str:
    if guarantee.unit == NoUnit.name:
        return ""
    if guarantee.unit == LocalAttributes.name:
        return "eps_x + eps_y" if not guarantee.delta else "eps_x + eps_y, delta of the mechanism"
    if guarantee.graph:
        return "of the random walk" if guarantee.delta else "a released graph needs none"
    if model.delta != "auto":
        return "as given"
    nodes = graph_of(data).num_nodes
    bound = counted(nodes, "person" if guarantee.unit in (Row.name, Person.name) else "node")
    if data is not graph_of(data):
        records = guarantee.unit == NodeRecord.name
        bound = counted(data.num_users, "user") if records else f"{nodes:,} users and items"
    if model.max_units:
        bound = f"{model.max_units:,} (--max-units)"
    if guarantee.delta == guarantee.protected.delta_cap:
        return f"auto: the default of {guarantee.unit}, below 1/(10 B) for B = {bound}"
    return f"auto: the largest power of ten up to 1/(10 B), B = {bound}"
