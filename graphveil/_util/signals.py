"""Signals that end a command: they interrupt it, and its exit code depends on the signal."""

import os
import signal
from types import FrameType

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
    """Ignore further signals that end a command, once it has ended."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def received() -> bool:
    """Return whether a signal arrived: a library may have raised another error than KeyboardInterrupt."""
    return _received is not None


def exit_code() -> int:
    """Return the exit code of a command that was interrupted: 128 and the number of the signal."""
    return 128 + (signal.SIGINT if _received is None else _received)
