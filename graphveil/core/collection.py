"""One collection of LDP reports: charged first, then randomized, and stored, so that it is charged once.

Under unit ``local-attributes`` a method has handles of the clients' records. They are opened here alone,
after the collection is recorded. The records are passed to the randomizer of the clients and nothing else.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from graphveil.core.journal import Binding, load_snapshot, save_snapshot
from graphveil.core.ledger import Entry, PrivacyLedger, charge
from graphveil.core.view import unwrapped

Reports = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class ReportFile:
    """A file of reports, and the public facts that it is bound to."""

    path: Path
    binding: Binding

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, so that a concurrent fit waits and then uses the stored reports.

        Otherwise both fits would collect under one ledger entry. The lock ends with the process.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock"), mode=0o600):
            yield

    def load(self) -> Reports:
        return load_snapshot(self.path, self.binding) if self.path.exists() else {}

    def save(self, found: Reports) -> None:
        save_snapshot(self.path, found, self.binding)


def collect(
    records: Sequence[Any],
    randomize: Callable[..., Reports],
    entry: Callable[[str], Entry],
    ledger: PrivacyLedger,
    on_recorded: Callable[[], None],
    report_file: ReportFile | None = None,
) -> Reports:
    """Return the reports of an interrupted fit, or charge the ledger and collect reports.

    The release id is stored before the ledger records it, so an interrupted fit is resumed under the same id.
    Reports that were not stored were not used, so nodes report again under the same id.

    Args:
        records: Parts of the clients' records: handles, or rows that are public.
        randomize: Randomizes these parts, one argument each, as the clients do. The result has an entry
            ``reproducible``: whether the noise has a seed.

    Privacy:
        Unit: that of ``entry``. Reads: the records, through ``randomize``. Charges: ``entry``, once.
    """
    if report_file is None or not report_file.path.exists():
        ledger.check(entry("unbooked"))  # an error leaves no folder
    with nullcontext() if report_file is None else report_file.lock():
        found = {} if report_file is None else report_file.load()
        new = not found
        if new:
            found = {"release": torch.frombuffer(bytearray(secrets.token_bytes(16)), dtype=torch.uint8)}
        store = partial(report_file.save, found) if report_file is not None else tuple
        charge(ledger, entry(release_id_of(found)), begin=store if new else None, drawn=True)
        on_recorded()
        if "reproducible" not in found:
            found |= randomize(*map(unwrapped, records))
            if report_file is not None:
                report_file.save(found)
    return found


def release_id_of(found: Reports) -> str:
    return bytes(found["release"].tolist()).hex()
