"""Damaged ledgers raise errors of the package, and changed content does not verify."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from graphveil.cli.ledger import account_to_dict, format_spent
from graphveil.core.events import Gaussian, LocalReport, PairwiseGaussian, PureDP, compose
from graphveil.errors import GraphveilError
from graphveil.ledger import Ledger
from graphveil.ledger.chain import History
from ledger.conftest import TAGS, entry

TABLES = ("secret", "about", "data_sets", "accounts", "entries")
NUMBERS: list[object] = [0, -1, 1, 1 << 40, 1.5, float("inf"), None, b"\xff\x00"]
TEXTS = ["", "x", "\x00", "{}", "[]", "[" * 5000, "null", "nan", "-1", "1e400", "1/0", "ä", "friends"]
VALUES = [*NUMBERS, *TEXTS, '{"mu_squared":"1","slack":"0","others":{"x":1}}']


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with entries of every kind."""
    path = tmp_path_factory.mktemp("whole") / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7", tags=TAGS)
    ledger.init("empty", "node-record")
    ledger.init("unbound", "undirected-edge", tags={"edges": "u" * 64})
    ledger.unbind("unbound")
    friends = ledger.data_set("friends")
    events = (Gaussian(0.01), PureDP(0.01), PairwiseGaussian("all", ((0.01,),)), LocalReport("label", 0.01))
    for number, event in enumerate((*events, compose(*events))):
        friends.record(entry(f"r{number}", event))
    friends.commit("r0")
    friends.refund("r1")
    ledger.raise_limit("friends", "undirected-edge", epsilon="2", delta="1e-7", reason="a second study")
    ledger.find_or_create({"edges": "d" * 64}).record(entry("a"))
    ledger.close()
    return path


# -- damages of the bytes, and of rows ---------------------------------------------------------------------

Damage = Callable[[bytearray, random.Random], None]


