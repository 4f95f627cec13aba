"""What a unit demands of parameters and graphs, with a method that does nothing else."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from graphveil.data import Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.estimators.gap import GAP
from graphveil.estimators.privacy_config import PrivacyConfig, data_notes
from graphveil.estimators.requirements import check_max_degree
from graphveil.ledger import ledger_of
from graphveil.local.lpgnn import LPGNN
from graphveil.privacy import NodeBoundedDegree, NodeRecord, UndirectedEdge


@dataclass(kw_only=True, eq=False)
class Double(Estimator):
    """Only checked, never fitted."""

    method: ClassVar[str] = "double"
    node_units: ClassVar[tuple[str, ...]] = ("node-record", "node-bounded-degree")

    def _build_method(self):
        return None


@dataclass(kw_only=True, eq=False)
class Sender(Double):
    needs_out_degree_bound: ClassVar[bool] = True


@dataclass(kw_only=True, eq=False)
class EdgesOnly(Double):
    node_units: ClassVar[tuple[str, ...]] = ()


EDGE, OWNER, PROMISE = (
    {"unit": name, "epsilon": 1.0} for name in ("undirected-edge", "node-record", "node-bounded-degree")
)
LOCAL = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 1.0}


@pytest.mark.parametrize(
    ("cls", "parameters", "error", "words"),
    [
        (EdgesOnly, OWNER, NotImplementedGuaranteeError, "does not yet protect 'node-record'"),
        (Double, {"unit": "node-record"}, ConfigError, "needs a budget: pass epsilon="),
        (Double, {**EDGE, "out_degree_bound": 5}, UnitError, "drop it (--out-degree-bound)"),
        (
            Double,
            {**PROMISE, "max_degree": 5, "out_degree_bound": 5},
            UnitError,
            "drop it (--out-degree-bound)",
        ),
        (Double, {**OWNER, "out_degree_bound": 0}, ConfigError, "out_degree_bound=0"),
        (Double, {**EDGE, "max_degree": 5}, UnitError, "drop it (--max-degree)"),
        (Double, {**OWNER, "max_degree": 5}, UnitError, "drop it (--max-degree)"),
        (Double, PROMISE, UnitError, "--max-degree"),
        (Double, {**EDGE, "replace_one": True}, UnitError, "replace_one is about records"),
        (Double, {**EDGE, "private_metrics": True}, ConfigError, "drop it (--private-metrics)"),
        (Double, {"unit": "none", "private_metrics": True}, ConfigError, "drop it (--private-metrics)"),
        (LPGNN, {**LOCAL, "private_metrics": True}, ConfigError, "does not protect test labels"),
        (LPGNN, {**LOCAL, "replace_one": True}, UnitError, "compares any two already"),
        (Sender, OWNER, UnitError, "--out-degree-bound"),
    ],
)
def test_what_does_not_fit_the_unit_is_refused_with_its_remedy(cls, parameters, error, words):
    with pytest.raises(error) as refused:
        cls(**parameters)
    assert words in str(refused.value)


def test_what_fits_is_accepted():
    Double(**OWNER, replace_one=True, private_metrics=True)
    Sender(**OWNER, out_degree_bound=1)
    Sender(**PROMISE, max_degree=5)
    Sender(**EDGE)


def star(directed, into_hub=False):
    """Return five nodes: four edges between the first and the others, and nothing else."""
    ends = ([0] * 4, [1, 2, 3, 4])
    x, y = torch.eye(5), torch.tensor([0, 1, 0, 1, 0])
    graph = Graph.from_edges(x, y, *(reversed(ends) if into_hub else ends), directed=directed)
    return graph.with_split(*torch.eye(5, dtype=torch.bool)[:3])


@pytest.mark.parametrize("graph", [star(False), star(True), star(True, into_hub=True)])
def test_a_broken_promise_is_refused_without_a_number_or_a_node(graph):
    check_max_degree(graph, NodeBoundedDegree(max_degree=4))
    with pytest.raises(UnitError) as refused:
        check_max_degree(graph, NodeBoundedDegree(max_degree=3))
    assert "above 3" in str(refused.value)  # the promise itself, which is public
    assert not any(number in str(refused.value) for number in "01245")


def test_other_units_promise_nothing():
    check_max_degree(star(False), NodeRecord())


def test_a_fit_refuses_before_anything_is_spent():
    graph = star(False)
    with pytest.raises(UnitError, match="violates the assumption"):
        GAP(**PROMISE, max_degree=2).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()


def test_statements_about_records_say_what_is_treated_as_public():
    graph = star(False).replace(notes=("something else",))
    notes = data_notes(PrivacyConfig(unit=NodeRecord()), graph)
    assert notes == ("classes, vocabulary and split are treated as public", "something else")
    assert data_notes(PrivacyConfig(unit=UndirectedEdge()), graph) == ("something else",)
