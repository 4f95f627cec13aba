"""The parts of a method's guarantee that do not depend on which method it is."""

import math

from graphveil.data import Graph
from graphveil.data.recipes import CLASSES_PUBLIC, about_edges
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.privacy import DirectedEdge, Guarantee
from graphveil.privacy.formatting import format_upper_bound
from graphveil.release import OutEdgeSumQuery, ReleasePlan

SEEDED = "the noise is reproducible from a seed"


def queries_edges(plan: ReleasePlan) -> bool:
    """Whether any of the plan's queries reads edges; steps and counts read records alone."""
    return any(query.reads_edges for query in plan.queries)


def edge_level_mu(plan: ReleasePlan, num_nodes: int) -> float | None:
    """Return the mu of one mutual edge under unit ``node-record``, which stands on two lists; None without.

    Steps and tallies are the same for both graphs, given what was released before them.
    """
    pushes = [query for query in plan.queries if isinstance(query, OutEdgeSumQuery)]
    return math.hypot(*(push.edge_shift(num_nodes) / push.sigma for push in pushes)) if pushes else None


def data_notes(privacy_config: PrivacyConfig, graph: Graph) -> tuple[str, ...]:
    """Return what the statement has to add about the data."""
    if privacy_config.on_records:
        return tuple(dict.fromkeys((CLASSES_PUBLIC, *graph.notes)))
    return tuple(note for note in graph.notes if about_edges(note))


def with_undirected_edge_deviation(guarantee: Guarantee, graph: Graph) -> Guarantee:
    """Return the guarantee, with a deviation where a claim about stored edges meets friendships."""
    if guarantee.unit != DirectedEdge.name or graph.directed:
        return guarantee
    return guarantee.with_deviations(
        "an undirected edge is stored twice and the claim is about one stored edge: a friendship is "
        f"protected at eps = {format_upper_bound(guarantee.mutual_epsilon)} only"
    )
