"""The account that a command charges, its display by ledger commands, and rejected runs."""

import json
import os
import shutil
from pathlib import Path

import pytest
from command import NODES, Files, Invoke, environment, read, write

from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Event,
    Gaussian,
    LocalReport,
    NonPrivate,
    OneOf,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
    compose,
)
from graphveil.core.ledger import Entry
from graphveil.core.unit import parse_unit
from graphveil.ledger import Ledger

EVENTS: dict[str, Event] = {
    "gaussian": Gaussian(0.1),
    "pure": PureDP(0.1),
    "approximate": ApproximateDP(0.1, 1e-9),
    "report": LocalReport("label", 0.1),
    "report with delta": LocalReport("features", 0.1, 1e-9),
    "both reports": compose(LocalReport("label", 0.1), LocalReport("features", 0.1)),
    "hop": PairwiseGaussian("all", ((0.01,),)),
    "steps": PoissonGaussian(9.0, 0.01, 10),
    "roots": PoissonRoots(20.0, 0.01, 10, 2),
    "by group": ByGroup("t", (PoissonGaussian(9.0, 0.01, 10), Gaussian(0.1))),
    "one of": OneOf((Gaussian(0.1), PureDP(0.1))),
    "report and others": compose(LocalReport("label", 0.1), Gaussian(0.1), PureDP(0.1)),
    "none": NonPrivate(),
}
UNIT = "local-attributes"


def test_every_command_reads_every_event(invoke: Invoke, tmp_path: Path) -> None:
    """Of each event an account with a limit, of some one without, and an empty account at delta 0."""
    own_ledger = Ledger(tmp_path / "ledger.sqlite")
    own_ledger.init("empty", UNIT, epsilon="2", delta="0")
    for name, event in EVENTS.items():
        for limit in ({}, {"epsilon": "2", "delta": "1e-6"})[name not in ("gaussian", "none") :]:
            account = f"{name.replace(' ', '-')}-{len(limit)}"
            own_ledger.init(account, UNIT, **limit)
            if name != "none" or not limit:
                own_ledger.data_set(account).record(Entry("a", "rows", event, unit=parse_unit(UNIT)))
    raised = ("--unit", UNIT, "--epsilon", "3", "--delta", "1e-6", "--reason", "more")
    raises = [["raise", name, *raised] for name in own_ledger.names()]
    for words in (["show"], *raises, ["show", "--json"], ["verify"], ["verify", "--json"]):
        reported = invoke("ledger", *words)
        assert reported.code == 0, (words, reported.err)
    for listed in invoke("ledger list --json").json["data_sets"]:
        assert listed["limit"] == {"epsilon": 3.0, "delta": 1e-6}
        if listed["releases"] and listed["name"] != "none-0":
            assert 0 < listed["spent"] < 1 < listed["remaining"] < 3
        assert invoke("ledger export", listed["name"], "--out", f"{listed['name']}.jsonl").code == 0
    assert "1e-06" in invoke("ledger list").out  # the delta of its epsilon


@pytest.fixture
def gap(files: Files) -> list[str]:
    return ["train", "gap", *files.flags, *("--unit", "undirected-edge", "--delta", "1e-7"), *FEW]


FEW = ("--no-baseline", "--set", "epochs=1")


def commands(files: Files, epsilon: str) -> dict[str, list[str]]:
    """Return commands that read the two tables, spend this epsilon and charge 'friends'."""
    label = files.flags.index("--label")
    topology = [*files.flags[:label], *files.flags[label + 2 :]]
    edges = ["--unit", "undirected-edge", "--ledger", "friends", "--epsilon", epsilon]
    return {
        "train": ["train", "gap", *files.flags, *edges, "--delta", "1e-7", *FEW],
        "sweep": ["sweep", "gap", *files.flags, *edges, "--delta", "1e-7", *FEW[1:]],
        "perturb": ["perturb", "edge-rand", *topology, *edges],
    }


