"""What a run publishes depends on noisy answers and public data only: every method, in every unit.

Each method of ``METHODS``, and each other way to release, is run on two data sets that differ in what its
unit protects, with default settings and little training. The answers of the first run take the place of
those of the second. Then all that may be published is the same to the last byte: the release folder, what
commands print, and predictions of other nodes. A method that is added is covered without a test of its own.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import NODES, Files, Invoke, calling, edit, read, write

from graphveil import METHODS, private_hops
from graphveil.core.release import Release
from graphveil.core.unit import UNITS
from graphveil.data import Graph
from graphveil.data.relational import TABLE_UNITS
from graphveil.local import reports
from graphveil.perturb import MECHANISMS
from tests.estimators.relational.drawn import drawn, without_record

pytestmark = pytest.mark.usefixtures("quick_classcode", "quick_networks")

MODULES = """
import torch


class Own(torch.nn.Linear):
    def forward(self, x, edge_index=None):
        if edge_index is not None:
            x = x + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return super().forward(x)
"""
Flags = list[Any]
Twice = Callable[[Flags, str], None]
NODE, PARTS = "u7", ("test", "train", "val")  # u7 is a training node
EDGES: Flags = ["--epsilon", 1, "--delta", "1e-6"]
RECORDS: Flags = ["--epsilon", 2, "--delta", "1e-5", "--directed"]
OF_UNITS: dict[str, Flags] = {
    "undirected-edge": EDGES,
    "directed-edge": [*EDGES, "--directed"],
    "edge-subset": ["--epsilon", 2, "--private-nodes", "all"],
    "row": [*EDGES, "--directed"],
    "person": RECORDS,
    "node-record": [*RECORDS, "--out-degree-bound", 5],
    "node-record/replace-one": [*RECORDS, "--out-degree-bound", 5, "--replace-one"],
    "node": RECORDS,
    "node/replace-one": [*RECORDS[:-1], "--replace-one"],
    "node-bounded-degree": [*RECORDS, "--max-degree", 118],
    "local-attributes": [],
}
WITHOUT_OWN_LISTS: Flags = ["--set", "read_own_edges=false"]
NOTHING_PROTECTED = {"none"}
OF_TABLES, ITEMS = {"auto", "mlp", "relational"}, 40
REFUSALS = {"UnitError", "NotImplementedGuaranteeError", "UnsupportedGuaranteeError"}
# Not covered, and never published; exact accuracies are for the owner, like the folder internal/.
INTERNAL = re.compile(
    r"^(seconds|seconds_wall|peak_rss_mb|out|path|ledger|(mlp_)?(val|test)_(accuracy|metrics))$"
)


@dataclass
class Transcript:
    """The noisy answers and LDP reports of a run: stored, and then used again in the same order."""

    answers: list[Any] = field(default_factory=list)
    used: int | None = None

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Take the place of all answers and reports."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Release, "answer", self._instead(Release.answer))
            patch.setattr(reports, "collect_reports", self._instead(reports.collect_reports))
            yield

    def again(self) -> "Transcript":
        """Return what uses the stored answers."""
        return Transcript(self.answers, 0)

    def _instead(self, draw: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **keywords: Any) -> Any:
            fresh = draw(*arguments, **keywords)  # which must not raise an error
            if self.used is None:
                self.answers.append(fresh)
                return fresh
            self.used += 1
            return self.answers[self.used - 1]

        return instead


def flags_of(method: str, unit: str) -> Flags:
    """Return the required options of a method under a unit, by the parameters that it has."""
    name = unit.removesuffix("/replace-one")
    parameters = {each.name for each in fields(METHODS[method])}
    found = ["train", method, "--unit", name, *OF_UNITS[unit]]
    if "module" in parameters:
        found += ["--module", "own.py:Own"]
        if "neighborhood" in parameters and name == "node-bounded-degree":
            found += ["--set", "neighborhood=neighbors"]
    if "perturb" in parameters and name.endswith(("-edge", "-subset")):
        found += ["--perturb", "edge-rand"]
    if "epochs" in parameters and method != "mlp":  # the tuned one, which takes a moment, has none
        found += ["--set", "epochs=2"]
    budgets = {"local-attributes": ("eps_x", "eps_y"), "edge-subset": ("eps_x",)}.get(name, ())
    for budget in sorted(parameters.intersection(budgets)):
        found += ["--set", f"{budget}={0 if method == 'label-posterior' and budget == 'eps_x' else 2}"]
    return found


def changed(unit: str) -> Callable[[list[list[str]]], list[list[str]]]:
    """Return the change of the table of edges: one edge less, or none of the node's."""

    def without(rows: list[list[str]]) -> list[list[str]]:
        if unit.startswith(("node", "person")):
            ends = slice(0, 1 if unit.startswith(("node-record", "person")) else 2)
            return [row for row in rows if NODE not in row[ends]]
        return rows if unit == "local-attributes" else rows[:-1]

    return without


