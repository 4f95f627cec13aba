"""A server that was started by its command, as others see it: processes and a socket."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from serve.sockets import until


@dataclass(eq=False)
class Started:
    """The command in a session of its own, and its log."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    port: int = 0

    def members(self) -> list[int]:
        """Return all processes of the session, which are those of the server."""
        found = []
        for one in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                fields = (one / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    found.append(int(one.name))
        return found

    def listens(self) -> bool:
        """Whether the log says where; then the port is known."""
        said = [json.loads(line) for line in list(self.lines) if '"listening"' in line]
        self.port = said[0]["port"] if said else 0
        return bool(said)

    def read(self) -> None:
        """Read the log to its end: a full pipe would block the server."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)


@contextmanager
def starting(*arguments: object, port: int = 0) -> Iterator[Started]:
    """Start the command; yield it at once."""
    command = [sys.executable, "-m", "graphveil", "serve", *map(str, arguments), "--port", str(port)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )
    one = Started(process)
    reader = threading.Thread(target=one.read, daemon=True)
    reader.start()
    try:
        yield one
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        reader.join(60)
        if process.stderr is not None:
            process.stderr.close()


@contextmanager
def started(*arguments: object, port: int = 0) -> Iterator[Started]:
    """Start the command; yield it once its log says where it listens, which it may not answer yet."""
    with starting(*arguments, port=port) as one:
        until(lambda: one.listens() or one.process.poll() is not None, 120)
        assert one.port, one.lines
        yield one
