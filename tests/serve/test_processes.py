"""Processes of a started server: how they stop, what they share, and what remains after kills."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledger.conftest import KINDS

import graphveil as gv
from graphveil.ledger import Ledger
from graphveil.serve import Keys
from graphveil.serve.access import RateLimiter
from graphveil.serve.app import SHARED_FOLDER, forget_dead_workers
from serve.folders import run_of
from serve.sockets import ANN, Client, Started, answers, get, request, started, starting, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")


def slow_but(quick: set[Sequence[object]], cases: Iterable[Sequence[object]]) -> list[Any]:
    """Return all cases; those that are not quick run with -m slow."""
    cases = list(cases)
    assert quick <= set(cases)
    return [pytest.param(*case, marks=() if case in quick else pytest.mark.slow) for case in cases]


# -- stopping ----------------------------------------------------------------------------------------------

# Moments that a server passes, in order, whatever the load of the machine.
MOMENTS: dict[str, Callable[[Started], bool]] = {
    "at once": lambda server: True,
    "it listens": Started.listens,
    "a first worker is there": lambda server: len(server.members()) >= 2,
    "a second worker is there": lambda server: len(server.members()) >= 4,  # and what tracks resources
    "it answers": lambda server: server.listens() and answers(server.port),
}


@pytest.mark.parametrize(
    ("workers", "moment"),
    slow_but(
        {(2, "a first worker is there")},
        # One worker is the server itself: no other process starts.
        (case for case in product((1, 2, 4), MOMENTS) if case[0] > 1 or "worker" not in case[1]),
    ),
)
def test_a_killed_server_leaves_no_process(tmp_path: Path, workers: int, moment: str) -> None:
    """A worker that survives its server would hold the port, and no one could find it."""
    with socket.create_server(("127.0.0.1", 0)) as line:
        port = int(line.getsockname()[1])
    with starting(run_of("undirected-edge", tmp_path / "run"), "--workers", workers, port=port) as server:
        until(lambda: MOMENTS[moment](server), 120)
        server.process.kill()
        server.process.wait(60)
        until(lambda: not server.members(), 60)
        socket.create_server(("127.0.0.1", port)).close()  # the port is free


@pytest.mark.parametrize(
    ("workers", "number", "moment", "whole_group"),
    slow_but(
        {
            (1, signal.SIGTERM, "a request is under way", False),
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
def test_a_stopped_server_exits_with_0(
    tmp_path: Path, workers: int, number: signal.Signals, moment: str, whole_group: bool
) -> None:
    """A terminal sends Ctrl-C to the whole group, and service managers may do so with SIGTERM."""
    with started(run_of("undirected-edge", tmp_path / "run"), "--workers", workers) as server:
        if moment != "it listens":
            until(lambda: answers(server.port), 120)
        with Client(server.port) as half:
            if moment == "a request is under way":
                half.send(request(ANN)[:-1])
                assert answers(server.port)
            if whole_group:
                os.killpg(server.process.pid, number)
            else:
                server.process.send_signal(number)
            if moment == "a request is under way":
                half.send(request(ANN)[-1:])
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


# -- what workers share ------------------------------------------------------------------------------------

COUNTING = """
import os, sys
from graphveil.serve.app import Metrics
metrics = Metrics()
metrics.record_request("/v1/predict", 200, 0.25)
if sys.argv[1] == "last":
    print(metrics.text().decode())
else:
    assert metrics.begin_request(1) and not metrics.begin_request(1)
    os.kill(os.getpid(), 9)