def other_record(unit: str) -> Callable[[list[list[str]]], list[list[str]]]:
    """Return the change of the table of nodes: other features, and another label or none."""

    def other(rows: list[list[str]]) -> list[list[str]]:
        (number,) = (number for number, row in enumerate(rows) if row[0] == NODE)
        label = (
            ""
            if unit in ("node", "node-record", "node-bounded-degree", "person")
            else "t2"
            if rows[number][3] != "t2"
            else "t0"
        )
        return [*rows[:number], [NODE, "9.5", "-2", label, rows[number][4]], *rows[number + 1 :]]

    return other


def uncovered(files: Files, flags: Flags, unit: str) -> set[str]:
    """Return nodes whose own predictions are not covered: those that may read their own edge to the node."""
    reads = unit.partition("/")[0] == "node" and {"classcode", "auto"} & set(flags)
    if not reads or "read_own_edges=false" in flags:
        return {NODE}
    ends = [(row[0], row[1]) for row in read(files.edges)]
    ends += [] if "--directed" in flags else [(target, source) for source, target in ends]
    return {NODE, *(source for source, target in ends if target == NODE)}


def published(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, flags: Flags, out: str, own: set[str]
) -> dict[str, Any]:
    """Run a method, and return all that may be published, by name, without predictions of some nodes."""
    monkeypatch.setenv(
        "GRAPHVEIL_LEDGER", str(Path(f"{out}.sqlite").absolute())
    )  # its totals are not covered
    trained = invoke(*flags, "--out", out, "--json")
    assert trained.code == 0, trained.err
    folder = Path(out, "release") if Path(out, "release").exists() else Path(out)
    found: dict[str, Any] = {path.name: contents(path) for path in folder.iterdir()}
    found["printed"] = {name: value for name, value in trained.json.items() if not INTERNAL.search(name)}
    found["progress"] = without_time(trained.err, out)
    for command in ("explain", "predict") if folder.name == "release" else ():
        more: Flags = ["--top-k", 3] if command == "predict" and {"links", "recommender"} & set(flags) else []
        answer = invoke(command, out, *more)
        refused = command == "predict" and "covers its parameters only" in answer.err
        assert answer.code == 0 or refused, answer.err
        lines = without_time(answer.out + answer.err, out)
        found[command] = [line for line in lines if not re.match(rf"\W*({'|'.join(own)})\b", line)]
    return found


def contents(path: Path) -> object:
    """Return the bytes of a file; of a perturbed graph all but the random id of its release."""
    if path.name != "edges.parquet":
        return path.read_bytes()
    table = pq.read_table(path)
    return table.to_pydict(), re.sub(r"[0-9a-f]{32}", "", str(table.schema.metadata))


def without_time(text: str, out: str) -> list[str]:
    """Return lines without measured times, random ids, and the name of the run."""
    return re.sub(r"[\d.,]+ (s|ms|min|[KMG]?B)\b|[0-9a-f]{16,}", "", text).replace(out, "RUN").splitlines()


