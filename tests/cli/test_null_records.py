"""No outcome of a whole run depends on a record: each one nulled, and each one replaced.

A run under a unit of records either ends well for all data that differ in one record, or for none: an error,
a file that is there or not, or a line more would tell about the record, and no noise would cover it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from command import Answer, Invoke, environment, write

COUNT = 8
SPLIT = ("train", "train", "train", "train", "train", "train", "val", "test")
LABELS = ("a", "b", "a", "b", "a", "b", "a", "b")


@dataclass(frozen=True)
class Record:
    """What one node brings: features, label, and the edges that it declares."""

    features: tuple[float, float]
    label: str
    edges: tuple[int, ...]


NULL = Record((0.0, 0.0), "", ())
OTHER = Record((900.5, -3.25), "b", (0, 1, 2, 3, 4, 5, 6, 7))
RECORDS = tuple(Record((float(n % 2), 0.5 * n), LABELS[n], ((n + 1) % COUNT,)) for n in range(COUNT))


def neighbors(node: int) -> Iterator[tuple[Record, ...]]:
    """Yield the data with one record nulled, and with it replaced."""
    for record in (NULL, OTHER):
        yield (*RECORDS[:node], record, *RECORDS[node + 1 :])


def without_edges_to(node: int, records: tuple[Record, ...]) -> tuple[Record, ...]:
    """Return data in which nobody declares an edge to a node, as node-bounded-degree compares them."""
    return tuple(replace(one, edges=tuple(end for end in one.edges if end != node)) for one in records)


def written(folder: Path, records: tuple[Record, ...]) -> list[str]:
    """Write two tables of the same names, and return the flags."""
    nodes = [["id", "x", "y", "team", "fold"]]
    nodes += [[f"n{n}", *map(str, one.features), one.label, SPLIT[n]] for n, one in enumerate(records)]
    write(folder / "nodes.csv", nodes)
    edges = [[f"n{n}", f"n{end}"] for n, one in enumerate(records) for end in one.edges]
    write(folder / "edges.csv", [["a", "b"], *edges])
    files = ["--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv"), "--directed"]
    columns = ["--id", "id", "--label", "team", "--split", "fold", "--classes", "a,b"]
    return [*files, *columns, "--source", "a", "--target", "b"]


OWNER = ["--unit", "node-record", "--epsilon", "1", "--delta", "1e-3"]
BOUNDED = ["--unit", "node-bounded-degree", "--epsilon", "1", "--delta", "1e-3", "--max-degree", "18"]
BUDGET, SHORT, COUNTED = ["--out-degree-bound", "2"], ["--set", "epochs=1"], ["--private-metrics"]
FEW = ["--set", "epochs=1", "--set", "batch_size=6"]
QUICK = {"double owner": ["double", *OWNER, *BUDGET], "double bounded": ["double", *BOUNDED]}
SHIPPED = {
    "mlp owner counted": ["mlp", *OWNER, *SHORT, *COUNTED],
    "mlp bounded": ["mlp", *BOUNDED, *SHORT],
    "gap owner": ["gap", *OWNER, *BUDGET, *SHORT],
    "gap owner counted, twice": ["gap", *OWNER, *BUDGET, *SHORT, *COUNTED, "--runs", "2"],
    "gap bounded": ["gap", *BOUNDED, *SHORT],
    "classcode owner": ["classcode", *OWNER, *BUDGET],
    "gap-paper owner": ["gap-paper", *OWNER, *BUDGET, *FEW],
    "mlp-paper owner": ["mlp-paper", *OWNER, *FEW],
    "sage-paper owner": ["sage-paper", *OWNER, *BUDGET, *FEW],
    "lpgnn": ["lpgnn", "--unit", "local-attributes", "--set", "eps_x=1", "--set", "eps_y=1", *SHORT],
    "label-posterior": ["label-posterior", "--unit", "local-attributes", "--set", "eps_y=1"],
}


def keys(value: Any) -> Any:
    """Return the structure of a JSON value, without its figures; an absent accuracy has no interval."""
    if isinstance(value, dict):
        return {name: keys(part) for name, part in value.items() if name != "ci95"}
    return [keys(part) for part in value] if isinstance(value, list) else None


def shape(answer: Answer, folder: Path) -> tuple[object, ...]:
    """Return all of a run's outcome but the figures that were computed."""
    plan, _, rest = answer.err.partition("\nmethod  ")  # the table of figures begins here
    figures = re.sub(r"n/a|[-\d.]+", "#", re.sub(" +", " ", rest))
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return answer.code, plan, figures, keys(answer.json), files


def outcome(invoke: Invoke, flags: list[str], records: tuple[Record, ...], name: str) -> tuple[object, ...]:
    """Train on data in a folder of that name, with a ledger of its own: the people are the same."""
    Path(name).mkdir()
    out = Path(name, "run")
    method, *rest = flags
    with environment(GRAPHVEIL_LEDGER=str(Path(name, "ledger.sqlite").absolute())):
        answer = invoke("train", method, *written(Path(name), records), *rest, "--out", out, "--json")
    assert answer.code == 0, answer.err
    return shape(Answer(answer.code, answer.out, answer.err.replace(str(out), "OUT")), out)


def compare(invoke: Invoke, flags: list[str], nodes: Iterable[int]) -> None:
    """Fail where an outcome differs for data that differ in one record."""
    known = outcome(invoke, flags, RECORDS, "whole")
    for node in nodes:
        for number, records in enumerate(neighbors(node)):
            changed = without_edges_to(node, records) if "node-bounded-degree" in flags else records
            assert outcome(invoke, flags, changed, f"{node}-{number}") == known, f"record {node}"


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("case", QUICK)
def test_no_outcome_depends_on_a_record_of_any_part(invoke: Invoke, case: str) -> None:
    """Two trained records, one of each label, and those that validate and test."""
    compare(invoke, QUICK[case], (0, 1, 6, 7))


@pytest.mark.parametrize("case", SHIPPED)
def test_no_outcome_depends_on_the_one_tested_record(invoke: Invoke, case: str) -> None:
    compare(invoke, SHIPPED[case], range(COUNT - 1, COUNT))


@pytest.mark.slow
@pytest.mark.parametrize("case", SHIPPED)
def test_no_outcome_of_a_shipped_method_depends_on_any_record(invoke: Invoke, case: str) -> None:
    compare(invoke, SHIPPED[case], range(COUNT))
    for folder in Path().iterdir():
        assert invoke("explain", folder / "run").code == invoke("predict", folder / "run").code == 0


def test_an_accuracy_without_labeled_nodes_is_absent(invoke: Invoke, double: type[Any]) -> None:
    *others, last = RECORDS
    Path("r").mkdir()
    method, *rest = QUICK["double owner"]
    flags = ["train", method, *written(Path("r"), (*others, replace(last, label=""))), *rest]
    record = invoke(*flags, "--out", "j", "--json").json
    assert record["test_accuracy"] == {"mean": None, "std": None, "ci95": None, "values": [None]}
    assert record["val_accuracy"]["mean"] is not None
    assert re.search(r"^double +n/a ", invoke(*flags, "--out", "t").out, re.MULTILINE)
    assert "<b>n/a</b>" in Path("t/internal/report.html").read_text()
