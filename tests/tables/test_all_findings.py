"""Everything that is wrong with two tables is found, and no finding ends in a raw error."""

from pathlib import Path

import pytest
from command import Invoke

from graphveil.data import read_graph
from graphveil.errors import GraphError, TableError

NODES = "user,age,plan,note\n1,30,x,p\n2,40,y,q\n2,oops,y,r\n3,50,x,s\n"
EDGES = "a,b\n1,2\n2,3\n3,99\n"


def check(invoke: Invoke, nodes: str, edges: str, *more: str, label: str = "plan") -> list[str]:
    """Return the problems that `check` finds in two tables."""
    Path("n.csv").write_text(nodes)
    Path("e.csv").write_text(edges)
    columns = ["--id", "user", "--label", label, "--source", "a", "--target", "b"]
    answer = invoke("check --nodes n.csv --edges e.csv --json", *columns, *more)
    assert answer.code == 1, answer.err
    found = answer.json["problems"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("more", "label", "first"),
    [
        ((), "plan", None),
        (("--categories", "plan"), "plan", "column 'plan' is used for two different roles"),
        (("--categories", "nosuch"), "plan", "no column 'nosuch'"),
        (("--drop", "nosuch"), "plan", "no column 'nosuch'"),
        ((), "nosuch", "no column 'nosuch'"),
        (("--split", "nosuch"), "plan", "no column 'nosuch'"),
        (("--weight", "nosuch"), "plan", "no column 'nosuch'"),
    ],
)
def test_one_finding_hides_no_other(
    more: tuple[str, ...], label: str, first: str | None, invoke: Invoke
) -> None:
    problems = check(invoke, NODES, EDGES, *more, label=label)
    found = " ".join(problems)
    expected = ["repeats ids", "column 'age' is of type text", "column 'note' is of type text", "column 'b'"]
    assert all(words in found for words in [*expected, *([] if first is None else [first])]), problems
    assert len(problems) == len(set(problems))


@pytest.mark.parametrize("labels", [",,", "x,x,x", "x,,"])
@pytest.mark.parametrize("more", [(), ("--split", "part"), ("--categories", "kind")])
def test_nodes_of_edges_alone_need_no_usable_label(
    labels: str, more: tuple[str, ...], invoke: Invoke
) -> None:
    rows = [f"{n},{n}0,{label},k,nowhere" for n, label in enumerate(labels.split(","), start=1)]
    nodes = "\n".join(["user,age,plan,kind,part", *rows, ""])
    problems = check(invoke, nodes, "a,b\n1,9\n2,3\n", "--unknown-ids", "add", *more)
    assert any("fewer than two classes" in words for words in problems)
    assert any("'age' has no value for the nodes that edges alone name" in words for words in problems)
    with pytest.raises((GraphError, TableError), match="fewer than two classes"):
        read_graph("n.csv", "e.csv", id="user", label="plan", source="a", target="b", unknown_ids="add")


@pytest.mark.parametrize("header", [",a,b", "Unnamed: 0,a,b", "A,a,b", "x,X,a,b"])
def test_prepare_reads_the_tables_that_check_accepts(header: str, invoke: Invoke) -> None:
    count = header.count(",") - 1
    Path("n.csv").write_text("user,age,plan\n1,30,x\n2,40,y\n3,50,x\n")
    rows = [",".join([*["0"] * count, *ends]) for ends in ("12", "23", "31")]
    Path("e.csv").write_text("\n".join([header, *rows, ""]))
    columns = "--nodes n.csv --edges e.csv --id user --label plan --source a --target b"
    checked = invoke(f"check {columns}")
    assert checked.code == 1 and "column" not in checked.err, checked.err  # three nodes have no test part
    answer = invoke(f"prepare {columns} --out prepared --json")
    assert answer.code == 0 and answer.json["edges"] == 3, answer.err


def test_prepare_reads_a_parquet_file_with_an_index(invoke: Invoke) -> None:
    import pandas as pd

    Path("n.csv").write_text("user,age,plan\n1,30,x\n2,40,y\n3,50,x\n")
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [2, 3, 1], "": [0, 0, 0]}, index=[5, 6, 8])
    frame.to_parquet("e.parquet")
    columns = "--nodes n.csv --edges e.parquet --id user --label plan --source a --target b"
    answer = invoke(f"prepare {columns} --out prepared --json")
    assert answer.code == 0 and answer.json["edges"] == 3, answer.err
