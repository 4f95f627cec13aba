"""Which weights of pairs a hop takes: those whose tables are ours, and hold a weight for every pair."""

from graphveil.errors import NeverError, ReleaseError
from graphveil.weights.network import Network
from graphveil.weights.overlaps import BitSets, ListSets
from graphveil.weights.tables import Dots, Given, Kinds, PairWeights

_TRUSTED = (Dots, Kinds, BitSets, ListSets, Network, Given)


def check_trusted(pairs: PairWeights, num_nodes: int) -> None:
    """Refuse weights from elsewhere, since what is given edges could read them, and tables that do not fit.

    All of it is decided by tables, whatever the edges are.
    """
    if type(pairs) not in _TRUSTED:
        raise NeverError(
            "a hop takes weights whose tables are made before an edge is read; derive your own from DotWeight"
        )
    if not pairs.closed:
        raise NeverError(
            "the tables of the hop's weights do not hold a weight within the bound for every pair of nodes; "
            "derive your own from DotWeight, which makes them"
        )
    if pairs.num_nodes != num_nodes:
        raise ReleaseError(
            f"the keys of the hop's weights have {pairs.num_nodes} rows and the graph has {num_nodes} nodes; "
            "the release stays booked"
        )
