"""Damaged ledgers end in an error of ours, and what was changed in them does not verify."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from graphveil.cli.ledger import account_to_dict, format_spent
from graphveil.errors import GraphveilError
from graphveil.ledger import Entry, Ledger
from graphveil.ledger.verify import History
from graphveil.privacy import UndirectedEdge
from graphveil.privacy.events import Gaussian, LocalReport, PairwiseGaussian, PureDP, compose

TAGS = {"edges": "e" * 64, "records": "r" * 64}
TABLES = ("secret", "about", "data_sets", "accounts", "entries")
VALUES: tuple[object, ...] = (
    *(
        None,
        "",
        "x",
        0,
        -1,
        1,
        1 << 40,
        1.5,
        float("inf"),
        b"\xff\x00",
        "\x00",
        "{}",
        "[]",
        "[" * 5000,
        "null",
    ),
    *("nan", "-1", "1e400", "1/0", '{"mu_squared":"1","slack":"0","others":{"x":1}}', "ä", "friends"),
)
Damage = Callable[[Path, random.Random], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with entries of every kind."""
    path = tmp_path_factory.mktemp("whole") / "ledger.sqlite"
    book = Ledger(path)
    book.init("friends", "undirected-edge", epsilon="1", delta="1e-7", tags=TAGS)
    book.init("empty", "node-record")
    book.init("unbound", "undirected-edge", tags={"edges": "u" * 64})
    book.unbind("unbound")
    friends = book.data_set("friends")
    events = (Gaussian(0.01), PureDP(0.01), PairwiseGaussian("all", ((0.01,),)), LocalReport("label", 0.01))
    for number, event in enumerate((*events, compose(*events))):
        friends.record(Entry(f"r{number}", "rows", event, 1e-12, UndirectedEdge()))
    friends.commit("r0")
    friends.refund("r1")
    book.raise_limit("friends", "undirected-edge", epsilon="2", delta="1e-7", reason="a second study")
    book.find_or_create({"edges": "d" * 64}).record(Entry("a", "rows", PureDP(0.1), unit=UndirectedEdge()))
    book.close()
    return path


