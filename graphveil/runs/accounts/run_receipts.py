"""The receipts in run folders: which entries of a ledger a run was recorded in."""

from pathlib import Path
from typing import Any

from graphveil.errors import ArtifactError, ConfigError
from graphveil.runs.accounts.earlier_predictions import earlier_predictions
from graphveil.runs.accounts.ledger_account import receipts_in
from graphveil.runs.run_folder import RunFolder


def receipts_below(folder: Path) -> list[dict[str, Any]]:
    """Return the receipts of a run folder, and of all run folders in it, as in one of a sweep.

    Raises:
        ArtifactError: a file of receipts is damaged.
        ConfigError: there is no such folder.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder. Give run folders.")
    found: list[dict[str, Any]] = []
    for internal in sorted(folder.rglob("internal")):
        run = RunFolder(internal.parent)
        found += receipts_in(run.receipts)
        for one in earlier_predictions(run.root):
            if not all(isinstance(receipt, dict) for receipt in one.receipts):
                raise ArtifactError(f"{one.path} is damaged: its receipts cannot be read")
            found += one.receipts
    return found
