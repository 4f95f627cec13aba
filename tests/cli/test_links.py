"""Runs of link predictors and recommenders: from tables to the best candidates, with the guarantee."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphveil.links.link_predictor import LinkPredictor

Invoke = Callable[..., Any]

NODES = ("--nodes", "nodes.csv", "--id", "user")
EDGES = ("--edges", "edges.csv", "--source", "a", "--target", "b")
LINKS = ("links", *NODES, *EDGES, "--unit", "undirected-edge", "--epsilon", "2", "--delta", "1e-6")
PLAYS = ("--edges", "plays.csv", "--source", "user", "--target", "game", "--items", "games.csv")
GAMES = ("recommender", *NODES, *PLAYS, "--unit", "node-record", "--epsilon", "4", "--delta", "1e-6")
USERS, ITEMS = 150, 12


@pytest.fixture
def folder(invoke: Invoke) -> Path:
    """A folder with tables of users, edges, items, and items of users, which commands run in."""
    folder = Path.cwd()
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=USERS)
    first, second = (rng.integers(USERS, size=3000) for _ in range(2))
    kept = (first < second) & (rng.random(3000) < np.where(kind[first] == kind[second], 0.9, 0.1))
    edges = sorted(set(zip(first[kept].tolist(), second[kept].tolist(), strict=True)))
    plays = rng.random((USERS, ITEMS)) < np.where(np.arange(ITEMS) % 2 == kind[:, None], 0.6, 0.1)
    tables = {
        "nodes": [("user", "likes", "age"), *((f"u{n}", int(kind[n]), 20 + n % 50) for n in range(USERS))],
        "edges": [("a", "b"), *((f"u{a}", f"u{b}") for a, b in edges)],
        "games": [("game",), *((f"g{k}",) for k in range(ITEMS))],
        "plays": [("user", "game"), *((f"u{n}", f"g{k}") for n, k in zip(*plays.nonzero(), strict=True))],
        "pairs": [("a", "b"), ("u0", "u1"), ("u1", "u0")],
    }
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_two_commands_lead_from_tables_to_the_best_candidates(folder: Path, invoke: Invoke) -> None:
    trained = invoke("train", *LINKS, "--out", "run", "--json")
    assert trained.code == 0, trained.err
    metrics = json.loads(trained.out)
    assert set(metrics["private_metrics"]) == {"roc_auc", "average_precision"}
    assert metrics["guarantee"]["epsilon"] <= 2 and metrics["ledger"]["releases"] == 1
    assert "features      likes" in trained.err  # the plan shows how columns are used
    assert "ROC-AUC of held-out edges" in trained.err and "epsilon 2 at delta 1e-06" in trained.err
    assert {path.name for path in (folder / "run/release").iterdir()} == {
        "links.json",
        "model.safetensors",
        "privacy.json",
        "PRIVACY.md",
        "README.md",
    }
    card = (folder / "run/release/README.md").read_text()
    assert card.startswith("---\nlibrary_name") and "link-prediction" in card and "edges.csv" not in card
    assert "ROC-AUC of held-out edges: 0." in card and "at most" in card
    predicted = invoke("predict", "run", "--top-k", "3", "--out", "best.csv")
    assert predicted.code == 0, predicted.err
    head, *lines = rows(folder / "best.csv")
    assert head == ["node", "rank", "candidate", "score"] and len(lines) == 3 * USERS
    assert all(node != candidate for node, _, candidate, _ in lines)
    scored = invoke("predict", "run/release", "--pairs", "pairs.csv", "--source", "a", "--target", "b")
    assert scored.code == 0, scored.err
    (_, _, up), (_, _, down) = list(csv.reader(scored.out.splitlines()))[1:]
    assert up == down and 0 < float(up) < 1


def test_a_run_explains_and_reports_its_guarantee(folder: Path, invoke: Invoke) -> None:
    assert invoke("train", *LINKS, "--out", "run").code == 0
    explained = invoke("explain", "run")
    assert explained.code == 0 and "products of feature vectors" in explained.out
    page = (folder / "run/internal/report.html").read_text()
    assert "ROC curve" in page and "Precision-recall curve" in page and "undirected-edge" in page
    assert (
        "epsilon" in (folder / "run/PRIVACY.md").read_text() or "ε" in (folder / "run/PRIVACY.md").read_text()
    )


def test_calibrate_prints_the_noise_of_every_query(invoke: Invoke) -> None:
    flags = ("--unit", "undirected-edge", "--delta", "1e-6")
    found = invoke("calibrate", "links", *flags, "--epsilon", "1", "--set", "held_out=0", "--json")
    assert found.code == 0 and len(found.json["stages"]) == 4, found.err
    assert "edge products" in invoke("calibrate", "links", *flags, "--epsilon", "1").out
    for extra, words in (
        (("--noise-std", "4"), "Set --epsilon"),
        (("--epsilon", "1", "--classes-count", "4"), "does not use --classes-count"),
    ):
        answer = invoke("calibrate", "links", *flags, *extra)
        assert answer.code == 2 and words in answer.err
    lists = ("--unit", "node-record", "--delta", "1e-6", "--noise-std", "4")
    assert "epsilon" in invoke("calibrate", "recommender", *lists).out


def test_a_report_compares_budgets_of_links(folder: Path, invoke: Invoke) -> None:
    one = json.loads(invoke("train", *LINKS, "--out", "one", "--json").out)
    flags = (*LINKS[:-3], "4", *LINKS[-2:], "--runs", "2")
    four = json.loads(invoke("train", *flags, "--out", "four", "--json").out)
    bare = invoke("train", *LINKS, "--set", "held_out=0", "--out", "bare")
    assert bare.code == 0, bare.err
    reported = invoke("report", "one", "four", "bare", "--out", "page.html", "--json")
    assert reported.code == 0 and reported.json["runs"] == ["one", "four", "bare"], reported.err
    page = (folder / "page.html").read_text()
    single, mean = one["private_metrics"]["roc_auc"], np.mean(four["metric_values"]["roc_auc"])
    assert f"{single['value']:.3f} [{single['low']:.3f}, {single['high']:.3f}]" in page
    assert f">{mean:.3f} [" in page and ">n/a</td>" in page
    assert "ROC-AUC of held-out edges over epsilon" in page and "noise of a single run" in page
    roc = page.split("<figcaption>ROC curve</figcaption>")[1].split("</figure>")[0]
    assert all(f">{name}</text>" in roc for name in ("one", "four", "random guess")) and ">bare<" not in roc
    assert ">edge products</td>" in page and page.count("<blockquote>") == 3
    assert "not comparable" not in page


def test_runs_without_a_common_metric_have_no_report(folder: Path, invoke: Invoke) -> None:
    assert invoke("train", *LINKS, "--out", "run").code == 0
    assert invoke("train", *GAMES, "--private-metrics", "--out", "games").code == 0
    rejected = invoke("report", "run", "games", "--out", "page.html")
    assert rejected.code == 2 and "no common metric" in rejected.err
    assert not (folder / "page.html").exists()
    assert invoke("report", "games", "--out", "page.html").code == 0
    assert "Hit rate at 10 of held-out users" in (folder / "page.html").read_text()


def test_a_finished_run_is_shown_again_without_a_charge(folder: Path, invoke: Invoke) -> None:
    first = json.loads(invoke("train", *LINKS, "--out", "run", "--json").out)
    again = invoke("train", *LINKS, "--out", "run", "--resume", "--json")
    assert again.code == 0 and json.loads(again.out) == first
    second = json.loads(invoke("train", *LINKS, "--out", "other", "--json").out)
    assert second["ledger"]["releases"] == 2


def test_a_dry_run_spends_and_writes_nothing(folder: Path, invoke: Invoke) -> None:
    planned = invoke("train", *LINKS, "--out", "run", "--dry-run")
    assert planned.code == 0 and "attack bound" in planned.err
    assert "at delta 1e-06 (as given)" in planned.err
    assert not (folder / "run").exists()
    planned = invoke("train", *LINKS[:-2], "--out", "run", "--dry-run")
    assert f"(auto: the default of undirected-edge, below 1/(10 B) for B = {USERS} nodes)" in planned.err
    users = invoke("train", *GAMES[:-2], "--out", "run", "--dry-run", "--json").err
    assert f"B = {USERS} users)" in users and "auto" in users


def test_unit_none_is_rejected_before_its_budget(folder: Path, invoke: Invoke) -> None:
    for words in (LINKS[:-6], GAMES[:-6]):
        answer = invoke("train", *words, "--unit", "none")
        assert (
            answer.code == 2
            and "unit none does not protect them" in answer.err
            and "Missing" not in answer.err
        )


def test_recommendations_come_from_three_tables(folder: Path, invoke: Invoke) -> None:
    trained = invoke("train", *GAMES, "--private-metrics", "--out", "run", "--json")
    assert trained.code == 0, trained.err
    metrics = json.loads(trained.out)
    assert set(metrics["private_metrics"]) == {"hit_rate_at_10"}
    assert metrics["guarantee"]["unit"] == "node-record"
    assert "hit rate at 10 of held-out users: " in (folder / "run/release/README.md").read_text()
    predicted = invoke("predict", "run", "--top-k", "2", "--out", "best.csv")
    assert predicted.code == 0 and "only to this user" in predicted.err
    head, *lines = rows(folder / "best.csv")
    assert head == ["user", "rank", "item", "score"] and len(lines) == 2 * USERS
    owned = {tuple(row) for row in rows(folder / "plays.csv")[1:]}
    assert not any((user, item) in owned for user, _, item, _ in lines)
    assert "internal part" in invoke("predict", "run/release", "--top-k", "2").err


@pytest.mark.parametrize("flags", [("node-record", "--private-metrics"), ("directed-edge",)])
def test_everything_printed_of_a_recommender_is_about_lists(
    folder: Path, invoke: Invoke, flags: tuple[str, ...]
) -> None:
    unit, *extra = flags
    games = [*GAMES[: GAMES.index("--unit")], "--unit", unit, "--epsilon", "2", *extra]
    planned = invoke("calibrate", "recommender", "--unit", unit, "--epsilon", "2", "--delta", "1e-6", *extra)
    trained = invoke("train", *games, "--out", "run")
    assert trained.code == 0, trained.err
    pages = [folder / "run" / name for name in ("PRIVACY.md", "release/PRIVACY.md", "release/README.md")]
    report = (folder / "run/internal/report.html").read_text()
    shown = {page.name: page.read_text() for page in pages} | {"train": trained.out, "report": report}
    shown |= {"calibrate": planned.out, "explain": invoke("explain", "run").out}
    other = re.compile(r"feature|label|mutual|per_node|out-edge|\bneighbor|correct|predictions")
    for name, text in shown.items():
        body = re.sub(r"(?s)<style>.*</style>|<svg.*?</svg>|<[^>]*>|node-record", "", text)
        assert not other.findall(body), name
        assert "lists" in body or name == "calibrate", name
    whole = "differ in the whole list of items of one user" in trained.out
    assert whole == (unit == "node-record") and "Attack bound" in report


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*LINKS, "--mode", "paper"), "--mode"),
        ((*LINKS, "--items", "games.csv"), "does not use --items"),
        ((*LINKS, "--set", "held=0.1"), "held_out"),
        (LINKS[:-4], "Set --epsilon"),
        ((*GAMES[:11], *GAMES[13:]), "--items"),
        ((*GAMES[:13], "--unit", "undirected-edge", "--epsilon", "1"), "node-record"),
        (("gap", *NODES, *EDGES, "--items", "games.csv"), "--items"),
    ],
)
def test_unusable_options_are_rejected_before_a_charge(
    folder: Path, invoke: Invoke, arguments: tuple[str, ...], expected: str
) -> None:
    answer = invoke("train", *arguments, "--out", "run")
    assert answer.code == 2 and expected in answer.err
    assert not (folder / "run").exists()


def test_remarks_describe_the_released_metrics(folder: Path, invoke: Invoke) -> None:
    clear = invoke("train", *LINKS[:-3], "40", *LINKS[-2:], "--out", "run", "--json")
    assert "contains 0.5" not in json.loads(clear.out)["remarks"]
    (folder / "edges.csv").write_text("a,b\nu0,u1\n")  # too few to measure
    weak = invoke("train", *LINKS, "--out", "weak", "--json")
    assert "contains 0.5" in json.loads(weak.out)["remarks"]
    none = invoke("train", *LINKS, "--set", "held_out=0", "--out", "none", "--json")
    assert "held_out=0" in json.loads(none.out)["remarks"] and "--private-metrics" not in none.err


def test_predictions_need_pairs_or_a_number_of_candidates(folder: Path, invoke: Invoke) -> None:
    assert invoke("train", *LINKS, "--out", "run").code == 0
    for wrong in ((), ("--top-k", "2", "--pairs", "pairs.csv")):
        answer = invoke("predict", "run", *wrong)
        assert answer.code == 2 and "--top-k" in answer.err and "--pairs" in answer.err
    assert invoke("predict", "nowhere", "--top-k", "2").code == 2


@pytest.mark.usefixtures("fewer_canaries")
def test_an_audit_certifies_most_of_the_claim_and_no_more(folder: Path, invoke: Invoke) -> None:
    flags = (*LINKS[:-3], "1", *LINKS[-2:])
    assert invoke("train", *flags, "--out", "run").code == 0
    audited = invoke("audit", "run", "--pairs", "20", "--json")
    assert audited.code == 0, audited.err
    found = json.loads(audited.out)
    assert 0.8 * found["claimed"] < found["canaries"]["epsilon_at_least"] <= found["claimed"]
    assert not found["faults"]


def test_several_runs_are_charged_together_and_have_a_mean(folder: Path, invoke: Invoke) -> None:
    trained = invoke("train", *LINKS, "--runs", "3", "--out", "run", "--json")
    assert trained.code == 0, trained.err
    metrics = json.loads(trained.out)
    values = metrics["metric_values"]["roc_auc"]
    assert metrics["runs"] == metrics["ledger"]["releases"] == len(values) == 3
    assert metrics["private_metrics"]["roc_auc"]["value"] == values[0]
    assert metrics["guarantee"]["epsilon"] <= 2 < metrics["guarantee_all_runs"]["epsilon"] < 6
    assert "mean of 3 runs" in trained.err and "all runs" in trained.err
    again = invoke("train", *LINKS, "--runs", "3", "--out", "run", "--resume", "--json")
    assert json.loads(again.out) == metrics


def with_budgets(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return flags with two budgets."""
    place = flags.index("--epsilon") + 1
    return (*flags[:place], "1,2", *flags[place + 1 :])