"""


def test_counters_of_workers_are_summed_without_requests_of_killed_ones(tmp_path: Path) -> None:
    package = Path(gv.__file__).parents[1]  # the one under test
    environment = {**os.environ, SHARED_FOLDER: str(tmp_path), "PYTHONPATH": str(package)}
    for turn in ("first", "last"):
        command = [sys.executable, "-c", COUNTING, turn]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if turn == "first":
            assert list(tmp_path.glob("gauge_livesum_*"))
            forget_dead_workers(tmp_path)
            assert not list(tmp_path.glob("gauge_livesum_*"))
    assert done.returncode == 0, done.stderr
    assert 'requests_total{page="/v1/predict",status="200"} 2.0\n' in done.stdout
    assert 'request_seconds_total{page="/v1/predict"} 0.5\n' in done.stdout
    assert "requests_under_way 0.0\n" in done.stdout
    assert "graphveil_workers 1.0\n" in done.stdout


def test_workers_share_one_rate_of_each_key(tmp_path: Path) -> None:
    workers = [RateLimiter(1.0, 10, keys=2, file=tmp_path / "rates") for _ in range(2)]
    allowed = [workers[turn % 2].wait(0, now=100.0) == 0 for turn in range(20)]
    assert allowed == [True] * 10 + [False] * 10
    assert workers[0].wait(1, now=100.0) == 0  # another key
    assert [workers[turn % 2].wait(0, now=102.0) == 0 for turn in range(3)] == [True, True, False]


# -- killed workers ----------------------------------------------------------------------------------------


@contextmanager
def asking(port: int, bodies: Sequence[object], *headers: str) -> Iterator[list[set[bytes]]]:
    """Send bodies again and again from three threads; yield the different answers to each so far."""
    found: list[set[bytes]] = [set() for _ in bodies]
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            for body, known in zip(bodies, found, strict=True):
                try:
                    with Client(port) as client:
                        status, _, content = client.send(request(body, *headers)).response()
                except OSError:
                    time.sleep(0.02)  # its worker was killed: send it again
                    continue
                if status == 200:
                    known.add(content)
                else:
                    assert status in (429, 503), content

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


@pytest.mark.slow
def test_a_worker_that_cannot_start_ends_the_server(tmp_path: Path) -> None:
    run = run_of("undirected-edge", tmp_path / "friends")
    with started(run, "--workers", 2) as server:
        until(lambda: answers(server.port), 60)
        (run / "release" / "model.json").unlink()
        until(lambda: len(server.workers()) == 2, 60)
        for one in server.workers():
            os.kill(one, signal.SIGKILL)
        assert server.process.wait(120) == 1
    log = "".join(server.lines)
    assert '"fault": "ArtifactError"' in log and "Traceback" not in log


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_releases_of_killed_workers_are_charged_and_drawn_once(place: str, tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "keys.json"
    graph = gv.load_dataset("synthetic/tiny", recipe="gap", seed=1)
    model = gv.GAP(unit="undirected-edge", epsilon=0.1, delta=1e-7, seed=1, epochs=2, encoder_epochs=2)
    model.fit(graph).save(run / "release")
    (run / "internal").mkdir()
    Ledger(place).init("callers", "undirected-edge", epsilon="5", delta="1e-6")
    bodies = [
        {"records": [{"id": one, "x": [float(number)] * 16} for one in "ab"], "edges": [["a", "b"]]}
        for number in range(6)
    ]
    key = f"Authorization: Bearer {Keys.add(file, releases=True)}"
    flags = ("--keys", file, "--workers", 2, "--allow-releases", 3, "--ledger", f"{place}#callers")
    with started(run, *flags) as server:
        until(lambda: len(server.workers()) == 2, 60)
        with asking(server.port, bodies, key) as found:
            rng = np.random.default_rng(0)
            for count in range(3):  # after another answer each time
                until(lambda count=count: sum(map(bool, found)) > count, 300)  # type: ignore[misc]
                time.sleep(float(rng.uniform(0, 1)))
                for worker in server.workers():
                    os.kill(worker, signal.SIGKILL)
                until(lambda: len(server.workers()) == 2, 60)
            until(lambda: all(found), 600)
        until(lambda: b"graphveil_workers 2.0" in get(server.port, "/metrics")[1], 60)
        budget = json.loads(get(server.port, "/v1/privacy", key)[1])["budget"]
    assert [len(one) for one in found] == [1] * len(bodies)
    assert budget["releases"] == len(bodies) == len(Ledger(place).data_set("callers"))
    assert Ledger(place).verify() == []
