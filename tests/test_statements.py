"""Sentences that once misled readers, and the numbers that their corrections state."""

import importlib.util
import re
from pathlib import Path

import pytest
from command import Invoke
from prose import ROOT, Prose, pages, sources

import graphveil as gv
from graphveil._util.figures import percent_up
from graphveil.core.events import Gaussian
from graphveil.core.unit import NodeRecord, UndirectedEdge
from graphveil.privacy import Guarantee
from graphveil.publish.release_folder import withheld_files
from graphveil.runs.run_folder import read_finished_run

MISLEADING = (
    "any computing power",
    "know exactly what the result gives away",
    "say in plain words what the result gives away",
    "the claim is the larger one",
    "cannot make a release, whatever it is asked",
    "server that cannot release",
    "no interval can be given",
    "numbers that anybody may see",
    "the chance of an exception",
    "half a minute later",
    "release(s) recorded in the ledger",
)


@pytest.fixture(scope="module")
def everything() -> list[Prose]:
    return [*pages(), *sources()]


@pytest.mark.parametrize("sentence", MISLEADING)
def test_no_page_or_source_repeats_a_misleading_sentence(sentence: str, everything: list[Prose]) -> None:
    assert not sorted({one.path for one in everything if sentence in one.text.lower()})


def test_every_page_and_kind_of_text_is_searched(everything: list[Prose]) -> None:
    found = {one.path for one in everything}
    assert found >= {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {"README.md", "CHANGELOG.md", "docs/tutorials/classification.md"} <= found
    assert {one.kind for one in everything} == {"page", "docstring", "string"}


# -- one word, one meaning ---------------------------------------------------------------------------------

REPORTS = (  # files where "message" would mean an LDP report
    "graphveil/local/collect/",
    "graphveil/cli/collect.py",
    "graphveil/attacks/poisoning.py",
    "graphveil/runs/charges.py",
    "graphveil/runs/collection.py",
    "docs/methods/local-mechanisms.md",
    "docs/tutorials/local-dp.md",
)
WORDS = {  # pattern of a forbidden word, and the files where it is allowed
    "promise": (re.compile(r"(?<!node-)(?<!check_)\bpromis(e|es|ed|ing)\b(?!\()", re.IGNORECASE), ()),
    "ceiling": (re.compile(r"(?<!--)\bceilings?\b", re.IGNORECASE), ("graphveil/core/noise/sampling.py",)),
    "vouch": (re.compile(r"\bvouch", re.IGNORECASE), ()),
    "message": (re.compile(r"(?<!error )(?<!--)\bmessages?\b", re.IGNORECASE), ()),
    "book": (re.compile(r"\bbook(s|ed|ing|ings)?\b(?!tabs)", re.IGNORECASE), ()),
}


@pytest.mark.parametrize("name", WORDS)
def test_no_text_uses_a_word_of_two_meanings(name: str, everything: list[Prose]) -> None:
    pattern, excepted = WORDS[name]
    read = [one for one in everything if not one.path.startswith(excepted)] if excepted else everything
    if name == "message":
        read = [one for one in read if one.path.startswith(REPORTS)]
    if name == "book":  # docstrings of internals keep it until names change
        public = ("graphveil/cli/", "graphveil/errors.py")
        read = [one for one in read if one.kind != "docstring" or one.path.startswith(public)]
    found = [
        (one.path, match[0], one.words[max(0, match.start() - 30) :][:90])
        for one in read
        for match in pattern.finditer(one.words)
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("this is what we promise", "promise"),
        ("unit node-bounded-degree, or `promise`", ""),
        ("promise() is called preview() now", ""),
        ("its ceiling", "ceiling"),
        ("--include-nonprivate adds them", ""),
        ("it was booked", "book"),
        ("the message of a node", "message"),
        ("an error message", ""),
    ],
)
def test_the_search_finds_words_and_ignores_names(text: str, found: str) -> None:
    words = Prose("x", "page", text).words
    assert [name for name, (pattern, _) in WORDS.items() if pattern.search(words)] == [found] * bool(found)


# -- equal epsilon is not an equal attack bound --------------------------------------------------------------

COMPARED = (  # every page that shows ClassCode and GAP at equal epsilon
    "README.md",
    "docs/index.md",
    "docs/methods/index.md",
    "docs/methods/classcode.md",
    "docs/methods/weights.md",
    "docs/methods/graph-mechanisms.md",
    "docs/results/index.md",
)


def bound(method: str, epsilon: float) -> str:
    noise = gv.calibrate(method, "undirected-edge", epsilon=epsilon, delta=1e-7)
    return percent_up(noise.max_tpr_at_1pct_fpr)


@pytest.mark.parametrize("page", COMPARED)
def test_a_comparison_at_equal_epsilon_states_both_attack_bounds(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    classcode, gap = f"{bound('classcode', 1.0)} %", f"{bound('gap', 1.0)} %"
    start = text.index("equal attack bound") if "equal attack bound" in text else text.index("attack bound")
    around = text[max(0, start - 500) : start + 500]
    assert "maximum TPR at 1 % FPR" in around
    assert classcode in around and gap in around
    assert "epsilon 1" in around or "ε = 1" in around


def test_every_page_with_the_figure_states_the_attack_bounds(everything: list[Prose]) -> None:
    shown = {one.path for one in everything if one.kind == "page" and "pictures/frontier.svg)" in one.text}
    assert shown and shown <= set(COMPARED)


def test_the_comparison_at_an_equal_attack_bound_is_one() -> None:
    assert float(bound("classcode", 0.5)) <= float(bound("gap", 1.0))
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs/pictures/draw.py")
    assert spec is not None and spec.loader is not None
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    cells = draw.cells("facebook100/Berkeley13")
    classcode, gap = (
        {epsilon: f"{mean:.1f}" for epsilon, mean, *_ in cells[name]} for name in ("ClassCode", "GAP")
    )
    for page in ("README.md", "docs/index.md", "docs/methods/index.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        at_half = re.escape(f"epsilon 0.5 ({bound('classcode', 0.5)} %)")
        assert re.search(rf"{at_half} (it )?has {classcode[0.5]} %", text)
        assert f"{gap[1.0]} %" in text


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge", "node-record", "node-bounded-degree"])
def test_the_home_page_lists_which_outputs_are_withheld(unit: str) -> None:
    home = " ".join((ROOT / "docs/index.md").read_text(encoding="utf-8").split())
    assert "Under node-level units some outputs (`per_node/`) are not public." in home
    assert bool(withheld_files(unit)) is unit.startswith("node-")


@pytest.mark.parametrize("unit", [UndirectedEdge(), NodeRecord()])
def test_the_attack_bound_states_what_it_assumes(unit: UndirectedEdge | NodeRecord) -> None:
    guarantee = Guarantee.from_event(unit, Gaussian(0.2), delta=1e-7, releases=1)
    words = guarantee.summary()
    assert f"at most {percent_up(guarantee.max_tpr())} in 100" in words
    assert "assuming that AES-256 and HMAC-SHA256 are secure" in words


def test_a_single_run_has_one_interval_wherever_it_is_shown(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    printed = invoke("demo", "--out", str(folder))
    assert printed.code == 0
    shown = read_finished_run(folder).accuracy.percent()
    assert "[" in shown
    assert shown in printed.out
    assert shown in next(folder.rglob("report.html")).read_text()