@pytest.mark.parametrize(
    ("flags", "metric"), [(LINKS, "roc_auc"), ((*GAMES, "--private-metrics"), "hit_rate_at_10")]
)
def test_a_sweep_compares_the_released_metric(
    folder: Path, invoke: Invoke, flags: tuple[str, ...], metric: str
) -> None:
    words = ("sweep", *with_budgets(flags), "--runs", "2", "--out", "grid")
    planned = invoke(*words, "--dry-run")
    assert planned.code == 0 and not (folder / "grid").exists(), planned.err
    swept = invoke(*words, "--json")
    assert swept.code == 0, swept.err
    found = json.loads(swept.out)
    assert len(found["cells"]) == 2 and found["total"]["releases"] == 4
    head, *lines = rows(folder / "grid/sweep.csv")
    table = [dict(zip(head, line, strict=True)) for line in lines]
    assert [line["epsilon"] for line in table] == ["1.0", "2.0"] and table[0]["accuracy"] == ""
    for line, cell in zip(table, found["cells"], strict=True):
        values = cell["metric_values"][metric]
        assert line["metric"] == metric and len(values) == 2
        assert float(line["metric_value"]) == pytest.approx(np.mean(values), abs=1e-6)
    assert "held-out" in (folder / "grid/curve.svg").read_text()
    assert json.loads(invoke(*words, "--resume", "--json").out) == found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("links,gap", *LINKS[1:]), "no common metric"),
        ((*LINKS, "--set", "held_out=0,0.1"), "needs held_out"),
        (GAMES, "--private-metrics"),
        ((*LINKS, "--items", "games.csv"), "does not use --items"),
        ((*LINKS, "--include-nonprivate"), "does not use --include-nonprivate"),
        ((*GAMES, "--private-metrics", "--jobs", "2", "--set", "max_items=5,6"), "jobs"),
    ],
)
def test_sweeps_that_cannot_be_compared_are_rejected(
    folder: Path, invoke: Invoke, arguments: tuple[str, ...], expected: str
) -> None:
    rejected = invoke("sweep", *arguments, "--out", "grid")
    assert rejected.code == 2 and expected in rejected.err, rejected.err
    assert not (folder / "grid").exists()


