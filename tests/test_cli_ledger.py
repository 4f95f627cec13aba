"""The durable book through the command: budgets, receipts, refusals, and what is given back."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import Files, Invoke, other_of

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


def _turned(lines: list[str]) -> list[str]:
    return [lines[0], *reversed(lines[1:])]


def test_a_budget_refuses_and_says_what_would_fit(invoke: Invoke, gap: list[str]) -> None:
    made = invoke(
        "ledger", "init", "friends", "--unit", "undirected-edge", "--epsilon", "1.5", "--delta", "1e-7"
    )
    assert made.code == 0, made.err
    assert invoke(*gap, "--epsilon", "1", "--ledger", "friends", "--out", "a").code == 0
    refused = invoke(*gap, "--epsilon", "1.2", "--ledger", "friends", "--out", "b")
    assert (refused.code, Path("b").exists()) == (2, False)
    for words in (
        "asks for epsilon 1.2",
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
    from graphveil.experiment import run

    def broken(*given: object) -> None:
        raise OSError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(run, "_write", broken)
        assert invoke(*gap, "--epsilon", "1", "--out", "a").code == 1
    resumed = invoke(*gap, "--epsilon", "1", "--out", "a", "--resume", "--json").json["ledger"]
    assert resumed["releases"] == 1
    (receipt,) = resumed["receipts"]
    assert json.loads(Path("a/internal/receipts.json").read_text())["receipts"] == [receipt]
    told = invoke("explain", "a", "--json").json["receipts"]
    assert told == [receipt]
    rows = invoke("ledger", "show", receipt["data_set"], "--json").json["entries"]
    assert [(row["entry"], row["hash"]) for row in rows] == [(receipt["entry"], receipt["head"])]


def test_what_was_booked_and_never_drawn_is_given_back(
    invoke: Invoke, gap: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphveil.errors import ConfigError
    from graphveil.release import Release

    def refused(self: Release, data: object) -> None:
        raise ConfigError("not these")

    with monkeypatch.context() as patch:
        patch.setattr(Release, "ask", refused)
        assert invoke(*gap, "--epsilon", "1", "--out", "a").code == 2
    assert not Path("a").exists()
    again = invoke(*gap, "--epsilon", "1", "--out", "a", "--json").json["ledger"]
    assert again["releases"] == 1


def test_predictions_of_other_graphs_and_released_graphs_are_booked(
    invoke: Invoke, gap: list[str], files: Files
) -> None:
    assert invoke(*gap, "--epsilon", "1", "--out", "a").code == 0
    other = other_of(files)
    asked = invoke("predict", "a", *other, "--json").json["ledger"]
    assert (asked["releases"], asked["receipts"][0]["unit"]) == (1, "undirected-edge")
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
    assert (perturbed["data_set"], perturbed["releases"]) == (asked["data_set"], 2)
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


def test_the_book_is_listed_exported_and_verified(invoke: Invoke, gap: list[str]) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init", "friends"], "pass --unit"),
        (["init", "friends", "--unit", "undirected-edge", "--epsilon", "1"], "--epsilon and --delta"),
        (["show", "nobody"], "registered: none yet"),
        (["raise", "nobody", "--unit", "undirected-edge"], "pass --unit, --epsilon and --delta"),
        (["verify", "nobody"], "has no data set"),
    ],
)
def test_misuse_is_one_line(invoke: Invoke, arguments: list[str], words: str) -> None:
    refused = invoke("ledger", *arguments)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert words in refused.err


def test_embedded_and_unprotected_graphs_enter_no_book(invoke: Invoke, gap: list[str]) -> None:
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
