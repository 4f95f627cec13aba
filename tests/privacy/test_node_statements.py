"""Statements about node-level privacy units: exact wording, numbers, and no claim beyond the unit."""

import json
import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from graphveil._util.figures import format_upper_bound
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import calibrate_mu, epsilon_of
from graphveil.core.events import ByGroup, Composed, Event, Gaussian, PoissonGaussian, compose
from graphveil.core.guarantee import EDGE_USES, EdgeUse
from graphveil.core.unit import (
    UNITS,
    DirectedEdge,
    Node,
    NodeBoundedDegree,
    NodeRecord,
    NodeUnit,
    UndirectedEdge,
    Unit,
)
from graphveil.errors import PrivacyError, UnitError
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain
from graphveil.privacy.statements import LIST_NULLED, LIST_REPLACED, summary

MU = calibrate_mu(4.0, 1e-5)
ROWS = compose(Gaussian(MU))
TRAINING = PoissonGaussian(2.0, 0.0128, 781)
SELECTION = ByGroup("train/val", (compose(TRAINING, Gaussian(0.2)), Gaussian(0.3)))
ADDS_UP = "Other runs on the same data add up: r equal releases have mu sqrt(r)."
NULLED = (
    " To differ means here that q has its record in one of the two and a null record in the other: no "
    "features, no label, no edges. "
)
REPLACED = " To differ means here that q has two different records in the two, with any content. "
SAMPLED = (
    "Sampled training steps have no mu: equal runs of them compose their distributions of privacy loss. "
)
UNITS_OF_RECORDS: list[Unit] = [
    NodeRecord(),
    NodeRecord(replace_one=True),
    Node(),
    Node(replace_one=True),
    NodeBoundedDegree(16),
    NodeBoundedDegree(16, replace_one=True),
]
WITHOUT_STATEMENT = {"node": ("neighbors", "lists"), "node-bounded-degree": ("read", "lists")}
COMBINATIONS = [
    (unit, use)
    for unit, use in product(UNITS_OF_RECORDS, EDGE_USES)
    if use not in WITHOUT_STATEMENT.get(unit.name, ())
]


def of(unit: Unit, event: Event = ROWS, **more: Any) -> Guarantee:
    return Guarantee.from_event(unit, event, delta=1e-5, releases=2, **more)


def test_the_statement_of_node_record_is_verbatim() -> None:
    hops, budget, noise = 2, 50, 3.0
    edge_mu = math.sqrt(2 * hops / budget) / noise  # of rows that share one budget a source
    assert of(NodeRecord(), edge_mu=edge_mu).formal_statement() == (
        "Node identities and split membership are public. For any two data sets that differ in the record of "
        "one node q (its features, its label and the list of edges q itself declares), the released models, "
        "all noisy aggregates and the predictions for all nodes other than q are "
        "(4, 1e-05)-indistinguishable. Edges pointing to q that are declared by other nodes belong to those "
        "nodes' records and are not hidden by this statement; if edges are mutual they are also in "
        "the records of the neighbors: q's edge list is then protected only edge by edge, at eps = "
        f"{format_upper_bound(epsilon_of(edge_mu, 1e-5))}. The prediction for q uses q's own features and "
        "must only "
        f"be shown to parties entitled to them.{NULLED}{ADDS_UP}"
    )


def test_a_prediction_that_reads_its_own_edges_has_no_bound_for_a_mutual_edge() -> None:
    formal_statement = of(NodeRecord(), edge_use="read", edge_mu=0.1).formal_statement()
    assert (
        "the released models, all published rows and the predictions for all nodes other than q are "
        "(4, 1e-05)-indistinguishable. The prediction for q uses q's own features and q's own edge list and "
        "must only be shown to parties entitled to both."
    ) in formal_statement
    assert "no separate bound is given for one mutual edge" in formal_statement
    assert "eps =" not in formal_statement
    assert "edge list" in of(NodeRecord(), edge_use="read").not_covered


def test_the_statement_without_edges_mentions_no_aggregates() -> None:
    formal_statement = of(NodeRecord(), TRAINING, edge_use="never").formal_statement()
    assert "the released models and the predictions for all nodes other than q are" in formal_statement
    assert "No edge was read" in formal_statement
    assert "aggregates" not in formal_statement
    bounded = of(NodeBoundedDegree(16), TRAINING, edge_use="never").formal_statement()
    assert "16" not in bounded and "Conditional" not in bounded
    assert "rests on no assurance about degrees" in bounded


