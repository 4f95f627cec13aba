"""``attack``: results of each attack on a finished run, written to ``internal/``."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import SECRET, Files, Invoke

from cli.conftest import Prepare, inside

pytestmark = pytest.mark.usefixtures("quick_attacks")


@pytest.fixture
def run(invoke: Invoke, prepare: Prepare) -> Iterator[Path]:
    """A finished run of a plain GCN on two tables."""
    flags = ["--unit", "none", "--set", "epochs=10", "--no-baseline", "--out", "run"]
    folder = prepare("attacked", lambda files: [["train", "gcn", *files.flags, *flags]])
    with inside(folder):
        yield folder / "here" / "run"


@pytest.mark.drawn_charts
def test_linkteller_on_a_run(invoke: Invoke, run: Path) -> None:
    done = invoke("attack linkteller", run, "--count", 40)
    assert done.code == 0, done.err
    assert done.out.startswith("Internal:")
    assert "feature correlation (public)" in done.out and "attack bound for one edge" in done.out
    assert SECRET not in done.out + done.err
    again = invoke("attack linkteller", run, "--count", 40, "--json")
    found = again.json
    assert found["internal"] is True
    assert {"auc", "max_tpr_at_1pct_fpr", "baseline", "theoretical_bound"} <= set(found)
    assert found["auc"] > found["baseline"]["auc"]
    kept = run / "internal" / "attacks"
    assert json.loads((kept / "linkteller.json").read_text()) == found
    assert not [path for path in (run / "release").iterdir() if "linkteller" in path.name]


def test_topology_attacks_all_pairs_of_a_run(invoke: Invoke, run: Path) -> None:
    done = invoke("attack topology", run, "--json")
    assert done.code == 0, done.err
    assert (done.json["attack"], done.json["nodes"], done.json["pairs"]) == ("topology", 60, 60 * 59 // 2)
    assert len(done.json["attackers"]) == 6


def test_membership_of_a_run(invoke: Invoke, run: Path) -> None:
    done = invoke("attack membership", run, "--per-class", 15, "--overlap", "--shadows", 4)
    assert done.code == 0, done.err
    assert "Bayes posterior" in done.out and "attack bound for one record" in done.out
    kept = json.loads((run / "internal" / "attacks" / "membership.json").read_text())
    names = ["attack model (shadow)", "confidence in the label", "LiRA", "Bayes posterior"]
    assert [one["attacker"] for one in kept["attackers"]] == names
    assert invoke("attack membership", run, "--shadows", 3).code == 2


def test_a_release_folder_alone_cannot_be_attacked(invoke: Invoke, run: Path) -> None:
    done = invoke("attack linkteller", run / "release")
    assert (done.code, done.out) == (2, "")
    assert "has no internal/ folder" in done.err


def test_misuse_is_rejected(invoke: Invoke, run: Path) -> None:
    assert invoke("attack linkteller", run, "--sampling", "some").code == 2
    assert invoke("attack linkteller", run, "--step", 0).code == 2
    done = invoke("attack linkteller", run, "--nodes", "nowhere.csv")
    assert done.code == 2 and "nowhere.csv" in done.err


def test_reconstruction_and_poisoning_of_ldp_reports(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "local"
    settings = ["eps_x=2", "eps_y=3", "low=-4", "high=6", "epochs=10", "x_steps=2", "y_steps=2", "labels=rr"]
    budget = ["--unit", "local-attributes", *(word for one in settings for word in ("--set", one))]
    trained = invoke("train lpgnn", *files.flags, *budget, "--out", out, "--no-baseline")
    assert trained.code == 0 and "this is the first release on these records" in trained.out + trained.err
    found = invoke("attack reconstruction", out, "--json").json
    assert found["epsilon"] == 2.0 and len(found["attackers"]) == 4
    done = invoke("attack poisoning", out, "--strategy", "label", "--share", 0.1)
    assert done.code == 0 and "robust" in done.out, done.err
    assert json.loads((out / "internal" / "attacks" / "poisoning.json").read_text())["share"] == 0.1


def test_exact_features_cannot_be_reconstructed(invoke: Invoke, run: Path) -> None:
    for attack in ("reconstruction", "poisoning"):
        done = invoke("attack", attack, run)
        assert (done.code, done.out) == (2, "")
        assert "gcn" in done.err
