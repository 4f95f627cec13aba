"""``predict``: stored predictions, and the privacy cost of other graphs."""

from pathlib import Path

import pytest
from command import NODES, PRIVATE, QUICK, Files, Invoke, edit, other_of, read, recorded, write

import graphveil as gv
from graphveil.estimators.gap.method import TrainedGap

pytestmark = pytest.mark.usefixtures("quick_classcode")


def test_stored_predictions_are_not_charged_and_constant(invoke: Invoke, trained: Path) -> None:
    before = recorded()
    for name in ("one.csv", "two.csv", "one.parquet", "two.parquet"):
        assert invoke("predict", trained, "--out", name).code == 0
    assert Path("one.csv").read_bytes() == Path("two.csv").read_bytes()
    assert Path("one.parquet").read_bytes() == Path("two.parquet").read_bytes()
    rows = read(Path("one.csv"))
    assert rows[0] == ["node", "prediction", "p_t0", "p_t1", "p_t2"]
    assert [row[0] for row in rows[1:]] == [f"u{i}" for i in range(NODES)]
    printed = invoke("predict", trained).out.splitlines()
    assert len(printed) == NODES + 1
    assert recorded() == before


def test_predictions_do_not_overwrite_files(invoke: Invoke, trained: Path) -> None:
    Path("p.csv").write_text("mine")
    answer = invoke("predict", trained, "--out", "p.csv")
    assert (answer.code, "p.csv already exists" in answer.err) == (2, True)
    assert Path("p.csv").read_text() == "mine"


def test_predictions_as_json(invoke: Invoke, trained: Path) -> None:
    record = invoke("predict", trained / "release", "--json").json
    assert record["nodes"] == len(record["predictions"]) == NODES
    assert record["charged"] is None


def test_another_graph_is_priced_and_recorded(invoke: Invoke, trained: Path, files: Files) -> None:
    before = recorded()
    edit(files.edges, lambda rows: rows[:50])
    answer = invoke("predict", trained, *other_of(files), "--out", "p.csv", "--json")
    assert answer.code == 0, answer.err
    assert len({row["reference"] for row in recorded() if row not in before}) == 1
    assert "epsilon 1 at delta 1e-07" in answer.err
    assert "epsilon 1.448 at delta 1e-07, since the graphs may share edges" in " ".join(answer.err.split())
    assert answer.json["charged"]["epsilon"] == pytest.approx(1, abs=1e-3)
    assert answer.json["guarantee_with_predictions"]["epsilon"] == pytest.approx(1.448, abs=2e-3)
    assert len(read(Path("p.csv"))) == NODES + 1


def test_disjoint_edges_are_charged_by_the_maximum(invoke: Invoke, trained: Path, files: Files) -> None:
    another = ["predict", trained, *other_of(files), "--json"]
    answer = invoke(*another, "--assume-disjoint-edges")
    assert answer.code == 0, answer.err
    assert "since you assert that the graphs share no edge" in " ".join(answer.err.split())
    whole = answer.json["guarantee_with_predictions"]
    assert whole["epsilon"] == pytest.approx(1, abs=1e-3)
    assert "asserted to share no edge" in whole["statement"]
    rejected = invoke("predict", trained, "--assume-disjoint-edges")
    assert rejected.code == 2
    assert "without --nodes and --edges does not use --assume-disjoint-edges" in rejected.err


