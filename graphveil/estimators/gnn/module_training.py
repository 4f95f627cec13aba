"""Parts that both private GNNs share: the module, its training nodes, and its training on ego graphs."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.clipping.ego_graphs import EgoGraphClippedSum, EgoGraphRecords, Route
from graphveil.core.noise.random import PublicStreams
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.estimators.gnn.execution_route import choose_route
from graphveil.estimators.method import State
from graphveil.estimators.own.code import Factory, build_module, is_registered
from graphveil.estimators.public_sizes import GROUPS, TRAIN, VAL, PublicSizes, record_groups
from graphveil.estimators.session import Session
from graphveil.estimators.training.dpsgd import DPSGDTraining, fit_dpsgd_from_sums

_STAGE, _PREFIX = "module", "module."  # name of the stage, and of the module's parameters in a state
_BATCHES = 20  # default batch size as a share of the training records


def training_groups(*, metrics: bool) -> tuple[bool, ...]:
    """Return whether the records of each public group are used for training.

    Nothing is selected on validation nodes, so they are training nodes, unless they are counted
    (``metrics``).
    """
    return tuple(group == TRAIN or (group == VAL and not metrics) for group in range(GROUPS))


def training_members(view: Graph, *, metrics: bool = False) -> Tensor:
    """Return the public members of the training groups, with or without a label, bool (N)."""
    return torch.tensor(training_groups(metrics=metrics))[record_groups(view)]


def new_module(module: Factory | str, widths: tuple[int, int], streams: PublicStreams) -> nn.Module:
    """Return a module for these numbers of inputs and classes, with new parameters."""
    return build_module(module, *widths, streams.torch(_STAGE)).eval()


def plan_training(module: nn.Module, schedule: PrivateSchedule, sizes: PublicSizes) -> DPSGDTraining:
    """Return a module's steps; the default batch size is a twentieth of the training records."""
    records = sizes.labeled or sizes.records
    if schedule.batch_size is None:
        schedule = replace(schedule, batch_size=-(-records // _BATCHES))
    return DPSGDTraining.for_module(module, schedule, records)


def fit_on_ego_graphs(
    network: nn.Module,
    module: nn.Module,
    records: EgoGraphRecords,
    labels: Any,
    widths: tuple[int, int],
    training: DPSGDTraining,
    release: Release,
    session: Session,
) -> Route:
    """Train a module on ego graphs as the release's next query, and return how it is executed.

    Args:
        network: Module whose parameters are trained.
        module: Module to execute: the network, or a module that contains it and adds no parameters.
        records: Ego graphs of the training nodes.
        labels: Their classes, or numbers; -1 or NaN for a null record.
        widths: Number of inputs per node, and number of classes.
        training: Steps in the plan of the release.
        release: Open release with the steps as its next query.
        session: Progress and workspace.
    """
    route, code, dtype = choose_route(module, *widths)
    fit_dpsgd_from_sums(
        _STAGE,
        network,
        lambda: EgoGraphClippedSum(module, records, labels, route=route, dtype=dtype),
        training,
        release,
        session,
        # Binds the noise to the module's code: a changed module never reuses the noise of the first one.
        fingerprint=(code,),
    )
    return route


def public_randomness_key(session: Session, name: str) -> bytes:
    """Return the key of public randomness; a resumed run has the same key."""

    def draw() -> State:
        drawn = session.streams.numpy(name).integers(256, size=32, dtype="uint8")
        return {"key": torch.from_numpy(drawn)}

    return session.load_or_compute(name, draw)["key"].numpy().tobytes()


def state_of_weights(weights: State) -> State:
    """Return a module's parameters under their names in a model file."""
    return {f"{_PREFIX}{name}": part for name, part in weights.items()}


def restore_module(
    module: Factory | str, widths: tuple[int, int], state: State
) -> tuple[State, nn.Module | None]:
    """Return the parameters in a model file, and the module, or None if its code is not registered."""
    weights = {name.removeprefix(_PREFIX): part for name, part in state.items() if name.startswith(_PREFIX)}
    if not is_registered(module):
        return weights, None
    restored = new_module(module, widths, PublicStreams(0))
    restored.load_state_dict(weights)
    return weights, restored