@pytest.mark.usefixtures("quick_workers")
def test_workers_of_a_sweep_have_the_same_results(folder: Path, invoke: Invoke) -> None:
    seeded = (*LINKS, "--unsafe-noise-seed", "1", "--set", "dim=2,3")
    one, two = (invoke("sweep", *seeded, "--jobs", jobs, "--out", f"grid{jobs}") for jobs in ("1", "2"))
    assert one.code == two.code == 0, one.err + two.err
    assert rows(folder / "grid1/sweep.csv") == rows(folder / "grid2/sweep.csv")


@pytest.mark.usefixtures("quick_attacks")
def test_runs_of_links_are_attacked_and_those_of_recommendations_are_not(
    folder: Path, invoke: Invoke
) -> None:
    assert invoke("train", *LINKS, "--out", "run").code == 0
    done = invoke("attack", "linkteller", "run", "--count", "60", "--json")
    assert done.code == 0, done.err
    assert "products, other edges known" in done.err and "attack bound for one edge" in done.err
    kept = json.loads((folder / "run/internal/attacks/linkteller.json").read_text())
    assert kept == done.json and kept["theoretical_bound"]["valid"] and kept["auc"] == 0.5
    assert invoke("attack", "topology", "run").code == 0
    rejected = invoke("attack", "membership", "run")
    assert rejected.code == 2 and "attack linkteller" in rejected.err
    assert invoke("train", *GAMES, "--out", "games").code == 0
    rejected = invoke("attack", "linkteller", "games")
    assert rejected.code == 2 and "graphveil audit" in rejected.err


