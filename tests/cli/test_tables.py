"""Several tables on the command line: one lifecycle, from ``check`` to predictions of new persons."""

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import SECRET, Answer, Invoke, read, recorded, rejected, write

import graphveil as gv
from graphveil.runs import run as running
from graphveil.runs import tracking
from graphveil.runs.source import TablesSource
from graphveil.runs.table_source import TableSpec, specs_by_name, with_keys_of
from graphveil.runs.tracking import PublicRecord
from graphveil.serve.runs import ServedRun, read_runs

PERSONS = ["--persons", "users.csv", "--id", "user", "--label", "churn", "--classes", "no,yes"]
RATINGS = [
    "--rows",
    "ratings.csv:owner=user,far=movie,value=stars,bins=3|4",
    "--public",
    "movies.csv:id=movie",
]
LOGINS = ["--rows", "logins.csv:owner=user"]
ROW, PERSON = ["--unit", "row", "--epsilon", "4"], ["--unit", "person", "--epsilon", "4"]
TABLES = [*PERSONS, *RATINGS, *LOGINS]
COUNT, MOVIES = 120, 8


@pytest.fixture(autouse=True)
def one_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare no penalties in fits for rows, which takes most of their time."""
    monkeypatch.setattr("graphveil.estimators.relational.rows._PENALTIES", (0.03,))


@pytest.fixture
def here(invoke: Invoke) -> Path:
    """A folder with persons, ratings, logins without a far end, and movies; rows repeat."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=COUNT)
    users = [["user", "age", "churn"]]
    users += [[f"u{n}", str(20 + n % 40), "yes" if kind[n] else "no"] for n in range(COUNT)]
    ratings = [["user", "movie", "stars", "day", "note"]]
    for _ in range(1200):
        n = rng.integers(COUNT)
        movie = rng.integers(MOVIES // 2) + (MOVIES // 2 if kind[n] and rng.random() < 0.9 else 0)
        row = [f"u{n}", f"m{movie}", str(rng.integers(1, 6)), f"2024-0{rng.integers(1, 9)}-01", SECRET]
        ratings += [row, row] if rng.random() < 0.1 else [row]
    logins = [
        ["user", "from"],
        *([f"u{rng.integers(COUNT)}", rng.choice(["web", "app"])] for _ in range(200)),
    ]
    movies = [["movie", "genre", "year"]]
    movies += [[f"m{k}", "drama" if k % 2 else "comedy", str(1990 + k)] for k in range(MOVIES)]
    for name, rows in (("users", users), ("ratings", ratings), ("logins", logins), ("movies", movies)):
        write(Path(f"{name}.csv"), rows)
    return Path.cwd()


def train(invoke: Invoke, *flags: str, out: str = "run") -> Answer:
    answer = invoke("train relational", *TABLES, *flags, "--out", out, "--json")
    assert answer.code == 0, answer.err
    return answer


# -- what a table is written as ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "table", "name"),
    [
        ("a/ratings.csv:owner=user", "a/ratings.csv", "ratings"),
        ("C:ratings.csv:owner=user", "C:ratings.csv", "C:ratings"),
        ("x.parquet:owner=u,name=seen", "x.parquet", "seen"),
        ("mysql://me:a=b@host:1/db?c=d#orders:owner=u", "mysql://me:a=b@host:1/db?c=d#orders", "orders"),
        ("sqlite:////tmp/shop.db#orders", "sqlite:////tmp/shop.db#orders", "orders"),
    ],
)  # fmt: skip
def test_a_table_is_a_file_and_its_columns(text: str, table: str, name: str) -> None:
    spec = TableSpec.parse("--rows", text)
    assert (spec.table, spec.name, str(spec)) == (table, name, text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ratings.csv", "owner=COLUMN"),
        ("ratings.csv:far=movie", "owner=COLUMN"),
        ("ratings.csv:ower=user", "'ower' is no key; did you mean 'owner'?"),
        ("ratings.csv:owner=user,far", "'far' has no value"),
        ("ratings.csv:owner=", "'owner=' has no value"),
        ("ratings.csv:owner=user,owner=u", "'owner' is given twice"),
        (":owner=user", "no file before the colon"),
        ("sqlite:///shop.db:owner=user", "names no table of the database"),
        ("ratings.csv:owner=user,value=stars", "Pass 'bins=3|4' for numbers"),
        ("ratings.csv:owner=user,value=stars,bins=4|3", "increasing order, such as 'bins=3|4'"),
        ("ratings.csv:owner=user,value=stars,bins=three", "'bins=three' must be numbers"),
        ("ratings.csv:owner=user,bins=3", "'bins=' and 'values=' need 'value='"),
        ("ratings.csv:owner=user,far=user", "must all be different"),
        ("ratings.csv:owner=user,persons=mutual", "Name their column with 'far='"),
        ("ratings.csv:owner=user,far=friend,persons=both", "one of one-sided, mutual"),
    ],
)
def test_an_error_names_the_part_of_a_table_that_is_wrong(
    here: Path, invoke: Invoke, text: str, named: str
) -> None:
    answer = invoke("train relational", *PERSONS, "--rows", text, *ROW, "--out", "run")
    rejected(answer, named)
    assert not Path("run").exists() and not recorded()


