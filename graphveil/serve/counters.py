"""Counters of requests by endpoint and status, never by caller or id."""

from graphveil.serve.shared_counters import Cells, SharedCounters

OTHER = "other"
PREDICT, INVOCATIONS = PREDICTION_PATHS = ("/v1/predict", "/invocations")
PATHS = (*PREDICTION_PATHS, "/v1/privacy", "/healthz", "/metrics", "/docs", "/openapi.json", OTHER)
CLIENT_CLOSED_REQUEST = 499  # the caller went before the answer
STATUSES = (200, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, CLIENT_CLOSED_REQUEST, 500, 503)

_REQUESTS = {
    (page, status): place * len(STATUSES) + column
    for place, page in enumerate(PATHS)
    for column, status in enumerate(STATUSES)
}
_SECONDS = {page: len(_REQUESTS) + place for place, page in enumerate(PATHS)}
_UNDER_WAY = len(_REQUESTS) + len(_SECONDS)
CELLS = _UNDER_WAY + 1


class Counters:
    """Counters for ``/metrics``, in the text format of Prometheus: of one worker, and the sum of all.

    Args:
        counts: of all workers, (workers, :data:`CELLS`).
        worker: whose row this is. What was under way when it was last alone with it no longer is.
    """

    def __init__(self, counts: Cells | None = None, worker: int = 0) -> None:
        """Go on where the row stands."""
        self._all = SharedCounters.in_memory(CELLS, 0).counts if counts is None else counts
        self._own = self._all[worker]
        self._own[_UNDER_WAY] = self.under_way = 0

    def record_request(self, page: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._own[_REQUESTS.get((page, status), _REQUESTS[page, 500])] += 1
        self._own[_SECONDS[page]] += seconds

    def begin_request(self, most: int) -> bool:
        """Count a request as being answered, unless this worker has reached the limit."""
        if self.under_way >= most:
            return False
        self.under_way += 1
        self._own[_UNDER_WAY] = self.under_way
        return True

    def end_request(self) -> None:
        """Count a request as no longer being answered."""
        self.under_way -= 1
        self._own[_UNDER_WAY] = self.under_way

    def text(self) -> str:
        r"""Return the counters of all workers.

        >>> counters = Counters()
        >>> counters.record_request("/healthz", 200, 0.5)
        >>> print(counters.text().splitlines()[2])
        graphveil_requests_total{page="/healthz",status="200"} 1
        """
        whole = self._all.sum(axis=0).tolist()
        lines = [
            "# HELP graphveil_requests_total Answered requests, by endpoint and status.",
            "# TYPE graphveil_requests_total counter",
            *(
                f'graphveil_requests_total{{page="{page}",status="{status}"}} {whole[place]:.0f}'
                for (page, status), place in _REQUESTS.items()
                if whole[place]
            ),
            "# HELP graphveil_request_seconds_total Seconds to answer requests, by endpoint.",
            "# TYPE graphveil_request_seconds_total counter",
            *(
                f'graphveil_request_seconds_total{{page="{page}"}} {whole[place]:.6f}'
                for page, place in _SECONDS.items()
                if whole[place]
            ),
            "# HELP graphveil_requests_under_way Requests for predictions that are being answered.",
            "# TYPE graphveil_requests_under_way gauge",
            f"graphveil_requests_under_way {whole[_UNDER_WAY]:.0f}",
            "# HELP graphveil_workers Worker processes.",
            "# TYPE graphveil_workers gauge",
            f"graphveil_workers {len(self._all)}",
        ]
        return "\n".join(lines) + "\n"