def test_directed_pairs_are_scored_as_the_table_has_them(folder: Path, invoke: Invoke) -> None:
    """Users of the first half follow those of the second, and not the reverse; columns have other names."""
    rng = np.random.default_rng(1)
    ends = {
        (int(u), int(v)) for u, v in zip(rng.integers(75, size=900), rng.integers(75, 150, 900), strict=True)
    }
    for name, lines in {
        "follows": [("follower", "followed"), *((f"u{a}", f"u{b}") for a, b in sorted(ends))],
        "ask": [("to", "by"), *((f"u{a + 75}", f"u{a}") for a in range(70))],
    }.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    tables = ("--edges", "follows.csv", "--source", "follower", "--target", "followed")
    budget = ("--unit", "directed-edge", "--directed", "--epsilon", "20", "--delta", "1e-6")
    trained = invoke("train", "links", *NODES, *tables, *budget, "--out", "run")
    assert trained.code == 0, trained.err
    given = invoke("predict", "run", "--pairs", "ask.csv", "--source", "by", "--target", "to")
    assert given.code == 0, given.err
    head, *lines = csv.reader(given.out.splitlines())
    assert head == ["by", "to", "probability"]
    assert [(by, to) for by, to, _ in lines] == [(f"u{a}", f"u{a + 75}") for a in range(70)]
    model = LinkPredictor.load(folder / "run/release")
    there = model.predict_proba(np.stack([np.arange(70), np.arange(75, 145)]))
    assert [float(score) for _, _, score in lines] == pytest.approx(there.tolist(), rel=1e-5)
    back = invoke("predict", "run", "--pairs", "ask.csv", "--source", "to", "--target", "by")
    reverse = [float(line[2]) for line in list(csv.reader(back.out.splitlines()))[1:]]
    assert np.mean(there > reverse) > 0.9


