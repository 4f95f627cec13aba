"""SIGTERM and SIGHUP end a command as Ctrl-C does: its state is saved, and one line says so."""

import os
import signal
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_received = int(signal.SIGINT)


def interrupt_on_termination() -> None:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, unless the process ignores or handles them already."""
    owner = os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _received
        if os.getpid() != owner:  # a forked child ends as it would without this handler
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        _received = number
        raise KeyboardInterrupt

    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


def ignore_all() -> None:
    """Ignore further signals that end a command, once it has ended."""
    for number in (signal.SIGINT, *_ENDING):
        signal.signal(number, signal.SIG_IGN)


def exit_code() -> int:
    """Return the exit code of a command that was interrupted: 128 and the number of the signal."""
    return 128 + _received