def test_the_statement_of_node_bounded_degree_is_verbatim() -> None:
    assert of(NodeBoundedDegree(16)).formal_statement() == (
        "Conditional on the data owner's assurance that no node has degree above 16: for any two graphs that "
        "differ in one node q with all its edges, features and label, everything except q's own row and "
        "prediction is (4, 1e-05)-indistinguishable. If the assurance is false there is no guarantee. Node "
        f"identities and split membership are public.{NULLED}{ADDS_UP}"
    )


def test_the_statement_of_node_is_verbatim() -> None:
    assert of(Node()).formal_statement() == (
        "Node identities and split membership are public. For any two graphs that differ in one node q, with "
        "its features, its label and all edges in which q takes part, the released models, all noisy "
        "aggregates and the predictions for all nodes other than q are (4, 1e-05)-indistinguishable. Nothing "
        "is assumed about degrees. The prediction for q uses q's own features and must only be shown to "
        f"parties entitled to them.{NULLED}{ADDS_UP}"
    )
    read = of(Node(), edge_use="read", coalition_mu=1.5).formal_statement()
    assert (
        "the released models and all noisy aggregates are (4, 1e-05)-indistinguishable. Nothing is assumed "
        "about degrees. The prediction for a node uses this node's own features and its own list of edges "
        "and must only be shown to parties entitled to both. Against parties that know the lists of some "
        "nodes and see the predictions for these nodes, q's features, its label and its edges with all "
        f"other nodes are protected at eps = {format_upper_bound(epsilon_of(1.5, 1e-5))}. q's edges with "
        "these nodes are known to these parties."
    ) in read


def test_a_mutual_edge_without_a_bound_has_none_in_the_statement() -> None:
    formal_statement = of(NodeRecord()).formal_statement()
    assert "only edge by edge, and no separate bound is given for one mutual edge." in formal_statement
    assert of(NodeRecord()).edge_epsilon is None


@pytest.mark.parametrize(("unit", "use"), COMBINATIONS)
@pytest.mark.parametrize("event", [Gaussian(MU), SELECTION, compose(TRAINING, Gaussian(0.2)), Composed(())])
def test_no_statement_claims_more_than_its_unit(unit: Unit, use: EdgeUse, event: Event) -> None:
    guarantee = of(unit, event, edge_use=use, notes=("classes are treated as public",))
    words = " ".join([guarantee.formal_statement(), guarantee.covers, guarantee.not_covered]).lower()
    for claim in ("node-level", "node level", "incident", "anonym", "user-level"):
        assert claim not in words
    if isinstance(unit, NodeRecord):
        for claim in ("all its edges", "all edges", "every edge", "with its edges"):
            assert claim not in words
        assert ("whole list of items of one user" if use == "lists" else "itself declares") in words
    elif isinstance(unit, Node):
        assert "all edges in which q takes part" in words
        assert ("nothing is assumed about degrees" in words) == (use != "never")
        assert ("predictions for all nodes other than q" in words) == (use != "read")
    else:
        assert "conditional on" in words or "no edge was read" in words
    assert "predictions for every node" not in words  # which edge units claim
    assert "labels are treated as public" not in words  # and this
    assert "Note: classes are treated as public." in guarantee.formal_statement()
    assert guarantee.formal_statement().endswith(ADDS_UP)
    replaced = isinstance(unit, NodeUnit) and unit.replace_one
    null, two = (LIST_NULLED, LIST_REPLACED) if use == "lists" else (NULLED, REPLACED)
    assert (two if replaced else null) in guarantee.formal_statement()
    assert (null if replaced else two) not in guarantee.formal_statement()


@pytest.mark.parametrize("name", UNITS)
def test_names_of_node_level_units_state_what_is_protected(name: str) -> None:
    assert "node-level" not in name
    assert not name.startswith("node-") or name in ("node-record", "node-bounded-degree", "local-attributes")


def test_sampled_training_has_no_mu() -> None:
    assert SAMPLED in of(NodeRecord(), SELECTION).formal_statement()
    assert SAMPLED not in of(NodeRecord()).formal_statement()
    assert of(NodeRecord(), SELECTION).as_dict()["mu"] is None


def test_node_bounded_degree_rejects_predictions_that_read_their_own_edges() -> None:
    with pytest.raises(UnitError, match="other nodes' records"):
        of(NodeBoundedDegree(16), edge_use="read")


def test_epsilon_is_that_of_the_worst_group_of_records() -> None:
    guarantee = of(NodeRecord(), SELECTION)
    groups = [privacy_curve(event) for event in SELECTION.events]
    assert guarantee.epsilon == max(curve.epsilon(1e-5) for curve in groups)
    assert guarantee.max_tpr() == max(curve.tpr(0.01) for curve in groups)