@pytest.mark.parametrize("words", [LINKS, GAMES], ids=["links", "recommender"])
def test_a_run_on_a_seeded_workspace_prints_no_valid_guarantee(
    words: tuple[str, ...], folder: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise of the interrupted attempt is reproducible, and so is that of the attempt that finishes."""
    seeded = (*words, "--unsafe-noise-seed", "3", "--out", "run")
    with monkeypatch.context() as patch:
        patch.setattr("graphveil.runs.run.add_receipts", interrupted)
        assert invoke("train", *seeded).code != 0
    lock = folder / "run/internal/config.lock.json"
    known = json.loads(lock.read_text())
    del known["configuration"]["set.unsafe_noise_seed"]
    lock.write_text(json.dumps(known))
    resumed = invoke("train", *words, "--out", "run", "--resume", "--json")
    assert resumed.code == 0, resumed.err
    metrics = resumed.json
    assert metrics["guarantee"]["valid"] is False and metrics["deviations"]
    assert "No valid guarantee" in metrics["statement"] + metrics["summary"]
    assert "No valid guarantee" in (folder / "run/release/PRIVACY.md").read_text()
    assert "No valid guarantee" in (folder / "run/PRIVACY.md").read_text()


def interrupted(*given: object) -> None:
    raise KeyboardInterrupt
