"""Sentences that once misled readers, and the numbers that their corrections state."""

from pathlib import Path

import pytest
from command import Invoke

from graphveil.artifacts import cards
from graphveil.experiment.finished_run import FinishedRun
from graphveil.privacy import Gaussian, Guarantee, NodeOwner, UndirectedEdge

ROOT = Path(__file__).parents[1]
MISLEADING = (
    "any computing power",
    "know exactly what the result gives away",
    "say in plain words what the result gives away",
    "the claim is the larger one",
    "cannot make a release, whatever it is asked",
    "no interval can be given",
    "numbers that anybody may see",
    "the chance of an exception",
)


@pytest.mark.parametrize("sentence", MISLEADING)
def test_no_page_or_source_repeats_a_misleading_sentence(sentence: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/start").rglob("*.md")]
    found = [
        str(path.relative_to(ROOT))
        for path in (*pages, *(ROOT / "graphveil").rglob("*.py"))
        if sentence in " ".join(path.read_text().split())
    ]
    assert not found


@pytest.mark.parametrize("unit", [UndirectedEdge(), NodeOwner()])
def test_the_attack_bound_states_what_it_assumes(unit: UndirectedEdge | NodeOwner) -> None:
    guarantee = Guarantee.of(unit, Gaussian(0.2), delta=1e-7, releases=1)
    words = cards.plain_words(guarantee)
    assert f"at most {cards.percent_up(guarantee.attacker_rate)} in 100" in words
    assert "assuming that AES-256 and HMAC-SHA256 are secure" in words


def test_a_single_run_has_one_interval_wherever_it_is_shown(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    printed = invoke("demo", "--out", str(folder))
    assert printed.code == 0
    shown = FinishedRun.read(folder).accuracy.percent()
    assert "[" in shown
    assert shown in printed.out
    assert shown in next(folder.rglob("report.html")).read_text()
