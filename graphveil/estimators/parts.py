"""The weights of several networks under one roof, as a file has them."""

from collections.abc import Sequence

from torch import nn

from graphveil.estimators.method import State


def networks_state(part: str, networks: Sequence[nn.Module]) -> State:
    """Return the weights of numbered networks, each under ``part/number/``."""
    return {
        f"{part}/{k}/{name}": value
        for k, network in enumerate(networks)
        for name, value in network.state_dict().items()
    }


def part_of(state: State, prefix: str) -> State:
    """Return the tensors under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
