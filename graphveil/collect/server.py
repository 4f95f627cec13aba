"""The side of the server: it checks every LDP report, keeps one a node, and estimates."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graphveil import _check
from graphveil._typed import fitting
from graphveil.collect.message import Answer, decode
from graphveil.collect.nodes import Node, node_text
from graphveil.collect.survey import Survey
from graphveil.errors import ConfigError, MessageError
from graphveil.mechanisms._draws import Integers
from graphveil.mechanisms.local.features import Reports, Single
from graphveil.mechanisms.local.labels import LabelRR


class Collector:
    """LDP reports of one survey, at most one a node, none twice.

    What it holds is randomised already, so nothing here is private: it may be kept, copied and published.

    Args:
        survey: the public parameters.
        nodes: how many nodes there are; they are numbered from 0.
        ids: the public id by which each node's device knows it; their numbers if None.

    Raises:
        ConfigError: there is no node, or not an id of its own for each.
    """

    def __init__(self, survey: Survey, nodes: int, *, ids: Sequence[Node] | None = None) -> None:
        """Start without LDP reports."""
        fitting("ids", ids, Sequence | None)
        _check.integer_at_least(1, nodes=nodes)
        if ids is not None and (len(ids) != nodes or len(set(map(node_text, ids))) != nodes):
            raise ConfigError(f"ids must be {nodes} different ones, one for each node")
        self.survey, self.nodes = survey, nodes
        self._ids: Sequence[Node] = range(nodes) if ids is None else ids
        self._answers: dict[int, Answer] = {}

    def accept(self, message: bytes, node: int) -> None:
        """Take the LDP report of a node.

        Raises:
            MessageError: see :func:`decode`; or an LDP report of this node was taken before. The collector is
                unchanged then.
        """
        if isinstance(node, bool) or not isinstance(node, int | np.integer) or not 0 <= node < self.nodes:
            raise MessageError(
                f"there are {self.nodes} nodes, numbered from 0, and the LDP report is of another"
            )
        answer = decode(self.survey, self._ids[int(node)], message)
        if int(node) in self._answers:
            raise MessageError("this node has answered; a second answer would double what it tells")
        self._answers[int(node)] = answer

    def accept_all(self, messages: Mapping[int, bytes]) -> dict[int, str]:
        """Take the LDP reports that are in order, and return why the others were refused, by node."""
        refused = {}
        for node, message in messages.items():
            try:
                self.accept(message, node)
            except MessageError as error:
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
        reports, law = self.reports(), self.survey.features
        assert law is not None  # or there are no reports
        return np.empty((0, law.dim), dtype=np.float32) if reports is None else law.estimate(reports)

    def reports(self) -> Reports | None:
        """Return what the nodes that have answered said about their features, in ascending order.

        None if nobody has answered.

        Raises:
            ConfigError: the survey does not ask for features.
        """
        if self.survey.features is None:
            raise ConfigError("the survey does not ask for features")
        said = [report for _, answer in sorted(self._answers.items()) if (report := answer.features)]
        if not said:
            return None
        values = np.concatenate([report.values for report in said])
        indices = [report.indices for report in said if report.indices is not None]
        return Reports(values, np.concatenate(indices) if indices else None)

    def labels(self) -> Integers:
        """Return the randomised labels of the nodes that have answered, in ascending order.

        Shape (answers,), or (answers, k) where the survey's mechanism says k classes.

        Raises:
            ConfigError: the survey does not ask for labels.
        """
        if self.survey.label is None:
            raise ConfigError("the survey does not ask for labels")
        said = [answer.label for _, answer in sorted(self._answers.items())]
        several = () if isinstance(self.survey.label, LabelRR) else (self.survey.label.size,)
        return np.array(said, dtype=np.int64).reshape(len(said), *several)
