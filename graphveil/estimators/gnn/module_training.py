"""What both private GNNs share: a custom module, and its training on ego graphs."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graphveil.core.clipping.clipped_sums import probe_labels
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.clipping.ego_graphs import (
    EgoGraphClippedSum,
    EgoGraphRecords,
    Route,
    StoredEgoGraphs,
    ego_graph_logits,
    random_full_trees,
)
from graphveil.core.clipping.isolation import ModuleCopies, synthetic_records
from graphveil.core.noise.random import PublicStreams
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.errors import ConfigError, PrivacyError
from graphveil.estimators.method import (
    FittedGraphModel,
    Method,
    State,
    part_of,
    unknown_training_nodes_error,
)
from graphveil.estimators.own.code import Factory, build_module, is_registered
from graphveil.estimators.own.module_checks import (
    random_tree,
    reject_mixing,
    reject_unsupported_types,
    training_error_message,
)
from graphveil.estimators.private_training import DPSGDTraining, NoisySoftmax, fit_dpsgd
from graphveil.estimators.public_sizes import PublicSizes, charged_members, training_groups
from graphveil.estimators.session import Session
from graphveil.publish.schemas import uncovered_weights_note

_TOLERANCE, _LOOSE_TOLERANCE = 1e-9, 1e-4
_BATCHED_ROUTES: tuple[Route, ...] = ("ghost", "vmap")  # the fastest first
_STARS, _LEAVES, _SEED = 6, 4, 11


class ExecutionRoute(NamedTuple):
    """The route, the module's outputs on fixed random ego graphs, and the data type."""

    route: Route
    code: Tensor
    dtype: torch.dtype


def choose_route(module: nn.Module, inputs: int, classes: int) -> ExecutionRoute:
    """Return the route for a module, and its outputs on fixed random ego graphs as a fingerprint of its code.

    The fastest route is chosen that returns the same clipped gradient sums and logits as a loop. Some modules
    cannot be vectorized (self-loops that are added by a mask), and their steps are many times slower. Some
    also read the parameters of an affine map elsewhere, and need full per-example gradients.

    The route uses float32 if results are close to those of float64.
    """
    with ModuleCopies(module).run() as fresh:
        probe = partial(_probed, fresh.to(torch.float64).eval(), inputs, classes)
        route: Route = "loop"
        wide = probe("loop")
        for candidate in _BATCHED_ROUTES:
            try:
                together = probe(candidate)
            except Exception:  # any error of a custom module or torch under vmap: it can be run in a loop
                continue
            if torch.allclose(wide, together, rtol=_TOLERANCE, atol=_TOLERANCE):
                route, wide = candidate, together
                break
        try:
            narrow = probe(route, torch.float32)
        except Exception:  # a module that creates float64 tensors
            return ExecutionRoute(route, wide, torch.float64)
    # The fingerprint depends on the data type: a run is not resumed in the other one.
    if torch.allclose(wide, narrow, rtol=_LOOSE_TOLERANCE, atol=_LOOSE_TOLERANCE):
        return ExecutionRoute(route, torch.cat([wide, narrow]), torch.float32)
    return ExecutionRoute(route, wide, torch.float64)


def check_trainable(module: nn.Module, inputs: int, classes: int, parents: Tensor, *, name: str = "") -> None:
    """Train and predict as a fit does, on synthetic records with the shapes of the fit.

    Args:
        parents: Parent of each position except the root.
    """
    try:
        route, _, dtype = choose_route(module, inputs, classes)
        x, edges = random_full_trees(parents, inputs, torch.float64)
        labels, records = probe_labels(len(x), classes), StoredEgoGraphs(x, edges, parents)
        with synthetic_records():
            gradients = EgoGraphClippedSum(module, records, labels, route=route, dtype=dtype)
            gradients.add(torch.arange(2), 1.0)
            ego_graph_logits(module, records, 2, classes, route=route)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(training_error_message(module, error, name)) from error


def _probed(
    module: nn.Module, inputs: int, classes: int, route: Route, dtype: torch.dtype = torch.float64
) -> Tensor:
    rng = np.random.default_rng(_SEED)
    x = torch.zeros(_STARS, _LEAVES + 2, inputs, dtype=torch.float64)
    edges = torch.full((_STARS, 2, _LEAVES), _LEAVES + 1)
    for number in range(_STARS):
        star, _ = random_tree(rng, inputs, depth=1)
        leaves = min(number, len(star) - 1, _LEAVES)  # the first ego graph has none
        x[number, : leaves + 1] = star[: leaves + 1]
        edges[number, 0, :leaves], edges[number, 1, :leaves] = torch.arange(1, leaves + 1), 0
    records = StoredEgoGraphs(x, edges)
    with torch.random.fork_rng(devices=[]), synthetic_records():
        gradients = EgoGraphClippedSum(
            module, records, probe_labels(_STARS, classes), route=route, dtype=dtype
        )
        gradients.add(torch.arange(_STARS), 1.0)
        logits = ego_graph_logits(module, records, _STARS, classes, route=route)
    return torch.cat([gradients.sums, logits.flatten()])


