"""Processes of a started server: how they stop, and that none of them is left behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from serve.folders import run_of
from serve.sockets import Client, request, until
from serve.started import Started, started, starting

GOOD = request({"ids": ["ann"]})
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as line:
        return int(line.getsockname()[1])


def can_listen(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def answers(server: Started) -> bool:
    if not server.listens():
        return False
    with Client(server.port) as client:
        return client.say(GOOD).status() == 200


# Moments that a server passes, in order, whatever the load of the machine.
MOMENTS: dict[str, Callable[[Started], bool]] = {
    "at once": lambda server: True,
    "it listens": Started.listens,
    "a first worker is there": lambda server: len(server.members()) >= 2,
    "a second worker is there": lambda server: len(server.members()) >= 4,  # and what tracks resources
    "it answers": answers,
}


def slow_but(quick: set[Sequence[object]], cases: Iterable[Sequence[object]]) -> list[Any]:
    """Return all cases; the slow ones run with -m slow."""
    cases = list(cases)
    assert quick <= set(cases)
    return [pytest.param(*case, marks=() if case in quick else pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(
    ("workers", "moment"),
    slow_but(
        {(1, "at once"), (2, "a first worker is there")},
        # One worker is the server itself: no other process starts.
        (case for case in product((1, 2, 4), MOMENTS) if case[0] > 1 or "worker" not in case[1]),
    ),
)
def test_a_server_that_is_killed_leaves_no_process(tmp_path: Path, workers: int, moment: str) -> None:
    """A worker that outlives its server would hold the port, and nobody would know whom to stop."""
    port = free_port()
    with starting(run_of("undirected-edge", tmp_path / "run"), "--workers", workers, port=port) as server:
        until(lambda: MOMENTS[moment](server), 120)
        server.process.kill()
        server.process.wait(60)
        until(lambda: not server.members(), 60)
        assert can_listen(port)


@pytest.mark.parametrize(
    ("workers", "number", "moment", "whole_group"),
    slow_but(
        {
            (1, signal.SIGTERM, "a request is under way", False),
            (1, signal.SIGTERM, "it listens", True),
            (2, signal.SIGINT, "it answers", True),
        },
        product(
            (1, 2),
            (signal.SIGTERM, signal.SIGINT),
            ("it listens", "it answers", "a request is under way"),
            (False, True),
        ),
    ),
)
def test_a_server_that_is_told_to_stop_exits_with_0(
    tmp_path: Path, workers: int, number: signal.Signals, moment: str, whole_group: bool
) -> None:
    """A terminal sends Ctrl-C to the whole group, and what stops services may do so with SIGTERM."""
    run = run_of("undirected-edge", tmp_path / "run")
    with started(run, "--workers", workers) as server:
        if moment != "it listens":
            until(lambda: answers(server), 120)
        with Client(server.port) as half:
            if moment == "a request is under way":
                half.say(GOOD[:-1])
                assert answers(server)
            if whole_group:
                os.killpg(server.process.pid, number)
            else:
                server.process.send_signal(number)
            if moment == "a request is under way":
                half.say(GOOD[-1:])
            assert server.process.wait(60) == 0
        until(lambda: not server.members(), 60)
    assert not any("Traceback" in line for line in server.lines), server.lines


@pytest.mark.parametrize("workers", [1, 2])
def test_signals_are_handled_once_the_address_is_announced(tmp_path: Path, workers: int) -> None:
    """The server signals itself with the line, so that no moment depends on the machine."""
    script = (
        "import os, signal\n"
        "from graphveil import __main__\n"
        "from graphveil.serve import server\n"
        "announce = server.log_startup\n"
        "def announced(*given):\n"
        "    announce(*given)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "server.log_startup = announced\n"
        "if __name__ == '__main__':\n"
        "    __main__.main()\n"
    )
    (tmp_path / "server.py").write_text(script)  # a file, which workers that are spawned can import
    run = run_of("undirected-edge", tmp_path / "run")
    command = [sys.executable, tmp_path / "server.py", "serve", run, "--port", "0", "--workers", str(workers)]
    assert subprocess.run(command, capture_output=True, timeout=300).returncode == 0
