"""The rounds of a ClassCode release: send codes, receive noisy rows, weigh up the evidence.

One round is the rule; the variant for few labels has two, and its second round sends better codes.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphveil.aggregate import CellQuery, HopQuery, Release, ReleasePlan, safe_unit
from graphveil.errors import ReleaseError
from graphveil.graph import Graph
from graphveil.models.base import State, nodes_of
from graphveil.models.classcode.codes import simplex_codes, soft_codes
from graphveil.models.classcode.head import head_inputs
from graphveil.models.classcode.likelihood import Affinity, Signal, affinity_from_counts, fit_shape
from graphveil.models.classcode.queries import TARGET, expected_length, groups_of, in_noise_units
from graphveil.models.classcode.weights import Moments, Weigher, weighted

_LEVEL_FLOOR = 0.1  # of the mean length: a head is shown no row that is noise alone at more than 10 times


class Rounds:
    """What a release has told so far, in the order of its plan: counts first, then rows round by round."""

    def __init__(
        self, graph: Graph, plan: ReleasePlan, release: Release, weigher: Weigher | None = None
    ) -> None:
        """Check that the plan is one of ClassCode's."""
        cells, *hops = plan.queries
        self.hops = [hop for hop in hops if isinstance(hop, HopQuery)]
        if not isinstance(cells, CellQuery) or len(self.hops) != len(hops):
            raise ReleaseError("a ClassCode plan holds counts first, and hops after them")
        self.released: State = {}
        self._graph, self._release, self._cells = graph, release, cells
        self._groups = groups_of(graph)
        self._codes = simplex_codes(graph.num_classes)
        self._affinity: Affinity | None = None
        self._rows: list[Tensor] = []  # one a round, in noise units
        self._weigher = weigher
        self._moments: list[Moments] = []  # one a round, of its weights

    def count(self) -> None:
        """Ask for the class-pair counts of labelled pairs."""
        labelled = self._groups != TARGET
        cells = self._release.cells(torch.where(labelled, self._graph.y, 0))
        self.released["counts"] = cells
        self._affinity = affinity_from_counts(
            cells,
            self._cells.sigma[0],
            self._graph.y[labelled],
            self._graph.num_nodes,
            directed=self._graph.directed,
        )

    def listen(self, log_posteriors: Tensor, seen: Tensor, generator: torch.Generator) -> None:
        """Send labels and posteriors along the edges; keep the rows that come in.

        Args:
            log_posteriors: what nodes without a label send a code of.
            seen: what weights, if there are any, see of every node: posteriors without its own label.
            generator: draws the nodes from which the mean of the weights is estimated.
        """
        hop = self.hops[len(self._rows)]
        codes = soft_codes(log_posteriors, self._codes)
        if len(self.hops) > 1:
            codes = safe_unit(codes)  # with few labels an unsure code still speaks at full voice
        labelled = self._groups != TARGET
        codes[labelled] = self._codes[self._graph.y[labelled]]
        keys = None if self._weigher is None else self._weigher.keys(self._graph.x, seen)
        rows = self._release.rows(codes, keys)
        if self._weigher is not None and keys is not None:
            self._moments.append(self._weigher.moments(keys, self._classes(log_posteriors), generator))
        self.released[f"rows{len(self._rows) + 1}"] = rows
        self._rows.append(in_noise_units(rows, hop, self._groups))

    def evidence(self, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Return the likelihood's log-posterior, shape (N, C), and the head's inputs, for the rounds."""
        # Equal rounds average: the sum of n rows over sqrt n has unit noise and sqrt n times the length.
        count = len(self._rows)
        merged = torch.stack(self._rows).sum(dim=0) / math.sqrt(count)
        signal = self._signal()
        train_nodes = nodes_of(self._graph.mask("train"))
        _, updated = fit_shape(merged, signal, prior.to(torch.float64), self._graph.y, train_nodes)
        # Nodes receive at different weights: at equal expected length one head serves them all.
        mean = signal.length.mean()
        least = 1e-9 if self._weigher is None else _LEVEL_FLOOR * float(mean)
        level = (mean / signal.length.clamp_min(least))[:, None]
        rows = [merged, self._rows[-1]] if count > 1 else [merged]
        return updated, head_inputs(updated, prior, [row * level for row in rows])

    def _signal(self) -> Signal:
        """Return what the merged rows are expected to be."""
        if self._affinity is None:
            raise ReleaseError("the counts come before the rows")
        degree, between = self._affinity.mean_degree, self._affinity.neighbours
        length = expected_length(self.hops[0], self._groups, degree) * math.sqrt(len(self._rows))
        plain = Signal(length, between @ self._codes, torch.ones((), dtype=torch.float64))
        if self._weigher is None:
            return plain
        moments, bound = Moments.averaged(self._moments), self._weigher.similarity.bound
        return weighted(plain, between, self._codes, moments, bound)

    def _classes(self, log_posteriors: Tensor) -> Tensor:
        """Return what is publicly known of each node's class: its label, or its posterior, (N, C)."""
        classes = log_posteriors.exp().to(torch.float64)
        labelled = self._groups != TARGET
        classes[labelled] = one_hot(self._graph.y[labelled], classes.shape[1]).to(torch.float64)
        return classes