_STAGE, _PREFIX = "module", "module."  # name of the stage, and of the module's parameters in a state
_BATCHES = 20  # default batch size as a share of the training records


@dataclass(frozen=True, kw_only=True)
class EgoGraphMethod(Method):
    """A custom module that is trained on ego graphs of protected records, as one query of a release.

    Args:
        schedule: Schedule of its steps; ``batch_size`` None for 5 % of the training records.
    """

    weighs_classes: ClassVar[bool] = True

    module: Factory | str = field(repr=False)
    schedule: PrivateSchedule

    @abstractmethod
    def widths(self, sizes: PublicSizes) -> tuple[int, int]:
        """Return the number of inputs per node, and of outputs."""

    @property
    @abstractmethod
    def parents(self) -> Tensor:
        """Parent of each position of an ego graph, except the root."""

    def executed(self, module: nn.Module, classes: int) -> nn.Module:
        """Return the module that is executed: the given one, or one that contains it, without parameters."""
        return module

    def new_module(self, sizes: PublicSizes, streams: PublicStreams) -> nn.Module:
        return build_module(self.module, *self.widths(sizes), streams.torch(_STAGE)).eval()

    def check(self, view: Graph) -> None:
        super().check(view)
        sizes = self.sizes_of(view)
        module, widths = self.new_module(sizes, PublicStreams(0)), self.widths(sizes)
        reject_unsupported_types(module)
        reject_mixing(module, *widths)
        executed = self.executed(module, sizes.classes)
        check_trainable(executed, *widths, self.parents, name=type(module).__name__)

    def trained_on(self, view: Graph) -> Tensor:
        """Return the public members of the groups that are charged for training, bool (N)."""
        return charged_members(view, training_groups(metrics=self.privacy_config.private_metrics))

    def sizes_of(self, view: Graph) -> PublicSizes:
        return replace(super().sizes_of(view), labeled=int(self.trained_on(view).sum()))

    def training(self, sizes: PublicSizes) -> DPSGDTraining:
        records, schedule = sizes.labeled or sizes.records, self.schedule
        if schedule.batch_size is None:
            schedule = replace(schedule, batch_size=-(-records // _BATCHES))
        return DPSGDTraining.for_module(self.new_module(sizes, PublicStreams(0)), schedule, records)

    def fit_on_ego_graphs(
        self,
        module: nn.Module,
        records: EgoGraphRecords,
        labels: Any,
        sizes: PublicSizes,
        release: Release,
        session: Session,
    ) -> Route:
        """Train a module on ego graphs as the release's next query, and return how it is executed.

        Args:
            labels: Their classes, or numbers; -1 or NaN for a null record.
        """
        executed = self.executed(module, sizes.classes)
        route, code, dtype = choose_route(executed, *self.widths(sizes))
        fit_dpsgd(
            _STAGE,
            module,
            lambda: EgoGraphClippedSum(executed, records, labels, route=route, dtype=dtype),
            self.training(sizes),
            release,
            session,
            # Binds the noise to the module's code: a changed module never reuses the noise of the first one.
            fingerprint=(code,),
        )
        return route

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedGNN":
        weights, module = part_of(state, _PREFIX), None
        if is_registered(self.module):
            module = self.new_module(sizes, PublicStreams(0))
            module.load_state_dict(weights)
        return TrainedGNN(weights=weights, module=module)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedGNN(FittedGraphModel):
    """Released parameters of the module, by name, and of the encoder if predictions are covered."""

    weights: State
    module: nn.Module | None
    encoder: NoisySoftmax | None = None

    def other_graph_error(self) -> PrivacyError:
        return uncovered_weights_note() if self.encoder is None else unknown_training_nodes_error("gnn")

    def state(self) -> State:
        own = {} if self.encoder is None else self.encoder.state()
        return own | {f"{_PREFIX}{name}": part for name, part in self.weights.items()}


def public_randomness_key(session: Session, name: str) -> bytes:
    """Return the key of public randomness; a resumed run has the same key."""

    def draw() -> State:
        drawn = session.streams.numpy(name).integers(256, size=32, dtype="uint8")
        return {"key": torch.from_numpy(drawn)}

    return session.load_or_compute(name, draw)["key"].numpy().tobytes()
