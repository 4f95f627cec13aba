"""Common parts of methods as published: no valid guarantee, and a paper's own accounting and selection."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, TypeVar

import torch

from graphveil.core.accounting.gaussian import require_delta
from graphveil.core.events import Event, compose
from graphveil.core.features import Features, rows
from graphveil.core.plan import ReleasePlan
from graphveil.core.query import Query
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.keywords import NetworkKeywords, TrainingConfig
from graphveil.estimators.method import Method
from graphveil.estimators.objective import Objective
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.private_training import DPSGDTraining, RecordPlan, fit_node_level
from graphveil.estimators.public_sizes import PublicSizes, members
from graphveil.estimators.requirements import check_unit
from graphveil.nn.hops import Encoder, FixedRows, HopClassifier
from graphveil.nn.layers import FeedForward, batch_of
from graphveil.papers.as_published import renyi
from graphveil.training import State

SUFFIX = "-paper"  # of a method's name
RENYI = "noise calibrated by the paper's Renyi accounting"
EXACT_SELECTION = "the epoch of the best exact validation accuracy is kept, which is not charged"
_EPOCHS, _RATE, _BATCH = 10, 0.01, 256  # of GAP's reference under node-level units

T = TypeVar("T")


def rebuilt(value: Any, kind: type[T], **changed: Any) -> T:
    kept = {part.name: getattr(value, part.name) for part in fields(value)}
    return kind(**{**kept, **changed})


class AsPublished(Estimator):
    """An estimator that follows a paper, flaws included; its guarantee is never valid.

    Graphs are prepared and split as in the paper. Results of a seed are those of the method of the product
    where both do the same.
    """

    as_published: ClassVar[bool] = True
    predicts_numbers: ClassVar[bool] = False
    deviations: ClassVar[tuple[str, ...]] = ("a paper's own algorithm and accounting, not proved here",)
    baseline: ClassVar[str] = f"mlp{SUFFIX}"
    baseline_keywords: ClassVar[tuple[str, ...]] = ("batch_size",)

    def _learned_columns(self, *sizes: Any) -> tuple[int, ...]:
        return ()

    def _misses_ranges(self, graph: Graph) -> bool:
        return False

    def _bound_params(self) -> dict[str, Any]:
        return {**super()._bound_params(), "mode": "paper"}


class PublishedMethod(Method):
    """A frozen method of such an estimator."""

    @property
    def stream_name(self) -> str:
        return self.name.removesuffix(SUFFIX)

    @property
    def samples(self) -> bool:
        return False

    def check_edges(self, view: Graph) -> None:
        """Reject a graph that the unit does not support, but for undirected edges that are stored twice."""
        check_unit(replace(self.privacy_config, epsilon=None), view, reads_edges=self.reads_edges)


class ReadsRecords(PublishedMethod):
    """A published method that reads protected records outside of queries."""

    def view(self, graph: Graph) -> Graph:
        return graph


def fit_and_select(
    network: FeedForward | Encoder | HopClassifier,
    inputs: Features | Sequence[Any],
    view: Graph,
    objective: Objective,
    training: DPSGDTraining,
    *where: Any,
    **names: Any,
) -> None:
    """Train as ``fit_node_level``, and load the epoch of the best exact validation accuracy, not charged."""
    count, nodes = min(training.schedule.epochs, training.steps), members(view, "val")
    states = fit_node_level(network, inputs, view, objective, training, *where, candidates=count, **names)
    if count == 1 or not len(nodes):
        return
    given: Any = (
        [FixedRows(rows(each, nodes)) for each in inputs]
        if isinstance(inputs, Sequence)
        else batch_of(inputs, nodes)
    )

    @torch.no_grad()
    def num_correct(state: State) -> int:
        network.load_state_dict(state)
        return int((network(given).argmax(dim=1) == view.y[nodes]).sum())

    correct = list(map(num_correct, states))
    network.load_state_dict(states[correct.index(max(correct))])


def record_training(model: NetworkKeywords, privacy_config: PrivacyConfig, method: str) -> TrainingConfig:
    if privacy_config.private_metrics:
        raise ConfigError(
            f"{method} selects models without privacy, as the paper does, so private_metrics has no effect. "
            "Omit it."
        )
    usual = {"epochs": _EPOCHS, "learning_rate": _RATE, "batch_size": _BATCH}
    given = {part.name: getattr(model, part.name) for part in fields(NetworkKeywords)}
    given |= {name: value for name, value in usual.items() if given[name] is None}
    return TrainingConfig.from_keywords(NetworkKeywords(**given), privacy_config)


def equal_queries(record_plan: RecordPlan, multiplier: float) -> tuple[Query, ...]:
    scale = math.sqrt(record_plan.hops) * record_plan.unit.change / multiplier
    return replace(record_plan, multiplier=multiplier).queries(scale)


def renyi_plan(privacy_config: PrivacyConfig, record_plan: RecordPlan, sizes: PublicSizes) -> ReleasePlan:
    unit, delta = privacy_config.unit, privacy_config.delta_for(sizes.nodes)
    require_delta(delta, "DPSGDQuery")

    def event(multiplier: float) -> Event:
        return compose(*(query.event(unit) for query in equal_queries(record_plan, multiplier)))

    multiplier = renyi.multiplier_of(privacy_config.budget, delta, event)
    return ReleasePlan(unit, equal_queries(record_plan, multiplier), delta)
