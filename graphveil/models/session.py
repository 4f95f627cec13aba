"""What a fit needs besides the data: named randomness, progress, timings, and a workspace to resume from."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from graphveil._files import write_atomic
from graphveil._random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.privacy import PrivacyLedger
from graphveil.release import FolderJournal, Journal, MemoryJournal
from graphveil.train import EpochRecord

OnProgress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Show no progress."""


def unheard() -> None:
    """Tell nobody."""


@dataclass
class Session:
    """One fit under way, or one prediction of another graph.

    ``workspace`` holds a fit's checkpoints; a second fit there resumes the first. ``configuration`` is the
    method's public parameters as text: private training binds its noise to them. ``budget`` is where the
    release is booked, by default the book of the edges that it asks, and ``on_booked`` is called when it is.
    """

    streams: PublicStreams
    on_progress: OnProgress = silent
    workspace: Path | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    budget: PrivacyLedger | None = None
    on_booked: Callable[[], None] = unheard
    configuration: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    history: list[tuple[str, EpochRecord]] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; times of equal names add up."""
        start = time.perf_counter()
        self.on_progress(name, 0, 1)
        yield
        self.on_progress(name, 1, 1)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def checkpoint(self, name: str) -> Path | None:
        """Return where the named training loop keeps its state, if there is a workspace."""
        return None if self.workspace is None else self.workspace / f"{name}.checkpoint.safetensors"

    def journal(self) -> Journal:
        """Return the release journal: on disk if there is a workspace."""
        return MemoryJournal() if self.workspace is None else FolderJournal(self.workspace / "release")

    def once(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return a finished stage's tensors from the workspace, or compute and keep them."""
        if self.workspace is None:
            return compute()
        from safetensors.torch import load_file, save

        path = self.workspace / f"{name}.safetensors"
        if not path.exists():
            write_atomic(path, save({k: v.contiguous() for k, v in compute().items()}))
        return load_file(path)

    def epochs(self, stage: str, total: int) -> Callable[[int], None]:
        """Return a callback that reports epochs of a stage."""
        return lambda epoch: self.on_progress(stage, epoch, total)

    def record(self, stage: str, epochs: list[EpochRecord]) -> None:
        """Keep a stage's training history."""
        self.history += [(stage, row) for row in epochs]


def pick_device(name: str) -> torch.device:
    """Return the device of this name; ``auto`` takes a GPU if there is one.

    Raises:
        ConfigError: a GPU is asked for, and torch finds none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device='cuda' needs a GPU, and torch finds none here; use device='auto' or 'cpu'")
    return torch.device(name)
