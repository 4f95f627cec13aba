"""No fit reads test labels, and privacy costs are shown before they are spent."""

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from command import CLASSES, Files, Invoke, read, recorded, write

import graphveil as gv

pytestmark = pytest.mark.usefixtures("quick_classcode")

EDGE = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7"]
OWNER = ["--unit", "node-record", "--epsilon", "1", "--delta", "1e-5"]
LOCAL = ["--unit", "local-attributes", "--set", "eps_x=2", "--set", "eps_y=2"]
BUDGET, SHORT = ["--out-degree-bound", "5"], ["--set", "epochs=3"]
PARTS = ("test", "train", "val")


def with_edges(files: Files, change: Any) -> None:
    head, *rows = read(files.edges)
    write(files.edges, [head, *change(rows)])


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
    tables = {"relational"}  # tests/cli/test_tables.py
    assert {flags[0] for flags in METHODS.values()} == set(gv.METHODS) - tables


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
