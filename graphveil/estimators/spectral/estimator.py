"""Spectral: node classification by whom a node is listed with, instead of by whom it is linked to."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil._util import checks
from graphveil.errors import ConfigError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.estimators.requirements import check_local, check_on_cpu
from graphveil.estimators.spectral.method import SpectralMethod, neighbor_list_source
from graphveil.perturb.mechanism import MAX_EDGES
from graphveil.privacy import NoUnit, UndirectedEdge

MAX_RANK = 4096


@dataclass(kw_only=True, eq=False, repr=False)
class Spectral(Estimator):
    """Labeled nodes with a like list of neighbors vote on a node's class, beside its features.

    For graphs whose neighbors are *not* of one class, as pages of an encyclopedia that link to each other:
    there a count of neighbors by class (ClassCode), or any mean of neighbors, says next to nothing, and two
    pages with nearly the same list are nearly always of one class.

    Every pair of nodes says by randomized response whether it is an edge; the released graph's leading
    eigenvectors, each as long as it can be trusted, are the nodes' rows, and a labeled node u votes for its
    class at v with max(0, cos(row_u, row_v))^p. How many directions count, the power, the weight of the
    features among the voters, and the share of the votes maximize the likelihood of public labels, none of
    which votes on its own node. So where lists tell nothing, features are left as they are.

    Guarantee, unit ``undirected-edge``: the whole released graph, and with it everything that follows, is
    epsilon-DP for one edge, with delta 0. Features and labels are public. Unit ``none`` reads the exact
    edges and is the reference without noise.

    It wants much budget, and lists that are long: noise has eigenvalues up to 2 s sqrt(N), with
    s = 1 / (2 sinh(epsilon / 2)), and directions of the graph count from there on. On few edges a node, or
    below an epsilon of 3 or 4, use :class:`~graphveil.estimators.classcode.ClassCode`.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        rank: the most directions that tell lists apart, and so the width of a node's row.
        max_edges: the most edges that may be expected to come out of the release; None for 20 million.

    Raises:
        UnitError: the unit is neither ``"undirected-edge"`` nor ``"none"``.
        ConfigError: a parameter is outside its range; on ``fit``, noise alone would add too many edges.
        GraphError: on ``fit``, the edges are directed.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = Spectral(unit="undirected-edge", epsilon=8.0, seed=0).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon, model.guarantee.delta
    (True, 8.0, 0.0)
    """

    method: ClassVar[str] = "spectral"

    rank: int = 1024
    max_edges: int | None = None

    def _check_config(self) -> None:
        super()._check_config()
        self._build_method()

    def _build_method(self) -> SpectralMethod:
        check_on_cpu(self.method, self.device)
        checks.integer_at_least(1, rank=self.rank)
        checks.within(1, MAX_RANK, rank=self.rank)
        privacy_config = self._build_privacy_config()
        if not isinstance(privacy_config.unit, UndirectedEdge | NoUnit):
            check_local(self, privacy_config.unit)
            raise UnitError(
                f"spectral has no bound under unit {privacy_config.unit.name!r}: it reads whole lists of "
                "neighbors; "
                "use unit 'undirected-edge', or 'classcode' or 'gap' for others"
            )
        if self.mode == "paper":
            raise ConfigError(
                "spectral has no paper to reproduce and so no paper mode: use mode='strict' (--mode strict)"
            )
        most = MAX_EDGES if self.max_edges is None else self.max_edges
        epsilon = privacy_config.budget if isinstance(privacy_config.unit, UndirectedEdge) else 1.0
        list_source = neighbor_list_source(privacy_config.unit, epsilon, self.rank, most)
        return SpectralMethod(
            name=self.method, privacy_config=privacy_config, device=self.device, list_source=list_source
        )
