"""The rounds of a ClassCode release: send codes, receive noisy rows, weigh up the evidence.

One round is the rule; the variant for few labels has two, and its second round sends better codes.
"""

import math

import torch
from torch import Tensor

from graphveil.aggregate import CellQuery, HopQuery, Release, ReleasePlan, safe_unit
from graphveil.errors import ReleaseError
from graphveil.graph import Graph
from graphveil.models.base import State, nodes_of
from graphveil.models.classcode.codes import simplex_codes, soft_codes
from graphveil.models.classcode.head import head_inputs
from graphveil.models.classcode.likelihood import Affinity, affinity_from_counts, fit_shape
from graphveil.models.classcode.queries import TARGET, expected_length, groups_of, in_noise_units


class Rounds:
    """What a release has told so far, in the order of its plan: counts first, then rows round by round."""

    def __init__(self, graph: Graph, plan: ReleasePlan, release: Release) -> None:
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

    def listen(self, log_posteriors: Tensor) -> None:
        """Send labels and posteriors along the edges; keep the rows that come in."""
        hop = self.hops[len(self._rows)]
        codes = soft_codes(log_posteriors, self._codes)
        if len(self.hops) > 1:
            codes = safe_unit(codes)  # with few labels an unsure code still speaks at full voice
        labelled = self._groups != TARGET
        codes[labelled] = self._codes[self._graph.y[labelled]]
        rows = self._release.rows(codes)
        self.released[f"rows{len(self._rows) + 1}"] = rows
        self._rows.append(in_noise_units(rows, hop, self._groups))

    def evidence(self, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Return the likelihood's log-posterior, shape (N, C), and the head's inputs, for the rounds."""
        if self._affinity is None:
            raise ReleaseError("the counts come before the rows")
        # Equal rounds average: the sum of n rows over sqrt n has unit noise and sqrt n times the length.
        count = len(self._rows)
        merged = torch.stack(self._rows).sum(dim=0) / math.sqrt(count)
        length = expected_length(self.hops[0], self._groups, self._affinity.mean_degree) * math.sqrt(count)
        means = self._affinity.neighbours @ self._codes
        train_nodes = nodes_of(self._graph.mask("train"))
        _, updated = fit_shape(merged, length, means, prior.to(torch.float64), self._graph.y, train_nodes)
        # Groups receive at different weights: at equal expected length one head serves them all.
        level = (length.mean() / length.clamp_min(1e-9))[:, None]
        rows = [merged, self._rows[-1]] if count > 1 else [merged]
        return updated, head_inputs(updated, prior, [row * level for row in rows])
