"""The server beside a bare FastAPI route: questions a second and how long they take, under one generator.

    python benchmarks/serve.py                      # one worker each, alternating
    python benchmarks/serve.py --workers 2          # what two cores answer, if nothing else runs on them

The bare route takes the same question in the same shape and answers with a constant of the same size, from
the same uvicorn: no key, no log, no bound. Both answer 127.0.0.1 alone, and one process of this file asks: so
many connections at a time, each with one question under way. Rounds alternate and what is compared are ratios
within a round, as other work on the machine slows both.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch

CLASSES, MOST = 8, 200_000


class Asker(asyncio.Protocol):
    """One connection: asks, waits for the whole answer, and asks again until the time is over."""

    def __init__(
        self, questions: list[bytes], until: float, seconds: list[float], statuses: set[int]
    ) -> None:
        """Take the questions, and the lists that all connections add to."""
        self._questions, self._until, self._seconds = questions, until, seconds
        self._statuses, self._left, self._heard, self._place = statuses, 0, bytearray(), 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the first question."""
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        if time.perf_counter() > self._until or len(self._seconds) > MOST:
            self._transport.close()
            return
        self._place = (self._place + 1) % len(self._questions)
        self._began = time.perf_counter()
        self._transport.write(self._questions[self._place])

    def data_received(self, data: bytes) -> None:
        """Wait for the whole answer; note its time, and go on."""
        self._heard += data
        end = self._heard.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._heard[:end]).lower()
        length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        if len(self._heard) < end + 4 + length:
            return
        self._seconds.append(time.perf_counter() - self._began)
        self._statuses.add(int(head[9:12]))
        self._heard.clear()
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        """Be done."""
        if not self.done.done():
            self.done.set_result(None)


async def load(port: int, questions: list[bytes], seconds: float, connections: int) -> dict[str, float]:
    """Ask for some seconds; return the rate and the times in milliseconds."""
    loop, times, statuses = asyncio.get_running_loop(), list[float](), set[int]()
    began = time.perf_counter()
    askers = [
        await loop.create_connection(
            lambda place=place: Asker(questions[place::connections], began + seconds, times, statuses),
            "127.0.0.1",
            port,
        )
        for place in range(connections)
    ]
    await asyncio.gather(*(asker.done for _, asker in askers))
    took = time.perf_counter() - began
    if statuses != {200}:
        raise SystemExit(f"answers of status {sorted(statuses)}")
    p50, p99 = np.quantile(times, (0.5, 0.99)) * 1000
    return {"count": float(len(times)), "rate": len(times) / took, "p50": float(p50), "p99": float(p99)}


def question(number: int, key: str) -> bytes:
    """Return a whole request for one id."""
    body = json.dumps({"ids": [f"u{number}"]}).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def run_of(folder: Path, nodes: int) -> Path:
    """Write a run whose predictions are random: what is measured does not depend on them."""
    from graphveil.artifacts.release_folder import write_release
    from graphveil.artifacts.snapshot import Snapshot
    from graphveil.privacy import Gaussian, Guarantee, UndirectedEdge

    proba = torch.rand(nodes, CLASSES, generator=torch.Generator().manual_seed(1)).softmax(dim=1)
    snapshot = Snapshot(
        method="gap",
        parameters={},
        features=2,
        classes=CLASSES,
        nodes=nodes,
        class_names=tuple(f"t{number}" for number in range(CLASSES)),
        guarantee=Guarantee.from_event(UndirectedEdge(), Gaussian(0.2), delta=1e-6, releases=1),
        state={"w": torch.zeros(2)},
        released={"hop": torch.zeros(nodes, 2)},
        proba=proba,
        ids=np.array([f"u{number}" for number in range(nodes)], dtype=object),
    )
    write_release(snapshot, folder / "release")
    return folder


def bare() -> None:
    """Serve the bare route until a signal; its port is the first line."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from graphveil.serve.server import bind_socket

    class Question(BaseModel):
        ids: list[str]

    app = FastAPI()
    row = {"prediction": "t1", **{f"p_t{number}": 0.1234567890123456 for number in range(CLASSES)}}

    @app.post("/v1/predict")
    async def predict(question: Question) -> dict[str, object]:
        return {"run": "bench", "predictions": [{"node": one, **row} for one in question.ids]}

    with bind_socket("127.0.0.1", 0) as line:
        print(line.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[line])


@dataclass(frozen=True)
class Server:
    """A server that was started: its port, and the process whose time is measured."""

    port: int
    process: int

    def cpu(self) -> float:
        """Return the processor's seconds that it and its workers have taken, where /proc tells."""
        return sum(map(_seconds, [self.process, *_children(self.process)]))


def _seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """Start a server; yield it."""
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline()) if command[-1] == "--bare" else _port(process, log)
            yield Server(port, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


def _port(process: subprocess.Popen[str], log: IO[bytes]) -> int:
    """Return the port in the first line of the server's log."""
    for _ in range(900):
        time.sleep(0.1)
        log.seek(0)
        for line in log.read().decode().splitlines():
            if '"port"' in line:
                return int(json.loads(line)["port"])
        if process.poll() is not None:
            break
    raise SystemExit("the server did not start")


def measured(server: Server, asked: list[bytes], seconds: float, connections: int) -> dict[str, float]:
    """Ask for some seconds; return the figures, with the processor's time of an answer in microseconds."""
    before = server.cpu()
    found = asyncio.run(load(server.port, asked, seconds, connections))
    return {**found, "cpu": (server.cpu() - before) / found["count"] * 1e6}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=1, help="of ours; the bare route has one")
    given = parser.parse_args()
    if given.bare:
        bare()
        return
    from graphveil.serve import Keys

    with tempfile.TemporaryDirectory() as name:
        run, file = run_of(Path(name) / "bench", given.nodes), Path(name) / "keys.json"
        key = Keys.add(file)
        asked = [question(number, key) for number in range(0, given.nodes, 7)]
        flags = ["--keys", str(file), "--workers", str(given.workers), "--port", "0"]
        found: dict[str, list[dict[str, float]]] = {"bare": [], "ours": []}
        ours = ["-m", "graphveil", "serve", str(run), *flags]
        with started([__file__, "--bare"]) as first, started(ours) as second:
            servers = {"bare": first, "ours": second}
            for server in servers.values():
                measured(server, asked, 1.0, given.connections)
            for place in range(given.rounds):
                for one in list(servers)[:: 1 if place % 2 else -1]:
                    found[one].append(measured(servers[one], asked, given.seconds, given.connections))
    for one, rounds in found.items():
        middle = {part: statistics.median(each[part] for each in rounds) for part in rounds[0]}
        print(
            f"{one:5} {middle['rate']:6.0f} a second, p50 {middle['p50']:6.2f} ms, "
            f"p99 {middle['p99']:6.2f} ms, processor {middle['cpu']:5.0f} us an answer"
        )
    for part in ("rate", "p99", "cpu"):
        pairs = zip(found["ours"], found["bare"], strict=True)
        ratios = sorted(mine[part] / theirs[part] for mine, theirs in pairs)
        middle_one = statistics.median(ratios)
        print(f"{part}, ours to bare: median {middle_one:.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
