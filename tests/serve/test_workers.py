"""Several workers: one rate, one set of counts, and nothing that is lost with one of them."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from ledger.conftest import KINDS

import graphveil as gv
from graphveil.ledger import Ledger
from graphveil.serve import Keys
from graphveil.serve.access import RateLimiter
from graphveil.serve.middleware import SHARED_FOLDER, forget_dead_workers
from serve.folders import run_of
from serve.sockets import Client, request, until
from serve.test_command import serving

ANN = {"ids": ["ann"]}


COUNTING = """
import os, sys
from graphveil.serve.middleware import Metrics
metrics = Metrics()
metrics.record_request("/v1/predict", 200, 0.25)
if sys.argv[1] == "last":
    print(metrics.text().decode())
else:
    assert metrics.begin_request(1) and not metrics.begin_request(1)
    os.kill(os.getpid(), 9)
"""


def test_workers_add_up_what_they_count_and_forget_what_killed_ones_did(tmp_path: Path) -> None:
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


def test_workers_keep_one_rate(tmp_path: Path) -> None:
    workers = [RateLimiter(1.0, 10, keys=2, file=tmp_path / "rates") for _ in range(2)]
    let_in = [workers[turn % 2].wait(0, now=100.0) == 0 for turn in range(20)]
    assert let_in == [True] * 10 + [False] * 10
    assert workers[0].wait(1, now=100.0) == 0  # another key
    assert [workers[turn % 2].wait(0, now=102.0) == 0 for turn in range(3)] == [True, True, False]


def worker_ids(supervisor: int) -> list[int]:
    """Return the processes that answer, whose parent is the one that was started."""
    found = []
    for one in Path("/proc").iterdir():
        if one.name.isdigit():
            try:
                fields = (one / "stat").read_text().rpartition(")")[2].split()
                command = (one / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == supervisor and b"spawn_main" in command:
                found.append(int(one.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers in /proc")
def test_a_worker_that_is_killed_is_followed_by_another_and_nothing_is_lost(tmp_path: Path) -> None:
    run = run_of("undirected-edge", tmp_path / "friends")
    answers, over, errors = set[bytes](), threading.Event(), list[str]()

    def ask_on(port: int) -> None:
        while not over.is_set():
            try:
                with Client(port) as client:
                    for _ in range(20):
                        answers.add(client.say(request(ANN)).response()[2])
            except OSError:  # its worker was killed: ask again
                errors.append("again")
                time.sleep(0.02)

    with serving(run, "--workers", 2) as (process, address):
        port = int(address.rpartition(":")[2])
        threading.Thread(target=lambda: list(process.stderr or ()), daemon=True).start()  # a full log blocks
        until(lambda: len(worker_ids(process.pid)) == 2, 60)
        with Client(port) as client:
            client.say(request(ANN)).response()
        clients = [threading.Thread(target=ask_on, args=(port,), daemon=True) for _ in range(3)]
        for one in clients:
            one.start()
        try:
            for _ in range(3):
                before = worker_ids(process.pid)
                os.kill(before[0], signal.SIGKILL)
                until(lambda before=before: bool({*worker_ids(process.pid)} - {*before}), 60)  # type: ignore[misc]
                time.sleep(1.0)
        finally:  # whatever comes out, nobody asks on
            over.set()
            for one in clients:
                one.join(60)
        assert len(answers) == 1
        with Client(port) as client:
            assert json.loads(client.say(request(ANN)).response()[2])["predictions"][0]["node"] == "ann"
        until(lambda: b"graphveil_workers 2.0" in _get(port, "/metrics"), 60)
        last = worker_ids(process.pid)
        process.kill()  # and nobody is left behind who would hold the port
        until(lambda: not any(Path(f"/proc/{one}/cmdline").exists() for one in last), 30)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.slow
def test_workers_stop_together_and_one_that_cannot_start_ends_all(tmp_path: Path) -> None:
    run = run_of("undirected-edge", tmp_path / "friends")
    with serving(run, "--workers", 2) as (process, address):
        with Client(int(address.rpartition(":")[2])) as client:
            assert client.say(request(ANN)).status() == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    with serving(run, "--workers", 2) as (process, address):
        with Client(int(address.rpartition(":")[2])) as client:
            assert client.say(request(ANN)).status() == 200
        (run / "release" / "model.json").unlink()
        until(lambda: len(worker_ids(process.pid)) == 2, 60)
        for one in worker_ids(process.pid):
            os.kill(one, signal.SIGKILL)
        assert process.wait(120) == 1
        assert process.stderr is not None
        told = process.stderr.read()
        assert '"fault": "ArtifactError"' in told
        assert "Traceback" not in told


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_are_killed_while_they_release_book_once_and_draw_once(
    place: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    graph = gv.load_dataset("synthetic/tiny", recipe="gap", seed=1)
    model = gv.GAP(unit="undirected-edge", epsilon=0.1, delta=1e-7, seed=1, epochs=2, encoder_epochs=2)
    model.fit(graph).save(run / "release")
    (run / "internal").mkdir()
    Ledger(place).init("callers", "undirected-edge", epsilon="5", delta="1e-6")
    questions = [
        {"records": [{"id": one, "x": [float(number)] * 16} for one in "ab"], "edges": [["a", "b"]]}
        for number in range(6)
    ]
    file = tmp_path / "keys.json"
    key = f"Authorization: Bearer {Keys.add(file, releases=True)}"
    answers: list[set[bytes]] = [set() for _ in questions]
    over, said = threading.Event(), threading.Event()

    def ask_on(port: int) -> None:
        while not over.is_set():
            for question, known in zip(questions, answers, strict=True):
                try:
                    with Client(port) as client:
                        status, _, body = client.say(request(question, key)).response()
                except OSError:
                    time.sleep(0.02)  # its worker was killed: ask again
                    continue
                said.set()
                if status == 200:
                    known.add(body)
                else:
                    assert status in (429, 503), body

    flags = ("--keys", file, "--workers", 2, "--allow-releases", 3, "--ledger", f"{place}#callers")
    with serving(run, *flags) as (process, address):
        port = int(address.rpartition(":")[2])
        until(lambda: len(worker_ids(process.pid)) == 2, 60)
        clients = [threading.Thread(target=ask_on, args=(port,), daemon=True) for _ in range(3)]
        for one in clients:
            one.start()
        try:
            _kill_all(process.pid, said)
            until(lambda: all(answers), 600)
        finally:  # whatever comes out, nobody asks on
            over.set()
            for one in clients:
                one.join(60)
        budget = json.loads(_get(port, "/v1/privacy", key))["budget"]
    assert [len(one) for one in answers] == [1] * len(questions)
    assert budget["releases"] == len(questions)
    assert len(Ledger(place).data_set("callers")) == len(questions)
    assert Ledger(place).verify() == []


def _get(port: int, page: str, header: str = "X: y") -> bytes:
    with Client(port) as client:
        return client.say(f"GET {page} HTTP/1.1\r\nHost: h\r\n{header}\r\n\r\n".encode()).response()[2]


def _kill_all(server: int, said: threading.Event) -> None:
    """Kill both workers three times, each time soon after somebody was answered.

    A new worker imports PyTorch before it answers, which takes most of the time of this test.
    """
    rng = np.random.default_rng(0)
    for _ in range(3):
        said.clear()
        assert said.wait(300)
        time.sleep(float(rng.uniform(0, 1)))
        for worker in worker_ids(server):
            os.kill(worker, signal.SIGKILL)
        until(lambda: len(worker_ids(server)) == 2, 60)