def flip_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_bits_of_text(data: bytearray, rng: random.Random) -> None:
    """Flip bits where rows are, and not in empty pages."""
    places = [number for number, byte in enumerate(data) if 32 <= byte < 127]
    for _ in range(rng.choice((1, 2, 8))):
        data[rng.choice(places)] ^= 1 << rng.randrange(7)


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def lose_page(data: bytearray, rng: random.Random) -> None:
    first = rng.randrange(len(data) // 4096) * 4096
    data[first : first + 4096] = bytes(4096)


def repeat_page(data: bytearray, rng: random.Random) -> None:
    one, other = (rng.randrange(len(data) // 4096) * 4096 for _ in range(2))
    data[one : one + 4096] = data[other : other + 4096]


Change = Callable[[sqlite3.Connection, random.Random], None]


def columns_and_rows(line: sqlite3.Connection, table: str) -> tuple[list[str], list[int]]:
    columns = [row[1] for row in line.execute(f"PRAGMA table_info(graphveil_{table})")]
    return columns, [row[0] for row in line.execute(f"SELECT rowid FROM graphveil_{table}")]


def change_value(line: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    columns, rows = columns_and_rows(line, table)
    change = f"UPDATE OR IGNORE graphveil_{table} SET {rng.choice(columns)} = ? WHERE rowid = ?"
    with suppress(sqlite3.IntegrityError):  # no column takes it
        line.execute(change, (rng.choice(VALUES), rng.choice(rows)))


def edit_text(line: sqlite3.Connection, rng: random.Random) -> None:
    """Change one character of a text, like a person who edits it."""
    table, column = rng.choice([("entries", "body"), ("accounts", "total"), ("entries", "body")])
    row, text = rng.choice(line.execute(f"SELECT rowid, {column} FROM graphveil_{table}").fetchall())
    at = rng.randrange(len(text))
    edited = text[:at] + rng.choice(["", rng.choice('"{}[]:,0-9ex')]) + text[at + 1 :]
    line.execute(f"UPDATE graphveil_{table} SET {column} = ? WHERE rowid = ?", (edited, row))


def lose_row(line: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    row = rng.choice(columns_and_rows(line, table)[1])
    line.execute(f"DELETE FROM graphveil_{table} WHERE rowid = ?", (row,))


def repeat_row(line: sqlite3.Connection, rng: random.Random) -> None:
    line.execute(
        "INSERT INTO graphveil_entries SELECT data_set, 99, kind, reference || '+', body, hash "
        "FROM graphveil_entries ORDER BY rowid LIMIT 1 OFFSET ?",
        (rng.randrange(10),),
    )


def swap_rows(line: sqlite3.Connection, rng: random.Random) -> None:
    one = rng.randrange(1, 7)
    for old, new in ((one, 1000), (one + 1, one), (1000, one + 1)):
        change = "UPDATE graphveil_entries SET number = ? WHERE number = ? AND data_set = 'friends'"
        line.execute(change, (new, old))


def change_kind(line: sqlite3.Connection, rng: random.Random) -> None:
    change = "UPDATE graphveil_entries SET kind = ? WHERE number = ? AND data_set = 'friends'"
    line.execute(change, (rng.choice(("gift", "", "RESERVE", "x" * 50)), rng.randrange(1, 9)))


def change_schema(line: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    column = rng.choice(columns_and_rows(line, table)[0])
    alter = f"ALTER TABLE graphveil_{table} RENAME"
    line.execute(
        rng.choice((f"DROP TABLE graphveil_{table}", f"{alter} TO other", f"{alter} {column} TO other"))
    )


BYTES: tuple[Damage, ...] = (flip_bits, flip_bits_of_text, truncate, lose_page, repeat_page)
ROWS: tuple[Change, ...] = (
    *(change_value, edit_text, lose_row, repeat_row, swap_rows, change_kind, change_schema),
)
SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))]


# -- uses of a ledger --------------------------------------------------------------------------------------


def show(ledger: Ledger) -> None:
    for one in ledger.accounts():
        account_to_dict(one)
        format_spent(one)
    for name in ledger.names():
        for step in History.from_rows(ledger.export(name)).steps:
            step.total.epsilon(1e-7)


def use(ledger: Ledger) -> None:
    friends = ledger.data_set("friends")
    assert len(friends) >= 0 and friends.entries is not None
    for name in ("r0", "r1", "r2"):
        friends.contains(name)
        friends.refund(name)
    friends.check(entry("big", PureDP(0.5)))
    friends.commit("r3")


def recognize(ledger: Ledger) -> None:
    tags = ledger.fingerprints({"edges": [b"1"], "people": [b"12345678"]})
    ledger.shared_nodes(tags)
    ledger.find_or_create(tags).record(entry("new"))


RAISED = {"epsilon": "3", "delta": "1e-7", "reason": "third"}
USES: dict[str, Callable[[Ledger], object]] = {
    "verify": lambda ledger: ledger.verify(),
    "names": lambda ledger: ledger.names(),
    "show": show,
    "other names": lambda ledger: ledger.other_names("friends", TAGS),
    "use": use,
    "charge": lambda ledger: ledger.data_set("friends", TAGS).record(entry("new", PureDP(0.001))),
    "recognize": recognize,
    "raise": lambda ledger: ledger.raise_limit("friends", "undirected-edge", **RAISED),
    "unbind": lambda ledger: ledger.unbind("empty"),
}


@pytest.mark.parametrize("damage", [*BYTES, *ROWS], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_ledger_raises_errors_of_the_package(
    whole: Path, tmp_path: Path, damage: Damage | Change, seed: int
) -> None:
    path, rng = tmp_path / "ledger.sqlite", random.Random(f"{damage.__name__} {seed}")
    shutil.copy(whole, path)
    if damage in BYTES:
        data = bytearray(path.read_bytes())
        damage(data, rng)  # type: ignore[arg-type]
        path.write_bytes(data)
    else:
        with closing(sqlite3.connect(path)) as line, line:
            for verb in ("UPDATE", "DELETE", "REPLACE"):
                line.execute(f"DROP TRIGGER graphveil_no_{verb}")
            damage(line, rng)  # type: ignore[arg-type]
    results = dict[str, str]()
    changed = damage in ROWS and content(path) != content(whole)  # bytes of free pages change nothing
    for name, call in USES.items():
        try:
            ledger = Ledger(path, create=False)
            try:
                results[name] = "clean" if call(ledger) == [] else "done"
            finally:
                ledger.close()
        except GraphveilError as error:
            results[name] = type(error).__name__
            assert str(error)
    assert not changed or results["verify"] != "clean", results


def content(path: Path) -> object:
    """Return every value and the schema of the tables, or why they cannot be read."""
    with closing(sqlite3.connect(path)) as line:
        try:
            schema = line.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchall()
            rows = [line.execute(f"SELECT * FROM graphveil_{table}").fetchall() for table in TABLES]
            return [row[1:] for row in rows[0]], rows[1:], schema  # no number of the key's row
        except sqlite3.Error as error:
            return str(error)
