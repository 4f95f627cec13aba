"""Published files and printed output depend on noisy query answers and public data only.

Two data sets that what is protected tells apart get the same noisy answers, and everything that may be
published must then be the same to the last byte.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command import CLASSES, Files, Invoke, read, recorded, write

import graphveil as gv
from graphveil.release import Release

EDGE = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7"]
OWNER = ["--unit", "node-record", "--epsilon", "4", "--delta", "1e-5"]
BOUNDED = ["--unit", "node-bounded-degree", "--epsilon", "4", "--delta", "1e-5", "--max-degree", "59"]
LOCAL = ["--unit", "local-attributes", "--set", "eps_x=2", "--set", "eps_y=2"]
BUDGET, SHORT = ["--out-degree-bound", "5"], ["--set", "epochs=3"]
PARTS = ("test", "train", "val")
MEASURED = ("seconds", "seconds_wall", "peak_rss_mb", "out", "ledger")  # not covered, and never published


@dataclass
class Transcript:
    """The answers of a run: noted, and then handed out again in the same order."""

    answers: list[Any] = field(default_factory=list)
    handed_out: int | None = None

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Take the place of all answers."""
        query = Release.answer

        def instead(release: Release, data: Any) -> Any:
            fresh = query(release, data)  # which has to be possible, whatever it says
            if self.handed_out is None:
                self.answers.append(fresh)
                return fresh
            self.handed_out += 1
            return self.answers[self.handed_out - 1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Release, "answer", instead)
            yield

    def again(self) -> "Transcript":
        """Return what hands the noted answers out."""
        return Transcript(self.answers, 0)


