"""The privacy ledger on the command line: budgets, receipts, rejections and refunds."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import Files, Invoke, Progress, changed, other_of, rejected

from graphveil.core.events import PureDP
from graphveil.core.ledger import Entry
from graphveil.core.unit import UndirectedEdge
from graphveil.ledger import DataSetLedger, Ledger

EDGES = "--unit undirected-edge"


@pytest.fixture
def gap(files: Files) -> list[str]:
    """The words of a quick run at epsilon 1, before the name of its folder."""
    quick = ["--no-baseline", "--set", "epochs=2", "--epsilon", "1", "--out"]
    return [f"train gap {EDGES} --delta 1e-7", *files.flags, *quick]


def test_two_runs_on_one_file_add_up(invoke: Invoke, gap: list[str], files: Files) -> None:
    first = invoke(*gap, "a", "--json").json["ledger"]
    second = invoke(*gap, "b", "--json").json["ledger"]
    assert (first["releases"], second["releases"]) == (1, 2)
    assert first["epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert second["epsilon"] == pytest.approx(1.4477, abs=1e-4)
    assert second["words"].startswith("this is the second release on these edges: together epsilon 1.448")
    head, *lines = files.edges.read_text().splitlines(keepends=True)
    files.edges.write_text("".join([head, *reversed(lines)]))
    third = invoke(*gap, "c", "--json").json["ledger"]
    assert (third["data_set"], third["releases"]) == (first["data_set"], 3)  # for any order of the rows


def test_a_second_name_for_the_same_data_has_its_own_budget(
    invoke: Invoke, gap: list[str], files: Files
) -> None:
    assert invoke(*gap, "a").code == 0
    limit = f"{EDGES} --epsilon 2 --delta 1e-7"
    made = invoke(f"ledger init friends {limit}", *files.flags)
    assert "also registered as data-1" in made.out
    assert invoke(f"ledger init later {limit}").code == 0  # bound by the first run that names it
    for name in ("friends", "later"):
        reported = invoke(*gap, name, "--ledger", name)
        words = " ".join((reported.out + reported.err).split())
        assert "nothing of these edges was released under this name before" in words
        assert "what the same data spent as 'data-1'" in words and "does not count here" in words
    raised = invoke(f"ledger raise data-1 {limit}", "--reason", "a study")
    assert raised.code == 0, raised.err
    assert invoke(f"ledger init alone {limit} --json").json["same_data"] == []


def test_data_are_registered_with_the_options_of_training(
    invoke: Invoke, gap: list[str], files: Files
) -> None:
    head, first, *lines = files.nodes.read_text().splitlines()
    name, _, *rest = first.split(",")
    files.nodes.write_text("\n".join([head, ",".join([name, "", *rest]), *lines]) + "\n")
    register = [f"ledger init friends {EDGES} --epsilon 2 --delta 1e-7", *files.flags]
    rejected(invoke(*register), "--missing indicator")
    made = invoke(*register, "--missing", "indicator")
    assert made.code == 0, made.err
    trained = invoke(*gap, "a", "--missing", "indicator", "--ledger", "friends", "--json")
    assert trained.json["ledger"]["releases"] == 1


def test_one_budget_covers_training_and_a_released_graph(
    invoke: Invoke, gap: list[str], files: Files
) -> None:
    assert invoke(f"ledger init friends {EDGES} --epsilon 9 --delta 1e-7").code == 0
    assert invoke(*gap, "a", "--ledger", "friends").code == 0
    label = files.flags.index("--label")
    topology = [*files.flags[:label], *files.flags[label + 2 :]]
    released = invoke(f"perturb edge-rand {EDGES} --epsilon 1 --ledger friends --out g", *topology)
    assert released.code == 0, released.err
    assert "2 releases, epsilon 2 of 9" in invoke("ledger show friends").out


def test_a_release_beyond_the_budget_is_rejected_with_what_would_fit(invoke: Invoke, gap: list[str]) -> None:
    assert invoke(f"ledger init friends {EDGES} --epsilon 1.5 --delta 1e-7").code == 0
    assert invoke(*gap, "a", "--ledger", "friends").code == 0
    larger = changed([*gap, "b", "--ledger", "friends"], "--epsilon", "1.2")
    failed = invoke(*larger)
    assert (failed.code, Path("b").exists()) == (2, False)
    fits = ("cost epsilon 1.2", "1 of epsilon 1.5 is already spent", "remains for releases", "ledger raise")
    assert all(words in failed.err for words in fits)
    account = invoke("ledger show friends --json").json
    assert account["limit"] == {"epsilon": 1.5, "delta": 1e-07}
    assert account["spent"] == pytest.approx(1.0, abs=1e-6)
    assert 1.0 < account["remaining"] < 1.2
    assert [one["label"] for one in account["entries"]] == ["gap"]
    raised = invoke(f"ledger raise friends {EDGES} --epsilon 2 --delta 1e-7", "--reason", "a second study")
    assert raised.code == 0
    assert invoke(*larger).code == 0


def test_a_resumed_run_is_charged_once(invoke: Invoke, gap: list[str], progress: Progress) -> None:
    with progress.stopped_at("classifier", 1):
        assert invoke(*gap, "a").code == 130
    resumed = invoke(*gap, "a", "--resume", "--json").json["ledger"]
    assert resumed["releases"] == 1
    (receipt,) = resumed["receipts"]
    assert json.loads(Path("a/internal/receipts.json").read_text())["receipts"] == [receipt]
    assert invoke("explain a --json").json["receipts"] == [receipt]
    rows = invoke("ledger show", receipt["data_set"], "--json").json["entries"]
    assert [(row["entry"], row["hash"]) for row in rows] == [(receipt["entry"], receipt["head"])]


def test_a_charge_without_noise_is_refunded(
    invoke: Invoke, gap: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphveil.core.release import Release
    from graphveil.errors import ConfigError

    def failed(self: Release, data: object) -> None:
        raise ConfigError("not these")

    with monkeypatch.context() as patch:
        patch.setattr(Release, "answer", failed)
        assert invoke(*gap, "a").code == 2
    assert not Path("a").exists()
    assert invoke(*gap, "a", "--json").json["ledger"]["releases"] == 1


def test_predictions_of_other_graphs_and_released_graphs_are_recorded(
    invoke: Invoke, gap: list[str], files: Files
) -> None:
    assert invoke(*gap, "a").code == 0
    other = other_of(files)
    predicted = invoke("predict a --json", *other).json["ledger"]  # of the same people: one account
    assert (predicted["releases"], len(predicted["receipts"])) == (2, 1)
    assert predicted["receipts"][0]["unit"] == "undirected-edge"
    perturb = f"perturb edge-rand {EDGES} --epsilon 1 --id user --source a --target b --out noisy --json"
    perturbed = invoke(perturb, *other).json["ledger"]
    assert (perturbed["data_set"], perturbed["releases"]) == (predicted["data_set"], 3)
    assert (perturbed["epsilon"] or 0) > 1  # at delta 0, at which the first release has no bound
    assert invoke("predict a --ledger friends").code == 2


def test_charges_of_another_process_are_not_reported_as_those_of_a_rejected_run(
    invoke: Invoke, gap: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke(f"ledger init friends {EDGES} --epsilon 1.5 --delta 1e-7").code == 0
    record, other = DataSetLedger.record, Ledger(tmp_path / "ledger.sqlite").data_set("friends")

    def overtaken(self: DataSetLedger, entry: Entry) -> None:
        record(other, Entry("other", "gap", PureDP(1.0), unit=UndirectedEdge()))
        record(self, entry)

    monkeypatch.setattr(DataSetLedger, "record", overtaken)
    failed = invoke(*gap, "a", "--ledger", "friends")
    assert failed.code == 2, failed.err
    assert "cannot be refunded" not in failed.err
    assert failed.err.count("No privacy budget was spent.") == 1
    assert [entry.release_id for entry in other.entries] == ["other"]


def test_a_ledger_recognizes_its_data(invoke: Invoke, gap: list[str], files: Files, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path / 'team.sqlite'}"
    limit = f"{EDGES} --epsilon 4 --delta 1e-7"
    assert invoke(f"ledger init friends {limit} --ledger {place}", *files.flags).code == 0
    assert invoke(*gap, "a", "--ledger", place).code == 0
    other = other_of(files)
    stranger = [gap[0], *other, *gap[5:], "b", "--ledger", f"{place}#friends"]
    rejected(invoke(*stranger), "differ from those that 'friends' was registered with")
    grown = [f"ledger init friends {EDGES} --ledger {place}", *other, *files.flags[4:]]
    assert invoke(*grown).code == 0
    assert invoke(*stranger, "--json").json["ledger"]["releases"] == 2
    assert invoke(f"ledger init foes {limit} --ledger {place}").code == 0
    rejected(invoke(*gap, "c", "--ledger", place), "has 2 (foes, friends)")


def test_the_ledger_is_listed_exported_and_verified(invoke: Invoke, gap: list[str]) -> None:
    assert "No dataset is registered" in invoke("ledger list").out
    invoke(f"ledger init friends {EDGES} --epsilon 2 --delta 1e-7")
    invoke(*gap, "a", "--ledger", "friends")
    (listed,) = invoke("ledger list --json").json["data_sets"]
    assert (listed["name"], listed["releases"], listed["limit"]["epsilon"]) == ("friends", 1, 2.0)
    assert invoke("ledger export friends --out book.jsonl").code == 0
    kinds = [json.loads(line)["kind"] for line in Path("book.jsonl").read_text().splitlines()]
    assert kinds == ["init", "bind", "reserve", "commit"]
    assert invoke("ledger export friends --out book.jsonl").code == 2
    assert invoke("ledger verify --json").json["breaks"] == []


def test_a_long_ledger_is_shown_by_its_last_releases(invoke: Invoke, tmp_path: Path) -> None:
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
    shown = invoke("ledger show friends").out
    listed = [line.split()[3] for line in shown.splitlines() if " gap-" in line]
    assert listed == [f"gap-{number:02}" for number in range(9, 29)]
    assert "Not listed: 9 earlier releases, together epsilon 0.0" in shown
    assert "29 releases, epsilon 0.2206 of 4 at delta 1e-07" in shown  # less than 0.29, as they compose
    assert ": a second study" in shown and "2 versions of the data share the budget" in shown
    assert "Not listed" not in invoke("ledger show friends --last 29").out
    record = invoke("ledger show friends --json").json
    assert (len(record["entries"]), len(record["versions"]), record["raised"][0]["epsilon"]) == (29, 2, 4.0)
    (last,) = invoke("ledger show friends --last 1 --json").json["entries"]
    assert (last["label"], last["total"]) == ("gap-28", pytest.approx(0.2206, abs=1e-4))


def test_without_a_name_every_dataset_is_shown(invoke: Invoke) -> None:
    assert "No dataset is registered" in invoke("ledger show").out
    for name in ("friends", "foes"):
        assert invoke(f"ledger init {name} {EDGES}").code == 0
    shown = invoke("ledger show").out
    assert shown.index("foes, unit undirected-edge") < shown.index("friends, unit undirected-edge")
    assert [one["name"] for one in invoke("ledger show --json").json["data_sets"]] == ["foes", "friends"]


MISUSE = {  # without a ledger, and with an empty one
    "init friends": ("Set --unit", None),
    f"init friends {EDGES} --epsilon 1": ("--epsilon and --delta", None),
    "init friends --unit none": ("protects nothing", None),
    f"raise nobody {EDGES}": ("Set --unit, --epsilon and --delta", None),
    "restore copy.sqlite": ("There is no backup at copy.sqlite", None),
    "check-runs runs": ("runs is not a folder", None),
    "export nobody --out /dev/null/book.jsonl": ("Cannot create", None),
    "backup copy.sqlite": ("There is no ledger at", None),
    "show nobody": ("There is no ledger at", "registered: none yet"),
    "verify nobody": ("There is no ledger at", "has no data set"),
    "verify": ("There is no ledger at", "has no datasets, so there is nothing to verify. Check --ledger."),
    "unbind nobody": ("There is no ledger at", "has no data set"),
    "export nobody --out book.jsonl": ("There is no ledger at", "has no data set"),
}


@pytest.mark.parametrize("words", MISUSE)
def test_misuse_is_one_line(invoke: Invoke, tmp_path: Path, words: str) -> None:
    without, empty = MISUSE[words]
    failed = invoke(f"ledger {words}")
    rejected(failed, without)
    assert failed.err.count("\n") == 1
    if empty is not None:
        Ledger(tmp_path / "ledger.sqlite").close()
        failed = invoke(f"ledger {words}")
        rejected(failed, empty)
        assert failed.err.count("\n") == 1
        rejected(invoke("ledger show", "no body"), "`graphveil ledger init 'no body' --unit")


def test_synthetic_and_unprotected_graphs_have_no_ledger_entry(invoke: Invoke, files: Files) -> None:
    quick = "--unit none --set epochs=1 --json"
    assert "ledger" not in invoke(f"train gap {quick} --no-baseline", *files.flags).json
    assert "ledger" not in invoke(f"train mlp --dataset synthetic/demo {quick}").json
    assert invoke("ledger list --json").json["data_sets"] == []


@pytest.mark.parametrize(
    "place",
    [
        "postgresql://me:xyzzy@127.0.0.1:1/team#friends",
        "postgresql://me@127.0.0.1:1/team?password=xyzzy&connect_timeout=1",
        "postgresql:/me:xyzzy@127.0.0.1/team",
    ],
)
@pytest.mark.parametrize("words", [f"train gap {EDGES} --epsilon 1", "ledger list", "ledger show a b"])
def test_no_error_shows_a_password(invoke: Invoke, files: Files, words: str, place: str) -> None:
    """Neither the message nor the suggested command, which repeats the arguments, contains it."""
    flags: list[str] = []
    if words.startswith("train"):  # a command is suggested for its tables
        files.nodes.write_text(files.nodes.read_text().replace("\n", ",word\n").replace(",word", ",note", 1))
        flags = files.flags
    stated = invoke(words, *flags, "--json", "--ledger", place)
    assert stated.code in (1, 2)
    assert "xyzzy" not in stated.out + stated.err
    extra = invoke("ledger list", place, "--json")
    assert (extra.code, "xyzzy" in extra.out + extra.err) == (2, False)
