"""One experiment as plain public configuration: which method, which data, which seeds."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from graphveil._util import checks
from graphveil.data.tables.encoding import empty_part_message
from graphveil.errors import GraphError
from graphveil.runs.parameters import method_class
from graphveil.runs.source import PublicFlags, Source

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.data.recipes import DatasetRecipe
    from graphveil.estimators.base import Estimator

DEFAULT_RECIPE, LOCAL_RECIPE = "gap", "lpgnn"
MAX_RUNS = 100
_SHARED_WITH_BASELINE = (
    "unit",
    "epsilon",
    "delta",
    "max_units",
    "max_degree",
    "replace_one",
    "private_metrics",
    "metric",
    "class_weight",
    "positive",
    "unsafe_noise_seed",
    "feature_scaling",
    "feature_range",
    "task",
    "target_range",
)


@dataclass(frozen=True)
class Experiment:
    """R runs of one method on one graph: seeds S, S+1, ..., each with its own split.

    Args:
        method: A name of ``METHODS``.
        source: Source of the graph.
        parameters: Constructor keywords, all but ``seed``.
        recipe: How to prepare and split; None for the default, or for files with a split.
        runs: R.
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
        self.model(0)
        self.baseline(0)
        self.public.check(self.parameters.get("unit"))

    @cached_property
    def as_published(self) -> bool:
        """Whether the experiment reproduces a paper, flaws included."""
        return method_class(self.method).as_published

    @property
    def recipe_name(self) -> str | None:
        """The recipe in force: the one named, none for files with a split column, else the method's own."""
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
    def _first_model(self) -> "Estimator":
        return method_class(self.method)(**self._parameters(0))

    @cached_property
    def _first_baseline(self) -> "Estimator | None":
        return self._build_baseline(0)

    def model(self, run: int) -> "Estimator":
        """Return an unfitted model of a run."""
        # The first run's model was built and checked with the experiment: a copy has the same configuration.
        return method_class(self.method)(**self._parameters(run)) if run else copy(self._first_model)

    def baseline(self, run: int) -> "Estimator | None":
        """Return an unfitted no-graph baseline of a run, if there is to be one.

        If nodes randomize their records, or their features, it is fitted on their reported values: raw
        records are not available anywhere.
        """
        return self._build_baseline(run) if run else copy(self._first_baseline)

    def _build_baseline(self, run: int) -> "Estimator | None":
        from graphveil.local.heterorr import HeteroRR
        from graphveil.local.local_estimator import LocalEstimator

        model = self.model(run)
        if self.method == model.baseline or not self.compare or self.parameters.get("multi_label"):
            return None
        if isinstance(model, HeteroRR) or (self.local and isinstance(model, LocalEstimator)):
            return model.no_graph_baseline()
        known, shared = self._parameters(run), ("seed", *_SHARED_WITH_BASELINE, *model.baseline_keywords)
        return method_class(model.baseline)(**{name: known[name] for name in shared if name in known})

    def _parameters(self, run: int) -> dict[str, Any]:
        parameters = {"seed": self.seed + run, **self.parameters}
        if parameters.get("unsafe_noise_seed") is not None:
            parameters["unsafe_noise_seed"] += run
        return parameters

    def load(self) -> "Graph":
        """Read and prepare the graph."""
        return self.prepared(self.source.load())

    def prepared(self, graph: "Graph") -> "Graph":
        """Return a graph with its public part, as its recipe prepares it."""
        recipe = self._recipe
        graph = graph.replace(public=self.public.part(graph, self.source, seed=self.seed))
        return graph if recipe is None else recipe.prepare(graph, paper=self.as_published)

    def split(self, graph: "Graph", run: int) -> "Graph":
        """Return the prepared graph with the split of a run; there must be test nodes.

        Under a unit of records the split comes from ids alone, except a paper's own. If
        records are protected, unlabeled test nodes count too, because labels may not affect this check.
        """
        recipe = self._recipe
        if recipe is not None:
            graph = recipe.split(graph, self.seed + run)
        tested = graph.labeled_in("test")
        members = graph.members("test") if self.records or self.local else tested
        if not bool(members.any()):
            raise GraphError(empty_part_message("test"))
        return graph

    def as_dict(self) -> dict[str, Any]:
        """Return the whole configuration as plain values, one key a choice."""
        from graphveil.publish.schemas import plain_parameters

        parameters = plain_parameters(dict(self.parameters))
        return {
            "method": self.method,
            "recipe": self.recipe_name,
            "runs": self.runs,
            "seed": self.seed,
            "baseline": self.compare,
            **{f"data.{name}": value for name, value in self.source.as_dict().items()},
            **{f"public.{name}": value for name, value in self.public.given.items()},
            **{f"set.{name}": value for name, value in sorted(parameters.items())},
        }