def published(invoke: Invoke, flags: list[Any], out: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files of a run's release, and what the command prints besides time and memory."""
    answer = invoke("train", *flags, "--out", out, "--json")
    assert answer.code == 0, answer.err
    files = {path.name: path.read_bytes() for path in Path(out, "release").iterdir()}
    return files, {name: value for name, value in answer.json.items() if name not in MEASURED}


def with_edges(files: Files, change: Any) -> None:
    head, *rows = read(files.edges)
    write(files.edges, [head, *change(rows)])


OF_EDGES: dict[str, list[Any]] = {
    "gap": ["gap", *EDGE, *SHORT],
    "gap twice": ["gap", *EDGE, *SHORT, "--runs", 2],
    "classcode": ["classcode", *EDGE],
    "mlp": ["mlp", *EDGE, *SHORT],
}
OF_RECORDS: dict[str, list[Any]] = {
    "double owner": ["double", *OWNER, *BUDGET],
    "double bounded": ["double", *BOUNDED],
    "gap owner": ["gap", *OWNER, *BUDGET, *SHORT, "--private-metrics"],
}


@pytest.mark.parametrize("case", OF_EDGES)
def test_an_edge_affects_a_release_only_through_query_answers(
    invoke: Invoke, files: Files, case: str
) -> None:
    first, flags = Transcript(), [*OF_EDGES[case], *files.flags]
    with first.in_place():
        before = published(invoke, flags, "before")
    with_edges(files, lambda rows: rows[:-1])
    with first.again().in_place():
        after = published(invoke, flags, "after")
    assert before == after


@pytest.mark.parametrize("case", OF_RECORDS)
@pytest.mark.usefixtures("double")
def test_a_record_affects_a_release_only_through_query_answers(
    invoke: Invoke, files: Files, case: str
) -> None:
    head, *rows = read(files.nodes)
    split = [[*head, "fold"], *([*row, PARTS[n % 3]] for n, row in enumerate(rows))]
    write(files.nodes, split)
    columns = [*files.flags, "--directed", "--split", "fold", "--classes", "t0,t1,t2", "--no-baseline"]
    first, flags = Transcript(), [*OF_RECORDS[case], *columns]
    with first.in_place():
        before, _ = published(invoke, flags, "before")
    with_edges(files, lambda rows: [row for row in rows if row[0] != "u7"])  # what u7 declares
    if "double" in flags:  # which trains on nothing, so that the whole record may be another
        write(files.nodes, [*split[:8], ["u7", "9.5", "-2", "", split[8][-1]], *split[9:]])
    with first.again().in_place():
        after, _ = published(invoke, flags, "after")
    assert before == after


SLOTS = ("--unit", "edge-subset", "--epsilon", "2", "--private-nodes", "all", "--set", "eps_x=2")
METHODS = {
    "gap": ["gap", *EDGE, *SHORT],
    "mlp": ["mlp", *EDGE, *SHORT],
    "classcode": ["classcode", *EDGE],
    "spectral": ["spectral", *EDGE],
    "lpgnet": ["lpgnet", *EDGE, *SHORT],
    "auto": ["auto", *EDGE],
    "gcn": ["gcn", "--unit", "none", *SHORT],
    "gat": ["gat", "--unit", "none", *SHORT],
    "sage": ["sage", "--unit", "none", *SHORT],
    "gap owner": ["gap", *OWNER, *BUDGET, *SHORT],
    "mlp owner": ["mlp", *OWNER, *SHORT],
    "classcode owner": ["classcode", *OWNER, *BUDGET],
    "lpgnn": ["lpgnn", *LOCAL, *SHORT],
    "simgat": ["simgat", *LOCAL, *SHORT],
    "heterorr": ["heterorr", *SLOTS, *SHORT],
    "gnn": ["gnn", *OWNER, *SHORT, "--set", "leaves=4", "--module", "own.py:Star"],
    "module": ["module", *OWNER, *SHORT, "--module", "own.py:Row"],
    "label-posterior": ["label-posterior", "--unit", "local-attributes", "--set", "eps_y=1"],
}


OWN = """
import torch


class Row(torch.nn.Linear):
    pass


class Star(torch.nn.Linear):
    def forward(self, x, edge_index):
        return super().forward(x + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]))
"""
"""Modules of a user's own, for the methods that train one."""


def shifted(team: str, by: int) -> str:
    return f"t{(int(team[1]) + by) % CLASSES}"


def test_every_method_is_tested() -> None:
    assert {flags[0] for flags in METHODS.values()} == set(gv.METHODS)


@pytest.mark.parametrize("case", METHODS)
def test_no_method_reads_test_labels(invoke: Invoke, files: Files, case: str) -> None:
    def with_test_labels(shift: int, out: str) -> tuple[bytes, Any]:
        rows = [[*row[:3], row[3] if n % 3 else shifted(row[3], shift), PARTS[n % 3]] for n, row in known]
        write(files.nodes, [[*head, "fold"], *rows])
        answer = invoke("train", *METHODS[case], *flags, "--out", out, "--json")
        assert answer.code == 0, answer.err
        return Path(out, "release/model.safetensors").read_bytes(), invoke("predict", out).out

    Path("own.py").write_text(OWN)
    head, *nodes = read(files.nodes)
    known = list(enumerate(nodes))
    flags = [*files.flags, "--split", "fold"]
    if METHODS[case][0] != "mlp":  # which is the baseline
        flags += ["--no-baseline"]
    if "none" not in METHODS[case]:  # without noise there is no noise seed
        flags += ["--unsafe-noise-seed", 1]
    assert with_test_labels(0, "as they are") == with_test_labels(1, "shifted")


class Notes(io.StringIO):
    """Standard error; it keeps what is written before the ledger has a number of releases."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, str] = {}

    def write(self, text: str) -> int:
        releases = len(recorded())
        self.before[releases] = self.before.get(releases, "") + text
        return len(text)


def test_the_privacy_cost_is_shown_before_it_is_spent(invoke: Invoke, files: Files) -> None:
    notes = Notes()
    with redirect_stderr(notes):
        invoke("train gap", *EDGE, *SHORT, *files.flags, "--out", "r")
        with_edges(files, lambda rows: rows[:-1])  # the training graph has no privacy cost
        invoke("predict r --nodes", files.nodes, "--edges", files.edges)
    plan, privacy_cost = notes.before[0], notes.before[1].lstrip()
    assert plan.startswith("Plan (no privacy budget has been spent)")
    assert "noise standard deviation" in plan
    assert privacy_cost.startswith("Privacy cost of querying another graph's edges")