@pytest.mark.parametrize(
    ("name", "why"), [("train", "budget"), ("train", "out"), ("sweep", "budget"), ("perturb", "out")]
)
def test_a_rejected_run_binds_no_name(invoke: Invoke, files: Files, name: str, why: str) -> None:
    unit = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7"]
    assert invoke("ledger init friends", *unit).code == 0
    out = "a" if why == "budget" else "/dev/null/a"
    rejected = invoke(*commands(files, "5" if why == "budget" else "0.5")[name], "--out", out)
    assert rejected.code == 2, rejected.err
    assert invoke("ledger show friends --json").json["versions"] == []
    for words in (["list"], ["verify"]):
        assert invoke("ledger", *words).code == 0
    files.nodes.write_text(files.nodes.read_text().replace("t0", "t9"))
    accepted = invoke(*commands(files, "0.5")[name], "--out", "b")
    assert accepted.code == 0, accepted.err
    assert len(invoke("ledger show friends --json").json["versions"]) == 1


@pytest.mark.parametrize("name", ["train", "sweep", "perturb"])
def test_a_rejected_run_registers_no_data(invoke: Invoke, files: Files, name: str) -> None:
    words = [word for word in commands(files, "0.5")[name] if word not in ("--ledger", "friends")]
    rejected = invoke(*words, "--out", "/dev/null/a")
    assert rejected.code == 2
    assert invoke("ledger list --json").json["data_sets"] == []
    assert invoke("ledger show --json").json["data_sets"] == []


def test_a_name_is_unbound_by_command(invoke: Invoke, files: Files, gap: list[str]) -> None:
    unit = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7"]
    assert invoke("ledger init friends", *unit, *files.flags).code == 0
    assert invoke("ledger unbind friends --json").json["name"] == "friends"
    assert invoke("ledger unbind friends").code == 2
    assert invoke(*gap, "--epsilon", "0.5", "--ledger", "friends", "--out", "a").code == 0
    failed = invoke("ledger unbind friends")
    assert (failed.code, "has releases" in failed.err) == (2, True)


# -- the same people ---------------------------------------------------------------------------------------


