"""A model is fitted, and its accuracies are what came out."""

from functools import lru_cache
from pathlib import Path

from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths
from graphveil.lab.papers.target import TEST, VAL
from graphveil.runs.experiment import Experiment
from graphveil.runs.inputs.source import Source


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return test and validation accuracy."""
    graph, model = fitted(work, paths)
    return Measurement.from_guarantee(
        {part: model.score(graph, part) for part in (TEST, VAL)}, model.guarantee
    )


def fitted(work: Work, paths: MeasurementPaths) -> tuple[Graph, Estimator]:
    """Return the split graph of a cell, and its model, fitted to it."""
    one = experiment_of(work, paths.root)
    graph = one.split(prepared(one), 0)
    model = one.model(0)
    model.fit(graph, workspace=paths.work, cache=paths.cache)
    return graph, model


def experiment_of(work: Work, root: Path | None) -> Experiment:
    """Return a cell as an experiment of one run."""
    source = Source(dataset=work.dataset, root=root)
    return Experiment(
        work.method, source, dict(work.parameters), work.recipe, runs=1, seed=work.seed, compare=False
    )


def prepared(one: Experiment) -> Graph:
    """Return the graph of an experiment before its split; cells that are prepared alike share it."""
    alike = (one.recipe_name, one.records or one.local, one.paper)
    return _prepared(_PreparationKey(one, (one.source.dataset, one.source.root, *alike)))


class _PreparationKey:
    """An experiment that equals all whose graph is prepared as its own is."""

    def __init__(self, one: Experiment, key: tuple[object, ...]) -> None:
        self.one, self.key = one, key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PreparationKey) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=3)
def _prepared(alike: _PreparationKey) -> Graph:
    return alike.one.prepared(_raw(alike.one.source.dataset, alike.one.source.root))


@lru_cache(maxsize=1)
def _raw(dataset: str | None, root: Path | None) -> Graph:
    return Source(dataset=dataset, root=root).load()
