"""What tests of the backend on Ray share: work that kills its worker, and a search for secrets in files."""

import base64
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphveil.cluster.backend import RayBackend
from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock
from graphveil.release.backends import BlockWork

MOMENTS = ("start", "middle", "end")  # before the work, within it, and between it and the answer


@dataclass(frozen=True, eq=False, repr=False)
class Deadly(BlockWork):
    """Work that kills its own process in one block, as often as there are files to take; else as it is."""

    inner: BlockWork
    folder: str
    moment: str
    row: int

    def __call__(self, edges: EdgeBlock) -> torch.Tensor:
        if not edges.start <= self.row < edges.stop or not self._select_rows():
            return self.inner(edges)
        if self.moment == "middle":
            half = len(edges) // 2
            self.inner(edges.rows(0, max(1, half)))
        if self.moment == "end":
            self.inner(edges)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
        raise AssertionError("nobody gets here")

    def _select_rows(self) -> bool:
        """Take one of the files; of two that try, one does."""
        for file in sorted(Path(self.folder).glob("kill-*")):
            try:
                file.unlink()
                return True
            except FileNotFoundError:
                continue
        return False


def kills(folder: Path, count: int) -> None:
    """Let so many processes be killed."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        (folder / f"kill-{number}").touch()


class DeadlyRay(RayBackend):
    """Sends work that kills, and remembers the key that it was sent with."""

    def run(self, work: BlockWork, adjacency: Adjacency, first: int = 0) -> Iterator[torch.Tensor]:
        seen.append(work)
        sent = work if plan is None else Deadly(work, *plan)
        return super().run(sent, adjacency, first)


seen: list[Any] = []
plan: tuple[str, str, int] | None = None


def by_value() -> None:
    """Let workers have this module's classes, whose file they may not find."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


def forms(secret: bytes) -> list[bytes]:
    """Return what a secret looks like in a file: raw, hexadecimal, escaped, in base64 wherever it begins."""
    plain = [secret, secret.hex().encode(), secret.hex().upper().encode(), repr(secret)[2:-1].encode()]
    for shift in range(3):
        for coded in (base64.b64encode, base64.urlsafe_b64encode):
            text = coded(bytes(shift) + secret)
            plain.append(text[-(-shift * 8 // 6) : (shift + len(secret)) * 8 // 6])
    return plain


def found(secret: bytes, *folders: Path) -> list[str]:
    """Return the files that a secret is in, in any form, and how many files were read."""
    hits, read = [], 0
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink():
                text, read = file.read_bytes(), read + 1
                hits += [str(file) for form in forms(secret) if form in text]
    assert read > 3, "nothing was searched"
    return hits
