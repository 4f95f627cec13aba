"""The process: signals that end a command, and the memory that it may still use.

An allocation rarely fails: pages are reserved, and the operating system kills a process that touches too many
of them. The memory that follows from public sizes alone (nodes, features and classes) is therefore compared
with the free memory before any budget is spent.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

from graphveil.errors import GraphError

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: int | None = None


def interrupt_on_termination() -> None:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP as on SIGINT, and store which signal arrived.

    A signal that the process ignores, or handles by itself, is not changed.
    """
    owner = os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _received
        if os.getpid() != owner:  # a forked child ends as it would without this handler
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        _received = number
        raise KeyboardInterrupt

    for number in _ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, interrupt)


def ignore_all() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def received() -> bool:
    """Return whether a signal arrived: a library may have raised another error than KeyboardInterrupt."""
    return _received is not None


def exit_code() -> int:
    return 128 + (signal.SIGINT if _received is None else _received)


_STATUS, _SYSTEM = Path("/proc/self/status"), Path("/proc/meminfo")
_OWN_GROUP, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_GIB = 2**30
_UNLIMITED = 1 << 60  # how some groups write that they have no limit


# -- memory ----


def free() -> int | None:
    """Return how many bytes this process may still allocate; None if the operating system does not report it.

    The minimum of free system memory, the limits of the process's control groups, and its own limits.
    """
    return min(_limits(), default=None)


def _limits() -> Iterator[int]:
    with suppress(OSError, KeyError):
        yield _kib(_SYSTEM)["MemAvailable"]
    with suppress(OSError):
        lines = _OWN_GROUP.read_text(encoding="utf-8").splitlines()
        own = next((line[3:] for line in lines if line.startswith("0::")), "/")
        folder = _GROUPS / own.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(_GROUPS):
                break
            with suppress(OSError, ValueError):
                names = ("memory.max", "memory.current")
                most, used = (int((group / name).read_text(encoding="utf-8")) for name in names)
                if most < _UNLIMITED:
                    stat = map(str.split, (group / "memory.stat").read_text(encoding="utf-8").splitlines())
                    # Cached files that no process uses are evicted when memory is needed.
                    unused = sum(int(value) for name, value in stat if name == "inactive_file")
                    yield most - used + unused
    with suppress(OSError, KeyError):
        held = _kib(_STATUS)
        for name, limit in {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}.items():
            most = resource.getrlimit(limit)[0]
            if most != resource.RLIM_INFINITY:
                yield most - held[name]


def _kib(path: Path) -> dict[str, int]:
    """Return the lines of a file in the format of /proc/meminfo, in bytes."""
    words = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {line[0].rstrip(":"): int(line[1]) * 1024 for line in words if line[-1:] == ["kB"]}


def check_room(needed: float, what: str, remedy: str) -> None:
    """Raise an error if more memory is needed than free.

    Args:
        needed: Bytes, computed from public sizes alone, because the error prints them.

    >>> check_room(0, "no columns at all", "hash them into fewer places")
    """
    room = free()
    if room is not None and needed > room:
        raise GraphError(
            f"{what} need {needed / _GIB:,.1f} GiB of memory, but {max(0, room) / _GIB:,.1f} GiB are "
            f"available; {remedy}"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; torch reports this in the error message alone.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError("1"))
    (True, False)
    """
    words = str(error)
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in words or "CUDA out of memory" in words
