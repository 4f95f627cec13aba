"""``train heterorr`` and unit ``edge-subset``: two guarantees, and options of public edges."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Files, Invoke, read, recorded, write

from cli.conftest import Prepare, inside
from graphveil.core.release import Release
from graphveil.errors import BudgetError

UNIT = ("--unit", "edge-subset", "--epsilon", 2)
ALL = ("--private-nodes", "all")
HETERO = ("heterorr", *UNIT, "--set", "eps_x=3", "--set", "epochs=2", "--set", "hidden=8")
GCN = ("gcn", *UNIT, "--perturb", "edge-rr(structure=lazy_audited, rounds=2)", "--set", "epochs=2")


@pytest.fixture
def trained(invoke: Invoke, prepare: Prepare) -> Iterator[dict[str, Any]]:
    """Two runs in ``run``."""
    train = ["--runs", 2, "--out", "run"]
    with inside(prepare("heterorr", lambda files: [["train", *HETERO, *ALL, *files.flags, *train]])):
        yield json.loads(Path("run/internal/metrics.json").read_text())


def test_json_has_both_budgets(trained: dict[str, Any]) -> None:
    (features,) = trained["guarantee"]["additional"]
    assert (trained["epsilon"], trained["eps_x"], trained["unit"]) == (2.0, 3.0, "edge-subset")
    assert (features["unit"], features["epsilon"], features["valid"]) == ("local-attributes", 3.0, True)
    together = trained["guarantee_all_runs"]
    assert (together["epsilon"], together["additional"][0]["epsilon"]) == (4.0, 6.0)
    assert trained["edges_stored"] is None and trained["covered"] is True
    assert trained["baseline_guarantee"] is None and trained["mlp_test_accuracy"] is not None


def test_pages_and_explain_describe_both(trained: dict[str, Any], invoke: Invoke) -> None:
    explained = invoke("explain run")
    for text in (explained.out, Path("run/release/PRIVACY.md").read_text()):
        stated = " ".join(text.split())
        assert "Queries of the edges and features" in stated
        assert "which of two lists of features a particular person has" in stated
        assert "they are not added" in stated and "at eps_x = 3" in stated
        assert "the list of nodes that may have private ones" in stated
    report = " ".join(Path("run/internal/report.html").read_text().split())
    assert "about edges" in report and "about records" in report
    assert "randomized on their own at eps_x = 3" in Path("run/release/MODEL_CARD.md").read_text()
    assert invoke("explain run --json").json["guarantee"]["additional"][0]["epsilon"] == 3.0


def test_the_plan_shows_both_and_what_predictions_read(invoke: Invoke, files: Files) -> None:
    done = invoke("train", *HETERO, *ALL, *files.flags, "--out", "run")
    plan, shown = " ".join(done.err.split()), " ".join(done.out.split())
    assert "0 public edges; 60 of 60 nodes may have private ones" in plan
    assert "second unit local-attributes: protects each node's own features" in plan
    assert "epsilon 3 at delta 0, a separate guarantee that is not added to the first" in plan
    assert "read the released graph, no true private edge, and no true feature" in plan
    assert "Features have a separate guarantee, which is not added: epsilon 3," in shown
    assert "trains on the same perturbed features as the method" in shown


def test_a_finished_run_resumes_and_predicts_without_a_charge(
    trained: dict[str, Any], invoke: Invoke
) -> None:
    folder = Path.cwd().parent
    files = Files(folder / "nodes.csv", folder / "edges.csv")
    again = invoke("train", *HETERO, *ALL, *files.flags, "--runs", 2, "--out", "run", "--resume", "--json")
    assert again.json["test_accuracy"] == trained["test_accuracy"]
    assert "Reading them does not spend privacy budget." in invoke("predict run").err
    own = invoke("predict run --nodes", files.nodes, "--edges", files.edges, *ALL, "--json")
    assert (own.code, own.json["charged"]) == (0, None), own.err
    head, *rows = read(files.edges)
    write(files.edges, [head, *rows[1:]])
    other = invoke("predict run --nodes", files.nodes, "--edges", files.edges, *ALL, "--json").json
    assert (other["charged"]["epsilon"], other["charged"]["additional"][0]["epsilon"]) == (2.0, 3.0)
    assert other["guarantee_with_predictions"]["additional"][0]["epsilon"] == 6.0


def test_networks_on_released_graphs_take_public_edges(invoke: Invoke, files: Files) -> None:
    head, *rows = read(files.edges)
    write(Path("public.csv"), [head, *rows[::2]])
    done = invoke("train", *GCN, *ALL, "--public-edges", "public.csv", *files.flags, "--out", "run", "--json")
    assert done.code == 0, done.err
    assert "of 60 nodes may have private ones" in done.err and "(of the random walk)" in done.err
    assert "no prediction reads a true edge" in done.json["statement"]
    locked = json.loads(Path("run/internal/config.lock.json").read_text())["configuration"]
    assert (locked["public.public_edges"], locked["public.private_nodes"]) == ("public.csv", "all")


INVALID: dict[str, tuple[tuple[object, ...], str]] = {
    "no list": (HETERO, "needs the public list of nodes"),
    "no list for a share": ((*HETERO, "--private-fraction", 0.5), "not who may have private ones"),
    "no budget of features": (("heterorr", *UNIT, *ALL), "the one for features is missing"),
    "another unit": (("gcn", "--unit", "none", *ALL), "need unit 'edge-subset'"),
    "two ways": (
        (*HETERO, "--private-fraction", 1, "--public-edges", "x.csv"),
        "both define which edges are",
    ),
    "a setting": ((*GCN[:-2], *ALL, "--set", "perturb=arr(share=1)"), "given twice"),
    "no such setting": (("gcn", *UNIT, *ALL, "--perturb", "arr(share=1)"), "arr has no setting 'share'"),
}


@pytest.mark.parametrize("case", INVALID)
def test_misuse_is_rejected_before_anything_is_spent(invoke: Invoke, files: Files, case: str) -> None:
    flags, words = INVALID[case]
    done = invoke("train", *flags, *files.flags, "--out", "run")
    assert (done.code, done.out) == (2, "")
    assert words in " ".join(done.err.split())
    assert not Path("run").exists()


def test_a_limit_on_features_is_checked_for_all_runs_before_any_query(invoke: Invoke, files: Files) -> None:
    for unit, epsilon in (("edge-subset", 9), ("local-attributes", 4)):
        budget = ("--unit", unit, "--epsilon", epsilon, "--delta", "0")
        assert invoke("ledger init friends", *budget).code == 0
    done = invoke("train", *HETERO, *ALL, *files.flags, "--runs", 2, "--ledger", "friends")
    assert (done.code, Path("runs").exists(), recorded()) == (2, False, [])
    assert "cost epsilon 6, but 0 of epsilon 4 is already spent" in " ".join(done.err.split())


def test_reported_features_are_not_refunded(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Release.answer

    def failing(self: Release, data: Any) -> None:
        answer(self, data)
        raise BudgetError("the run ended after its first query")

    with monkeypatch.context() as patch:
        patch.setattr(Release, "answer", failing)
        assert invoke("train", *HETERO, *ALL, *files.flags, "--out", "run").code == 1  # after a charge
    accounts = invoke("ledger list --json").json["data_sets"]
    releases = {one["unit"]: one["releases"] for one in accounts}
    assert releases == {"local-attributes": 1, "edge-subset": 1}
    assert invoke("train", *HETERO, *ALL, *files.flags, "--out", "run", "--resume").code == 0
    assert [one["releases"] for one in invoke("ledger list --json").json["data_sets"]] == [1, 1]


def test_calibrate_names_the_noise_of_both(invoke: Invoke) -> None:
    sizes = ("--nodes-count", 100, "--features-count", 16)
    found = invoke("calibrate heterorr", *UNIT, "--set", "eps_x=3", *sizes, "--json").json
    assert (found["epsilon"], found["eps_x"]) == (2.0, 3.0)
    assert found["reports"] == ["features: FeatureRR, 16 of 16 features reported, epsilon 3, cut to [0, 1]"]
