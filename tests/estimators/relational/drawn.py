"""Random sets of tables, and their neighbors under units ``row`` and ``person``."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import graphveil as gv
from graphveil.data.relational import RelationalGraph

Row = tuple[int, int, int]  # owner, far end and value
Rng = np.random.Generator

PERSONS, CLASSES, VALUES = 40, ("no", "yes"), 3
PARTS = ("train", "train", "val", "test", "")  # of persons, the last one outside of the split
CATALOGS = {"film": 7, "shop": 4}
KINDS: dict[str, dict[str, Any]] = {  # of tables of rows
    "seen": {"far": "film"},
    "rated": {"far": "film", "value": "stars", "bins": [1, 2]},
    "bought": {"far": "shop", "value": "stars", "bins": [2]},
    "visits": {},
    "follows": {"far": "person", "persons": "one-sided"},
    "writes": {"far": "person", "value": "stars", "bins": [1, 2], "persons": "one-sided"},
    "friends": {"far": "person", "persons": "mutual"},
}
MUTUAL = "friends"


@dataclass(frozen=True)
class DrawnTables:
    """Persons with two attributes and a label or none, and rows by table.

    Args:
        attributes: Numbers of each person, (persons, 2).
        labels: Class of each person, or -1.
        described: Whether films have public attributes.
    """

    attributes: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    parts: tuple[str, ...]
    rows: dict[str, tuple[Row, ...]]
    described: bool

    def with_rows(self, table: str, rows: list[Row]) -> "DrawnTables":
        return replace(self, rows={**self.rows, table: tuple(rows)})

    def built(self, **options: Any) -> gv.Tables:
        """Return the tables as a user builds them."""
        persons = {
            "id": names("p", range(PERSONS)),
            "a": self.attributes[:, 0],
            "b": self.attributes[:, 1],
            "label": np.array([*CLASSES, ""], dtype=object)[self.labels],
            "part": np.array(self.parts, dtype=object),
        }
        rows, public = {}, {}
        for title, stored in self.rows.items():
            given = KINDS[title]
            owner, far, value = np.array(stored, dtype=np.int64).reshape(-1, 3).T
            kind = given.get("far")
            columns = {"who": names("p", owner), "stars": value}
            if kind is not None:
                columns[kind] = names("p" if kind == "person" else kind, far)
            rows[title] = gv.Rows(columns, owner="who", **given)
            if kind in CATALOGS:
                public[kind] = self.catalog(kind)
        return gv.Tables(
            persons, id="id", label="label", split="part", classes=CLASSES, rows=rows, public=public,
            features=["a", "b"], **{"unknown_ids": "drop", **options},
        )  # fmt: skip

    def catalog(self, kind: str) -> dict[str, Any]:
        ids = np.arange(CATALOGS[kind])
        found: dict[str, Any] = {kind: names(kind, ids)}
        return {**found, "length": ids % 3} if self.described and kind == "film" else found

    def listed(self, table: str) -> int:
        """Return the number of different far ends in rows: one is in no catalog."""
        kind = KINDS[table].get("far")
        return 1 if kind is None else CATALOGS.get(kind, PERSONS) + 1


def names(prefix: str, numbers: Any) -> npt.NDArray[np.object_]:
    return np.array([f"{prefix}{k}" for k in numbers], dtype=object)


def drawn(seed: int, *, mutual: bool) -> DrawnTables:
    """Draw one to four tables.

    Some persons have no rows, and the first one has half of them. Some rows are stored twice or in two
    tables, or have a far end that is in no list, and some tables are empty.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=PERSONS)
    attributes = labels[:, None] + rng.normal(size=(PERSONS, 2))
    labels = np.where(rng.random(PERSONS) < 0.1, -1, labels)
    labels[:8] = np.arange(8) % 2
    parts = tuple(PARTS[k] for k in [0] * 5 + [2] * 3 + rng.integers(len(PARTS), size=PERSONS - 8).tolist())
    kinds = [kind for kind in KINDS if mutual or kind != MUTUAL]
    chosen = [kinds[k] for k in rng.permutation(len(kinds))[: rng.integers(1, 5)]]
    found = DrawnTables(attributes, labels, parts, dict.fromkeys(chosen, ()), bool(rng.random() < 0.5))
    for table in chosen:
        found = found.with_rows(table, some_rows(rng, found, table))
    if {"seen", "rated"} <= set(chosen):
        shared = [(owner, far, 0) for owner, far, _ in found.rows["rated"][:9]]
        found = found.with_rows("seen", [*found.rows["seen"], *shared])
    return found


def some_rows(rng: Rng, found: DrawnTables, table: str) -> list[Row]:
    count = int(rng.choice([0, 20, 150]))
    owners = rng.choice(PERSONS // 2, size=count) + rng.integers(2) * (PERSONS // 2)
    owners[: count // 2] = 0
    far = rng.integers(found.listed(table), size=count)
    ends = zip(owners, far, rng.integers(VALUES, size=count), strict=True)
    rows = [(int(owner), int(other), int(value)) for owner, other, value in ends]
    if KINDS[table].get("persons") == "mutual":
        rows += [(far, owner, value) for owner, far, value in rows]
    return rows + rows[: int(rng.integers(4))]


def any_row(rng: Rng, found: DrawnTables, table: str) -> Row:
    owner, far = rng.integers(PERSONS), rng.integers(max(1, found.listed(table) - 1))
    return int(owner), int(far), int(rng.integers(VALUES))


def without_record(graph: RelationalGraph, found: DrawnTables, person: int) -> RelationalGraph:
    """Return the tables without a person's rows, with null attributes and no label."""
    rest = {title: tuple(row for row in rows if row[0] != person) for title, rows in found.rows.items()}
    other = replace(found, rows=rest).built(name=graph.name).graph
    x, y = torch.as_tensor(graph.x).clone(), graph.y.clone()
    x[person], y[person] = 0.0, -1
    return other.replace(x=x, y=y)