def test_classcode_predicts_another_graph(invoke: Invoke, files: Files) -> None:
    flags = [*PRIVATE, "--set", "weights=half_cos"]
    assert invoke("train classcode", *files.flags, *flags, "--no-baseline", "--out", "code").code == 0
    another = ["predict", "code", *other_of(files), "--json"]
    answer = invoke(*another, "--assume-disjoint-edges")
    assert answer.code == 0, answer.err
    assert len(answer.json["predictions"]) == NODES
    assert answer.json["charged"]["releases"] == 1
    assert answer.json["guarantee_with_predictions"]["epsilon"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("labels", ["as in training, but empty", "none", "none, release alone"])
def test_another_graph_needs_no_labels(
    invoke: Invoke, trained: Path, files: Files, tmp_path: Path, labels: str
) -> None:
    another = [trained, *other_of(files), "--out", "p.csv"]
    if labels.startswith("as in training"):
        edit(files.nodes, lambda rows: [rows[0], *([*row[:3], ""] for row in rows[1:])])
    if labels.startswith("none"):
        edit(files.nodes, lambda rows: [row[:3] for row in rows])
    if labels == "none, release alone":
        (trained / "release").rename(tmp_path / "alone")
        another = [tmp_path / "alone", *another[1:], "--allow-spend"]
        another += ["--id", "user", "--source", "a", "--target", "b"]
    answer = invoke("predict", *another)
    assert answer.code == 0, answer.err
    head, *rows = read(Path("p.csv"))
    assert head == ["node", "prediction", "p_t0", "p_t1", "p_t2"]
    assert len(rows) == NODES


@pytest.mark.parametrize("kept", [[], ["fold"], ["team", "fold"]])
def test_only_the_features_of_training_are_features(invoke: Invoke, files: Files, kept: list[str]) -> None:
    head, *rows = read(files.nodes)
    parts = ["train"] * 40 + ["val"] * 10 + ["test"] * 10
    write(files.nodes, [[*head, "fold"], *([*row, part] for row, part in zip(rows, parts, strict=True))])
    base = ["train", "gap", *files.flags, *PRIVATE, "--split", "fold", *QUICK]
    assert invoke(*base, "--out", "first").code == 0
    columns = [read(files.nodes)[0].index(name) for name in ("user", "age", "height", *kept)]
    edit(files.nodes, lambda rows: [[row[column] for column in columns] for row in rows])
    answer = invoke("predict first", *other_of(files), "--out", "p.csv")
    assert answer.code == 0, answer.err
    assert "60 nodes, 2 features" in answer.err
    assert len(read(Path("p.csv"))) == NODES + 1


def test_labels_of_another_graph_may_have_new_classes(invoke: Invoke, trained: Path, files: Files) -> None:
    edit(files.nodes, lambda rows: [rows[0], *([*row[:3], "t9"] for row in rows[1:])])
    assert invoke("predict", trained, *other_of(files)).code == 0


def test_missing_columns_of_another_graph_are_required(invoke: Invoke, files: Files) -> None:
    assert invoke("train gap --dataset synthetic/tiny", *PRIVATE, *QUICK, "--out", "t").code == 0
    answer = invoke("predict t", *other_of(files))
    assert answer.code == 2
    assert "Add --id, --source, --target." in answer.err


def test_an_unusable_graph_is_rejected_before_the_privacy_cost(
    invoke: Invoke, trained: Path, files: Files
) -> None:
    records = ["--unit", "node-record", "--epsilon", 4, "--delta", 1e-5, "--no-baseline"]
    assert invoke("train classcode", *files.flags, *records, "--out", "code").code == 0
    another = [*other_of(files)]
    rejections = {"code": invoke("predict code", *another)}
    edit(files.nodes, lambda rows: [[*row[:2], *row[3:]] for row in rows])
    rejections["narrow"] = invoke("predict", trained, *another)
    for words, answer in zip(("use method gap", "no column 'height'"), rejections.values(), strict=True):
        assert answer.code == 2
        (line,) = answer.err.strip().splitlines()  # and no table of the price above it
        assert words in line


@pytest.mark.parametrize("flags", [["gap", "--unsafe-noise-seed", 3], ["gap-paper"]])
def test_a_charge_is_as_valid_as_the_model(invoke: Invoke, files: Files, flags: list[object]) -> None:
    assert invoke("train", *flags, *files.flags, *PRIVATE, *QUICK, "--out", "first").code == 0
    answer = invoke("predict first", *other_of(files), "--json")
    assert answer.json["charged"]["valid"] is False
    assert answer.json["charged"]["deviations"] == answer.json["guarantee"]["deviations"]
    assert all(deviation in answer.err for deviation in answer.json["charged"]["deviations"])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [(KeyboardInterrupt, 130, "Stopped. "), (ZeroDivisionError, 1, "Unexpected error")],
)
def test_an_interrupted_prediction_states_its_charge(
    invoke: Invoke,
    trained: Path,
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    code: int,
    words: str,
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    another = ["predict", trained, *other_of(files)]
    for owner, place, spent in ((gv.GAP, "privacy_cost", False), (TrainedGap, "proba", True)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, place, stop)
            answer = invoke(*another)
        line = answer.err.strip().splitlines()[-1]
        assert (answer.code, answer.out) == (code, "")
        assert words in line
        assert ("was spent and cannot be refunded" in line) is spent
        assert ("No privacy budget was spent." in line) is (code == 130 and not spent)


@pytest.mark.parametrize("name", ["letter.txt/p.csv", "folder.csv"])
def test_predictions_that_cannot_be_written_are_not_charged(
    invoke: Invoke, trained: Path, files: Files, name: str
) -> None:
    Path("letter.txt").write_text("dear")
    Path("folder.csv").mkdir()
    before = recorded()
    answer = invoke("predict", trained, *other_of(files), "--out", name)
    assert (answer.code, recorded()) == (2, before)
    assert "Choose another --out" in answer.err


def test_predictions_need_a_known_suffix(invoke: Invoke, trained: Path) -> None:
    answer = invoke("predict", trained, "--out", "p.xlsx")
    assert answer.code == 2
    assert ".parquet or .csv" in answer.err
