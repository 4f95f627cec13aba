"""Requirements of a unit on parameters and graphs."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from graphveil.core.ledger import ledger_of
from graphveil.core.release import check_max_degree
from graphveil.core.unit import NodeBoundedDegree
from graphveil.data import Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.estimators.gap import GAP
from graphveil.estimators.requirements import Rejections
from graphveil.local.lpgnn import LPGNN


@dataclass(kw_only=True, eq=False)
class Double(Estimator):
    """Only checked, never fitted."""

    method: ClassVar[str] = "double"
    rejections: ClassVar[Rejections] = {}

    def _build_method(self):
        return None


@dataclass(kw_only=True, eq=False)
class EdgesOnly(Double):
    rejections: ClassVar[Rejections] = Estimator.rejections


EDGE, NODE_RECORD, BOUNDED_DEGREE = (
    {"unit": name, "epsilon": 1.0} for name in ("undirected-edge", "node-record", "node-bounded-degree")
)
LOCAL = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 1.0}


@pytest.mark.parametrize(
    ("cls", "parameters", "error", "words"),
    [
        (EdgesOnly, NODE_RECORD, NotImplementedGuaranteeError, "does not support unit 'node-record'"),
        (Double, {"unit": "node-record"}, ConfigError, "needs a privacy budget"),
        (Double, {**EDGE, "out_degree_bound": 5}, UnitError, "Omit it (--out-degree-bound)"),
        (
            Double,
            {**BOUNDED_DEGREE, "max_degree": 5, "out_degree_bound": 5},
            UnitError,
            "Omit it (--out-degree-bound)",
        ),
        (Double, {**NODE_RECORD, "out_degree_bound": 0}, ConfigError, "out_degree_bound=0"),
        (Double, {**EDGE, "max_degree": 5}, UnitError, "Omit it (--max-degree)"),
        (Double, {**NODE_RECORD, "max_degree": 5}, UnitError, "Omit it (--max-degree)"),
        (Double, BOUNDED_DEGREE, UnitError, "--max-degree"),
        (Double, {**EDGE, "replace_one": True}, UnitError, "replace_one applies to node records"),
        (Double, {**EDGE, "private_metrics": True}, ConfigError, "Omit it (--private-metrics)"),
        (Double, {"unit": "none", "private_metrics": True}, ConfigError, "Omit it (--private-metrics)"),
        (LPGNN, {**LOCAL, "private_metrics": True}, ConfigError, "does not protect test labels"),
        (LPGNN, {**LOCAL, "replace_one": True}, UnitError, "compares any two already"),
        (GAP, NODE_RECORD, UnitError, "needs out_degree_bound= (--out-degree-bound)"),
    ],
)
def test_rejects_parameters_that_do_not_fit_the_unit(cls, parameters, error, words):
    with pytest.raises(error) as rejected:
        cls(**parameters)
    assert words in str(rejected.value)


def test_accepts_parameters_that_fit_the_unit():
    Double(**NODE_RECORD, replace_one=True, private_metrics=True)
    GAP(**NODE_RECORD, out_degree_bound=1)
    GAP(**BOUNDED_DEGREE, max_degree=5)
    GAP(**EDGE)


def star(directed, into_hub=False):
    """Return five nodes: four edges between the first and the others, and nothing else."""
    ends = ([0] * 4, [1, 2, 3, 4])
    x, y = torch.eye(5), torch.tensor([0, 1, 0, 1, 0])
    graph = Graph.from_edges(x, y, *(reversed(ends) if into_hub else ends), directed=directed)
    return graph.with_split(*torch.eye(5, dtype=torch.bool)[:3])


@pytest.mark.parametrize("graph", [star(False), star(True), star(True, into_hub=True)])
def test_rejects_a_violated_degree_assumption_without_private_values(graph):
    check_max_degree(graph.adjacency, NodeBoundedDegree(max_degree=4))
    with pytest.raises(UnitError) as rejected:
        check_max_degree(graph.adjacency, NodeBoundedDegree(max_degree=3))
    assert "above max_degree=3" in str(rejected.value)  # the assumption, which is public
    assert not any(number in str(rejected.value) for number in "01245")


def test_fit_rejects_a_violated_assumption_before_a_charge():
    graph = star(False)
    with pytest.raises(UnitError, match="the assumption of unit 'node-bounded-degree' is violated"):
        GAP(**BOUNDED_DEGREE, max_degree=2).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()


def test_summaries_of_node_level_guarantees_list_what_is_treated_as_public(make_graph):
    graph = make_graph().replace(notes=("does not protect single edges",))
    guarantee = GAP(**NODE_RECORD, out_degree_bound=1).preview(graph).guarantee
    assert guarantee.notes == (
        "classes, vocabulary and split are treated as public",
        "does not protect single edges",
    )
    assert GAP(**EDGE).preview(graph).guarantee.notes == ("does not protect single edges",)
