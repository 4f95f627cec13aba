"""The side of the server: it checks every LDP report, keeps one a node, and estimates."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.typed import fitting
from graphveil.errors import ConfigError, LDPReportError
from graphveil.local.collect.encoded_report import LDPReport, decode
from graphveil.local.collect.nodes import Node, node_text
from graphveil.local.collect.protocol import CollectionProtocol
from graphveil.mechanisms.features import LDPReports, Single
from graphveil.mechanisms.labels import LabelRR
from graphveil.mechanisms.sampling import Integers


class Collector:
    """LDP reports of one survey, at most one a node, none twice.

    What it holds is randomized already, so nothing here is private: it may be kept, copied and published.

    Args:
        protocol: the public parameters.
        nodes: how many nodes there are; they are numbered from 0.
        ids: the public id by which each node's device knows it; their numbers if None.

    Raises:
        ConfigError: there is no node, or not an id of its own for each.
    """

    def __init__(
        self, protocol: CollectionProtocol, nodes: int, *, ids: Sequence[Node] | None = None
    ) -> None:
        """Start without LDP reports."""
        fitting("ids", ids, Sequence | None)
        checks.integer_at_least(1, nodes=nodes)
        if ids is not None and (len(ids) != nodes or len(set(map(node_text, ids))) != nodes):
            raise ConfigError(f"ids must be {nodes} different ones, one for each node")
        self.protocol, self.nodes = protocol, nodes
        self._ids: Sequence[Node] = range(nodes) if ids is None else ids
        self._answers: dict[int, LDPReport] = {}

    def accept(self, encoded_report: bytes, node: int) -> None:
        """Take the LDP report of a node.

        Raises:
            LDPReportError: see :func:`decode`; or an LDP report of this node was taken before. The collector
                is unchanged then.
        """
        if isinstance(node, bool) or not isinstance(node, int | np.integer) or not 0 <= node < self.nodes:
            raise LDPReportError(
                f"there are {self.nodes} nodes, numbered from 0, and the LDP report is of another"
            )
        answer = decode(self.protocol, self._ids[int(node)], encoded_report)
        if int(node) in self._answers:
            raise LDPReportError("this node has answered; a second answer would double what it tells")
        self._answers[int(node)] = answer

    def accept_all(self, encoded_reports: Mapping[int, bytes]) -> dict[int, str]:
        """Take the LDP reports that are in order, and return why the others were refused, by node."""
        refused = {}
        for node, encoded_report in encoded_reports.items():
            try:
                self.accept(encoded_report, node)
            except LDPReportError as error:
                refused[node] = str(error)
        return refused

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which nodes have answered, shape (nodes,)."""
        answered = np.zeros(self.nodes, dtype=bool)
        answered[list(self._answers)] = True
        return answered

    def features(self) -> Single:
        """Return the estimated features of the nodes that have answered, in ascending order.

        Raises:
            ConfigError: the survey does not ask for features.
        """
        reports, law = self.reports(), self.protocol.features
        assert law is not None  # or there are no reports
        return np.empty((0, law.dim), dtype=np.float32) if reports is None else law.estimate(reports)

    def reports(self) -> LDPReports | None:
        """Return what the nodes that have answered said about their features, in ascending order.

        None if nobody has answered.

        Raises:
            ConfigError: the survey does not ask for features.
        """
        if self.protocol.features is None:
            raise ConfigError("the survey does not ask for features")
        reported = [report for _, answer in sorted(self._answers.items()) if (report := answer.features)]
        if not reported:
            return None
        values = np.concatenate([report.values for report in reported])
        indices = [report.indices for report in reported if report.indices is not None]
        return LDPReports(values, np.concatenate(indices) if indices else None)

    def labels(self) -> Integers:
        """Return the randomized labels of the nodes that have answered, in ascending order.

        Shape (answers,), or (answers, k) where the survey's mechanism says k classes.

        Raises:
            ConfigError: the survey does not ask for labels.
        """
        if self.protocol.label is None:
            raise ConfigError("the survey does not ask for labels")
        reported = [answer.label for _, answer in sorted(self._answers.items())]
        several = () if isinstance(self.protocol.label, LabelRR) else (self.protocol.label.size,)
        return np.array(reported, dtype=np.int64).reshape(len(reported), *several)
