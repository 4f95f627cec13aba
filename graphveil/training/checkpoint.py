"""Checkpoints of a training loop: safetensors, written atomically, without pickle."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphveil._util.files import load_checked, save_checked
from graphveil.training.adam import Adam

State = dict[str, Tensor]


@dataclass
class LoopProgress:
    """The state of a loop, apart from its tensors."""

    epoch: int = 0
    best_epoch: int = -1
    best_score: float = float("-inf")


def save(
    path: Path,
    network: torch.nn.Module,
    optimizer: Adam,
    generator: torch.Generator,
    best: State,
    progress: LoopProgress,
    history: Iterable[Any],
) -> None:
    """Write all state that the next epoch depends on."""
    tensors = {f"network/{k}": v for k, v in network.state_dict().items()}
    tensors |= {f"best/{k}": v for k, v in best.items()}
    tensors |= {f"optimizer/{k}": v for k, v in optimizer.state().items()}
    tensors["generator"] = generator.get_state()
    header = {"progress": json.dumps({**asdict(progress), "history": [asdict(row) for row in history]})}
    save_checked(path, tensors, header)


def load(
    path: Path, network: torch.nn.Module, optimizer: Adam, generator: torch.Generator
) -> tuple[State, LoopProgress, list[dict[str, Any]]]:
    """Restore the loop in place; return the best parameters so far, the progress and the history."""
    tensors, words = load_checked(path)
    record = json.loads(words["progress"])
    network.load_state_dict(_part(tensors, "network/"))
    generator.set_state(tensors["generator"])
    optimizer.restore(_part(tensors, "optimizer/"))
    history = record.pop("history")
    return _part(tensors, "best/"), LoopProgress(**record), history


def _part(tensors: State, prefix: str) -> State:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