@pytest.fixture
def published_twice(invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch) -> Twice:
    """Run a command on both data sets, and compare what it publishes."""

    # Progress lines are then printed at every step, also by a fast machine.
    monkeypatch.setattr("graphveil._util.display.NOTE_INTERVAL", -1.0)

    def twice(flags: Flags, unit: str) -> None:
        planned = invoke(*flags, "--out", "plan", "--dry-run", "--json")
        if planned.code:
            assert planned.json["error"]["kind"] in REFUSALS, planned.err
            return
        first, own = Transcript(), uncovered(files, flags, unit)
        assert len(own) < NODES / 3
        with first.in_place():
            before = published(invoke, monkeypatch, flags, "run-1", own)
        edit(files.edges, changed(unit))
        if unit.startswith(("node", "person", "local")):
            edit(files.nodes, other_record(unit))
        second = first.again()
        with second.in_place():
            after = published(invoke, monkeypatch, flags, "run-2", own)
        assert second.used == len(first.answers)
        assert before.keys() == after.keys()
        for name in before:
            assert before[name] == after[name], name

    return twice


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Two tables with a split, and a file of modules."""
    found = Files.written(tmp_path)
    edit(found.nodes, lambda rows: [[*row, "fold" if not n else PARTS[n % 3]] for n, row in enumerate(rows)])
    Path("own.py").write_text(MODULES)
    return found


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Call commands in a folder with a ledger of its own."""
    monkeypatch.chdir(tmp_path)
    return calling(capsys)


def test_every_unit_is_here() -> None:
    assert {unit.removesuffix("/replace-one") for unit in OF_UNITS} | NOTHING_PROTECTED == set(UNITS)


def of_fit(files: Files, method: str, unit: str) -> Flags:
    """Return a command that fits a method on the tables."""
    baseline = [] if method == "mlp" else ["--no-baseline"]
    of_tables = method == "relational" or (method == "mlp" and unit in TABLE_UNITS)
    tables = rows_of_persons(files) if of_tables else files.flags
    of_graphs = ("--directed", "--private-nodes", "all") if of_tables else ()
    flags = [flag for flag in flags_of(method, unit) if flag not in of_graphs]
    return [*flags, *tables, "--split", "fold", "--classes", "t0,t1,t2", *baseline]


def rows_of_persons(files: Files) -> Flags:
    """Write the edges as rows of their sources, and return the flags of these tables."""

    def items(rows: list[list[str]]) -> list[list[str]]:
        return [["a", "item"], *([source, f"i{int(target[1:]) % ITEMS}"] for source, target, *_ in rows[1:])]

    edit(files.edges, items)
    write(Path("items.csv"), [["item"], *([f"i{n}"] for n in range(ITEMS))])
    rows = [f"{files.edges}:owner=a,far=item", "--public", "items.csv:id=item"]
    return ["--persons", files.nodes, "--rows", *rows, "--id", "user", "--label", "team"]


@pytest.mark.parametrize("unit", OF_UNITS)
@pytest.mark.parametrize("method", METHODS)
def test_a_fit_publishes_only_what_follows_from_noisy_answers(
    published_twice: Twice, files: Files, method: str, unit: str
) -> None:
    published_twice(of_fit(files, method, unit), unit)


@pytest.mark.parametrize(
    ("method", "unit", "more"),
    [
        ("gap", "directed-edge", ["--runs", 2]),
        ("gap", "node-record", ["--private-metrics", "--runs", 2]),
        ("mlp", "node-record/replace-one", ["--private-metrics"]),
        ("classcode", "node-record", ["--private-metrics"]),
        ("gnn", "node-record", ["--private-metrics"]),
        ("gap", "node", ["--private-metrics", "--runs", 2]),
        ("mlp", "node", ["--private-metrics"]),
        ("auto", "node", ["--private-metrics"]),
        ("classcode", "node", ["--private-metrics", *WITHOUT_OWN_LISTS]),
        ("classcode", "node", [*WITHOUT_OWN_LISTS, "--runs", 2]),
        ("lpgnn", "local-attributes", ["--runs", 2]),
    ],
)
def test_more_runs_and_metrics_follow_from_noisy_answers(
    published_twice: Twice, files: Files, method: str, unit: str, more: Flags
) -> None:
    published_twice([*of_fit(files, method, unit), *more], unit)


