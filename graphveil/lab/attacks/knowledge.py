"""What an attacker compares the two ends of a pair by."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.data import Graph
from graphveil.lab.attacks.matrices import dense_rows, features_of
from graphveil.lab.attacks.pairs import Pairs
from graphveil.lab.attacks.roc import Floats
from graphveil.lab.attacks.secret_edges import Integers, SecretEdges
from graphveil.lab.attacks.serving import ServedModel

_MIN_NORM = 1e-12
_NARROW = 64  # rows this narrow are also compared entry by entry


@checked
@dataclass(frozen=True, eq=False)
class AdversaryKnowledge:
    """What is known of the drawn nodes, by name.

    Args:
        rows: a matrix (n, d) each: features, public labels, posteriors, released rows.
        influence: of each drawn node on each other (n, n), if it was asked.
    """

    rows: Mapping[str, Floats]
    influence: Floats | None = None
    _likeness: dict[str, list[Floats]] = field(default_factory=dict, init=False, repr=False)

    @checked
    def columns(self, one: Integers, other: Integers) -> Floats:
        """Return what a classifier reads of each pair; the order of its ends does not matter."""
        for rows in self.rows.values():
            checks.places(len(rows), one=one, other=other)
        parts = []
        for name, rows in self.rows.items():
            parts += [matrix[one, other][:, None] for matrix in self._alike(name)]
            if rows.shape[1] <= _NARROW:
                parts += [np.abs(rows[one] - rows[other]), rows[one] * rows[other]]
        if self.influence is not None:
            there, back = (np.log(self.influence[ends] + _MIN_NORM) for ends in ((one, other), (other, one)))
            parts += [np.maximum(there, back)[:, None], np.minimum(there, back)[:, None]]
        return np.concatenate(parts, axis=1)

    def _alike(self, name: str) -> list[Floats]:
        """Return products, cosines and correlations of all pairs of rows."""
        if name not in self._likeness:
            rows = self.rows[name]
            self._likeness[name] = [rows @ rows.T, _cosines(rows), _cosines(rows - rows.mean(axis=0))]
        return self._likeness[name]


@checked
def public_knowledge(graph: Graph, pairs: Pairs) -> AdversaryKnowledge:
    """Return what everybody knows under a unit of edges: features, and labels of training and validation."""
    rows = {"features": dense_rows(features_of(graph), pairs.nodes)}
    if graph.has_split:
        known = (graph.mask("train") | graph.mask("val")).numpy()
        labels = np.zeros((graph.num_nodes, graph.num_classes))
        labels[known, graph.y.numpy()[known]] = 1
        rows["labels"] = labels[pairs.nodes]
    return AdversaryKnowledge(rows)


def aggregate_knowledge(
    public: AdversaryKnowledge, graph: Graph, edges: SecretEdges, pairs: Pairs
) -> AdversaryKnowledge:
    """Return a control: true classes of all nodes and how many neighbors each has, but of no pair whether.

    It tells how much of an attacker's gain is about nodes, which a guarantee for one edge does not hide.
    """
    labels = np.eye(graph.num_classes)[graph.y.numpy()] * graph.labeled.numpy()[:, None]
    degrees = np.log1p(edges.degrees.astype(np.float64))[:, None]
    return AdversaryKnowledge({**public.rows, "labels": labels[pairs.nodes], "degrees": degrees[pairs.nodes]})


@checked
def full_knowledge(
    public: AdversaryKnowledge, answers: ServedModel, pairs: Pairs, influence: Floats | None
) -> AdversaryKnowledge:
    """Return what is known to somebody who also has a model's answers, its released rows and influences."""
    posteriors = np.log(answers.proba[pairs.nodes] + 1e-6)
    released = {name: rows[pairs.nodes] for name, rows in answers.released.items()}
    return AdversaryKnowledge({**public.rows, "posteriors": posteriors, **released}, influence)


def _cosines(rows: Floats) -> Floats:
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _MIN_NORM)
    return np.asarray(unit @ unit.T)
