"""The privacy compliance report: date, summary, authorized readers, and the total privacy loss."""

import hashlib
from pathlib import Path

import pytest
from command import Files, Invoke

from graphveil.core.events import Composed, Gaussian
from graphveil.core.unit import NoUnit, UndirectedEdge
from graphveil.privacy import Guarantee
from graphveil.publish.reports import ComplianceReport, total_cells
from graphveil.runs.compliance_report import fingerprint
from graphveil.runs.run_folder import RunFolder

BRIEF = ["--set", "epochs=1", "--delta", "1e-7"]


def totals(page: str) -> dict[str, str]:
    """Return epsilon by what was seen, from the table."""
    plain = page.replace("\\", "")
    lines = [line.strip("| ").split(" | ") for line in plain.splitlines() if line.startswith("| ")]
    return {what: epsilon for what, epsilon, _ in lines[1:]}


def test_a_run_leaves_a_page_that_grows_with_its_predictions(
    invoke: Invoke, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    edge = ["--unit", "undirected-edge", "--epsilon", "1", *BRIEF]
    assert invoke(
        "ledger", "init", "team_1", "--unit", "undirected-edge", "--epsilon", "9", "--delta", "1e-7"
    )
    assert invoke("train", "gap", *files.flags, *edge, "--ledger", "team_1", "--out", "r").code == 0
    page = Path("r/PRIVACY.md").read_text()
    order = ["Suppose that an attacker", "## Protected", "## Access", "## Cumulative", "(1, 1e-07)-ind"]
    places = [page.index(words) for words in order]
    assert places == sorted(places)
    assert "undirected edge" in page and "`release/` (model, noisy aggregates, predictions): public." in page
    assert fingerprint(Path("r/release")) in page and "Name, role, date, signature" in page
    before = totals(page)
    assert before["released model and its predictions"] == "1"
    (of_data,) = [what for what in before if "data set team_1" in what]
    assert "(1 release, of 9 allowed)" in of_data
    other = Files.written(tmp_path / "..", seed=1)
    tables = ["--nodes", str(other.nodes), "--edges", str(other.edges)]
    assert invoke("predict", "r", *tables, "--allow-spend", "--out", "p.csv").code == 0
    after = totals(Path("r/PRIVACY.md").read_text())
    (both,) = [float(after[what]) for what in after if "1 prediction of other graphs" in what]
    assert both > 1.3
    assert "in its ledger (2 releases" in str(after) and len(after) == 3
    assert of_data not in after


def test_names_authorized_readers_and_keeps_exact_accuracies_internal(
    invoke: Invoke, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    owner = ["--unit", "node-record", "--epsilon", "2", "--set", "epochs=1", "--delta", "1e-5"]
    assert invoke("train", "mlp", *files.flags, *owner, "--set", "tuned=no", "--out", "r").code == 0
    page = Path("r/PRIVACY.md").read_text()
    assert "row v only for people who are authorized to access the record of node v" in page
    assert "Accuracies: internal, because no guarantee covers exact accuracies." in page


def test_the_fingerprint_is_that_of_sha256sum(tmp_path: Path) -> None:
    for name in ("b", "A"):
        (tmp_path / name).write_text(name)
    listed = "".join(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("A", "b"))
    assert fingerprint(tmp_path) == hashlib.sha256(listed.encode()).hexdigest()


def test_an_invalid_guarantee_states_that_it_protects_nothing() -> None:
    void = Guarantee.from_event(
        UndirectedEdge(), Gaussian(0.5), delta=1e-5, releases=1, deviations=("a flaw",)
    )
    total = total_cells("the model", 1.0, 1e-5, " (not valid)")
    page = ComplianceReport("gap", "2026-01-31", void, True, (total,), ()).markdown()
    assert "nothing: the guarantee is not valid" in page and "deviation: a flaw" in page
    assert "1 (not valid)" in page.replace("\\", "")
    assert total_cells("raw", None, 0.0) == ("raw", "no bound", "-")
    nothing = Guarantee.from_event(NoUnit(), Composed(()), delta=0.0, releases=0)
    assert "Nothing is protected" in ComplianceReport("gcn", "2026-01-31", nothing, True, (), ()).markdown()


def test_where_there_is_only_a_release_nothing_is_written(tmp_path: Path) -> None:
    from graphveil.runs.compliance_report import update_compliance_report

    update_compliance_report(tmp_path)
    assert not RunFolder(tmp_path).root.joinpath("PRIVACY.md").exists()