def changed(files: Files, how: str) -> list[str]:
    """Return the flags of the same data with a change."""
    nodes, edges = (
        one.with_name(f"{how}-{one.name}".replace(" ", "-")) for one in (files.nodes, files.edges)
    )
    head, *rows = read(files.nodes)
    first, *pairs = read(files.edges)
    if how == "row numbers":
        rows = [[row[0][1:], *row[1:]] for row in rows]
        pairs = [[a[1:], b[1:], note] for a, b, note in pairs]
    if how in ("an edge more", "edge and label", "row numbers"):
        pairs.append([rows[0][0], rows[7][0], ""])
    if how in ("edge and label", "row numbers", "a label"):
        rows[3][3] = "t1" if rows[3][3] != "t1" else "t2"
    if how == "a feature":
        rows[3][1] = "9"
    if how == "a node more":
        rows.append(["new", "1", "1", "t1"])
        pairs.append([rows[0][0], "new", ""])
    if how == "half":
        rows = rows[: NODES // 2]
    if how == "few":
        rows = [*rows[: NODES // 3], *([f"v{number}", "1", "1", "t1"] for number in range(NODES))]
    if how == "others":
        rows = [[f"v{row[0]}", row[1], *row[2:]] for row in rows]
        pairs = [[f"v{a}", f"v{b}", note] for a, b, note in pairs]
        rows[0][1] = "9"
    known = {row[0] for row in rows}
    write(nodes, [head, *rows])
    write(edges, [first, *(pair for pair in pairs if {*pair[:2]} <= known)])
    return ["--nodes", str(nodes), "--edges", str(edges), *files.flags[4:]]


SAME = ["an edge more", "edge and label", "a label", "a feature", "a node more", "half"]


@pytest.mark.parametrize("how", SAME)
def test_changed_data_of_the_same_people_stay_in_their_account(
    invoke: Invoke, files: Files, gap: list[str], how: str
) -> None:
    more = ["--epsilon", "1", "--json", "--out"]
    assert invoke(*gap, *more, "a").json["ledger"]["releases"] == 1
    reported = invoke("train gap", *changed(files, how), *gap[gap.index("--unit") :], *more, "b")
    assert reported.json["ledger"]["releases"] == 2, reported.err
    plan = " ".join(reported.err.split())
    assert "nothing of these" not in plan
    part = "about 98 %" if how == "a node more" else "all"
    assert f"1 release before this one, with {part} of these nodes" in plan
    assert invoke("ledger list --json").json["data_sets"][0]["name"] == "data-1"
    assert invoke("ledger verify").code == 0


def test_row_numbers_do_not_identify_people(invoke: Invoke, files: Files, gap: list[str]) -> None:
    """Two data sets whose nodes are counted differ by their features, of which one keeps them."""
    numbered = changed(files, "row numbers")
    more = [*gap[gap.index("--unit") :], "--epsilon", "1", "--json", "--out"]
    assert invoke("train gap", *numbered, *more, "a").json["ledger"]["data_set"] == "data-1"
    lines = Path(numbered[3]).read_text().splitlines(keepends=True)
    Path(numbered[3]).write_text("".join(lines[:-1]))
    again = invoke("train gap", *numbered, *more, "b").json["ledger"]
    assert (again["data_set"], again["releases"]) == ("data-1", 2)
    taller(Path(numbered[1]))
    other = invoke("train gap", *numbered, *more, "c").json["ledger"]
    assert other["data_set"] == "data-1"  # the same edges, still
    Path(numbered[3]).write_text("".join(lines[:-7]))
    taller(Path(numbered[1]))
    other = invoke("train gap", *numbered, *more, "d").json["ledger"]
    assert (other["data_set"], other["releases"]) == ("data-2", 1)


def taller(nodes: Path) -> None:
    """Change one feature of every node."""
    head, *rows = read(nodes)
    write(nodes, [head, *([*row[:2], f"{float(row[2]) + 1:.3f}", row[3]] for row in rows)])


@pytest.mark.parametrize(("how", "words"), [("few", "% of these nodes are in 'data-1', too"), ("others", "")])
def test_other_people_have_their_own_account(
    invoke: Invoke, files: Files, gap: list[str], how: str, words: str
) -> None:
    more = ["--epsilon", "1", "--json", "--out"]
    assert invoke(*gap, *more, "a").json["ledger"]["releases"] == 1
    reported = invoke("train gap", *changed(files, how), *gap[gap.index("--unit") :], *more, "b")
    assert (reported.json["ledger"]["data_set"], reported.json["ledger"]["releases"]) == ("data-2", 1)
    plan = " ".join(reported.err.split())
    assert words in plan and ("nothing of these edges was released" in plan) == (how == "others")


def test_predicted_data_asserted_as_disjoint_are_charged_apart(
    invoke: Invoke, files: Files, gap: list[str]
) -> None:
    assert invoke(*gap, "--epsilon", "1", "--out", "a").code == 0
    flags = changed(files, "an edge more")[:4]
    reported = invoke("predict a", *flags, "--assume-disjoint-edges", "--json", "--out", "p.csv").json
    assert reported["ledger"]["data_set"] == "data-2"
    assert reported["training_ledger"]["releases"] == 2  # the ids do not show that the statement is true
    again = invoke("predict a", *flags, "--json", "--out", "q.csv").json
    assert again["ledger"]["data_set"] == "data-2"


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["show"],
        ["show", "friends"],
        ["verify"],
        ["verify", "friends"],
        ["export", "friends", "--out", "book.jsonl"],
        ["raise", "friends", "--unit", UNIT, "--epsilon", "1", "--delta", "0", "--reason", "more"],
        ["unbind", "friends"],
        ["backup", "copy.sqlite"],
    ],
)
def test_a_misspelled_location_creates_no_ledger(invoke: Invoke, tmp_path: Path, words: list[str]) -> None:
    for place in ("misspelt.sqlite", f"sqlite:///{tmp_path / 'deep' / 'misspelt.sqlite'}"):
        failed = invoke("ledger", *words, "--ledger", place)
        assert (failed.code, "There is no ledger at" in failed.err) == (2, True)
    assert not list(tmp_path.rglob("*misspelt*")) and not (tmp_path / "deep").exists()


@pytest.mark.parametrize("name", ["train", "sweep", "perturb"])
def test_a_misspelled_location_of_a_budget_creates_no_ledger(
    invoke: Invoke, files: Files, tmp_path: Path, name: str
) -> None:
    words = commands(files, "0.5")[name]
    words[words.index("friends")] = f"sqlite:///{tmp_path / 'misspelt.sqlite'}#friends"
    failed = invoke(*words, "--out", "a")
    assert (failed.code, "There is no ledger at" in failed.err) == (2, True)
    assert not (tmp_path / "misspelt.sqlite").exists()


def test_receipts_backups_and_older_copies_by_command(
    invoke: Invoke, files: Files, gap: list[str], tmp_path: Path
) -> None:
    place = Path(os.environ["GRAPHVEIL_LEDGER"])
    assert invoke(*gap, "--epsilon", "1", "--out", "runs/a").code == 0
    assert invoke("ledger backup copy.sqlite").code == 0
    assert invoke("ledger backup copy.sqlite").code == 2
    assert invoke(*gap, "--epsilon", "1", "--out", "runs/b").code == 0
    whole = invoke("ledger check-runs runs --json")
    assert (whole.code, whole.json["receipts"], whole.json["breaks"]) == (0, 2, [])
    shutil.copy("copy.sqlite", place)
    for words in (["list"], ["verify"], ["show"]):
        noticed = invoke("ledger", *words)
        assert (noticed.code, "older copy was put back" in noticed.err) == (1, True)
    assert invoke(*gap, "--epsilon", "1", "--out", "runs/c").code == 1
    Path(f"{place}-mark").unlink()
    lacking = invoke("ledger check-runs runs/a runs/b --json")
    assert lacking.code == 1
    assert [one["why"] for one in lacking.json["breaks"]] == ["the ledger has no such entry"]
    failed = invoke("ledger restore copy.sqlite --runs runs")
    assert (failed.code, "which a run has a receipt of" in failed.err) == (2, True)
    forced = invoke("ledger restore copy.sqlite --runs runs --force --json")
    assert (forced.code, forced.json["data_sets"]) == (0, ["data-1"])
    with environment(GRAPHVEIL_LEDGER=str(tmp_path / "b.sqlite")):
        assert invoke(*gap, "--epsilon", "1", "--out", "other").code == 0
    strange = invoke("ledger check-runs runs/a other")
    assert (strange.code, "--force" in strange.out) == (1, False)
    assert "1 receipt of 2 belong" in strange.out and "lacks" not in strange.out
    Path("runs/b/internal/receipts.json").write_text(json.dumps({"receipts": [1]}))
    assert invoke("ledger check-runs runs/b").code == 2


# -- surveys -----------------------------------------------------------------------------------------------

FEATURES = ["collect", "protocol", "--eps-y", "0.39", "--classes", "t0,t1,t2", "--out", "s.json"]
ANSWER = ["collect", "randomize", "--protocol", "s.json", "--id", "user", "--label", "team", "--nodes"]


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_every_command_reads_the_account_of_a_protocol(invoke: Invoke, files: Files, delta: str) -> None:
    assert invoke(*FEATURES).code == 0
    limit = ["--unit", UNIT, "--epsilon", "0.5", "--delta", delta]
    assert invoke("ledger init people", *limit).code == 0
    answer = [*ANSWER, str(files.nodes), "--ledger", "people", "--json", "--out"]
    assert invoke(*answer, "/dev/null/m.csv").code == 2
    assert invoke("ledger show people --json").json["versions"] == []
    answered = invoke(*answer, "m.csv")
    assert answered.json["ledger"]["epsilon"] == pytest.approx(0.39)
    head, *rows = read(files.nodes)
    write(files.nodes, [head, *([*row[:3], "t1"] for row in rows)])
    failed = invoke(*answer, "n.csv")
    assert (failed.code, "At most epsilon 0.11 remains for a release" in failed.err) == (2, True)
    for words in (["list"], ["show"], ["verify"]):
        assert invoke("ledger", *words).code == 0
        assert invoke("ledger", *words, "--json").code == 0
    (listed,) = invoke("ledger list --json").json["data_sets"]
    assert (listed["spent"], listed["remaining"]) == (pytest.approx(0.39), pytest.approx(0.11))
    raised = invoke("ledger raise people --epsilon 2", *limit[:2], *limit[4:], "--reason", "r", "--json")
    assert (raised.code, raised.json["remaining"]) == (0, pytest.approx(1.61))
    assert invoke(*answer, "n.csv").json["ledger"]["epsilon"] == pytest.approx(0.78)


def test_a_rejected_collection_binds_no_name(invoke: Invoke, files: Files) -> None:
    assert invoke(*FEATURES).code == 0
    limit = ["--unit", UNIT, "--epsilon", "0.1", "--delta", "0"]
    assert invoke("ledger init people", *limit).code == 0
    failed = invoke(*ANSWER, str(files.nodes), "--ledger", "people", "--out", "m.csv")
    assert failed.code == 2
    assert invoke("ledger show people --json").json["versions"] == []
