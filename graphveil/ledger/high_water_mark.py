"""The mark next to a ledger's file: which ledger it is, and how many entries it had.

A copy of the file that is put back later has fewer entries than the mark says. The mark is written after each
transaction, so it may be behind after a crash, and is never ahead.
"""

import os
from contextlib import suppress
from pathlib import Path

from graphveil.errors import LedgerError

_DIGITS, _LETTERS = 20, 16  # of a fixed width: a mark is overwritten in place


class HighWaterMark:
    """The mark of a ledger's file.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> mark = HighWaterMark(Path(folder.name) / "ledger.sqlite")
    >>> mark.set("a" * 16, 3); mark.read()
    ('aaaaaaaaaaaaaaaa', 3)
    >>> folder.cleanup()
    """

    def __init__(self, file: Path) -> None:
        """Take the ledger's file."""
        self.path = file.with_name(f"{file.name}-mark")

    def read(self) -> tuple[str, int] | None:
        """Return which ledger was seen, and with how many entries; None if nothing readable is there."""
        try:
            ident, count = self.path.read_bytes().decode("ascii").split()
            return (ident, int(count)) if len(ident) == _LETTERS and count.isdecimal() else None
        except (OSError, ValueError):
            return None

    def check(self, ident: str, count: int) -> None:
        """Refuse a ledger that has fewer entries than were seen, or that is another one.

        Raises:
            LedgerError: it is older than the mark, or another ledger.
        """
        seen = self.read()
        if seen is None or (seen[0] == ident[:_LETTERS] and seen[1] <= count):
            return
        file = self.path.name.removesuffix("-mark")
        what = (
            f"the ledger {file} is another one than was used there before"
            if seen[0] != ident[:_LETTERS]
            else f"the ledger {file} has {count} entries and had {seen[1]}: an older copy was put back, or "
            "entries were lost"
        )
        raise LedgerError(
            f"{what}. Restore the newest backup (graphveil ledger restore), or delete {self.path} to "
            "continue with this one. No privacy budget was spent."
        )

    def set(self, ident: str, count: int) -> None:
        """Note so many entries. Of two processes the slower one may note fewer: a mark is never ahead."""
        with suppress(OSError):
            held = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(held, f"{ident[:_LETTERS]} {count:0{_DIGITS}d}\n".encode("ascii"), 0)
            finally:
                os.close(held)
