"""Units ``row`` and ``person``: what a fit charges, states, resumes and rejects."""

from typing import Any

import pytest
import torch

import graphveil as gv
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.events import compose
from graphveil.core.ledger import ledger_of
from graphveil.core.queries.row_counts import RowCountQuery
from graphveil.core.unit import UNITS
from graphveil.errors import ConfigError, GraphveilError, UnitError
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain
from tests.estimators.conftest import grouped
from tests.estimators.interrupted import InterruptedFit, interrupted_at, same
from tests.estimators.relational.drawn import drawn

ROW: dict[str, Any] = {"unit": "row", "epsilon": 2.0, "seed": 0}
PERSON: dict[str, Any] = {"unit": "person", "epsilon": 4.0, "delta": 1e-5, "seed": 0}
OF_UNITS = {"row": ROW, "person": PERSON}
EACH_UNIT = pytest.mark.parametrize("unit", OF_UNITS)

pytestmark = pytest.mark.usefixtures("quick_classcode")


def make(unit: str, **more: Any) -> gv.RelationalClassifier:
    return gv.RelationalClassifier(**{**OF_UNITS[unit], **more})


def tables(seed: int = 4) -> gv.Tables:
    """Return two tables with values, one of them between persons, and one with items."""
    return drawn(seed, mutual=False).built()


# -- the plan ------------------------------------------------------------------------------------------------


@EACH_UNIT
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 16.0])
def test_a_plan_costs_at_most_the_target_and_little_less(unit: str, epsilon: float) -> None:
    for seed in range(6):
        planned = make(unit, epsilon=epsilon).preview(tables(seed))
        plan, guarantee = planned.plan, planned.guarantee
        assert 0.999 * epsilon <= plan.epsilon <= epsilon
        assert guarantee.valid and guarantee.epsilon <= epsilon


def test_a_count_of_rows_has_noise_at_any_epsilon() -> None:
    assert 15.9 < make("row", epsilon=40.0).preview(tables()).plan.epsilon <= 16


@pytest.mark.parametrize("more", [{"replace_one": True}, {"private_metrics": True}, {"items": True}])
def test_options_of_persons_cost_at_most_the_target(more: dict[str, Any]) -> None:
    plan = make("person", **more).preview(tables()).plan
    assert 0.999 * 4 <= plan.epsilon <= 4


def test_both_answers_of_rows_have_the_whole_budget_for_any_number_of_tables() -> None:
    for seed in range(8):
        queries = make("row").preview(drawn(seed, mutual=True).built()).plan.queries
        assert [type(query) for query in queries] == [RowCountQuery] * 2
        assert [query.epsilon for query in queries] == [2.0, 2.0]
        assert [query.pays for query in queries] == [(True, False), (False, True)]


def test_cells_do_not_depend_on_rows() -> None:
    found = drawn(4, mutual=False)
    without = found
    for table in [*found.rows][1:]:
        without = without.with_rows(table, [])
    for unit in OF_UNITS:
        some, none = (make(unit).preview(one.built()).plan for one in (found, without))
        assert some.queries == none.queries


# -- the guarantee -------------------------------------------------------------------------------------------


@EACH_UNIT
def test_a_guarantee_survives_json(unit: str) -> None:
    guarantee = make(unit).preview(tables()).guarantee
    back = guarantee_from_plain(guarantee_to_plain(guarantee))
    assert back == guarantee and back.formal_statement() == guarantee.formal_statement()


@EACH_UNIT
def test_two_fits_add_up_in_one_account(unit: str) -> None:
    data = tables()
    for _ in range(2):
        model = make(unit).fit(data)
    entries = ledger_of(data.graph.edge_set).entries
    assert [entry.unit.name for entry in entries] == [unit] * 2
    total = privacy_curve(compose(*(entry.event for entry in entries))).epsilon(1e-6)
    assert total > 1.2 * model.guarantee.epsilon


# -- resumed fits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "stage", "done"),
    [
        ("row", "count at far ends", 0),
        ("row", "codes", 0),
        ("row", "count at owners", 0),
        ("row", "classifier", 0),
        ("person", "classifier", 0),
        ("person", "classifier", 17),
    ],
)
@pytest.mark.parametrize("seeded", [False, True])
def test_a_resumed_fit_is_bit_identical_and_charges_nothing(
    unit: str, stage: str, done: int, seeded: bool, tmp_path: Any
) -> None:
    data, more = tables(), {"unsafe_noise_seed": 4} if seeded else {}
    with pytest.raises(InterruptedFit):
        make(unit, **more).fit(data, workspace=tmp_path, on_progress=interrupted_at(stage, done))
    resumed = make(unit, **more).fit(data, workspace=tmp_path)
    assert same(resumed, make(unit, **more).fit(data, workspace=tmp_path))
    assert not seeded or same(resumed, make(unit, **more).fit(tables()))
    assert len(ledger_of(data.graph.edge_set).entries) == 1


