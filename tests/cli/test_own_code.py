"""``--module FILE.py:NAME``: custom modules and methods."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Invoke

import graphveil as gv
from graphveil import estimators
from graphveil.estimators.own import code

OWN = """
from dataclasses import dataclass
from typing import ClassVar

import torch
import graphveil as gv


class MyGNN(torch.nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.own, self.heard = torch.nn.Linear(inputs, classes), torch.nn.Linear(inputs, classes)

    def forward(self, x, edge_index):
        source, target = edge_index
        return self.own(x) + self.heard(torch.zeros_like(x).index_add(0, target, x[source]))


class Mixing(MyGNN):
    def forward(self, x, edge_index):
        return super().forward(x - x.mean(dim=0), edge_index)


@dataclass(kw_only=True, eq=False)
class Mine(gv.GAP):
    method: ClassVar[str] = "mine"

    hops: int = 1
"""
"""The file of a user."""
DATA = ["--dataset", "synthetic/tiny", "--no-baseline", "--json"]
OWNER = [
    "--unit",
    "node-record",
    "--epsilon",
    "2",
    "--delta",
    "1e-5",
    "--set",
    "epochs=1",
    "--set",
    "leaves=4",
]


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """Leave the tables of names as they were."""
    kept, known = dict(estimators._REGISTERED), dict(code._REGISTERED)
    yield
    for table, before in ((estimators._REGISTERED, kept), (code._REGISTERED, known)):
        table.clear()
        table.update(before)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_a_module_is_trained_and_its_run_explained_without_it(
    invoke: Invoke, own: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = invoke("train gnn", *DATA, *OWNER, "--module", f"{own}:MyGNN", "--out", str(out))
    assert done.code == 0, done.err
    found = done.json
    assert found["method"] == "gnn" and found["guarantee"]["valid"] and found["guarantee"]["epsilon"] <= 2
    code._REGISTERED.clear()
    assert "own edge list" in " ".join(invoke("explain", str(out)).out.split())
    assert gv.load_model(out).get_params()["module"] == "MyGNN"


def test_private_weights_leave_a_run_without_predictions(invoke: Invoke, own: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = ["--set", "neighborhood=neighbors", "--module", f"{own}:MyGNN"]
    done = invoke("train gnn", *DATA, *OWNER, *given, "--out", str(out))
    assert done.code == 0, done.err
    assert "the released weights are" in done.json["statement"] and not done.json["test_accuracy"]["mean"]
    assert (out / "release" / "model.safetensors").exists() and not (out / "per_node").exists()
    rejected = invoke("predict", str(out), "--nodes", "1", "--out", str(tmp_path / "p.csv"))
    assert rejected.code == 2
    assert "MODEL_CARD.md" in {path.name for path in (out / "release").iterdir()}


def test_a_custom_method_is_trained_by_its_name(invoke: Invoke, own: Path, tmp_path: Path) -> None:
    edges = [
        "--unit",
        "undirected-edge",
        "--epsilon",
        "2",
        "--set",
        "epochs=2",
        "--out",
        str(tmp_path / "run"),
    ]
    done = invoke("train mine", *DATA, *edges, "--module", f"{own}:Mine")
    assert done.code == 0, done.err
    assert done.json["hops"] == 1
    estimators._REGISTERED.clear()
    rejected = invoke("train mine", *DATA, *edges)
    assert rejected.code == 2 and "METHOD" in rejected.err


def test_a_module_is_calibrated_and_swept(invoke: Invoke, own: Path, tmp_path: Path) -> None:
    request = invoke("calibrate gnn", *OWNER, "--module", f"{own}:MyGNN", "--json")
    assert request.code == 0, request.err
    assert 1.75 < request.json["epsilon"] <= 2
    grid = ["gnn,mlp", *DATA[:2], *OWNER, "--module", f"{own}:MyGNN", "--out", str(tmp_path / "s"), "--json"]
    done = invoke("sweep", *grid)
    assert done.code == 0, done.err
    assert [cell["method"] for cell in done.json["cells"]] == ["gnn", "mlp"]


@pytest.mark.slow
def test_workers_run_the_file_for_themselves(own: Path, tmp_path: Path) -> None:
    grid = [*DATA[:2], *OWNER, "--epsilon", "4,8", "--module", f"{own}:MyGNN", "--out", str(tmp_path / "s")]
    command = [sys.executable, "-m", "graphveil", "sweep", "gnn", *grid, "--jobs", "2", "--json"]
    done = subprocess.run(command, check=True, capture_output=True)
    assert [cell["epsilon"] for cell in json.loads(done.stdout)["cells"]] == [4, 8]


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("own.py", "nor of the form"),
        ("other.py:MyGNN", "there is no file"),
        ("own.py:Nothing", "does not define 'Nothing'"),
        ("broken.py:MyGNN", "fails: ZeroDivisionError"),
        ("own.py:Mixing", "changes with the other trees"),
        (None, "--module sage"),
    ],
)
def test_an_invalid_module_leaves_no_run(
    invoke: Invoke, own: Path, tmp_path: Path, named: str | None, why: str
) -> None:
    own.rename("own.py")
    Path("broken.py").write_text("1 / 0")
    given = [] if named is None else ["--module", named]
    done = invoke("train gnn", *DATA, *OWNER, *given, "--out", "run")
    assert done.code == 2, done.err
    assert why in " ".join(done.err.split())
    assert not Path("run/release").exists()
