"""The durable book through the command: budgets, receipts, refusals, and what is given back."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from command import Files, Invoke, other_of
from rich.console import Console

from graphveil.cli.console import Screen
from graphveil.ledger import Entry, Ledger
from graphveil.privacy import PureDP, UndirectedEdge

GAP = [
    "train",
    "gap",
    "--unit",
    "undirected-edge",
    "--delta",
    "1e-7",
    "--no-baseline",
    "--set",
    "epochs=2",
]


@pytest.fixture
def gap(files: Files) -> list[str]:
    return [*GAP[:2], *files.flags, *GAP[2:]]


def shown(invoke: Invoke, name: str) -> dict[str, Any]:
    return invoke("ledger", "show", name, "--json").json


def test_two_runs_on_one_file_add_up_without_a_word(invoke: Invoke, gap: list[str], files: Files) -> None:
    first = invoke(*gap, "--epsilon", "1", "--out", "a", "--json").json["ledger"]
    second = invoke(*gap, "--epsilon", "1", "--out", "b", "--json").json["ledger"]
    assert (first["releases"], second["releases"]) == (1, 2)
    assert first["epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert second["epsilon"] == pytest.approx(1.4477, abs=1e-4)
    assert second["words"].startswith("this is the second release on these edges: together epsilon 1.448")
    files.edges.write_text("".join(_turned(files.edges.read_text().splitlines(keepends=True))))
    third = invoke(*gap, "--epsilon", "1", "--out", "c", "--json").json["ledger"]
    assert (third["data_set"], third["releases"]) == (first["data_set"], 3)  # whatever the order of the rows


def test_a_second_name_for_the_same_data_begins_at_nothing(
    invoke: Invoke, gap: list[str], files: Files
) -> None:
    assert invoke(*gap, "--epsilon", "1", "--out", "a").code == 0
    unit = ["--unit", "undirected-edge", "--epsilon", "2", "--delta", "1e-7"]
    made = invoke("ledger", "init", "friends", *unit, *files.flags)
    assert "registered as data-1, too" in made.out + made.err
    assert invoke("ledger", "init", "later", *unit).code == 0  # bound by the first run that names it
    for name in ("friends", "later"):
        reported = invoke(*gap, "--epsilon", "1", "--out", name, "--ledger", name)
        words = " ".join((reported.out + reported.err).split())
        assert "nothing of these edges was released under this name before" in words
        assert "what the same data spent as 'data-1'" in words and "does not count here" in words
    raised = invoke("ledger", "raise", "data-1", *unit, "--reason", "a study")
    assert raised.code == 0, raised.err
    again = invoke("ledger", "init", "alone", *unit, "--json")
    assert again.json["same_data"] == []


def test_data_are_registered_by_the_flags_that_training_reads_them_by(
    invoke: Invoke, gap: list[str], files: Files
) -> None:
    lines = files.nodes.read_text().splitlines()
    head, _, rest = lines[1].partition(",")
    files.nodes.write_text("\n".join([lines[0], f"{head},,{rest.partition(',')[2]}", *lines[2:]]) + "\n")
    register = ["ledger", "init", "friends", "--unit", "undirected-edge", "--epsilon", "2", "--delta", "1e-7"]
    refused = invoke(*register, *files.flags)
    assert refused.code == 2 and "--missing indicator" in refused.err
    made = invoke(*register, *files.flags, "--missing", "indicator")
    assert made.code == 0, made.err
    trained = invoke(
        *gap, "--missing", "indicator", "--epsilon", "1", "--ledger", "friends", "--out", "a", "--json"
    )
    assert trained.json["ledger"]["releases"] == 1


def test_one_budget_covers_training_and_a_released_graph(
    invoke: Invoke, gap: list[str], files: Files
) -> None:
    budget = ["--unit", "undirected-edge", "--epsilon", "9", "--delta", "1e-7"]
    assert invoke("ledger", "init", "friends", *budget).code == 0
    assert invoke(*gap, "--epsilon", "1", "--ledger", "friends", "--out", "a").code == 0
    topology = list(files.flags)
    label = topology.index("--label")
    del topology[label : label + 2]
    released = invoke(
        "perturb",
        "edge-rand",
        *topology,
        "--epsilon",
        "1",
        "--unit",
        "undirected-edge",
        "--ledger",
        "friends",
        "--out",
        "g",
    )
    assert released.code == 0, released.err
    assert "2 releases, epsilon 2 of 9" in invoke("ledger", "show", "friends").out


def _turned(lines: list[str]) -> list[str]:
    return [lines[0], *reversed(lines[1:])]


def test_a_budget_refuses_and_states_what_would_fit(invoke: Invoke, gap: list[str]) -> None:
    made = invoke(
        "ledger", "init", "friends", "--unit", "undirected-edge", "--epsilon", "1.5", "--delta", "1e-7"
    )
    assert made.code == 0, made.err
    assert invoke(*gap, "--epsilon", "1", "--ledger", "friends", "--out", "a").code == 0
    refused = invoke(*gap, "--epsilon", "1.2", "--ledger", "friends", "--out", "b")
    assert (refused.code, Path("b").exists()) == (2, False)
    for words in (
        "needs epsilon 1.2",
        "1 of 1.5 at delta 1e-07 are spent",
        "would still fit",
        "ledger raise",
    ):
        assert words in refused.err
    account = shown(invoke, "friends")
    assert account["limit"] == {"epsilon": 1.5, "delta": 1e-07}
    assert account["spent"] == pytest.approx(1.0, abs=1e-6)
    assert 1.0 < account["remaining"] < 1.2
    assert [one["label"] for one in account["entries"]] == ["gap"]
    raised = ("--unit", "undirected-edge", "--epsilon", "2", "--delta", "1e-7", "--reason", "a second study")
    assert invoke("ledger", "raise", "friends", *raised).code == 0
    assert invoke(*gap, "--epsilon", "1.2", "--ledger", "friends", "--out", "b").code == 0


def test_a_resumed_run_is_paid_once(invoke: Invoke, gap: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from graphveil.runs import run

    def broken(*given: object) -> None:
        raise OSError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(run, "_write", broken)
        assert invoke(*gap, "--epsilon", "1", "--out", "a").code == 1
    resumed = invoke(*gap, "--epsilon", "1", "--out", "a", "--resume", "--json").json["ledger"]
    assert resumed["releases"] == 1
    (receipt,) = resumed["receipts"]
    assert json.loads(Path("a/internal/receipts.json").read_text())["receipts"] == [receipt]
    reported = invoke("explain", "a", "--json").json["receipts"]
    assert reported == [receipt]
    rows = invoke("ledger", "show", receipt["data_set"], "--json").json["entries"]
    assert [(row["entry"], row["hash"]) for row in rows] == [(receipt["entry"], receipt["head"])]


def test_what_was_recorded_and_never_drawn_is_refunded(
    invoke: Invoke, gap: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphveil.errors import ConfigError
    from graphveil.release import Release

    def refused(self: Release, data: object) -> None:
        raise ConfigError("not these")

    with monkeypatch.context() as patch:
        patch.setattr(Release, "answer", refused)
        assert invoke(*gap, "--epsilon", "1", "--out", "a").code == 2
    assert not Path("a").exists()
    again = invoke(*gap, "--epsilon", "1", "--out", "a", "--json").json["ledger"]
    assert again["releases"] == 1


def test_predictions_of_other_graphs_and_released_graphs_are_recorded(
    invoke: Invoke, gap: list[str], files: Files
) -> None:
    assert invoke(*gap, "--epsilon", "1", "--out", "a").code == 0
    other = other_of(files)
    request = invoke("predict", "a", *other, "--json").json["ledger"]  # of the same people: one account
    assert (request["releases"], len(request["receipts"])) == (2, 1)
    assert request["receipts"][0]["unit"] == "undirected-edge"
    ends = ["--nodes", other[1], "--edges", other[3], "--id", "user", "--source", "a", "--target", "b"]
    noisy = [
        "perturb",
        "edge-rand",
        *ends,
        "--unit",
        "undirected-edge",
        "--epsilon",
        "1",
        "--out",
        "noisy",
        "--json",
    ]
    perturbed = invoke(*noisy).json["ledger"]
    assert (perturbed["data_set"], perturbed["releases"]) == (request["data_set"], 3)
    assert (perturbed["epsilon"] or 0) > 1  # read off at delta 0, as this one is sold, the first has no bound
    assert invoke("predict", "a", "--ledger", "friends").code == 2


def test_a_ledger_knows_its_data(invoke: Invoke, gap: list[str], files: Files, tmp_path: Path) -> None:
    registered = ["--unit", "undirected-edge", "--epsilon", "4", "--delta", "1e-7"]
    place = f"sqlite:///{tmp_path / 'team.sqlite'}"
    assert invoke("ledger", "init", "friends", *registered, *files.flags, "--ledger", place).code == 0
    assert invoke(*gap, "--epsilon", "1", "--ledger", place, "--out", "a").code == 0
    other = other_of(files)
    stranger = [*gap[:2], *other, *gap[6:], "--epsilon", "1", "--ledger", f"{place}#friends", "--out", "b"]
    refused = invoke(*stranger)
    assert (refused.code, "not the data that 'friends' was registered with" in refused.err) == (2, True)
    grown = [
        "ledger",
        "init",
        "friends",
        "--unit",
        "undirected-edge",
        *other,
        *files.flags[4:],
        "--ledger",
        place,
    ]
    assert invoke(*grown).code == 0
    assert invoke(*stranger, "--json").json["ledger"]["releases"] == 2
    assert invoke("ledger", "init", "foes", *registered, "--ledger", place).code == 0
    several = invoke(*gap, "--epsilon", "1", "--ledger", place, "--out", "c")
    assert (several.code, "has 2 (foes, friends)" in several.err) == (2, True)


def test_the_ledger_is_listed_exported_and_verified(invoke: Invoke, gap: list[str]) -> None:
    assert "No data set is registered" in invoke("ledger", "list").out
    invoke("ledger", "init", "friends", "--unit", "undirected-edge", "--epsilon", "2", "--delta", "1e-7")
    invoke(*gap, "--epsilon", "1", "--ledger", "friends", "--out", "a")
    (listed,) = invoke("ledger", "list", "--json").json["data_sets"]
    assert (listed["name"], listed["releases"], listed["limit"]["epsilon"]) == ("friends", 1, 2.0)
    assert "█" in invoke("ledger", "show", "friends").out
    assert invoke("ledger", "export", "friends", "--out", "book.jsonl").code == 0
    kinds = [json.loads(line)["kind"] for line in Path("book.jsonl").read_text().splitlines()]
    assert kinds == ["init", "bind", "reserve", "commit"]
    assert invoke("ledger", "export", "friends", "--out", "book.jsonl").code == 2
    assert invoke("ledger", "verify", "--json").json["breaks"] == []


def test_a_long_ledger_is_shown_by_its_end(invoke: Invoke, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    budget: dict[str, Any] = {"epsilon": "2", "delta": "1e-7"}
    ledger.init("friends", "undirected-edge", **budget, tags={"edges": "e" * 64})
    for number in range(30):
        entry = Entry(f"r{number}", f"gap-{number:02}", PureDP(0.01), unit=UndirectedEdge())
        ledger.data_set("friends").record(entry)
    ledger.data_set("friends").refund("r29")
    ledger.raise_limit("friends", "undirected-edge", epsilon="4", delta="1e-7", reason="a second study")
    ledger.init("friends", "undirected-edge", tags={"edges": "e" * 64, "people": "p" * 64})  # the same data
    ledger.init("friends", "undirected-edge", tags={"edges": "f" * 64, "people": "p" * 64})  # they have grown
    shown = invoke("ledger", "show", "friends").out
    listed = [line.split()[3] for line in shown.splitlines() if " gap-" in line]
    assert listed == [f"gap-{number:02}" for number in range(9, 29)]
    assert "Not listed: 9 earlier releases, together epsilon 0.0" in shown
    assert "29 releases, epsilon 0.2206 of 4 at delta 1e-07" in shown  # less than 0.29, as they compose
    assert ": a second study" in shown and "2 versions of the data share the budgets" in shown
    assert "Not listed" not in invoke("ledger", "show", "friends", "--last", "29").out
    record = invoke("ledger", "show", "friends", "--json").json
    assert (len(record["entries"]), len(record["versions"]), record["raised"][0]["epsilon"]) == (29, 2, 4.0)
    (last,) = invoke("ledger", "show", "friends", "--last", "1", "--json").json["entries"]
    assert (last["label"], last["total"]) == ("gap-28", pytest.approx(0.2206, abs=1e-4))


def test_without_a_name_every_data_set_is_shown(invoke: Invoke) -> None:
    assert "No data set is registered" in invoke("ledger", "show").out
    for name in ("friends", "foes"):
        assert invoke("ledger", "init", name, "--unit", "undirected-edge").code == 0
    shown = invoke("ledger", "show").out
    assert shown.index("foes, unit undirected-edge") < shown.index("friends, unit undirected-edge")
    assert [one["name"] for one in invoke("ledger", "show", "--json").json["data_sets"]] == [
        "foes",
        "friends",
    ]


def test_a_narrow_screen_does_without_bars_and_times() -> None:
    rows = [("1", "2026-11-22 11:16", "gap", "0.1", "0.1", "█" * 24)]
    heads = {}
    for width in (100, 60, 40):
        with StringIO() as file:
            screen = Screen(as_json=False)
            screen.results = Console(file=file, force_terminal=True, width=width, color_system=None)
            screen.table(("entry", "time", "release", "epsilon", "total so far", "bar"), rows, spare=(5, 1))
            heads[width] = file.getvalue().splitlines()[0].split()
    assert heads[100] == ["entry", "time", "release", "epsilon", "total", "so", "far", "bar"]
    assert heads[60] == ["entry", "time", "release", "epsilon", "total", "so", "far"]
    assert heads[40] == ["entry", "release", "epsilon", "total", "so", "far"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init", "friends"], "pass --unit"),
        (["init", "friends", "--unit", "undirected-edge", "--epsilon", "1"], "--epsilon and --delta"),
        (["init", "friends", "--unit", "none"], "protects nothing"),
        (["show", "nobody"], "there is no ledger at"),
        (["raise", "nobody", "--unit", "undirected-edge"], "pass --unit, --epsilon and --delta"),
        (["verify", "nobody"], "there is no ledger at"),
        (["verify"], "there is no ledger at"),
        (["unbind", "nobody"], "there is no ledger at"),
        (["backup", "copy.sqlite"], "there is no ledger at"),
        (["restore", "copy.sqlite"], "there is no backup at copy.sqlite"),
        (["check-runs", "runs"], "runs is no folder"),
        (["export", "nobody", "--out", "/dev/null/book.jsonl"], "cannot be made there"),
    ],
)
def test_misuse_is_one_line(invoke: Invoke, arguments: list[str], words: str) -> None:
    refused = invoke("ledger", *arguments)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert words in refused.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "nobody"], "registered: none yet"),
        (["verify", "nobody"], "has no data set"),
        (["verify"], "has no data set, so there is nothing to verify; check --ledger"),
        (["show", "no body"], "`graphveil ledger init 'no body' --unit"),
        (["unbind", "nobody"], "has no data set"),
        (["export", "nobody", "--out", "book.jsonl"], "has no data set"),
    ],
)
def test_an_empty_ledger_has_no_data_set(
    invoke: Invoke, tmp_path: Path, arguments: list[str], words: str
) -> None:
    Ledger(tmp_path / "ledger.sqlite").close()
    refused = invoke("ledger", *arguments)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert words in refused.err


def test_embedded_and_unprotected_graphs_enter_no_ledger(invoke: Invoke, gap: list[str]) -> None:
    plain = [*gap, "--epsilon", "1", "--out", "a", "--json"]
    plain[plain.index("undirected-edge")] = "none"
    assert "ledger" not in invoke(*plain).json
    made_up = [
        "train",
        "mlp",
        "--dataset",
        "synthetic/demo",
        "--unit",
        "none",
        "--set",
        "epochs=1",
        "--json",
    ]
    assert "ledger" not in invoke(*made_up).json
    assert invoke("ledger", "list", "--json").json["data_sets"] == []


@pytest.mark.parametrize(
    "place",
    [
        "postgresql://me:xyzzy@127.0.0.1:1/team#friends",
        "postgresql://me@127.0.0.1:1/team?password=xyzzy&connect_timeout=1",
        "postgresql:/me:xyzzy@127.0.0.1/team",
    ],
)
@pytest.mark.parametrize(
    "words", ["train gap --unit undirected-edge --epsilon 1", "ledger list", "ledger show a b"]
)
def test_no_line_shows_a_password(invoke: Invoke, files: Files, words: str, place: str) -> None:
    """Neither what went wrong, nor the command that would pass, which repeats what was typed."""
    flags: list[str] = []
    if words.startswith("train"):  # its tables pass with other choices
        files.nodes.write_text(files.nodes.read_text().replace("\n", ",word\n").replace(",word", ",note", 1))
        flags = files.flags
    stated = invoke(*words.split(), *flags, "--json", "--ledger", place)
    assert stated.code in (1, 2)
    assert "xyzzy" not in stated.out + stated.err
    extra = invoke("ledger", "list", place, "--json")
    assert (extra.code, "xyzzy" in extra.out + extra.err) == (2, False)
