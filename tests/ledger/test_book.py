"""The book: limits by unit, retries that cost nothing, reservations that are given back, chains that hold."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from graphveil.errors import BudgetError, ConfigError, LedgerError
from graphveil.ledger import Account, Entry, Ledger, MemoryLedger, chain, sql_ledger
from graphveil.ledger.chain import START, canonical, link
from graphveil.ledger.database import accounts, data_sets, entries
from graphveil.ledger.interface import JointLedger
from graphveil.privacy import NodeBoundedDegree, NodeRecord, UndirectedEdge, Unit
from graphveil.privacy.events import ApproximateDP, Event, Gaussian
from ledger.conftest import KINDS

pytestmark = pytest.mark.parametrize("kind", KINDS)
EDGES = UndirectedEdge()
TAGS = {"edges": "e" * 64, "records": "r" * 64}


def entry(name: str, event: Event | None = None, unit: Unit | None = EDGES) -> Entry:
    return Entry(name, "rows", event or ApproximateDP(0.1), unit=unit)


def test_a_budget_of_three_grants_three(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.3", delta="1e-7")
    friends = ledger.data_set("friends")
    for name in "abc":
        friends.check(entry(name))
        friends.record(entry(name))
    with pytest.raises(
        BudgetError, match=r"needs epsilon 0\.1, and 0\.3 of 0\.3 .* Nothing is left for a release like it"
    ):
        friends.record(entry("d"))
    with pytest.raises(BudgetError, match="refuses"):
        friends.check(entry("d"))
    assert (len(friends), [one.release_id for one in friends.entries]) == (3, ["a", "b", "c"])
    assert ledger.verify() == []


def test_what_is_asked_twice_is_paid_once(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    friends.record(entry("a"))
    assert (len(friends), friends.contains("a"), friends.contains("b")) == (1, True, False)
    with pytest.raises(BudgetError, match="at another price"):
        friends.record(entry("a", ApproximateDP(0.05)))
    (receipt,) = friends.receipts
    (row,) = [row for row in ledger.export("friends") if row["kind"] == "reserve"]
    assert (receipt.entry, receipt.head) == (row["number"], row["hash"])


def test_a_reservation_is_given_back_until_noise_is_drawn(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    assert friends.refund("a")
    assert friends.refund("a")  # nothing is given back twice
    assert (len(friends), friends.entries, friends.receipts) == (0, (), ())
    for refused in (lambda: friends.commit("a"), lambda: friends.record(entry("a"))):
        with pytest.raises(BudgetError, match=r"not recorded any more|given back"):
            refused()
    friends.record(entry("b"))
    friends.commit("b")
    friends.commit("b")
    assert not friends.refund("b")
    assert not friends.refund("unknown")
    assert (len(friends), ledger.verify()) == (1, [])


def test_each_unit_has_its_own_limit(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    ledger.init("friends", "node-record", epsilon="0.2", delta="1e-5")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    friends.record(entry("b", ApproximateDP(0.2), NodeRecord()))
    for refused in (entry("c"), entry("d", unit=NodeRecord())):
        with pytest.raises(BudgetError, match="refuses"):
            friends.record(refused)
    other = [entry("e", unit=NodeRecord(replace_one=True)), entry("f", unit=NodeBoundedDegree(max_degree=5))]
    for refused in other:
        with pytest.raises(
            BudgetError, match=r"has a budget under node-record, undirected-edge and none under unit"
        ):
            friends.record(refused)
    with pytest.raises(ConfigError, match=r"does not state what it protects"):
        friends.record(entry("g", unit=None))
    assert [one.unit for one in ledger.accounts("friends")] == ["node-record", "undirected-edge"]


def test_without_a_limit_every_unit_is_recorded(ledger: Ledger) -> None:
    known = ledger.find_or_create(TAGS)
    known.record(entry("a"))
    known.record(entry("b", Gaussian(3.0), NodeBoundedDegree(max_degree=5)))
    assert known.entries[1].unit == NodeBoundedDegree(max_degree=5)
    assert ledger.find_or_create({"edges": TAGS["edges"]}).name == known.name
    assert ledger.find_or_create({"edges": "x", "records": TAGS["records"]}).name == known.name
    assert ledger.find_or_create({"edges": "x" * 64}).name != known.name
    assert ledger.verify() == []


def test_a_data_set_is_bound_to_its_data_and_may_grow(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.2", delta="1e-7")
    ledger.bind("friends", TAGS)
    ledger.bind("friends", TAGS)
    ledger.bind("friends", {"edges": TAGS["edges"]})
    with pytest.raises(ConfigError, match="not the data that 'friends' was registered with"):
        ledger.bind("friends", {"edges": "x" * 64})
    ledger.data_set("friends").record(entry("a"))
    ledger.init("friends", "undirected-edge", tags={"edges": "x" * 64})
    ledger.bind("friends", {"edges": "x" * 64})
    ledger.data_set("friends").record(entry("b"))
    with pytest.raises(BudgetError):  # both versions share one budget
        ledger.data_set("friends").record(entry("c"))
    assert ledger.find_or_create({"edges": "x" * 64}).name == "friends"


def test_where_delta_is_used_up_no_epsilon_is_said_to_fit(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon=50, delta="1e-7")
    sql_ledger = ledger.data_set("friends")
    sql_ledger.record(Entry("one", "priv-hrg", ApproximateDP(1.0, 1e-7), unit=UndirectedEdge()))
    with pytest.raises(
        BudgetError, match=r"no smaller epsilon would fit. Raise the limit's delta"
    ) as refused:
        sql_ledger.record(Entry("two", "priv-hrg", ApproximateDP(1.0, 1e-7), unit=UndirectedEdge()))
    assert "would still fit" not in str(refused.value)


def test_a_limit_is_raised_for_a_reason(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    raised = {"epsilon": "0.2", "delta": "1e-7"}
    with pytest.raises(ConfigError, match="for a reason"):
        ledger.raise_limit("friends", "undirected-edge", **raised, reason=" ")
    with pytest.raises(ConfigError, match="give both"):
        ledger.raise_limit("friends", "undirected-edge", epsilon=None, delta=None, reason="all")  # type: ignore[arg-type]  # as a caller may
    ledger.raise_limit("friends", "undirected-edge", **raised, reason="a second study")
    friends.record(entry("b"))
    with pytest.raises(ConfigError, match="never lowered"):
        ledger.raise_limit("friends", "undirected-edge", epsilon="0.1", delta="1e-7", reason="less")
    with pytest.raises(ConfigError, match="has no budget under"):
        ledger.raise_limit("friends", "node-record", **raised, reason="more")
    assert [row["reason"] for row in ledger.export("friends") if row["kind"] == "raise"] == ["a second study"]
    assert ledger.verify() == []


def _limited(ledger: Ledger, epsilon: str, delta: str) -> None:
    ledger.init("a", "undirected-edge", epsilon=epsilon, delta=delta)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ledger: ledger.data_set("nobody"), "has no data set 'nobody'"),
        (lambda ledger: ledger.init("a#b", "undirected-edge"), "1 to 100 printable"),
        (lambda ledger: ledger.init("a", "edges"), "is not a privacy unit"),
        (lambda ledger: ledger.init("a", "undirected-edge", epsilon=1), "needs both"),
        (lambda ledger: ledger.init("a", "undirected-edge", epsilon="x", delta=0), "must be numbers"),
        (lambda ledger: ledger.init("a", "undirected-edge", epsilon=1, delta="nan"), r"in \[0, 1\)"),
        (lambda ledger: ledger.init("a", "undirected-edge", epsilon="inf", delta=0), "at least 0"),
        (lambda ledger: ledger.init("a", "undirected-edge", epsilon=1, delta=1), r"in \[0, 1\)"),
        *(
            (partial(_limited, epsilon=epsilon, delta=delta), r"at least 0 and below 1,000,000,000")
            for epsilon, delta in (
                ("1e400", "0"),  # no double is as large, or as small, or as near to one
                ("1e-400", "0"),
                ("1", "1e-400"),
                ("1", "0." + "9" * 30),
                ("-0", "0"),
                ("0." + "1" * 80, "0"),  # and no column as long
            )
        ),
        (lambda ledger: ledger.data_set("a\udc80"), "letters that are not known here"),
    ],
)
def test_misuse_is_refused_before_anything_is_written(
    ledger: Ledger, call: Callable[[Ledger], object], words: str
) -> None:
    with pytest.raises((ConfigError, ValueError), match=words):
        call(ledger)
    assert ledger.names() == []


def test_a_registered_limit_does_not_change_in_passing(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    with pytest.raises(ConfigError, match="ledger raise"):
        ledger.init("friends", "undirected-edge", epsilon="0.2", delta="1e-7")
    with pytest.raises(ConfigError, match="registered under unit 'undirected-edge' already"):
        ledger.init("friends", "undirected-edge")


FORGERIES: dict[str, tuple[int, str]] = {
    "a figure": (3, "UPDATE graphveil_entries SET body = replace(body, '0.1', '0.0') WHERE number = 3"),
    "a hash": (2, "UPDATE graphveil_entries SET hash = 'f' WHERE number = 2"),
    "a reference": (3, "UPDATE graphveil_entries SET reference = 'z' WHERE number = 3"),
    "a deletion": (3, "DELETE FROM graphveil_entries WHERE number = 3"),
    "the last one's deletion": (4, "DELETE FROM graphveil_entries WHERE number = 4"),
    "a total": (4, "UPDATE graphveil_accounts SET releases = 1"),
    "a limit": (4, "UPDATE graphveil_accounts SET epsilon = '100'"),
    "a limit that is none": (4, "UPDATE graphveil_accounts SET epsilon = 'x'"),
    "half a limit": (4, "UPDATE graphveil_accounts SET delta = NULL"),
    "a total that is none": (4, "UPDATE graphveil_accounts SET total = 'x'"),
    "an account": (4, "DELETE FROM graphveil_accounts"),
    "a data set": (1, "DELETE FROM graphveil_data_sets"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_book_is_found_at_its_entry(ledger: Ledger, forgery: str) -> None:
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7")
    for name in "abc":
        ledger.data_set("friends").record(entry(name))
    number, statement = FORGERIES[forgery]
    if "entries" in statement:
        with pytest.raises(LedgerError, match="only ever added"):
            ledger._store.write(lambda line: line.execute(sa.text(statement)))
    assert ledger.verify() == []
    ledger._store.write(lambda line: _without_guard(line, statement))
    (found,) = ledger.verify()
    assert (found.data_set, found.entry) == ("friends", number)


Body = dict[str, Any]
REWRITINGS: dict[str, tuple[int, str, Callable[[list[Body]], object]]] = {
    "no object": (2, "none that a ledger writes", lambda bodies: bodies.__setitem__(1, [])),  # type: ignore[call-overload]  # as a forger may
    "nothing in it": (2, "none that a ledger writes", lambda bodies: bodies[1].clear()),
    "another data set": (2, "columns do not agree", lambda bodies: bodies[1].update(data_set="foes")),
    "another number": (2, "columns do not agree", lambda bodies: bodies[1].update(number=1)),
    "an account that was not opened": (
        2,
        "that was not opened",
        lambda bodies: bodies[1].update(unit="node-record"),
    ),
    "no events": (2, "none that a ledger writes", lambda bodies: bodies[1].update(events={"kind": "pure"})),
    "no limit": (1, "none that a ledger writes", lambda bodies: bodies[0].update(epsilon="x")),
    "a second opening": (5, "opened twice", lambda bodies: bodies.append(bodies[0] | {"number": 5})),
    "given back after all": (
        5,
        "given back for which noise",
        lambda bodies: bodies.append(_said(5, "refund", reference="a")),
    ),
    "drawn, and never booked": (
        5,
        "commit entry for a release that was not recorded",
        lambda bodies: bodies.append(_said(5, "commit", reference="z")),
    ),
}


def _said(number: int, kind: str, **more: str) -> Body:
    return {"data_set": "friends", "number": number, "kind": kind, "time": "now", **more}


@pytest.mark.parametrize("rewriting", REWRITINGS)
def test_a_chain_that_was_rewritten_says_only_what_could_have_been(ledger: Ledger, rewriting: str) -> None:
    """All hashes are right, and so is the head: what is said is what cannot be."""
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7")
    ledger.data_set("friends").record(entry("a"))
    ledger.data_set("friends").commit("a")
    ledger.data_set("friends").record(entry("b"))
    number, words, edit = REWRITINGS[rewriting]
    bodies = [
        {name: value for name, value in row.items() if name != "hash"} for row in ledger.export("friends")
    ]
    edit(bodies)
    ledger._store.write(lambda line: _rewrite(line, bodies))
    (found,) = ledger.verify()
    assert (found.data_set, found.entry) == ("friends", number)
    assert words in found.why


def _rewrite(line: sa.Connection, bodies: list[Body]) -> None:
    """Write a chain again, as its owner could."""
    kinds = line.execute(sa.select(entries.c.kind, entries.c.reference).order_by(entries.c.number)).all()
    _without_guard(line, "DELETE FROM graphveil_entries")
    head = START
    for number, body in enumerate(bodies, start=1):
        told = (
            body if number > len(kinds) else dict(zip(("kind", "reference"), kinds[number - 1], strict=True))
        )
        text, reference = canonical(body), told.get("reference", f"#{number}")
        head = link(head, text)
        values = {"number": number, "kind": told["kind"], "reference": reference, "body": text, "hash": head}
        line.execute(entries.insert().values(data_set="friends", **values))
    line.execute(data_sets.update().values(length=len(bodies), head=head))


OTHER_WAYS = {
    "sqlite": "INSERT OR REPLACE INTO graphveil_entries SELECT * FROM graphveil_entries WHERE number = 1",
    "postgresql": "TRUNCATE graphveil_entries",
}


def test_entries_go_in_no_other_way(ledger: Ledger, kind: str) -> None:
    ledger.init("friends", "undirected-edge")
    with pytest.raises(LedgerError, match="only ever added"):
        ledger._store.write(lambda line: line.execute(sa.text(OTHER_WAYS[kind])))
    assert ledger.verify() == []


def _without_guard(line: sa.Connection, statement: str) -> None:
    """Forge as somebody could who owns the database."""
    if line.dialect.name == "postgresql":
        line.execute(sa.text("ALTER TABLE graphveil_entries DISABLE TRIGGER ALL"))
    else:
        for verb in ("UPDATE", "DELETE", "REPLACE"):
            line.execute(sa.text(f"DROP TRIGGER graphveil_no_{verb}"))
    line.execute(sa.text(statement))


def test_clocks_that_disagree_do_not_matter(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    late = (datetime.now(UTC) - timedelta(days=400)).isoformat()
    monkeypatch.setattr(chain, "now", lambda: late)
    friends.record(entry("b"))
    monkeypatch.undo()
    friends.record(entry("c"))
    assert ([one.release_id for one in friends.entries], ledger.verify()) == (["a", "b", "c"], [])


def test_several_books_take_a_release_together_or_not_at_all(ledger: Ledger) -> None:
    for name, epsilon in (("old", "1"), ("new", "0.15")):
        ledger.init(name, "undirected-edge", epsilon=epsilon, delta="1e-7")
    old, new = ledger.data_set("old"), ledger.data_set("new")
    both = JointLedger([old, new, MemoryLedger()])
    both.record(entry("a"))
    both.commit("a")
    with pytest.raises(BudgetError):
        both.record(entry("b"))
    assert (len(old), len(new), both.contains("a"), both.refund("a")) == (1, 1, True, False)


def test_fingerprints_are_keyed(ledger: Ledger, tmp_path: object) -> None:
    one, again = (ledger.fingerprints({"edges": [b"1", b"2"]}) for _ in range(2))
    assert one == again != ledger.fingerprints({"edges": [b"13"]})
    other = Ledger(f"{tmp_path}/other.sqlite")
    assert other.fingerprints({"edges": [b"1", b"2"]}) != one
    other.close()


def test_a_booking_reads_no_earlier_ones(ledger: Ledger) -> None:
    """However many there are, a booking runs as many statements, on as few rows."""
    ledger.init("friends", "undirected-edge", epsilon="100", delta="1e-7")
    friends, engine = ledger.data_set("friends"), ledger._store._connections.engine()
    seen: list[int] = []
    sa.event.listen(
        engine, "after_execute", lambda line, clause, many, params, options, result: seen.append(1)
    )
    counts = []
    for number in range(30):
        seen.clear()
        friends.record(entry(f"r{number}", Gaussian(0.01)))
        counts.append(len(seen))
    assert len(set(counts)) == 1
    query = sa.select(sa.func.length(accounts.c.total))
    assert ledger._store.read(lambda line: line.execute(query).scalar_one()) < 200
    assert (
        ledger._store.read(
            lambda line: line.execute(sa.select(sa.func.count()).select_from(entries)).scalar_one()
        )
        == 31
    )


def test_entries_are_canonical_and_hold_no_secret(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7", tags=TAGS)
    for row in ledger.export("friends"):
        body = {name: value for name, value in row.items() if name != "hash"}
        assert json.loads(canonical(body)) == body
    assert isinstance(ledger.accounts()[0], Account)
    assert repr(ledger).startswith("Ledger('")
    assert sql_ledger.Ledger is Ledger
