"""What the server counts: requests by page and status, never by who asked or about whom."""

from collections import Counter


class Counters:
    """Figures for ``/metrics``, in Prometheus' text format."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.requests, self.under_way = Counter[tuple[str, int]](), 0

    def text(self) -> str:
        r"""Return the figures.

        >>> counters = Counters()
        >>> counters.requests["/healthz", 200] += 1
        >>> print(counters.text().splitlines()[2])
        graphveil_requests_total{page="/healthz",status="200"} 1
        """
        lines = [
            "# HELP graphveil_requests_total Requests that were answered, by page and status.",
            "# TYPE graphveil_requests_total counter",
            *(
                f'graphveil_requests_total{{page="{page}",status="{status}"}} {count}'
                for (page, status), count in sorted(self.requests.items())
            ),
            "# HELP graphveil_requests_under_way Questions that are being read or answered.",
            "# TYPE graphveil_requests_under_way gauge",
            f"graphveil_requests_under_way {self.under_way}",
        ]
        return "\n".join(lines) + "\n"
