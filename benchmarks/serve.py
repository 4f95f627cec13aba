"""Measure the request rate and the latency of the prediction server, compared with a plain FastAPI route.

    python benchmarks/serve.py                      # one worker each, alternating
    python benchmarks/serve.py --workers 2          # two workers of the prediction server

The plain route receives the same requests and returns a constant response of the same size, from the same
uvicorn, without API keys, logs and limits. Both listen on 127.0.0.1. This process sends the requests over a
number of connections, each with one open request. The servers alternate, and ratios are taken within a round,
because other processes slow down both.
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

CLASSES, MAX_REQUESTS = 8, 200_000


class Connection(asyncio.Protocol):
    """One connection: sends a request, waits for the response, and repeats until the time is over."""

    def __init__(self, requests: list[bytes], until: float, seconds: list[float], statuses: set[int]) -> None:
        """Store the requests, and the lists that all connections append to."""
        self._requests, self._until, self._seconds = requests, until, seconds
        self._statuses, self._received, self._place = statuses, bytearray(), 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = transport
        self._send()

    def _send(self) -> None:
        if time.perf_counter() > self._until or len(self._seconds) > MAX_REQUESTS:
            self._transport.close()
            return
        self._place = (self._place + 1) % len(self._requests)
        self._start = time.perf_counter()
        self._transport.write(self._requests[self._place])

    def data_received(self, data: bytes) -> None:
        """Wait for the whole response, store its time, and send the next request."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        if len(self._received) < end + 4 + length:
            return
        self._seconds.append(time.perf_counter() - self._start)
        self._statuses.add(int(head[9:12]))
        self._received.clear()
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """Set the result."""
        if not self.done.done():
            self.done.set_result(None)


async def load(port: int, requests: list[bytes], seconds: float, connections: int) -> dict[str, float]:
    """Send requests for some seconds. Return the rate, and the latencies in milliseconds."""
    loop, times, statuses = asyncio.get_running_loop(), list[float](), set[int]()
    start = time.perf_counter()
    clients = [
        await loop.create_connection(
            lambda place=place: Connection(requests[place::connections], start + seconds, times, statuses),
            "127.0.0.1",
            port,
        )
        for place in range(connections)
    ]
    await asyncio.gather(*(client.done for _, client in clients))
    elapsed = time.perf_counter() - start
    if statuses != {200}:
        raise SystemExit(f"responses with status {sorted(statuses)}")
    p50, p99 = np.quantile(times, (0.5, 0.99)) * 1000
    return {"count": float(len(times)), "rate": len(times) / elapsed, "p50": float(p50), "p99": float(p99)}


def request(number: int, key: str) -> bytes:
    """Return an HTTP request for one id."""
    body = json.dumps({"ids": [f"u{number}"]}).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def write_run(folder: Path, nodes: int) -> Path:
    """Write a run with random predictions, which do not affect the measurement."""
    from graphveil.core.events import Gaussian
    from graphveil.core.unit import UndirectedEdge
    from graphveil.privacy import Guarantee
    from graphveil.publish.release_folder import write_release
    from graphveil.publish.schemas import Snapshot

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


def serve_plain() -> None:
    """Serve the plain route until a signal. Print its port first."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from graphveil.serve.server import bind_socket

    class Request(BaseModel):
        ids: list[str]

    app = FastAPI()
    row = {"prediction": "t1", **{f"p_t{number}": 0.1234567890123456 for number in range(CLASSES)}}

    @app.post("/v1/predict")
    async def predict(request: Request) -> dict[str, object]:
        return {"run": "bench", "predictions": [{"node": one, **row} for one in request.ids]}

    with bind_socket("127.0.0.1", 0) as socket:
        print(socket.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[socket])


@dataclass(frozen=True)
class Server:
    """A running server: its port, and the process whose CPU time is measured."""

    port: int
    process: int

    def cpu(self) -> float:
        """Return the CPU seconds of the server and its workers, from /proc."""
        return sum(map(_seconds, [self.process, *_children(self.process)]))


def _seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """Start a server, and yield it."""
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline()) if command[-1] == "--plain" else _port(process, log)
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


def measured(server: Server, requests: list[bytes], seconds: float, connections: int) -> dict[str, float]:
    """Send requests for some seconds. Return the measurements, with CPU microseconds per response."""
    before = server.cpu()
    result = asyncio.run(load(server.port, requests, seconds, connections))
    return {**result, "cpu": (server.cpu() - before) / result["count"] * 1e6}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of one measurement")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--connections", type=int, default=16, help="number of connections")
    parser.add_argument("--nodes", type=int, default=20_000, help="number of nodes of the run")
    parser.add_argument(
        "--workers", type=int, default=1, help="workers of the prediction server; the plain route has one"
    )
    options = parser.parse_args()
    if options.plain:
        serve_plain()
        return
    from graphveil.serve import Keys

    with tempfile.TemporaryDirectory() as name:
        run, file = write_run(Path(name) / "bench", options.nodes), Path(name) / "keys.json"
        key = Keys.add(file)
        requests = [request(number, key) for number in range(0, options.nodes, 7)]
        flags = ["--keys", str(file), "--workers", str(options.workers), "--port", "0"]
        results: dict[str, list[dict[str, float]]] = {"fastapi": [], "graphveil": []}
        command = ["-m", "graphveil", "serve", str(run), *flags]
        with started([__file__, "--plain"]) as first, started(command) as second:
            servers = {"fastapi": first, "graphveil": second}
            for server in servers.values():
                measured(server, requests, 1.0, options.connections)
            for place in range(options.rounds):
                for one in list(servers)[:: 1 if place % 2 else -1]:
                    results[one].append(
                        measured(servers[one], requests, options.seconds, options.connections)
                    )
    for one, rounds in results.items():
        middle = {part: statistics.median(each[part] for each in rounds) for part in rounds[0]}
        print(
            f"{one:9} {middle['rate']:6.0f} requests per second, p50 {middle['p50']:6.2f} ms, "
            f"p99 {middle['p99']:6.2f} ms, CPU {middle['cpu']:5.0f} us per response"
        )
    for part in ("rate", "p99", "cpu"):
        pairs = zip(results["graphveil"], results["fastapi"], strict=True)
        ratios = sorted(own[part] / plain[part] for own, plain in pairs)
        middle_one = statistics.median(ratios)
        print(
            f"{part}, graphveil / fastapi: median {middle_one:.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}"
        )


if __name__ == "__main__":
    main()
