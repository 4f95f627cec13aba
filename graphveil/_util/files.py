"""Atomic writes: an interrupted process leaves a complete file or folder, or none. Tensors with a digest.

A tensor file can still be read after a bit flip, and a resumed run would then publish a result that it never
computed. Every internal file of tensors therefore has a digest, and reading it raises an error if it differs.
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
    """Return a path for libraries that expect UTF-8 names, for any locale.

    >>> name_in_utf8(Path("data/nodes.csv"))
    'data/nodes.csv'
    """
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"The name of {path} is not UTF-8. Rename the file.") from None


def can_create(path: Path) -> bool:
    """Whether a file can be created in the nearest existing parent folder; tests it with a temporary file.

    Permission bits are not sufficient: the superuser may write anywhere, but not in /proc.
    """
    above = next(folder for folder in path.absolute().parents if folder.exists())
    trial = _temporary_name(above, path)  # as long a name as the file is written under
    try:
        os.close(os.open(trial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return False
    finally:
        with suppress(OSError):
            trial.unlink()
    return True


def _temporary_name(folder: Path, path: Path) -> Path:
    """Return a new name in a folder, chosen before the file is created, so that a signal cannot lose it."""
    return folder / f".{path.name}.{secrets.token_urlsafe(6)}"


def as_path(given: object, name: str) -> Path:
    """Return an argument as a path.

    >>> as_path(7, "folder")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: folder must be a path (a string or a pathlib.Path), not a int
    """
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str):
        raise ConfigError(f"{name} must be a path (a string or a pathlib.Path), not a {type(given).__name__}")
    path = Path(text)
    if "\0" in text or any(len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts):
        raise ConfigError(f"{name} is too long or contains a NUL character. Use another name.")
    return path


@contextmanager
def writing_folder(path: Path) -> Iterator[None]:
    """Convert operating system errors while a folder is written into a ``ConfigError``."""
    if not path.name:
        raise ConfigError("The output folder needs its own name, not . or /. Use a path such as runs/first.")
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> ConfigError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "make room, or choose another disk" if full else "choose another folder"
    return ConfigError(f"cannot write to {path} ({error.strerror}); {remedy}")


def check_writable(path: Path) -> None:
    """Create a folder, and raise an error if no file can be created in it."""
    try:
        make_folder(path)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise cannot_write(path, error) from error


def make_folder(path: Path, *, private: bool = False) -> None:
    """Create a folder and its parents with the permissions of the umask, but never writable for others.

    With ``private`` only the owner may read the created folders.
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
    """Write a file atomically: a reader sees the old content or the new, never a part.

    With ``private`` only its owner may read it; otherwise the umask applies.
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
        if isinstance(error, OSError) and error.filename is None:  # a full disk error has no file name
            error.filename = str(path)
        raise


@contextmanager
def atomic_folder(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` if the block succeeds, and is deleted otherwise.

    An older folder of that name is first moved aside in one step, so it is never visible half deleted. With
    ``private`` only the owner may read the contents; otherwise the umask applies.
    """
    make_folder(path.parent)
    work = _temporary_name(path.parent, path)
    try:
        work.mkdir(mode=0o700)
        yield work
        for file in work.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())  # a full disk is reported here at the latest
            if private:
                file.chmod(0o600)
        if not private:
            open_to_readers(work)
        if not path.exists():
            work.replace(path)
            return
        old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
        path.replace(old)
        try:
            work.replace(path)
        except BaseException:
            old.replace(path)
            raise
        shutil.rmtree(old)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


# -- tensors with a digest ----
_DIGEST = "sha256"


def save_checked(path: Path, tensors: "Mapping[str, Tensor]", words: Mapping[str, str] | None = None) -> None:
    """Write tensors and string metadata atomically, with a digest.

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
        if tensor.numel():  # torch cannot view every empty tensor as bytes
            hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def _damaged(path: Path) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged, so the run cannot be resumed. Start a new run in a new folder. "
        "Releases that the ledger recorded stay charged."
    )