def test_printed_epsilons_of_records_are_rounded_up() -> None:
    guarantee = of(NodeRecord(), compose(TRAINING, Gaussian(0.2)))
    nearest, printed = f"{guarantee.epsilon:.4g}", format_upper_bound(guarantee.epsilon)
    assert float(nearest) < guarantee.epsilon <= float(printed)  # to the nearest would be below
    assert f"({printed}, 1e-05)-indistinguishable" in guarantee.formal_statement()


# -- several runs ------------------------------------------------------------------------------------------


def test_a_record_may_be_in_any_group_of_each_run() -> None:
    once = of(NodeRecord(), SELECTION, slack=1e-9, edge_mu=0.1)
    twice = once.repeated(2)
    worst = [privacy_curve(compose(*chosen)) for chosen in product(SELECTION.events, repeat=2)]
    assert twice.epsilon >= max(curve.epsilon(1e-5 - 2e-9) for curve in worst)
    assert (twice.releases, twice.slack) == (4, 2e-9)
    assert twice.edge_mu == pytest.approx(0.1 * math.sqrt(2))
    assert twice.protected == NodeRecord()


def test_a_method_and_its_baseline_compose() -> None:
    method, baseline = of(NodeRecord(), edge_mu=0.1), of(NodeRecord(), Gaussian(0.5), edge_use="never")
    both = Guarantee.compose([method, baseline])
    assert both.epsilon == pytest.approx(epsilon_of(math.hypot(MU, 0.5), 1e-5))
    assert (both.edge_use, both.edge_mu) == ("queried", 0.1)  # the baseline reads no edge
    unknown = Guarantee.compose([method, of(NodeRecord())])
    assert unknown.edge_epsilon is None


def test_composition_keeps_deviations() -> None:
    whole = Guarantee.compose([of(NodeRecord()), of(NodeRecord(), deviations=("a flaw",))])
    assert (whole.valid, whole.deviations) == (False, ("a flaw",))


@pytest.mark.parametrize("other", [NodeRecord(replace_one=True), NodeBoundedDegree(3), DirectedEdge()])
def test_rejects_the_composition_of_different_units(other: Unit) -> None:
    with pytest.raises(PrivacyError, match="different privacy units"):
        Guarantee.compose([of(NodeRecord()), of(other)])


def test_rejects_the_composition_of_lists_and_other_records() -> None:
    with pytest.raises(PrivacyError, match="different privacy units"):
        Guarantee.compose([of(NodeRecord()), of(NodeRecord(), edge_use="lists")])


def test_slack_of_all_of_delta_has_infinite_epsilon() -> None:
    assert of(NodeRecord(), slack=4e-6).repeated(3).epsilon == math.inf


# -- as JSON -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "use"), COMBINATIONS)
def test_unit_and_edge_use_survive_json(unit: Unit, use: EdgeUse) -> None:
    guarantee = of(unit, compose(SELECTION), edge_use=use, edge_mu=0.1, slack=1e-9)
    back = guarantee_from_plain(json.loads(json.dumps(guarantee_to_plain(guarantee))))
    assert back == guarantee
    assert back.formal_statement() == guarantee.formal_statement()
    assert back.protected == unit


def test_older_files_without_fields_of_node_units_are_read() -> None:
    guarantee = of(UndirectedEdge())
    record = guarantee_to_plain(guarantee)
    for name in ("replace_one", "max_degree", "edge_use", "edge_mu"):
        del record[name]
    assert guarantee_from_plain(record) == guarantee


def test_as_dict_has_the_parameters_of_node_units_only() -> None:
    record = json.loads(json.dumps(of(NodeBoundedDegree(16, replace_one=True)).as_dict(), allow_nan=False))
    assert (record["unit"], record["max_degree"], record["replace_one"]) == ("node-bounded-degree", 16, True)
    owner = of(NodeRecord(), edge_mu=0.1).as_dict()
    assert owner["edge_epsilon"] == pytest.approx(epsilon_of(0.1, 1e-5))
    assert of(NodeRecord(), edge_use="never").as_dict()["edge_epsilon"] == 0.0
    assert not {"replace_one", "max_degree", "edge_epsilon"} & set(of(UndirectedEdge()).as_dict())


def test_predictions_that_read_own_lists_are_not_covered_under_unit_node() -> None:
    """An attacker of the summary sees no prediction if those of neighbors read the list with the person."""
    queried = Guarantee.from_event(Node(), Gaussian(0.5), delta=1e-5, releases=1, coalition_mu=0.9)
    read = replace(queried, edge_use="read")
    assert queried.covers_predictions and not read.covers_predictions
    assert "except those for that person alone" in summary(queried)
    assert "except predictions for single nodes" in summary(read)
    assert "see these predictions, the bound is weaker" in summary(read)
