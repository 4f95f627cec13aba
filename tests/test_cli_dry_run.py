"""``--dry-run`` prints the plan and its total; under node-level units the budget is the total."""

import json
from pathlib import Path

import pytest

from graphveil.cli import main

DATA = ["--dataset", "synthetic/tiny"]
OWNER = ["--unit", "node-record", "--out-degree-bound", 5]
COMMANDS = {
    "train": (["train", "gap", *DATA, "--unit", "undirected-edge", "--epsilon", 1], 1.0),
    "train on records": (["train", "gap", *DATA, *OWNER, "--epsilon", 8], 8.0),
    "classcode on records": (["train", "classcode", *DATA, *OWNER, "--epsilon", 8], 8.0),
    "sweep": (["sweep", "mlp", *DATA, "--unit", "node-record", "--epsilon", "1"], 1.0),
    "perturb": (["perturb", "edge-rr", *DATA, "--unit", "undirected-edge", "--epsilon", 1], 1.0),
}


def ended(command):
    with pytest.raises(SystemExit) as end:
        main([*map(str, command)])
    return end.value.code


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_prints_the_total_and_writes_nothing(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    command, budget = COMMANDS[name]
    assert ended([*command, "--out", "out", "--dry-run", "--json"]) == 0
    told = capsys.readouterr()
    total = json.loads(told.out)["total"]
    assert 0.9 * budget < total["epsilon"] <= budget
    assert "Dry run: no privacy budget was spent" in told.err
    assert not list(Path(tmp_path).rglob("*"))


def test_a_baseline_on_records_is_trained_where_it_is_wanted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [*COMMANDS["train on records"][0], "--baseline", "--dry-run", "--json"]
    assert ended(command) == 0
    assert json.loads(capsys.readouterr().out)["total"]["epsilon"] > 8.0