LINKS: Flags = [
    "links",
    "--id",
    "user",
    "--label",
    "team",
    "--source",
    "a",
    "--target",
    "b",
    "--drop",
    "fold",
]
LISTS: Flags = ["recommender", "--id", "user", "--items", "items.csv", "--source", "a", "--target", "b"]
OF_PAIRS: dict[str, tuple[str, Flags]] = {
    "links": ("undirected-edge", [*LINKS, *EDGES]),
    "directed links": ("directed-edge", [*LINKS, *EDGES, "--directed"]),
    "lists": ("node-record", [*LISTS, *EDGES, "--private-metrics"]),
    "replaced lists": ("node-record", [*LISTS, *EDGES, "--replace-one"]),
    "entries of lists": ("directed-edge", [*LISTS, *EDGES]),
}


@pytest.mark.parametrize("case", OF_PAIRS)
def test_links_and_lists_publish_only_what_follows_from_noisy_answers(
    published_twice: Twice, files: Files, case: str
) -> None:
    unit, flags = OF_PAIRS[case]
    write(Path("items.csv"), [["b"], *([f"u{n}"] for n in range(NODES))])
    published_twice(["train", *flags, "--unit", unit, "--nodes", files.nodes, "--edges", files.edges], unit)


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge", "edge-subset"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_perturbed_graph_follows_from_noisy_answers(
    published_twice: Twice, files: Files, mechanism: str, unit: str
) -> None:
    tables = [
        "--nodes",
        files.nodes,
        "--edges",
        files.edges,
        "--id",
        "user",
        "--source",
        "a",
        "--target",
        "b",
    ]
    options = [option for option in OF_UNITS[unit] if option not in ("--delta", "1e-6")]
    published_twice(["perturb", mechanism, "--unit", unit, *options, *tables], unit)


def test_methods_of_tables_are_known() -> None:
    assert {name for name, kind in METHODS.items() if kind.reads_tables} == OF_TABLES


@pytest.mark.parametrize("seed", [0, 4])
@pytest.mark.parametrize("unit", ["row", "person", "person/replace-one"])
@pytest.mark.parametrize("method", sorted(OF_TABLES))
def test_a_fit_of_tables_publishes_only_what_follows_from_noisy_answers(
    method: str, unit: str, seed: int, tmp_path: Path
) -> None:
    """Without the rows of one person in a table, or with a null record in place of a person's."""
    found, person = drawn(seed, mutual=unit == "row"), 0
    graph = found.built(name="data").graph
    if unit == "row":
        table = next(name for name, rows in found.rows.items() if rows)
        kept = [row for row in found.rows[table] if row[0] != person]
        other = found.with_rows(table, kept).built(name="data").graph
        assert len(other.adjacency.indices) < len(graph.adjacency.indices)
    else:
        other = without_record(graph, found, person)
    covered = np.arange(graph.num_nodes) != (-1 if unit == "row" else person)

    def published(graph: Graph, out: Path) -> dict[str, Any]:
        model = METHODS[method](
            unit=unit.partition("/")[0],
            epsilon=8.0,
            delta=1e-5,
            seed=0,
            **({"replace_one": True} if "/" in unit else {}),
        ).fit(graph)
        model.save(out)
        files = {path.name: path.read_bytes() for path in out.iterdir()}
        shown = [str(model), model.guarantee.formal_statement(), str(model.plan_)]
        return {**files, "shown": shown, "proba": model.proba_[covered].numpy().tobytes()}

    first = Transcript()
    with first.in_place():
        before = published(graph, tmp_path / "first")
    second = first.again()
    with second.in_place():
        after = published(other, tmp_path / "second")
    assert second.used == len(first.answers)
    assert before.keys() == after.keys()
    for name in before:
        assert before[name] == after[name], name


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge"])
def test_private_hops_follow_from_noisy_answers(unit: str) -> None:
    def released(edges: int) -> tuple[Any, ...]:
        source, target = np.random.default_rng(0).integers(20, size=(2, 60))[:, :edges]
        graph = Graph.from_edges(
            np.eye(20), np.arange(20) % 2, source, target, directed=unit == "directed-edge"
        )
        rows = private_hops(graph, unit=unit, epsilon=1.0, delta=1e-6, hops=3)
        return [hop.tolist() for hop in rows.hops], str(rows), str(rows.guarantee)

    first = Transcript()
    with first.in_place():
        before = released(60)
    with first.again().in_place():
        assert released(59) == before
