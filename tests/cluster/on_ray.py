"""Shared by tests of the Ray backend: work that kills its worker, and a search for secrets in files."""

import base64
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from graphveil.cluster.backend import RayBackend, _sent_graph, connect
from graphveil.cluster.sealing import SecretBox
from graphveil.core.backends import BlockWork
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import EdgeBlock

MOMENTS = ("start", "middle", "end")  # before the work, within it, and between it and the answer


@dataclass(frozen=True)
class Kill:
    """Files in a folder, each of which kills the worker of the block with a row, at a moment."""

    folder: Path
    moment: str
    row: int

    @classmethod
    def prepare(cls, folder: Path, moment: str, row: int, count: int = 1) -> "Kill":
        """Write the files for a number of kills."""
        folder.mkdir(exist_ok=True)
        for number in range(count):
            (folder / f"kill-{number}").touch()
        return cls(folder, moment, row)

    def take(self) -> bool:
        """Take one of the files; of two workers that try, one does."""
        for file in sorted(self.folder.glob("kill-*")):
            try:
                file.unlink()
                return True
            except FileNotFoundError:
                continue
        return False


@dataclass(frozen=True, eq=False, repr=False)
class DeadlyWork(BlockWork):
    """Work that kills its own process in one block while there are files to take."""

    inner: BlockWork
    kill: Kill

    def __call__(self, edges: EdgeBlock) -> torch.Tensor:
        if not edges.start <= self.kill.row < edges.stop or not self.kill.take():
            return self.inner(edges)
        if self.kill.moment == "middle":
            self.inner(edges.rows(0, max(1, len(edges) // 2)))
        if self.kill.moment == "end":
            self.inner(edges)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
        raise AssertionError("the process was killed")


@dataclass(frozen=True)
class DeadlyRay(RayBackend):
    """Sends work that kills its workers, and keeps the work that it was given, with its key."""

    kill: Kill | None = None
    seen: list[Any] = field(default_factory=list, compare=False)
    boxes: list[SecretBox] = field(default_factory=list, compare=False)

    def run(self, work: BlockWork, adjacency: Adjacency, first: int = 0) -> Iterator[torch.Tensor]:
        self.seen.append(work)
        self.boxes.append(_sent_graph(connect(self.address), adjacency).box)
        sent = work if self.kill is None else DeadlyWork(work, self.kill)
        return super().run(sent, adjacency, first)

    def sent_keys(self) -> set[bytes]:
        """Return the keys of the noise that were sent, and that of the sealed values."""
        return {work.key for work in self.seen} | {box.key for box in self.boxes}


def by_value() -> None:
    """Send this module's classes to workers by value, since they may not find its file."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


def forms(secret: bytes) -> list[bytes]:
    """Return the forms of a secret in a file: raw, hexadecimal, escaped, in base64 wherever it begins."""
    plain = [secret, secret.hex().encode(), secret.hex().upper().encode(), repr(secret)[2:-1].encode()]
    for shift in range(3):
        for coded in (base64.b64encode, base64.urlsafe_b64encode):
            text = coded(bytes(shift) + secret)
            plain.append(text[-(-shift * 8 // 6) : (shift + len(secret)) * 8 // 6])
    return plain


def found(secret: bytes, folder: Path) -> list[str]:
    """Return the files that contain a secret in any form."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink()]
    assert len(files) > 3, "nothing was searched"
    texts = {str(file): file.read_bytes() for file in files}
    return [name for name, text in texts.items() if any(form in text for form in forms(secret))]
