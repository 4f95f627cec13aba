"""What a computation takes of memory, told beforehand: a system that runs out kills without a word.

An allocation seldom fails: pages are reserved until they are touched, and who touches them then is killed. So
what follows from public sizes alone, how many nodes, features and classes there are, is compared with what is
free, before anything is spent.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from graphveil.errors import GraphError

_STATUS, _SYSTEM = Path("/proc/self/status"), Path("/proc/meminfo")
_OWN_GROUP, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_GIB = 2**30
_UNLIMITED = 1 << 60  # how some groups write that they have no limit


def free() -> int | None:
    """Return how many bytes this process may still take; None where the system does not say.

    The least of what the system has, what is left to the process's groups, and what limits of its own leave.
    """
    return min(_limits(), default=None)


def check_room(needed: float, what: str, remedy: str) -> None:
    """Refuse what needs more memory than is free.

    Args:
        needed: bytes; they may depend on public sizes alone, since they are said.
        what: what needs them, a plural.
        remedy: what to do instead.

    Raises:
        GraphError: there is less.

    >>> check_room(0, "no columns at all", "hash them into fewer places")
    """
    room = free()
    if room is not None and needed > room:
        raise GraphError(
            f"{what} take {needed / _GIB:,.1f} GiB of memory, and {max(0, room) / _GIB:,.1f} GiB are free "
            f"here; {remedy}"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; torch says so in words alone.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError("1"))
    (True, False)
    """
    words = str(error)
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in words or "CUDA out of memory" in words


def _limits() -> Iterator[int]:
    with suppress(OSError, KeyError):
        yield _kib(_SYSTEM)["MemAvailable"]
    with suppress(OSError):
        yield from _of_groups()
    yield from _of_process()


def _of_groups() -> Iterator[int]:
    """Yield what the limit of each control group above this process leaves."""
    own = next(
        (line[3:] for line in _text(_OWN_GROUP).splitlines() if line.startswith("0::")),
        "/",
    )
    folder = _GROUPS / own.lstrip("/")
    for group in (folder, *folder.parents):
        if not group.is_relative_to(_GROUPS):
            return
        with suppress(OSError, ValueError):
            most, used = (int(_text(group / name)) for name in ("memory.max", "memory.current"))
            if most < _UNLIMITED:
                lines = (line.split() for line in _text(group / "memory.stat").splitlines())
                # What the group holds of files that no process uses goes when memory is needed.
                unused = sum(int(value) for name, value in lines if name == "inactive_file")
                yield most - used + unused


def _of_process() -> Iterator[int]:
    limits = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}
    with suppress(OSError, KeyError):
        held = _kib(_STATUS)
        for name, limit in limits.items():
            most = resource.getrlimit(limit)[0]
            if most != resource.RLIM_INFINITY:
                yield most - held[name]


def _kib(path: Path) -> dict[str, int]:
    """Return a file's lines of so many kB, in bytes."""
    words = (line.split() for line in _text(path).splitlines())
    return {line[0].rstrip(":"): int(line[1]) * 1024 for line in words if line[-1:] == ["kB"]}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
