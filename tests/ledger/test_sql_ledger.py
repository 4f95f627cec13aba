"""The ledger in a database: limits by unit, retries, refunds, bindings to data, and chains that verify."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from graphveil.core.events import ApproximateDP, Gaussian, PureDP
from graphveil.core.ledger import JointLedger, MemoryLedger
from graphveil.core.unit import NodeBoundedDegree, NodeRecord
from graphveil.errors import BudgetError, ConfigError, GraphveilError, LedgerError
from graphveil.ledger import Ledger
from graphveil.ledger.chain import START, canonical, link
from graphveil.ledger.database import data_sets, entries
from ledger.conftest import KINDS, TAGS, entry, execute_unguarded

pytestmark = pytest.mark.parametrize("kind", KINDS)
OTHER = {"edges": "x" * 64}


# -- limits, retries and refunds ---------------------------------------------------------------------------


def test_a_budget_of_three_grants_three(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.3", delta="1e-7")
    friends = ledger.data_set("friends")
    for name in "abc":
        friends.check(entry(name))
        friends.record(entry(name))
    with pytest.raises(
        BudgetError, match=r"costs epsilon 0\.1, but 0\.3 of epsilon 0\.3 .* No budget remains for a release"
    ):
        friends.record(entry("d"))
    with pytest.raises(BudgetError, match="already spent"):
        friends.check(entry("d"))
    assert (len(friends), [one.release_id for one in friends.entries]) == (3, ["a", "b", "c"])
    assert ledger.verify() == []


def test_a_limit_at_delta_0_admits_pure_releases_alone(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.3", delta="0")
    friends = ledger.data_set("friends")
    with pytest.raises(BudgetError, match="delta 0"):
        friends.record(entry("a", Gaussian(1e-6)))
    for name in "abc":
        friends.record(entry(name, PureDP(0.1)))
    with pytest.raises(BudgetError, match=r"0\.3 of epsilon 0\.3 is already spent .* No budget remains"):
        friends.record(entry("d", PureDP(1e-9)))


def test_a_repeated_release_is_charged_once(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    friends.record(entry("a"))
    assert (len(friends), friends.contains("a"), friends.contains("b")) == (1, True, False)
    with pytest.raises(BudgetError, match="with another privacy cost"):
        friends.record(entry("a", ApproximateDP(0.05)))
    (receipt,) = friends.receipts
    (row,) = [row for row in ledger.export("friends") if row["kind"] == "reserve"]
    assert (receipt.entry, receipt.head) == (row["number"], row["hash"])


def test_a_release_can_be_refunded_until_it_is_committed(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    assert friends.refund("a")
    assert friends.refund("a")  # does not refund twice
    assert (len(friends), friends.entries, friends.receipts) == (0, (), ())
    for rejected in (lambda: friends.commit("a"), lambda: friends.record(entry("a"))):
        with pytest.raises(BudgetError, match=r"The ledger no longer has|was refunded"):
            rejected()
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
    for exceeding in (entry("c"), entry("d", unit=NodeRecord())):
        with pytest.raises(BudgetError, match="already spent"):
            friends.record(exceeding)
    for unit in (NodeRecord(replace_one=True), NodeBoundedDegree(max_degree=5)):
        with pytest.raises(
            BudgetError, match=r"has a budget under node-record, undirected-edge, but none under unit"
        ):
            friends.record(entry("e", unit=unit))
    with pytest.raises(ConfigError, match=r"does not state its privacy unit"):
        friends.record(entry("g", unit=None))
    assert [one.unit for one in ledger.accounts("friends")] == ["node-record", "undirected-edge"]


def test_suggests_a_larger_delta_when_delta_is_used_up(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon=50, delta="1e-7")
    friends = ledger.data_set("friends")
    friends.record(entry("one", ApproximateDP(1.0, 1e-7)))
    with pytest.raises(
        BudgetError, match=r"a smaller epsilon does not help. Raise the delta of the limit"
    ) as error:
        friends.record(entry("two", ApproximateDP(1.0, 1e-7)))
    assert "remains" not in str(error.value)


def test_a_limit_is_raised_for_a_reason_and_never_lowered(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    change = partial(ledger.raise_limit, "friends", "undirected-edge")
    raised: dict[str, Any] = {"epsilon": "0.2", "delta": "1e-7"}
    with pytest.raises(ConfigError, match="A reason is missing"):
        change(**raised, reason=" ")
    with pytest.raises(ConfigError, match="needs both epsilon and delta"):
        change(epsilon=None, delta=None, reason="all")  # type: ignore[arg-type]  # as a caller may
    change(**raised, reason="a second study")
    friends.record(entry("b"))
    with pytest.raises(ConfigError, match="can only be raised"):
        change(epsilon="0.1", delta="1e-7", reason="less")
    with pytest.raises(ConfigError, match="has no budget under"):
        ledger.raise_limit("friends", "node-record", **raised, reason="more")
    with pytest.raises(ConfigError, match="ledger raise"):  # registering again does not change it
        ledger.init("friends", "undirected-edge", epsilon="0.3", delta="1e-7")
    with pytest.raises(ConfigError, match="is already registered under unit 'undirected-edge'"):
        ledger.init("friends", "undirected-edge")
    assert [row["reason"] for row in ledger.export("friends") if row["kind"] == "raise"] == ["a second study"]
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ledger: ledger.data_set("nobody"), "has no data set 'nobody'"),
        (lambda ledger: ledger.data_set("a\udc80"), "the current locale does not support"),
        (lambda ledger: ledger.init("a#b", "undirected-edge"), "1 to 100 printable"),
        (lambda ledger: ledger.init("a", "edges"), "is not a privacy unit"),
        (lambda ledger: ledger.init("a", "undirected-edge", epsilon=1), "needs both"),
        *(
            (
                lambda ledger, epsilon=epsilon, delta=delta: ledger.init(
                    "a", "undirected-edge", epsilon=epsilon, delta=delta
                ),
                words,
            )
            for epsilon, delta, words in (
                ("x", 0, "must be numbers"),
                (1, "nan", r"in \[0, 1\)"),
                ("inf", 0, "at least 0"),
                (1, 1, r"in \[0, 1\)"),
                ("1e400", "0", "at least 0 and below 1,000,000,000"),  # no double is as large or as small
                ("1e-400", "0", "at least 0 and below 1,000,000,000"),
                ("1", "1e-400", "at least 0 and below 1,000,000,000"),
                ("1", "0." + "9" * 30, "at least 0 and below 1,000,000,000"),
                ("-0", "0", "at least 0 and below 1,000,000,000"),
                ("0." + "1" * 80, "0", "at least 0 and below 1,000,000,000"),  # no column is as long
            )
        ),
    ],
)
def test_rejects_invalid_arguments_before_anything_is_written(
    ledger: Ledger, call: Callable[[Ledger], object], words: str
) -> None:
    with pytest.raises((ConfigError, ValueError), match=words):
        call(ledger)
    assert ledger.names() == []


def test_joint_ledgers_record_a_release_in_all_or_none(ledger: Ledger) -> None:
    for name, epsilon in (("old", "1"), ("new", "0.15")):
        ledger.init(name, "undirected-edge", epsilon=epsilon, delta="1e-7")
    old, new = ledger.data_set("old"), ledger.data_set("new")
    joint = JointLedger([old, new, MemoryLedger()])
    joint.record(entry("a"))
    joint.commit("a")
    with pytest.raises(BudgetError):
        joint.record(entry("b"))
    assert (len(old), len(new), joint.contains("a"), joint.refund("a")) == (1, 1, True, False)


def test_recording_does_not_read_earlier_entries(ledger: Ledger) -> None:
    """The number of statements and the size of the total do not grow with the number of releases."""
    ledger.init("friends", "undirected-edge", epsilon="100", delta="1e-7")
    friends, statements, counts = ledger.data_set("friends"), list[int](), list[int]()
    engine = ledger._store._engine
    sa.event.listen(engine, "after_execute", lambda *given: statements.append(1))
    for number in range(30):
        statements.clear()
        friends.record(entry(f"r{number}", Gaussian(0.01)))
        counts.append(len(statements))
    assert len(set(counts)) == 1
    (account,) = ledger.accounts("friends")
    assert len(canonical(account.total.as_plain())) < 200
    assert len(list(ledger.export("friends"))) == 31


# -- data: fingerprints and bindings -----------------------------------------------------------------------


def test_fingerprints_depend_on_the_key_of_the_ledger(ledger: Ledger, tmp_path: object) -> None:
    one, again = (ledger.fingerprints({"edges": [b"1", b"2"]}) for _ in range(2))
    assert one == again != ledger.fingerprints({"edges": [b"13"]})
    other = Ledger(f"{tmp_path}/other.sqlite")
    assert other.fingerprints({"edges": [b"1", b"2"]}) != one
    other.close()


def test_unregistered_data_are_recognized_and_have_no_limit(ledger: Ledger) -> None:
    known = ledger.find_or_create(TAGS)
    known.record(entry("a"))
    known.record(entry("b", Gaussian(3.0), NodeBoundedDegree(max_degree=5)))
    assert known.entries[1].unit == NodeBoundedDegree(max_degree=5)
    assert ledger.find_or_create({"edges": TAGS["edges"]}).name == known.name
    assert ledger.find_or_create({"edges": "x", "records": TAGS["records"]}).name == known.name
    assert ledger.find_or_create(OTHER).name != known.name
    assert ledger.verify() == []


def test_versions_of_one_dataset_share_one_budget(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.2", delta="1e-7")
    for tags in (TAGS, TAGS, {"edges": TAGS["edges"]}):
        ledger.data_set("friends", tags).bind_data()
    with pytest.raises(ConfigError, match="differ from those that 'friends' was registered with"):
        ledger.data_set("friends", OTHER).bind_data()
    ledger.data_set("friends").record(entry("a"))
    ledger.init("friends", "undirected-edge", tags=OTHER)
    ledger.data_set("friends", OTHER).bind_data()
    ledger.data_set("friends").record(entry("b"))
    with pytest.raises(BudgetError):
        ledger.data_set("friends").record(entry("c"))
    assert ledger.find_or_create(OTHER).name == "friends"


def test_a_name_is_bound_with_the_first_release(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.3", delta="1e-7")
    friends = ledger.data_set("friends", TAGS)
    friends.check(entry("a"))
    with pytest.raises(BudgetError):
        friends.record(entry("a", ApproximateDP(0.4)))
    ledger.data_set("friends", OTHER)  # the name is not bound yet
    friends.record(entry("a"))
    with pytest.raises(ConfigError, match="data differ from those"):
        ledger.data_set("friends", OTHER)
    assert [row["kind"] for row in ledger.export("friends")] == ["init", "bind", "reserve"]


def test_data_are_registered_with_the_first_release(ledger: Ledger) -> None:
    one, other = ledger.find_or_create(TAGS), ledger.find_or_create(OTHER)
    same = ledger.find_or_create(TAGS)  # as another process may find it
    one.check(entry("a"))
    assert (ledger.names(), len(one), one.contains("a")) == ([], 0, False)
    other.record(entry("a"))
    one.record(entry("a"))  # its name has been taken meanwhile
    assert (one.name, other.name, ledger.names()) == ("data-2", "data-1", ["data-1", "data-2"])
    assert [receipt.data_set for receipt in one.receipts] == ["data-2"]
    same.record(entry("b"))
    assert (same.name, len(same), ledger.verify()) == ("data-2", 2, [])


def test_a_name_without_releases_can_be_unbound(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", tags=TAGS)
    friends = ledger.data_set("friends", TAGS)
    friends.record(entry("a"))
    with pytest.raises(ConfigError, match="has releases"):
        ledger.unbind("friends")
    friends.refund("a")
    ledger.unbind("friends")
    with pytest.raises(ConfigError, match="not bound to any data"):
        ledger.unbind("friends")
    assert ledger.other_names("", TAGS) == []
    ledger.data_set("friends", OTHER).record(entry("b"))
    with pytest.raises(ConfigError, match="data differ from those"):
        ledger.data_set("friends", TAGS).bind_data()
    assert (len(friends), ledger.verify()) == (1, [])


# -- integrity ---------------------------------------------------------------------------------------------


def test_receipts_are_compared_with_the_ledger(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    (known,) = (vars(one) for one in friends.receipts)
    assert ledger.missing_receipts([known]) == []
    for change, words in (
        ({"entry": 9}, "no such entry"),
        ({"entry": 0}, "no such entry"),
        ({"data_set": "foes"}, "no such entry"),
        ({"head": "f" * 64}, "another entry"),
        ({"release": "b"}, "another entry"),
    ):
        (found,) = ledger.missing_receipts([known | change])
        assert words in found.why
    for wrong in ({"entry": "2"}, {"head": None}, {"entry": True}):
        with pytest.raises(GraphveilError, match="receipt is damaged"):
            ledger.missing_receipts([known | wrong])


def test_exported_entries_are_canonical(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7", tags=TAGS)
    for row in ledger.export("friends"):
        body = {name: value for name, value in row.items() if name != "hash"}
        assert json.loads(canonical(body)) == body


FORGERIES: dict[str, tuple[int, str]] = {
    "a number": (3, "UPDATE graphveil_entries SET body = replace(body, '0.1', '0.0') WHERE number = 3"),
    "a hash": (2, "UPDATE graphveil_entries SET hash = 'f' WHERE number = 2"),
    "a reference": (3, "UPDATE graphveil_entries SET reference = 'z' WHERE number = 3"),
    "a deletion": (3, "DELETE FROM graphveil_entries WHERE number = 3"),
    "deletion of the last": (4, "DELETE FROM graphveil_entries WHERE number = 4"),
    "a total": (4, "UPDATE graphveil_accounts SET releases = 1"),
    "a limit": (4, "UPDATE graphveil_accounts SET epsilon = '100'"),
    "an invalid limit": (4, "UPDATE graphveil_accounts SET epsilon = 'x'"),
    "half a limit": (4, "UPDATE graphveil_accounts SET delta = NULL"),
    "an invalid total": (4, "UPDATE graphveil_accounts SET total = 'x'"),
    "an account": (4, "DELETE FROM graphveil_accounts"),
    "a dataset": (1, "DELETE FROM graphveil_data_sets"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_verify_finds_the_forged_entry(ledger: Ledger, forgery: str) -> None:
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7")
    for name in "abc":
        ledger.data_set("friends").record(entry(name))
    number, statement = FORGERIES[forgery]
    if "entries" in statement:
        with pytest.raises(LedgerError, match="only ever added"):
            ledger._store.write(lambda line: line.execute(sa.text(statement)))
    assert ledger.verify() == []
    ledger._store.write(lambda line: execute_unguarded(line, statement))
    (found,) = ledger.verify()
    assert (found.data_set, found.entry) == ("friends", number)


OTHER_CHANGES = {
    "sqlite": "INSERT OR REPLACE INTO graphveil_entries SELECT * FROM graphveil_entries WHERE number = 1",
    "postgresql": "TRUNCATE graphveil_entries",
}


def test_triggers_reject_other_changes_of_entries(ledger: Ledger, kind: str) -> None:
    ledger.init("friends", "undirected-edge")
    with pytest.raises(LedgerError, match="only ever added"):
        ledger._store.write(lambda line: line.execute(sa.text(OTHER_CHANGES[kind])))
    assert ledger.verify() == []


Body = dict[str, Any]


def extra(kind: str, **more: object) -> Body:
    """Return a fifth entry."""
    return {"data_set": "friends", "number": 5, "kind": kind, "time": "2026-01-01", **more}


LOWER = {"unit": "undirected-edge", "epsilon": "0.5", "delta": "1e-7", "reason": "none"}
REWRITINGS: dict[str, tuple[int, str, Callable[[list[Body]], object]]] = {
    "no object": (2, "none that a ledger writes", lambda bodies: bodies.__setitem__(1, [])),  # type: ignore[call-overload]  # as a forger may
    "an empty object": (2, "none that a ledger writes", lambda bodies: bodies[1].clear()),
    "another dataset": (2, "columns do not agree", lambda bodies: bodies[1].update(data_set="foes")),
    "another number": (2, "columns do not agree", lambda bodies: bodies[1].update(number=1)),
    "an unopened account": (2, "was not opened", lambda bodies: bodies[1].update(unit="node-record")),
    "no events": (2, "none that a ledger writes", lambda bodies: bodies[1].update(events={"kind": "pure"})),
    "no limit": (1, "none that a ledger writes", lambda bodies: bodies[0].update(epsilon="x")),
    "opened twice": (5, "opened twice", lambda bodies: bodies.append(bodies[0] | {"number": 5})),
    "a lower limit": (5, "a limit is lowered", lambda bodies: bodies.append(extra("raise", **LOWER))),
    "an unknown kind": (5, "unknown kind 'gift'", lambda bodies: bodies.append(extra("gift"))),
    "refunded after commit": (
        5,
        "given back for which noise",
        lambda bodies: bodies.append(extra("refund", reference="a")),
    ),
    "committed, never reserved": (
        5,
        "commit entry for a release that was not recorded",
        lambda bodies: bodies.append(extra("commit", reference="z")),
    ),
}


@pytest.mark.parametrize("rewriting", REWRITINGS)
def test_verify_finds_impossible_entries_in_a_rewritten_chain(ledger: Ledger, rewriting: str) -> None:
    """All hashes are right, and so is the head: only the meaning of the entries is wrong."""
    number, words, edit = REWRITINGS[rewriting]
    rewrite(ledger, edit)
    (found,) = ledger.verify()
    assert (found.data_set, found.entry) == ("friends", number)
    assert words in found.why
    if rewriting == "an unknown kind":
        with pytest.raises(LedgerError, match="damaged"):
            list(ledger.export("friends"))


def test_the_order_of_entries_does_not_depend_on_clocks(ledger: Ledger) -> None:
    rewrite(ledger, lambda bodies: bodies[2].update(time="2020-01-01T00:00:00.000+00:00"))
    ledger.data_set("friends").record(entry("c"))
    assert [one.release_id for one in ledger.data_set("friends").entries] == ["a", "b", "c"]
    assert ledger.verify() == []


def rewrite(ledger: Ledger, edit: Callable[[list[Body]], object]) -> None:
    """Write a ledger with two releases, edit its entries, and chain them again, as its owner could."""
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    friends.commit("a")
    friends.record(entry("b"))
    bodies = [
        {name: value for name, value in row.items() if name != "hash"} for row in ledger.export("friends")
    ]
    columns = [{"kind": body["kind"], "reference": body.get("reference")} for body in bodies]
    edit(bodies)
    columns += [{"kind": body["kind"], "reference": body.get("reference")} for body in bodies[len(columns) :]]

    def task(line: sa.Connection) -> None:
        execute_unguarded(line, "DELETE FROM graphveil_entries")
        head = START
        for number, (body, known) in enumerate(zip(bodies, columns, strict=True), start=1):
            text, reference = canonical(body), known["reference"] or f"#{number}"
            head = link(head, text)
            values = {"number": number, "kind": known["kind"], "body": text, "hash": head}
            line.execute(entries.insert().values(data_set="friends", reference=reference, **values))
        line.execute(data_sets.update().values(length=len(bodies), head=head))

    ledger._store.write(task)


@pytest.mark.parametrize("seed", range(2))
def test_all_views_of_an_account_agree_after_any_order_of_steps(ledger: Ledger, seed: int) -> None:
    """Records, commits and refunds in a random order, by two objects, against a list of what is charged."""
    rng = np.random.default_rng(seed)
    ledger.init("friends", "undirected-edge")
    objects = ledger.data_set("friends"), ledger.data_set("friends")
    live, committed, gone = list[str](), set[str](), set[str]()
    own: tuple[set[str], set[str]] = (set(), set())
    for _ in range(30):
        step, which = rng.choice(["record", "commit", "refund"]), int(rng.integers(2))
        name, friends = f"release {rng.integers(8)}", objects[which]
        if step == "record" and name not in gone:
            friends.record(entry(name))
            live += [] if name in live else [name]
            own[which].add(name)
        elif step == "commit" and name in live:
            friends.commit(name)
            committed.add(name)
        elif step == "refund":
            refunded = friends.refund(name)
            assert refunded == (name in gone or (name in live and name not in committed))
            if refunded and name in live:
                live.remove(name)
                gone.add(name)
                for one in own:
                    one.discard(name)
        else:
            with pytest.raises(BudgetError):
                (friends.record(entry(name)) if step == "record" else friends.commit(name))
        assert [one.release_id for one in friends.entries] == live
        assert len(friends) == len(live)
        assert [friends.contains(f"release {k}") for k in range(8)] == [
            f"release {k}" in live for k in range(8)
        ]
        assert friends.recorded - gone == own[which]  # others may hold what this object has refunded
        assert step != "refund" or name in live or name not in friends.recorded
        (account,) = friends.accounts
        assert account.releases == len(live)
        assert account.total.epsilon(1e-7) == pytest.approx(0.1 * len(live))
        missing = ledger.missing_receipts([asdict(one) for one in friends.receipts if one.release in live])
        assert not missing
    assert ledger.verify() == []
