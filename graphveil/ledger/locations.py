"""Location of a ledger: a database URL, a file, or the user's own; and whether a file can be locked."""

import errno
import fcntl
import os
import struct
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from graphveil.errors import ConfigError, LedgerError

VARIABLE = "GRAPHVEIL_LEDGER"
_FILE = "sqlite:///"
_SCHEMES = (_FILE, "postgresql://", "postgresql+psycopg://")
_MISSPELT = ("sqlite:", "postgresql:", "postgresql+psycopg:")  # no name of a file, unless a slash is missing
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ncpfs", "fuse.sshfs", "davfs")


def default_location() -> str:
    """Return the location of the user's own ledger.

    Raises:
        ConfigError: If the URL is not supported, or there is no home directory.
    """
    if named := os.environ.get(VARIABLE):
        return url_of(named)
    try:
        if folder := os.environ.get("XDG_DATA_HOME"):
            data = Path(folder)
        elif sys.platform == "darwin":
            data = Path.home() / "Library" / "Application Support"
        else:
            data = Path.home() / ".local" / "share"
    except RuntimeError:
        raise ConfigError(
            f"There is no home directory to store the ledger in. Set {VARIABLE} to a file or database."
        ) from None
    return url_of(data / "graphveil" / "ledger.sqlite")


def url_of(location: str | Path) -> str:
    """Return the URL of a database; a path is an SQLite file.

    The part after ``sqlite:///`` is a literal absolute path, which ``file_of`` reads.

    >>> url_of("/data/ledger.sqlite"), url_of("postgresql://db/team")
    ('sqlite:////data/ledger.sqlite', 'postgresql+psycopg://db/team')
    """
    text = str(location)
    if "://" not in text and not text.startswith(_MISSPELT):
        return f"{_FILE}{Path(text).expanduser().absolute()}"
    if text.startswith(_FILE):
        path = text.removeprefix(_FILE)
        if not path or path == ":memory:" or "?" in path:
            # A ledger in memory is lost, and options can disable locks or name another file.
            raise ConfigError(
                "A SQLite ledger URL does not support options. Use sqlite:////path/to/file, or a file path."
            )
        return f"{_FILE}{Path(unquote(path)).absolute()}"
    if not text.startswith(_SCHEMES):
        raise ConfigError(
            f"{text.partition(':')[0]}: is not a supported ledger database. Use "
            "sqlite:////path/to/file, postgresql+psycopg://user@host/database, or a file path."
        )
    return text.replace("postgresql://", "postgresql+psycopg://", 1)


def split_name(text: str) -> tuple[str | None, str | None]:
    """Return the URL and the name in ``NAME``, ``URL`` or ``URL#NAME``; a missing part is None.

    The name follows the last ``#``, except if that precedes the server: then it belongs to a password.

    Args:
        text: Value of ``--ledger``: ``NAME``, ``URL`` or ``URL#NAME``.

    >>> split_name("friends"), split_name("postgresql://db/team#friends")
    ((None, 'friends'), ('postgresql://db/team', 'friends'))
    >>> split_name("sqlite:////data/ledger.sqlite")
    ('sqlite:////data/ledger.sqlite', None)
    >>> split_name("postgresql://me:pass#word@db/team#friends")[1]
    'friends'
    """
    if "://" not in text and not text.startswith(_MISSPELT):
        return None, text
    url, mark, name = text.rpartition("#")
    if not mark or ("@" in name and "/" not in url.partition("://")[2]):
        return text, None
    return url, name or None


def file_of(url: str) -> Path | None:
    return Path(url.removeprefix(_FILE)) if url.startswith(_FILE) else None


def check_locks(file: Path) -> None:
    """Raise an error for a folder whose file locks do not exclude other processes.

    Two concurrent reservations would then both read the old total. Network file systems are rejected by
    type: a test on one machine cannot detect what another one sees.
    """
    kind = _file_system(file.parent)
    if kind in _REMOTE or not _lock_excludes(file.parent):
        raise ConfigError(
            f"The file system of {file.parent} ({kind or 'unknown'}) does not support reliable file "
            "locks, so two runs could spend the same budget. Use a local disk, or PostgreSQL for "
            "several machines."
        )


def _lock_excludes(folder: Path) -> bool:
    if not hasattr(fcntl, "F_OFD_SETLK"):  # locks of an open file, as Linux has them
        return True
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        number, name = tempfile.mkstemp(prefix=".graphveil-lock-", dir=folder)  # a name of no other process
    except OSError as error:
        raise LedgerError(
            f"The ledger folder {folder} is not writable ({error.strerror}). Use a writable folder: "
            "export GRAPHVEIL_LEDGER=/path/to/ledger.db"
        ) from None
    path = Path(name)
    try:
        with os.fdopen(number, "wb") as first, path.open("wb") as second:
            fcntl.fcntl(first, fcntl.F_OFD_SETLK, lock)
            try:
                fcntl.fcntl(second, fcntl.F_OFD_SETLK, lock)
            except BlockingIOError:
                return True
            return False
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # which says nothing about locks
            raise LedgerError(
                f"File locks in {folder} cannot be tested ({error.strerror}). Close files, or allow more "
                "open files (ulimit -n 4096). No privacy budget was spent."
            ) from None
        return False
    finally:
        path.unlink(missing_ok=True)


def _file_system(folder: Path) -> str:
    mounts = Path("/proc/self/mounts")
    if not mounts.is_file():
        return ""
    kind, longest = "", -1
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, location, found, *_ = line.split(" ")
        where = location.replace("\\040", " ")
        if folder.is_relative_to(where) and len(where) > longest:
            kind, longest = found, len(where)
    return kind


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
        self.path = file.with_name(f"{file.name}-mark")

    def read(self) -> tuple[str, int] | None:
        """Return which ledger was seen, and with how many entries; None if nothing readable is there."""
        try:
            ident, count = self.path.read_bytes().decode("ascii").split()
            return (ident, int(count)) if len(ident) == _LETTERS and count.isdecimal() else None
        except (OSError, ValueError):
            return None

    def check(self, ident: str, count: int) -> None:
        """Raise an error for a ledger with fewer entries than recorded before, or for another ledger."""
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
        """Write the number of entries. Of two processes the slower may write fewer: a mark is never ahead."""
        with suppress(OSError):
            held = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(held, f"{ident[:_LETTERS]} {count:0{_DIGITS}d}\n".encode("ascii"), 0)
            finally:
                os.close(held)
