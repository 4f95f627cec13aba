"""Atomic writes: a killed process leaves a whole file or folder, or none. Tensors with a digest.

A file of tensors is still one after a bit of its numbers has flipped, and a run that resumes from it would
publish something that it never computed. So every internal file of tensors has a digest, and is refused if
it differs.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from graphveil.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor

_LONGEST_NAME = 255  # bytes of a file's name that usual file systems take


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


def can_create(path: Path) -> bool:
    """Whether the nearest folder above a path takes a file of its name: one is made there, and removed.

    What may be written is for the system to say: the superuser may write anywhere, and yet not in /proc.
    """
    above = next(folder for folder in path.absolute().parents if folder.exists())
    trial = _temporary_name(above, path)
    try:
        os.close(os.open(trial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return False
    finally:
        with suppress(OSError):
            trial.unlink()
    return True


def _temporary_name(folder: Path, path: Path) -> Path:
    """Return a new name in a folder, chosen before the file is made: a signal may come in between."""
    return folder / f".{path.name}.{secrets.token_urlsafe(6)}"


def as_path(given: object, name: str) -> Path:
    """Return what a caller gave as a path.

    Raises:
        ConfigError: it is none, or no file system takes its name.

    >>> as_path(7, "folder")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: folder must be a path, text or a pathlib.Path, not a int
    """
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str):
        raise ConfigError(f"{name} must be a path, text or a pathlib.Path, not a {type(given).__name__}")
    path = Path(text)
    if "\0" in text or any(len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts):
        raise ConfigError(f"{name} has a name that is too long, or a NUL in it; choose another")
    return path


@contextmanager
def writing_folder(path: Path) -> Iterator[None]:
    """Say in words what the system refuses while a folder is written.

    Raises:
        ConfigError: the folder cannot be made, written or filled; nothing of it is left behind.
    """
    if not path.name:
        raise ConfigError("a folder that is written whole needs a name of its own: runs/first, not . or /")
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> ConfigError:
    """Return the refusal of a folder that the system will not have written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "make room, or choose another disk" if full else "choose another folder"
    return ConfigError(f"cannot write to {path} ({error.strerror}); {remedy}")


def check_writable(path: Path) -> None:
    """Make a folder, and refuse one in which no file can be made.

    Raises:
        ConfigError: the system refuses.
    """
    try:
        make_folder(path)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise cannot_write(path, error) from error


def make_folder(path: Path, *, private: bool = False) -> None:
    """Make a folder and the folders above it, as the umask says but never writable for others.

    With ``private`` only the owner may read those that are made.
    """
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=0o700 if private else 0o755, exist_ok=True)


def open_to_readers(path: Path) -> None:
    """Let others read a file, or a folder and its files, as far as the umask allows."""
    probe = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "wb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o644
    finally:
        probe.unlink(missing_ok=True)
    for each in path.iterdir() if path.is_dir() else [path]:
        each.chmod(mode)
    if path.is_dir():
        path.chmod(mode | 0o100 | (mode & 0o044) >> 2)


def write_atomic(path: Path, content: bytes, *, private: bool = True) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Its owner alone may read it, or unless ``private`` others too, as the umask says.
    """
    make_folder(path.parent, private=private)
    work = _temporary_name(path.parent, path)
    try:
        with os.fdopen(os.open(work, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not private:
            open_to_readers(work)
        work.replace(path)
    except BaseException as error:
        with suppress(OSError):
            work.unlink()
        if isinstance(error, OSError) and error.filename is None:  # a full disk does not say where it is
            error.filename = str(path)
        raise


@contextmanager
def atomic_folder(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` when the block ends well, and vanishes otherwise.

    An older folder of that name is moved aside first, in one step: it is never seen half deleted. Others may
    read what is inside as the umask says, or with ``private`` its owner alone.
    """
    make_folder(path.parent)
    work = _temporary_name(path.parent, path)
    try:
        work.mkdir(mode=0o700)
        yield work
        for file in work.iterdir():
            _sync(file)
        if private:
            make_private(work)
        else:
            open_to_readers(work)
        if path.exists():
            _replace(path, work)
        else:
            work.replace(path)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _sync(file: Path) -> None:
    """Write a file to the disk, which may turn out to be full."""
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private(folder: Path) -> None:
    """Let only the owner read a folder and its files."""
    for file in folder.iterdir():
        file.chmod(0o600)
    folder.chmod(0o700)


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


# -- tensors with a digest ----
_DIGEST = "sha256"


def save_checked(path: Path, tensors: "Mapping[str, Tensor]", words: Mapping[str, str] | None = None) -> None:
    """Write tensors, and words that go with them, atomically.

    >>> import tempfile, torch
    >>> path = Path(tempfile.mkdtemp(), "rows.safetensors")
    >>> save_checked(path, {"rows": torch.ones(2)}, {"of": "a test"})
    >>> load_checked(path)
    ({'rows': tensor([1., 1.])}, {'of': 'a test'})
    """
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = dict(words or {})
    write_atomic(path, save(plain, metadata={**metadata, _DIGEST: _digest(plain, metadata)}))


def load_checked(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Return what :func:`save_checked` wrote, to the last bit.

    Raises:
        ArtifactError: the file is damaged, or of another version.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            words = dict(file.metadata() or {})
    except SafetensorError:
        raise _damaged(path) from None
    if words.pop(_DIGEST, None) != _digest(tensors, words):
        raise _damaged(path)
    return tensors, words


def _digest(tensors: "Mapping[str, Tensor]", words: Mapping[str, str]) -> str:
    import torch

    hashed = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        hashed.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def _damaged(path: Path) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged, so the run cannot go on from it; start a new one in a new folder (what was "
        "recorded in the ledger stays charged)"
    )
