"""Atomic writes: a killed process leaves a whole file or folder, or none."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphveil.errors import ConfigError


def name_in_utf8(path: Path) -> str:
    """Return a path for libraries that take all names for UTF-8, whatever the locale says.

    Raises:
        ConfigError: its bytes are no UTF-8.

    >>> name_in_utf8(Path("data/nodes.csv"))
    'data/nodes.csv'
    """
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"the name of {path} is not UTF-8, as names of tables must be; rename it") from None


def can_be_made(path: Path) -> bool:
    """Whether the nearest folder above a path that is not there yet can be written to."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    return above.is_dir() and os.access(above, os.W_OK)


def write_atomic(path: Path, content: bytes, *, private: bool = True) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Its owner alone may read it, or unless ``private`` everybody on the machine.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not private:
            Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk does not say where it is
            error.filename = str(path)
        raise


@contextmanager
def whole_folder(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` when the block ends well, and vanishes otherwise.

    An older folder of that name is moved aside first, in one step: it is never seen half deleted. Everybody
    on the machine may read what is inside, or with ``private`` its owner alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield work
        _open_to_all(work) if not private else work.chmod(0o700)
        if path.exists():
            _replace(path, work)
        else:
            work.replace(path)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _open_to_all(folder: Path) -> None:
    """Let everybody read a folder and its files, some of which were written for their owner's eyes alone."""
    for file in folder.iterdir():
        file.chmod(0o644)
    folder.chmod(0o755)


def _replace(path: Path, work: Path) -> None:
    """Put the new folder where an old one is; if that fails, the old one comes back."""
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
    path.replace(old)
    try:
        work.replace(path)
    except BaseException:
        old.replace(path)
        raise
    shutil.rmtree(old)