def test_a_password_is_neither_printed_nor_stored(here: Path, invoke: Invoke) -> None:
    url = "postgresql://me:pa55word@nowhere.invalid/db#orders"
    answer = invoke("train relational", *PERSONS, "--rows", f"{url}:ower=user", *ROW)
    assert answer.code == 2 and "pa55word" not in answer.err and "me:***@nowhere" in answer.err
    source = TablesSource(persons="users.csv", id="user", label="churn", rows=[f"{url}:owner=user"])
    assert source.as_dict()["rows"] == ["postgresql://me:***@nowhere.invalid/db#orders:owner=user"]


def test_two_tables_need_two_names() -> None:
    with pytest.raises(gv.errors.ConfigError, match=r"two tables are called 'a'\. Add name=NAME"):
        specs_by_name("--rows", ["x/a.csv:owner=u", "y/a.csv:owner=u"])
    assert list(specs_by_name("--rows", ["x/a.csv:owner=u", "y/a.csv:owner=u,name=b"])) == ["a", "b"]
    assert list(specs_by_name("--public", ["m.csv:id=id", "n.csv:id=isbn", "o.csv"])) == ["m", "isbn", "o"]
    assert with_keys_of(["a.csv:owner=x,name=b"], ["new.csv:name=b"]) == ["new.csv:owner=x,name=b"]


# -- one lifecycle -----------------------------------------------------------------------------------------