def flipped(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def flipped_in_text(path: Path, rng: random.Random) -> None:
    """Flip bits where rows lie, and not in empty pages."""
    data = bytearray(path.read_bytes())
    places = [number for number, byte in enumerate(data) if 32 <= byte < 127]
    for _ in range(rng.choice((1, 2, 8))):
        data[rng.choice(places)] ^= 1 << rng.randrange(7)
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def page_lost(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    first = rng.randrange(len(data) // 4096) * 4096
    data[first : first + 4096] = bytes(4096)
    path.write_bytes(data)


def page_doubled(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    one, other = (rng.randrange(len(data) // 4096) * 4096 for _ in range(2))
    data[one : one + 4096] = data[other : other + 4096]
    path.write_bytes(data)


def another_value(path: Path, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    with closing(sqlite3.connect(path)) as line, line:
        unguarded(line)
        columns = [row[1] for row in line.execute(f"PRAGMA table_info(graphveil_{table})")]
        rows = [row[0] for row in line.execute(f"SELECT rowid FROM graphveil_{table}")]
        change = f"UPDATE OR IGNORE graphveil_{table} SET {rng.choice(columns)} = ? WHERE rowid = ?"
        with suppress(sqlite3.IntegrityError):  # no column takes it
            line.execute(change, (rng.choice(VALUES), rng.choice(rows)))


def another_text(path: Path, rng: random.Random) -> None:
    """Change a text at one place, as somebody who edits it."""
    table, column = rng.choice([("entries", "body"), ("accounts", "total"), ("entries", "body")])
    with closing(sqlite3.connect(path)) as line, line:
        unguarded(line)
        row, text = rng.choice(line.execute(f"SELECT rowid, {column} FROM graphveil_{table}").fetchall())
        at = rng.randrange(len(text))
        change = rng.choice(
            [text[:at] + text[at + 1 :], text[:at] + rng.choice('"{}[]:,0-9ex') + text[at + 1 :]]
        )
        line.execute(f"UPDATE graphveil_{table} SET {column} = ? WHERE rowid = ?", (change, row))


def row_lost(path: Path, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    with closing(sqlite3.connect(path)) as line, line:
        unguarded(line)
        rows = [row[0] for row in line.execute(f"SELECT rowid FROM graphveil_{table}")]
        line.execute(f"DELETE FROM graphveil_{table} WHERE rowid = ?", (rng.choice(rows),))


def row_doubled(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path)) as line, line:
        unguarded(line)
        line.execute(
            "INSERT INTO graphveil_entries SELECT data_set, 99, kind, reference || '+', body, hash "
            "FROM graphveil_entries ORDER BY rowid LIMIT 1 OFFSET ?",
            (rng.randrange(10),),
        )


def rows_swapped(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path)) as line, line:
        unguarded(line)
        one = rng.randrange(1, 7)
        for old, new in ((one, 1000), (one + 1, one), (1000, one + 1)):
            change = "UPDATE graphveil_entries SET number = ? WHERE number = ? AND data_set = 'friends'"
            line.execute(change, (new, old))


def unknown_kind(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path)) as line, line:
        unguarded(line)
        change = "UPDATE graphveil_entries SET kind = ? WHERE number = ? AND data_set = 'friends'"
        line.execute(change, (rng.choice(("gift", "", "RESERVE", "x" * 50)), rng.randrange(1, 9)))


def another_schema(path: Path, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    with closing(sqlite3.connect(path)) as line, line:
        columns = [row[1] for row in line.execute(f"PRAGMA table_info(graphveil_{table})")]
        line.execute(
            rng.choice(
                (
                    f"DROP TABLE graphveil_{table}",
                    f"ALTER TABLE graphveil_{table} RENAME TO other",
                    f"ALTER TABLE graphveil_{table} RENAME COLUMN {rng.choice(columns)} TO other",
                )
            )
        )


def unguarded(line: sqlite3.Connection) -> None:
    for verb in ("UPDATE", "DELETE", "REPLACE"):
        line.execute(f"DROP TRIGGER graphveil_no_{verb}")


BYTES: tuple[Damage, ...] = (flipped, flipped_in_text, cut, page_lost, page_doubled)
ROWS: tuple[Damage, ...] = (
    *(another_value, another_text, row_lost, row_doubled, rows_swapped, unknown_kind, another_schema),
)
SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 60))]


@pytest.mark.parametrize("damage", [*BYTES, *ROWS], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_ledger_ends_in_an_error_of_ours(
    whole: Path, tmp_path: Path, damage: Damage, seed: int
) -> None:
    path, before = tmp_path / "ledger.sqlite", content(whole)
    shutil.copy(whole, path)
    damage(path, random.Random(f"{damage.__name__} {seed}"))
    changed = damage in BYTES or content(path) != before
    said = dict[str, str]()
    for name, call in CALLS.items():
        try:
            book = Ledger(path, create=False)
            try:
                found = call(book)
            finally:
                book.close()
            said[name] = "clean" if found == [] else "done"
        except GraphveilError as error:
            said[name] = type(error).__name__
            assert str(error)
    if changed and damage not in BYTES:  # what is damaged in free pages changes nothing
        assert said["verify"] != "clean", said


def content(path: Path) -> object:
    """Return every value, or why it cannot be read."""
    with closing(sqlite3.connect(path)) as line:
        try:
            schema = line.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchall()
            rows = [line.execute(f"SELECT * FROM graphveil_{table}").fetchall() for table in TABLES]
            return [row[1:] for row in rows[0]], rows[1:], schema  # no number of the key's row
        except sqlite3.Error as error:
            return str(error)


def listed(book: Ledger) -> None:
    for one in book.accounts():
        account_to_dict(one)
        format_spent(one)


def shown(book: Ledger) -> None:
    for name in book.names():
        past = History.from_rows(book.export(name))
        for step in past.steps:
            step.total.epsilon(1e-7)


def charged(book: Ledger) -> None:
    book.data_set("friends", TAGS).record(Entry("new", "rows", PureDP(0.001), unit=UndirectedEdge()))


def used(book: Ledger) -> None:
    friends = book.data_set("friends")
    assert len(friends) >= 0 and friends.entries is not None
    for name in ("r0", "r1", "r2"):
        friends.contains(name)
        friends.refund(name)
    friends.check(Entry("big", "rows", PureDP(0.5), unit=UndirectedEdge()))
    friends.commit("r3")


def find_or_create(book: Ledger) -> None:
    tags = book.fingerprints({"edges": [b"1"], "people": [b"12345678"]})
    book.shared_nodes(tags)
    book.find_or_create(tags).record(Entry("new", "rows", PureDP(0.1), unit=UndirectedEdge()))


CALLS: dict[str, Callable[[Ledger], object]] = {
    "verify": lambda book: book.verify(),
    "names": lambda book: book.names(),
    "list": listed,
    "show": shown,
    "other names": lambda book: book.other_names("friends", TAGS),
    "use": used,
    "charge": charged,
    "recognize": find_or_create,
    "raise": lambda book: book.raise_limit(
        "friends", "undirected-edge", epsilon="3", delta="1e-7", reason="third"
    ),
    "unbind": lambda book: book.unbind("empty"),
}
