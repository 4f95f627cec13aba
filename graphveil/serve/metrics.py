"""Counters for ``/metrics`` by endpoint and status, never by caller or id."""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # of prometheus_client: the folder of all workers
OTHER = "other"
PREDICTION_PATHS = ("/v1/predict", "/invocations")
PATHS = (*PREDICTION_PATHS, "/v1/privacy", "/healthz", "/metrics", "/docs", "/openapi.json", OTHER)
CLIENT_CLOSED_REQUEST = 499  # the caller went before the answer


class Metrics:
    """Counters of one worker. With several workers, ``text`` returns the sums of all."""

    def __init__(self) -> None:
        """Start to count."""
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "graphveil_requests",
            "Answered requests, by endpoint and status.",
            ["page", "status"],
            registry=self._registry,
        )
        self._seconds = Counter(
            "graphveil_request_seconds",
            "Seconds to answer requests, by endpoint.",
            ["page"],
            registry=self._registry,
        )
        self._under_way = Gauge(
            "graphveil_requests_under_way",
            "Requests for predictions that are being answered.",
            multiprocess_mode="livesum",
            registry=self._registry,
        )
        Gauge(
            "graphveil_workers", "Worker processes.", multiprocess_mode="livesum", registry=self._registry
        ).set(1)
        self.under_way = 0

    def record_request(self, page: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(page, status).inc()
        self._seconds.labels(page).inc(seconds)

    def begin_request(self, most: int) -> bool:
        """Count a request as being answered, unless this worker has reached the limit."""
        if self.under_way >= most:
            return False
        self.under_way += 1
        self._under_way.set(self.under_way)
        return True

    def end_request(self) -> None:
        """Count a request as no longer being answered."""
        self.under_way -= 1
        self._under_way.set(self.under_way)

    def text(self) -> bytes:
        """Return the counters of all workers.

        >>> metrics = Metrics()
        >>> metrics.record_request("/healthz", 200, 0.5)
        >>> print(metrics.text().decode().splitlines()[2])
        graphveil_requests_total{page="/healthz",status="200"} 1.0
        """
        registry = self._registry
        if SHARED_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def forget_dead_workers(folder: Path) -> None:
    """Remove what killed workers were doing, which would be counted as under way without end."""
    for file in folder.glob("gauge_livesum_*.db"):
        process = int(file.stem.rpartition("_")[2])
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            mark_process_dead(process, str(folder))  # type: ignore[no-untyped-call]