def test_under_unit_row_a_run_is_planned_trained_and_stored_like_any_other(
    here: Path, invoke: Invoke
) -> None:
    planned = invoke("train relational", *TABLES, *ROW, "--out", "run", "--dry-run")
    assert planned.code == 0 and not Path("run").exists() and not recorded()
    assert f"users: {COUNT} persons, 1 feature, 2 classes" in planned.err
    metrics = train(invoke, *ROW).json
    assert metrics["guarantee"]["epsilon"] == pytest.approx(4) and metrics["guarantee"]["unit"] == "row"
    assert metrics["test_accuracy"]["mean"] > metrics["mlp_test_accuracy"]["mean"]  # the no-graph baseline
    assert metrics["ledger"]["releases"] == 1 and len(recorded()) == 1
    assert Path("run/release/predictions.parquet").is_file()
    for folder in (Path("run/release"), Path("run/internal")):
        assert not any(SECRET.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert "rows" in invoke("explain run").out
    assert invoke("report run --out page.html").code == 0 and "row" in Path("page.html").read_text()
    again = invoke("train relational", *TABLES, *ROW, "--out", "run", "--resume", "--json")
    assert again.code == 0 and again.json == metrics and len(recorded()) == 1
    rejected(invoke("attack linkteller run"), "No attack is implemented for several tables")


def test_under_unit_person_predictions_are_for_their_owners_alone(here: Path, invoke: Invoke) -> None:
    metrics = train(invoke, *PERSON, "--private-metrics").json
    assert metrics["guarantee"]["unit"] == "person" and metrics["mlp_test_accuracy"] is None
    assert not Path("run/release/predictions.parquet").exists()
    assert Path("run/per_node/predictions.parquet").is_file()
    stored = invoke("predict run --out stored.csv")
    assert stored.code == 0 and "authorized" in stored.err and len(read(Path("stored.csv"))) == COUNT + 1
    both = invoke("train relational", *TABLES, *PERSON, "--baseline", "--out", "both", "--json")
    assert both.code == 0, both.err
    assert both.json["baseline_guarantee"]["unit"] == "person"
    assert both.json["guarantee_all_runs"]["epsilon"] > 5


@pytest.mark.parametrize("unit", ["row", "person"])
def test_runs_are_logged_and_served_like_those_of_a_graph(
    here: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    logged: list[PublicRecord] = []
    monkeypatch.setattr(tracking, "tracker_of", lambda text: logged.append)
    metrics = train(invoke, "--unit", unit, "--epsilon", "4", "--track", "mlflow").json
    (found,) = logged
    assert found.parameters["unit"] == unit and found.parameters["dataset"].startswith("private tables")
    assert found.figures["epsilon"] == pytest.approx(4, abs=1e-3)
    assert ("test_accuracy" in found.figures) == (unit == "row")
    (served,) = read_runs(["run"])
    assert isinstance(served, ServedRun) and served.by_subject == (unit == "person")
    assert set(served.rows(["u1"])[0]) == {"node", "prediction", "p_no", "p_yes"}
    assert metrics["dataset"] == "users"
    limited = invoke("ledger init users --epsilon 9 --delta 1e-6 --unit", unit)
    keys = invoke("keys keys.json --releases")
    serving = invoke("serve run --allow-releases 1 --ledger users --port 0 --keys keys.json")
    assert limited.code == keys.code == 0 and serving.code == 2 and f"{unit!r}" in serving.err, serving.err


def new_tables() -> list[str]:
    """Write tables of new persons, of which one has no row."""
    Path("new").mkdir()
    for name in ("users", "ratings", "logins"):
        head, *rows = read(Path(f"{name}.csv"))
        place, seen = head.index("user"), {f"u{n}" for n in range(20)}
        if name == "users":
            head, rows = head[:2], [row[:2] for row in [*rows, [f"u{COUNT}", "30"]]]
            seen.add(f"u{COUNT}")
        kept = [row for row in rows if row[place] in seen]
        write(Path(f"new/{name}.csv"), [head, *(["x" + row[0], *row[1:]] for row in kept)])
    return ["--persons", "new/users.csv", "--rows", "new/logins.csv", "--rows", "new/ratings.csv"]


def test_new_persons_are_predicted_at_no_cost(here: Path, invoke: Invoke) -> None:
    train(invoke, *PERSON)
    charged, flags = len(recorded()), new_tables()
    answer = invoke("predict run", *flags, "--out", "new.csv", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["charged"] is None and len(recorded()) == charged
    assert "21 persons" in answer.err and "privacy cost  none" in answer.err
    assert invoke("predict run --out old.csv").code == 0
    old = {row[0]: row[1:] for row in read(Path("old.csv"))[1:]}
    found = {row[0]: row[1:] for row in read(Path("new.csv"))[1:]}
    assert len(found) == 21 and f"xu{COUNT}" in found
    for name in (f"u{n}" for n in range(20)):  # the same records under other ids
        assert found[f"x{name}"][0] == old[name][0]
    whole = [*flags, "--id", "user", "--public", "movies.csv:id=movie"]
    for wrong, words in (
        ([*flags[:4], "--rows", "new/ratings.csv:bins=1|2"], "other catalogs"),
        (flags[:4], "No table of rows uses the catalog 'movie'"),
        ([*whole, "--before", "2024-05-01"], "no table names a column with 'time='"),
        (["--rows", "new/ratings.csv"], "Add --persons"),
    ):
        rejected(invoke("predict run", *wrong), words)
    assert invoke("predict run/release", *flags[:2], "--id", "user", *LOGINS, *RATINGS).code == 2
    rejected(invoke("predict run --nodes users.csv --edges ratings.csv --source user --target movie"), "")


def test_under_unit_row_new_tables_need_a_fit_of_their_own(here: Path, invoke: Invoke) -> None:
    train(invoke, *ROW)
    rejected(invoke("predict run", *new_tables()), "which only a fit releases")
    assert len(recorded()) == 1


@pytest.mark.parametrize("unit", ["row", "person"])
def test_labels_of_test_persons_are_not_read(here: Path, invoke: Invoke, unit: str) -> None:
    head, *rows = read(Path("users.csv"))

    def trained(tested: str) -> bytes:
        parts = [["train", "val", "test"][n % 3] for n in range(COUNT)]
        labeled = [
            [*row[:2], tested if part == "test" else row[2], part]
            for row, part in zip(rows, parts, strict=True)
        ]
        write(Path("users.csv"), [[*head, "part"], *labeled])
        flags = [
            "--split",
            "part",
            "--unit",
            unit,
            "--epsilon",
            "4",
            "--unsafe-noise-seed",
            "1",
            "--no-baseline",
        ]
        train(invoke, *flags, out=tested)
        return Path(tested, "release/model.safetensors").read_bytes()

    assert trained("yes") == trained("no")


def test_an_interrupted_run_is_resumed_without_a_second_charge(
    here: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    for unit, name in ((ROW, "row"), (PERSON, "person")):
        with monkeypatch.context() as patch:
            patch.setattr(running, "_record", broken)
            failed = invoke("train relational", *TABLES, *unit, "--out", name)
            assert failed.code == 1 and "--resume" in failed.err, failed.err
        charged = recorded()
        write(Path("changed.csv"), read(Path("ratings.csv"))[:-1])
        other = [word.replace("ratings.csv", "changed.csv") for word in TABLES]
        rejected(invoke("train relational", *other, *unit, "--out", name, "--resume"), "rows differs")
        Path("kept.csv").write_bytes(Path("movies.csv").read_bytes())
        write(Path("movies.csv"), [*read(Path("movies.csv"))[:-1], ["m7", "drama", "2024"]])
        rejected(invoke("train relational", *TABLES, *unit, "--out", name, "--resume"), "other data")
        Path("movies.csv").write_bytes(Path("kept.csv").read_bytes())
        resumed = invoke("train relational", *TABLES, *unit, "--out", name, "--resume", "--json")
        assert resumed.code == 0, resumed.err
        assert recorded() == charged and resumed.json["guarantee_all_runs"]["releases"] == 1


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("stopped")


def test_all_tables_of_a_data_set_have_one_account(here: Path, invoke: Invoke) -> None:
    train(invoke, *ROW, out="one")
    alone = invoke("train relational", *PERSONS, *LOGINS, *ROW, "--out", "two", "--json")
    assert alone.code == 0, alone.err
    shuffled = [*PERSONS, *LOGINS, *RATINGS]  # the same tables in another order
    third = invoke("train relational", *shuffled, *ROW, "--out", "three", "--json")
    assert third.json["ledger"]["releases"] == 3
    assert {
        row["data_set"] for row in invoke("ledger list --json").json["data_sets"] if "data_set" in row
    } <= {"data-1"}
    assert invoke("ledger check-runs one two three").code == 0
    register = ["--unit", "row", "--epsilon", "9", "--delta", "1e-6", *TABLES]
    named = invoke("ledger init mine", *register)
    assert named.code == 0 and "bound to these data" in named.out and "data-1" in named.out
    limited = invoke("train relational", *TABLES, *ROW, "--runs", "3", "--ledger", "mine", "--out", "four")
    assert limited.code == 2 and not Path("four").exists()


def test_a_ledger_recognizes_tables_without_names(here: Path, invoke: Invoke) -> None:
    """Ids that count from one do not identify persons, so that the rows themselves do."""
    write(Path("users.csv"), [["user", "churn"], *([str(n), "yes" if n % 3 else "no"] for n in range(1, 41))])
    write(Path("logins.csv"), [["user"], *([str(1 + n * n % 40)] for n in range(99))])
    flags = [*PERSONS, *LOGINS, "--set", "codes=2", *ROW]
    first = invoke("train relational", *flags, "--out", "one", "--json")
    assert first.code == 0, first.err
    write(Path("logins.csv"), [["user"], *reversed(read(Path("logins.csv"))[1:])])
    assert invoke("train relational", *flags, "--out", "two", "--json").json["ledger"]["releases"] == 2
    write(Path("logins.csv"), [["user"], ["1"], ["2"]])
    write(Path("users.csv"), [*read(Path("users.csv"))[:-1], ["40", ""]])
    assert invoke("train relational", *flags, "--out", "three", "--json").json["ledger"]["releases"] == 1


@pytest.mark.usefixtures("quick_workers")
def test_a_sweep_compares_units_of_tables_in_several_processes(here: Path, invoke: Invoke) -> None:
    flags = [*TABLES, "--unit", "row", "--epsilon", "1,4", "--out", "sweep", "--json"]
    answer = invoke("sweep relational,mlp", *flags, "--jobs", "2")
    assert answer.code == 0, answer.err
    assert [cell["epsilon"] for cell in answer.json["cells"]][:2] == [1.0, 4.0]
    assert answer.json["total"]["epsilon"] == pytest.approx(5) and answer.json["total"]["releases"] == 2
    again = invoke("sweep relational,mlp", *flags, "--resume")
    assert again.code == 0 and len(recorded()) == 2
    logins = {"logins": gv.Rows("logins.csv", owner="user")}
    tables = gv.Tables("users.csv", id="user", label="churn", rows=logins)
    found = gv.sweep(["relational"], tables, epsilon=[2], unit="row", out="python")
    assert found.rows[0]["epsilon"] == 2


def test_an_audit_and_a_calibration_need_no_data(here: Path, invoke: Invoke) -> None:
    train(invoke, *ROW, out="row")
    for name in ("users", "ratings", "logins", "movies"):
        Path(f"{name}.csv").unlink()
    audited = invoke("audit row --pairs 20 --json")
    assert (
        audited.code == 0
        and audited.json["faults"] == []
        and audited.json["canaries"]["epsilon_at_least"] > 2
    )
    for unit in ("row", "person"):
        flags = ["--unit", unit, "--epsilon", "1", "--nodes-count", "5000", "--json"]
        found = invoke("calibrate relational", *flags)
        assert found.code == 0 and found.json["epsilon"] == pytest.approx(1, abs=0.01), found.err


def test_a_number_is_predicted_under_unit_person(here: Path, invoke: Invoke) -> None:
    numbers = [
        "--persons",
        "users.csv",
        "--id",
        "user",
        "--label",
        "age",
        "--drop",
        "churn",
        "--task",
        "regression",
    ]
    flags = [*numbers, *RATINGS, *PERSON, "--target-range", "20", "60"]
    trained = invoke("train relational", *flags, "--out", "run", "--json")
    assert trained.code == 0, trained.err
    answer = invoke("predict run", *new_tables()[:2], "--rows", "new/ratings.csv")
    assert answer.code == 0, answer.err
    by_row = invoke("train relational", *numbers, *RATINGS, *ROW, "--out", "row")
    rejected(by_row, "--unit person")


def test_options_of_the_node_table_apply_to_persons(here: Path, invoke: Invoke) -> None:
    head, *rows = read(Path("users.csv"))
    parts = ["train", "val", "test", "train"]
    more = [[*row, ["NYC", "LA", "?"][n % 3], parts[n % 4], "x"] for n, row in enumerate(rows)]
    text = "\n".join(";".join(row) for row in [[*head, "city", "part", "note"], *more])
    Path("users.csv").write_text(text)
    for name in ("ratings", "logins", "movies"):
        Path(f"{name}.csv").write_text(Path(f"{name}.csv").read_text().replace(",", ";"))
    bare = invoke("train relational", *TABLES, "--delimiter", ";", *PERSON, "--out", "run", "--json")
    command = bare.json["error"]["command"]
    assert bare.code == 2 and "--drop city,part,note" in command  # no category is read from protected records
    choices = ["--delimiter", ";", "--drop", "note", "--categories", "city=NYC|LA", "--split", "part"]
    trained = invoke(
        "train relational", *TABLES, *choices, "--missing", "indicator", *PERSON, "--out", "run", "--json"
    )
    assert trained.code == 0, trained.err
    assert "split as in the files" in trained.err and "note (of the persons)" in trained.err
    assert trained.json["recipe"] is None and trained.json["features"] >= 3


def test_unknown_ids_are_rejected_or_dropped(here: Path, invoke: Invoke) -> None:
    with Path("ratings.csv").open("a") as file:
        file.write("nobody,m1,5,2024-01-01,x\nu1,m99,5,2024-01-01,x\n")
    answer = invoke("train relational", *TABLES, *ROW, "--out", "run")
    rejected(answer, "--unknown-ids drop")
    assert "nobody" not in answer.err and not recorded()
    rejected(invoke("train relational", *TABLES, *ROW, "--unknown-ids", "add"), "--unknown-ids drop")
    train(invoke, *ROW, "--unknown-ids", "drop")


def test_rows_before_a_date_are_used_alone(here: Path, invoke: Invoke) -> None:
    timed = [word.replace("far=movie", "far=movie,time=day") for word in [*PERSONS, *RATINGS]]
    sources = [
        TablesSource(
            persons="users.csv", id="user", label="churn", rows=[timed[9]], public=[timed[11]], before=date
        )
        for date in (None, "2024-05-01", "2023-01-01")
    ]
    rows = [len(source.load().adjacency.indices) for source in sources]
    assert rows[0] > rows[1] > rows[2] == 0
    answer = invoke("train relational", *timed, *ROW, "--before", "2024-05-01", "--out", "run")
    assert answer.code == 0, answer.err
    rejected(
        invoke("train relational", *timed, *ROW, "--before", "2024", "--out", "x"), "--before 2024 cannot be"
    )
    rejected(invoke("train relational", *TABLES, *ROW, "--before", "2024-05-01"), "--before has no effect")


def test_a_database_is_read_like_files(here: Path, invoke: Invoke) -> None:
    with closing(sqlite3.connect("shop.db")) as base, base:
        for name in ("ratings", "movies"):
            head, *rows = read(Path(f"{name}.csv"))
            base.execute(f"CREATE TABLE {name} ({', '.join(f'{column} TEXT' for column in head)})")
            base.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(head))})", rows)
    url = f"sqlite:///{here}/shop.db"
    flags = [
        *PERSONS,
        "--rows",
        f"{url}#ratings:owner=user,far=movie,time=day",
        "--public",
        f"{url}#movies:id=movie",
    ]
    answer = invoke("train relational", *flags, *ROW, "--out", "run", "--json")
    assert answer.code == 0, answer.err
    files = [*PERSONS, "--rows", "ratings.csv:owner=user,far=movie", *RATINGS[2:]]
    again = invoke("train relational", *files, *ROW, "--out", "files", "--json")
    assert again.json["ledger"]["releases"] == 2  # the same rows, and so the same account
    lost = invoke("train relational", *PERSONS, "--rows", f"{url}#nothing:owner=user", *ROW)
    rejected(lost, "Table 'nothing' of the database cannot be read")


# -- data and methods that do not fit ----------------------------------------------------------------------


def test_methods_and_units_of_graphs_are_rejected(here: Path, invoke: Invoke) -> None:
    graph = ["--dataset", "synthetic/tiny"]
    cases: list[tuple[str, list[str], str]] = [
        ("gap", [*TABLES, *ROW], "does not use --persons, --rows, --public"),
        ("links", [*TABLES, *ROW], "does not use"),
        ("relational", [*graph, *ROW], "does not use --dataset"),
        ("relational", ROW, "--persons FILE"),
        ("relational", [*PERSONS, *ROW], "Add --rows"),
        ("relational", [*LOGINS, *ROW], "Add --persons, --id, --label"),
        ("relational", [*TABLES, "--unit", "node", "--epsilon", "1"], "'row' and 'person'"),
        ("relational", [*TABLES, *ROW, "--recipe", "gap"], "does not use --recipe"),
        ("mlp", [*TABLES, "--unit", "undirected-edge", "--epsilon", "1"], "unit 'row' for one row"),
        ("mlp", [*graph, "--unit", "row"], "Pass gv.Tables (--persons, --rows)"),
    ]
    for method, flags, words in cases:
        rejected(invoke("train", method, *flags, "--out", "run"), words)
    assert not Path("run").exists() and not recorded()
    assert invoke("train mlp", *TABLES, "--unit", "row", "--out", "mlp").code == 0


def test_an_experiment_on_the_wrong_data_is_rejected_in_python() -> None:
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.source import Source

    tables = TablesSource(persons="users.csv", id="user", label="churn", rows=["logins.csv:owner=user"])
    graph, row = Source(dataset="synthetic/tiny"), {"unit": "row", "epsilon": 1.0}
    for method, source, recipe, words in (
        ("relational", graph, None, "learns from several tables"),
        ("gap", tables, None, "Use method relational"),
        ("links", tables, None, "Use method relational"),
        ("relational", tables, "gap", "Remove --recipe"),
    ):
        with pytest.raises(gv.errors.ConfigError, match=words):
            Experiment(method, source, row if method != "links" else {**row, "unit": "directed-edge"}, recipe)


# -- check -------------------------------------------------------------------------------------------------


def uses(answer: Answer) -> dict[tuple[str, str], str]:
    return {(one["table"], one["name"]): one["becomes"] for one in answer.json["columns"]}


def test_check_prints_the_use_of_each_column_and_a_command_that_trains(here: Path, invoke: Invoke) -> None:
    answer = invoke("check", *TABLES, "--json")
    assert answer.code == 0, answer.err
    found, notes = uses(answer), " ".join(answer.json["notes"])
    assert found["persons", "age"] == "feature: a number" and "label" in found["persons", "churn"]
    assert found["ratings", "user"].startswith("owner") and "'movie'" in found["ratings", "movie"]
    assert found["ratings", "stars"] == "value: bins from 3, 4" and found["ratings", "note"] == "ignored"
    assert (
        found["movie", "genre"] == "public attribute of far ends" and found["movie", "movie"] == "public id"
    )
    assert "Unit row fits" in notes and "Unit person fits" in notes and "k times epsilon" in notes
    assert "'logins' has no far end" in notes
    words = shlex.split(answer.json["command"])
    assert words[:3] == ["graphveil", "train", "relational"] and "person" in words
    assert invoke(*words[1:], "--out", "run").code == 0
    assert not recorded() or len(recorded()) == 1


def test_check_guesses_columns_by_their_names(here: Path, invoke: Invoke) -> None:
    files = ["--persons", "users.csv", "--rows", "ratings.csv", "--rows", "logins.csv", *RATINGS[2:]]
    answer = invoke("check", *files, "--unit", "row", "--json")
    assert answer.code == 1 and "'churn'" in " ".join(answer.json["problems"])
    assert {
        "id = user",
        "owner of ratings = user",
        "far of ratings = movie",
        "value of ratings = stars",
    } <= set(answer.json["guessed"])
    assert invoke(*shlex.split(answer.json["command"])[1:], "--out", "run").code == 0


def test_check_lists_all_errors_and_the_units_that_fit(here: Path, invoke: Invoke) -> None:
    friends = [["user", "friend", "day"], *([f"u{n}", f"u{n + 1}", "2024-01-01"] for n in range(40))]
    write(Path("friends.csv"), friends)
    write(Path("views.csv"), [["who", "movie"], ["u1", "m1"], ["u2", "m77"]])
    flags = [*TABLES, "--rows", "friends.csv:owner=user,far=friend,persons=mutual"]
    answer = invoke("check", *flags, "--json")
    assert answer.code == 0, answer.err
    notes = " ".join(answer.json["notes"])
    assert "Unit person does not fit: table 'friends'" in notes and "--unit row" in answer.json["command"]
    assert "far end: a person" in uses(answer)["friends", "friend"]
    wrong = invoke("check", *flags, "--unit", "person", "--json")
    assert wrong.code == 1 and "mutual rows" in wrong.json["problems"][0]
    assert invoke("train relational", *flags, *ROW, "--out", "run").code == 0
    rejected(invoke("train relational", *flags, *PERSON, "--out", "other"), "mutual rows")
    bad = [
        "--rows",
        "friends.csv:owner=user,far=friend",
        "--rows",
        "views.csv:far=movie",
        "--public",
        "logins.csv:id=x",
    ]
    several = invoke("check", *TABLES, *bad, "--json")
    problems = several.json["problems"]
    assert several.code == 1 and len(problems) == 3
    for words in ("--public FILE:id=friend", "owner=COLUMN", "catalog 'x'"):
        assert any(words in one for one in problems), (words, problems)
    one_sided = [*TABLES, "--rows", "friends.csv:owner=user,far=friend,persons=one-sided,time=day"]
    asserted = invoke("check", *one_sided, "--before", "2024-06-01", "--json")
    notes = " ".join(asserted.json["notes"])
    assert (
        asserted.code == 0 and "you assert that only the owner" in notes and "keeps all of its rows" in notes
    )


def test_check_warns_about_events_in_two_tables(here: Path, invoke: Invoke) -> None:
    flags = [*TABLES, "--rows", "ratings.csv:owner=user,far=movie,name=again"]
    notes = " ".join(invoke("check", *flags, "--json").json["notes"])
    assert "Tables 'ratings' and 'again' have the same far ends" in notes


@pytest.mark.parametrize("named", [True, False])
def test_check_of_users_and_items_points_to_several_tables(here: Path, invoke: Invoke, named: bool) -> None:
    if not named:  # only the ids show it
        write(Path("ratings.csv"), [["a", "b"], *(row[:2] for row in read(Path("ratings.csv"))[1:])])
    flags = ["--nodes", "users.csv", "--edges", "ratings.csv", "--id", "user"]
    flags += [] if named else ["--source", "a", "--target", "b"]
    for more in ([], ["--label", "churn"]):
        answer = invoke("check", *flags, *more, "--json")
        assert answer.code == 1
        assert "--persons" in " ".join(answer.json["notes"]) and "train relational" in answer.json["command"]
        assert "classcode" not in json.dumps(answer.json)
        words = shlex.split(answer.json["command"].replace("ITEMS.csv", "items.csv"))
        write(Path("items.csv"), [["movie" if named else "b"], *([f"m{k}"] for k in range(MOVIES))])
        write(Path("ratings.csv"), read(Path("ratings.csv")))
        checked = invoke(*words[1:], "--out", f"run{len(more)}")
        assert checked.code == 0, checked.err