# -- other tables --------------------------------------------------------------------------------------------


def test_persons_of_other_tables_are_predicted_uncharged() -> None:
    model, other = make("person").fit(tables()), tables()
    proba = torch.as_tensor(model.predict_proba(other))
    assert torch.equal(proba, model.proba_)
    assert not ledger_of(other.graph.edge_set).entries


def test_rows_of_other_tables_are_not_counted() -> None:
    model, found = make("row").fit(tables()), drawn(4, mutual=False)
    assert torch.equal(torch.as_tensor(model.predict_proba(tables())), model.proba_)  # the same rows
    (first, *_) = (table for table, rows in found.rows.items() if rows)
    with pytest.raises(GraphveilError, match="which only a fit releases"):
        model.predict_proba(found.with_rows(first, []).built())


def test_tables_with_other_catalogs_are_rejected() -> None:
    model = make("person").fit(tables(4))
    with pytest.raises(GraphveilError, match="other catalogs"):
        model.predict_proba(tables(5))


# -- rejected ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", sorted(UNITS.keys() - {"row", "person", "none"}))
def test_other_units_are_rejected(unit: str) -> None:
    more = {"max_degree": 9} if unit == "node-bounded-degree" else {}
    with pytest.raises(GraphveilError, match=f"not '{unit}'"):
        gv.RelationalClassifier(unit=unit, epsilon=1.0, **more)


@pytest.mark.parametrize(("unit", "wrong"), [("row", {"items": True}), ("person", {"codes": 4})])
def test_keywords_without_an_effect_are_rejected(unit: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no effect under unit"):
        make(unit, **wrong)


@EACH_UNIT
def test_a_graph_is_rejected_uncharged(unit: str) -> None:
    graph = grouped(directed=True)
    with pytest.raises(UnitError, match="for several tables, but this is one graph"):
        make(unit).fit(graph)
    assert not ledger_of(graph.edge_set).entries


@pytest.mark.parametrize(
    ("method", "unit", "more"),
    [
        ("classcode", "directed-edge", {}),
        ("gap", "node-record", {"out_degree_bound": 4}),
        ("classcode", "node", {}),
        ("gcn", "directed-edge", {"perturb": "edge-rand"}),
        ("gnn", "node-record", {"module": torch.nn.Linear}),
    ],
)
def test_tables_are_rejected_by_methods_of_graphs_uncharged(
    method: str, unit: str, more: dict[str, Any]
) -> None:
    data = tables()
    with pytest.raises(GraphveilError, match=r"row|tables"):
        gv.METHODS[method](unit=unit, epsilon=1.0, delta=1e-5, **more).fit(data)
    assert not ledger_of(data.graph.edge_set).entries


def test_the_graph_of_tables_is_rejected_by_everything_else_uncharged() -> None:
    data = tables()
    one: Any = data.graph
    for call in (
        lambda: gv.private_hops(one, unit="directed-edge", epsilon=1.0, delta=1e-5),
        lambda: gv.private_hops(one, unit="row", epsilon=1.0, delta=1e-5),
        lambda: gv.perturb.edge_rand(one, unit="directed-edge", epsilon=1.0),
        lambda: gv.perturb.edge_rand(one, unit="row", epsilon=1.0),
        lambda: gv.LinkPredictor(unit="row", epsilon=1.0, delta=1e-5).fit(one),
    ):
        with pytest.raises(GraphveilError, match="tables"):
            call()
    assert not ledger_of(data.graph.edge_set).entries


# -- tables without a split ----------------------------------------------------------------------------------


@EACH_UNIT
def test_tables_without_a_split_have_the_same_public_one_in_every_call(unit: str) -> None:
    people = {"id": list(range(200)), "label": ["a", "b"] * 100}
    rows = gv.Rows({"who": list(range(200)), "what": [0, 1] * 100}, owner="who", far="what")
    given = gv.Tables(
        people, id="id", label="label", classes=["a", "b"], rows={"r": rows}, public={"what": [0, 1]}
    )
    model = make(unit).fit(given)
    expected = gv.split(given, unit=unit)
    assert model.is_fitted_graph(given) and model.score(given) == model.score(expected)
    assert not given.graph.has_split and len(ledger_of(given.graph.edge_set).entries) == 1
