"""What nodes tell once: booked before anybody is asked, and kept, so that a fit that is killed pays once."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock
from torch import Tensor

from graphveil.data import Graph
from graphveil.estimators.session import Session
from graphveil.privacy import Entry, ledger_of
from graphveil.training import snapshot

State = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class ReportFile:
    """A file of what was told, and what it is bound to: public facts about who was asked, and how."""

    path: Path
    binding: snapshot.Binding

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the system's lock on the folder: another fit there waits, and then finds what was told.

        Else both would ask under one id, which pays for one answer. The lock ends with the process.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock"), mode=0o600):
            yield

    def load(self) -> State:
        """Return what is there; nothing if the file is not."""
        return snapshot.load(self.path, self.binding) if self.path.exists() else {}

    def save(self, found: State) -> None:
        """Write what there is."""
        snapshot.save(self.path, found, self.binding)


def collect_reports(
    graph: Graph,
    session: Session,
    entry: Callable[[str], Entry],
    randomize: Callable[[], State],
    report_file: ReportFile | None = None,
) -> State:
    """Return what nodes told, from the file of an interrupted fit or, once it is booked, from them.

    The id is written down before it is booked, so a fit that is killed at any point is resumed under it. What
    was told and not kept has been seen by nobody: they are asked again under the same id.

    Args:
        graph: of those who are asked.
        session: names the ledger, by default that of all nodes of the graph.
        entry: what is booked under an id.
        randomize: asks them, and says in ``reproducible`` whether their noise has a seed.
        report_file: the file.

    Raises:
        ArtifactError: the file is of another configuration, or of other nodes, edges or another split.
        BudgetError: the ledger refuses; nothing is told, and nothing is left to resume.
    """
    ledger = session.ledger or ledger_of(graph.edge_set)
    if report_file is None or not report_file.path.exists():
        ledger.check(entry("unbooked"))  # a refusal leaves no folder
    with nullcontext() if report_file is None else report_file.lock():
        found = {} if report_file is None else report_file.load()
        if not found:
            found = {"release": torch.frombuffer(bytearray(secrets.token_bytes(16)), dtype=torch.uint8)}
            if report_file is not None:
                report_file.save(found)
        if not ledger.contains(release_id_of(found)):
            ledger.record(entry(release_id_of(found)))
        ledger.commit(release_id_of(found))  # nobody gives back what is told from here on
        session.on_recorded()
        if "reproducible" not in found:
            found |= randomize()
            if report_file is not None:
                report_file.save(found)
    session.reproducible |= bool(found["reproducible"])
    return found


def release_id_of(found: State) -> str:
    """Return the id under which something was told."""
    return bytes(found["release"].tolist()).hex()
