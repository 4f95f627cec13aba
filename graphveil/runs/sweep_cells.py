"""The grid of a sweep: method x epsilon x settings, each an experiment on one dataset.

Nothing here reads data. Every cell is constructed with the grid, so an invalid one raises an error before
anything is spent.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from graphveil._util import checks
from graphveil.core.unit import DirectedEdge, NoUnit, UndirectedEdge
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ConfigError, UnitError
from graphveil.links import LINKS, RECOMMENDER
from graphveil.runs.experiment import Experiment
from graphveil.runs.parameters import check_parameters, model_class
from graphveil.runs.run import BASELINE_METHOD
from graphveil.runs.source import ListSource, PublicFlags, Source

MAX_CELLS = 1000
_PRIVACY = (  # what a reference without privacy does without
    "epsilon",
    "delta",
    "max_units",
    "out_degree_bound",
    "max_degree",
    "replace_one",
    "private_metrics",
    "unsafe_noise_seed",
    "perturb",
    "max_edges",
    "theta",
)
_LONGEST_NAME, _LONGEST_LIST = 80, 8  # letters of a cell's folder, values that are written out
_Configuration = tuple[str, dict[str, Any], float | None, dict[str, Any], bool]


@dataclass(frozen=True, kw_only=True)
class SweepCell:
    """One experiment of a grid.

    Args:
        epsilon: Its position on the axis; None if the result does not depend on the budget.
        settings: The swept values that its method has.
        include_nonprivate: Whether it is the non-private reference of the method.
    """

    number: int
    experiment: Experiment
    epsilon: float | None
    settings: Mapping[str, Any]
    include_nonprivate: bool = False

    @property
    def series(self) -> str:
        words = [
            self.experiment.method,
            self.settings_text,
            "without privacy" if self.include_nonprivate else "",
        ]
        return " ".join(word for word in words if word)

    @property
    def settings_text(self) -> str:
        return " ".join(f"{key}={format_setting(value)}" for key, value in self.settings.items())

    @property
    def name(self) -> str:
        budget = "" if self.epsilon is None else f" epsilon {self.epsilon:g}"
        words = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{self.series}{budget}").strip("-")
        return f"{self.number:03d}-{words[:_LONGEST_NAME]}"


def format_setting(value: Any) -> str:
    """Return a setting's value as shown in tables and figures.

    >>> format_setting((0.5, 0.5)), format_setting((0.001,) * 1000)
    ('(0.5, 0.5)', '1000 values')
    """
    long = isinstance(value, tuple) and len(value) > _LONGEST_LIST
    return f"{len(value)} values" if long else str(value)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A grid of experiments: method x epsilon x settings, on one dataset.

    A setting applies to the methods that have it. An experiment that does not depend on the budget is one
    cell for all budgets: the MLP for edge-level privacy units, which reads no edges, and everything under
    unit ``none``. Cells have no baseline, which node-level privacy units would charge in each; add ``mlp`` to
    the methods instead.

    Args:
        epsilons: The budgets; none for methods whose budgets are settings.
        parameters: Constructor keywords of all methods: unit, delta, mode, ...
        include_nonprivate: Whether to add non-private references: each method under unit ``none``, if
            it supports that.
        public: Under ``edge-subset``: the public edges, and the nodes that may have private ones.

    >>> grid = Sweep(methods=("gap", "mlp"), source=Source(dataset="cora"), epsilons=(1.0, 2.0),
    ...              parameters={"unit": "undirected-edge"}, settings={"hops": (1, 2)})
    >>> [cell.name for cell in grid.cells][:2], grid.cells[-1].name
    (['001-gap-hops-1-epsilon-1', '002-gap-hops-1-epsilon-2'], '005-mlp')
    """

    methods: tuple[str, ...]
    source: Source
    epsilons: tuple[float, ...] = ()
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    runs: int = 1
    seed: int = 0
    include_nonprivate: bool = False
    public: PublicFlags = field(default_factory=PublicFlags)

    def __post_init__(self) -> None:
        _check_choices("METHOD", self.methods)
        tasks = (self.source.task, self.parameters.get("task"), *self.settings.get("task", ()))
        if REGRESSION in tasks:
            raise ConfigError(
                "A sweep compares accuracies, but regression has none. Train once per budget with "
                "task='regression'."
            )
        self._check_link_methods()
        for method in self.methods:  # before any value is compared, which arrays cannot be
            cls = model_class(method)
            check_parameters(cls, self.parameters)
            for key, values in self.settings.items():
                for value in values if _has(method, key) else ():
                    check_parameters(cls, {key: value})
        if self.epsilons:
            _check_choices("epsilon", self.epsilons)
        for key, values in self.settings.items():
            _check_choices(key, values)
            if key in self.parameters or key in ("epsilon", "seed", "unit"):
                raise ConfigError(f"{key} is a separate argument of a sweep. Remove it from the settings.")
            if not any(_has(method, key) for method in self.methods):
                raise ConfigError(
                    f"No method of this sweep ({', '.join(self.methods)}) has a parameter {key!r}. Remove it."
                )
        checks.within(1, MAX_CELLS, cells=len(self.cells))

    def _check_link_methods(self) -> None:
        if not {LINKS, RECOMMENDER} & {*self.methods}:
            if isinstance(self.source, ListSource):
                raise ConfigError(
                    "items (--items) is only for recommender, which is not in this sweep. Remove it."
                )
            return
        if len(self.methods) > 1:
            raise ConfigError(
                f"{', '.join(self.methods)} have no common metric: links are compared by ROC-AUC, "
                "recommenders by hit rate, and other methods by accuracy. Run a separate sweep for each."
            )
        unused = {"recipe": self.recipe, "include_nonprivate": self.include_nonprivate, **self.public.given}
        for name, value in unused.items():
            if value:
                raise ConfigError(f"Method {self.methods[0]} does not use {name}. Remove it.")
        metrics = {"held_out": 0.1} if self.methods == (LINKS,) else {"private_metrics": False}
        for name, default in metrics.items():
            if not all(self.settings.get(name, (self.parameters.get(name, default),))):
                raise ConfigError(
                    f"A sweep of {self.methods[0]} compares its released metric, which needs {name}. Set "
                    f"{name}={'0.1' if name == 'held_out' else 'True (--private-metrics)'}."
                )

    @cached_property
    def cells(self) -> tuple[SweepCell, ...]:
        """Every experiment of the grid, in order: by method, settings, epsilon; references last."""
        return tuple(
            SweepCell(
                number=number,
                experiment=self._experiment(method, {**parameters, **settings}),
                epsilon=epsilon,
                settings=settings,
                include_nonprivate=nonprivate,
            )
            for number, (method, settings, epsilon, parameters, nonprivate) in enumerate(
                [*self._private(), *(self._nonprivate_references() if self.include_nonprivate else ())], 1
            )
        )

    def _private(self) -> Iterator[_Configuration]:
        for method in self.methods:
            for settings in _combinations(method, self.settings):
                for epsilon in self._epsilons_of(method):
                    budget = {} if epsilon is None else {"epsilon": epsilon}
                    yield method, settings, epsilon, {**self.parameters, **budget}, False

    def _nonprivate_references(self) -> Iterator[_Configuration]:
        if self.parameters.get("unit") == NoUnit.name:
            return
        kept = {name: value for name, value in self.parameters.items() if name not in _PRIVACY}
        parameters = {**kept, "unit": NoUnit.name}
        tried = {name: values for name, values in self.settings.items() if name not in _PRIVACY}
        for method in self.methods:
            if self._epsilons_of(method) == (None,):  # no budget decides about it: it is its own reference
                continue
            try:
                self._experiment(method, parameters)
            except UnitError:  # the method has no form without privacy
                continue
            for settings in _combinations(method, tried):
                yield method, settings, None, parameters, True

    def _epsilons_of(self, method: str) -> tuple[float | None, ...]:
        unit = self.parameters.get("unit")
        unread = method == BASELINE_METHOD and unit in (UndirectedEdge.name, DirectedEdge.name)
        return (None,) if not self.epsilons or unread or unit == NoUnit.name else self.epsilons

    def _experiment(self, method: str, parameters: dict[str, Any]) -> Experiment:
        public = PublicFlags() if parameters.get("unit") == NoUnit.name else self.public
        return Experiment(
            method, self.source, parameters, self.recipe, self.runs, self.seed, compare=False, public=public
        )

    def as_dict(self) -> dict[str, Any]:
        from graphveil.publish.schemas import plain_parameters

        return {
            "methods": list(self.methods),
            "epsilon": list(self.epsilons),
            "recipe": self.recipe,
            "runs": self.runs,
            "seed": self.seed,
            "include_nonprivate": self.include_nonprivate,
            **{f"data.{name}": value for name, value in self.source.as_dict().items()},
            **{f"public.{name}": value for name, value in self.public.given.items()},
            **{f"sweep.{name}": list(values) for name, values in sorted(self.settings.items())},
            **{f"set.{name}": value for name, value in plain_parameters(dict(self.parameters)).items()},
        }


def _combinations(method: str, settings: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    own = {key: values for key, values in settings.items() if _has(method, key)}
    return [dict(zip(own, values, strict=True)) for values in product(*own.values())]


def _has(method: str, key: str) -> bool:
    from graphveil.estimators.saved import parameter_types

    return key in parameter_types(model_class(method))


def _check_choices(name: str, values: Sequence[object]) -> None:
    if not values:
        raise ConfigError(
            f"{name} is an empty list, so the sweep has no configurations. Give at least one value, "
            "for example a,b,c."
        )
    twice = [value for number, value in enumerate(values) if value in values[:number]]
    if twice:
        raise ConfigError(
            f"{name}: {twice[0]!s} is given twice, and each would spend privacy budget. Keep one."
        )
