"""Faults: concurrent runs, closed or full streams, hostile names, damaged files."""

import errno
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from command import NODES, SECRET, Answer, Files, Invoke, Progress, environment, read, recorded, write

from cli.conftest import Prepare, inside
from graphveil.core.keys import KeyStore
from graphveil.data import tables
from graphveil.data.tables.files import FileSource
from graphveil.errors import ConfigError
from graphveil.runs import experiment, run
from graphveil.runs.run_folder import RunFolder, default_folder
from graphveil.runs.source import Source

PRIVATE = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7", "--set", "epochs=2"]
ESCAPE = "\x1b]0;owned\x07"


@pytest.fixture
def keys(tmp_path: Path) -> Callable[[], list[Path]]:
    """Return the keys of noise and of data that lie around."""
    return lambda: list((tmp_path / "state").rglob("*.key"))


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def one_line(answer: Answer, code: int, words: str) -> None:
    assert answer.code == code, answer.err
    line = answer.err.strip().splitlines()[-1]
    assert line.startswith("graphveil: ")
    assert words in line
    assert "Traceback" not in answer.err


# -- two at once -------------------------------------------------------------------------------------------


def test_two_runs_into_one_folder_are_rejected(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ["train", "gap", *files.flags, *PRIVATE, "--out", "r"]
    other = [*["8" if flag == "1" else flag for flag in base], "--json"]
    first_preview, answers = experiment.preview, []

    def while_the_first_one_reads(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(experiment, "preview", first_preview)
        answers.append(invoke(*other))
        return first_preview(*given, **named)

    monkeypatch.setattr(experiment, "preview", while_the_first_one_reads)
    one_line(invoke(*base), 2, "Another process has started a run in r. Choose another --out")
    assert answers[0].json["epsilon"] == 8
    released = json.loads(Path("r/release/privacy.json").read_text())
    metrics = json.loads(Path("r/internal/metrics.json").read_text())
    assert released["guarantee"]["epsilon"] == metrics["guarantee"]["epsilon"] > 7


def test_one_of_many_concurrent_writers_gets_the_folder(tmp_path: Path) -> None:
    barrier, had, rejected = threading.Barrier(8), [], []

    def writer(number: int) -> None:
        folder = RunFolder(tmp_path / "r")
        folder.check({"seed": number}, resume=False)
        barrier.wait()
        try:
            with folder.locked({"seed": number}):
                had.append(number)
        except ConfigError:
            rejected.append(number)

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(had), len(rejected)) == (1, 7)
    RunFolder(tmp_path / "r").check({"seed": had[0]}, resume=True)


def test_a_running_run_is_not_resumed_by_another_process(
    invoke: Invoke, files: Files, progress: Progress
) -> None:
    base, answers = ["train", "gap", *files.flags, *PRIVATE, "--out", "r"], []

    def meanwhile(stage: str, done: int) -> None:
        if stage == "aggregate" and not answers:
            answers.append(invoke(*base, "--resume"))

    progress.then = meanwhile
    assert invoke(*base).code == 0
    one_line(answers[0], 2, "Another process uses r")


def test_a_run_that_another_process_finished_is_not_run_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r")
    with folder.locked({}):
        folder.release.mkdir()
        folder.metrics.write_text("{}")
    with pytest.raises(ConfigError, match="has finished the run"), folder.locked({}, resume=True):
        pytest.fail("it spent a second time")


def test_default_folders_are_unique() -> None:
    assert len({default_folder("gap", "twitch/DE") for _ in range(50)}) == 50


# -- streams -----------------------------------------------------------------------------------------------


class Filling(io.StringIO):
    """A stream that takes so many writes and then no more."""

    def __init__(self, takes: int, error: int) -> None:
        super().__init__()
        self._left, self._error = takes, error

    def write(self, text: str) -> int:
        self._left -= 1
        if self._left < 0:
            raise OSError(self._error, os.strerror(self._error))
        return super().write(text)


@pytest.mark.parametrize("stream", [None, Filling(0, errno.ENOSPC), Filling(0, errno.EPIPE)])
def test_an_unwritable_output_is_detected_before_anything_is_spent(
    invoke: Invoke, files: Files, stream: io.StringIO | None
) -> None:
    with redirect_stdout(stream):
        answer = invoke("train gap", *files.flags, *PRIVATE, "--json")
    assert (answer.code, recorded()) == (2, [])
    assert "Traceback" not in answer.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(("takes", "flags"), [(1, ["--json"]), (0, [])])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EPIPE])
def test_a_finished_run_is_kept_if_its_output_fails(
    invoke: Invoke, files: Files, takes: int, flags: list[str], error: int
) -> None:
    base = ["train", "gap", *files.flags, *PRIVATE, "--out", "r"]
    with redirect_stdout(Filling(takes, error)):
        answer = invoke(*base, *flags)
    one_line(answer, 1, f"Cannot write to standard output: {os.strerror(error)}. The results are complete")
    assert "in r. Add --resume to print them again." in answer.err
    assert Path("r/release").is_dir()
    assert invoke(*base, "--resume", "--json").json["out"] == "r"


def commands_that_save(files: Files) -> dict[str, list[Any]]:
    """Return commands that write something and then say so, by what they write."""
    people = ["--nodes", files.nodes, "--id", "user"]
    graph = [*people, "--edges", files.edges, "--source", "a", "--target", "b"]
    budget = ["--unit", "undirected-edge", "--epsilon", 1]
    return {
        "released": ["perturb", "edge-rand", *graph, *budget, "--out", "released"],
        "m.csv": ["collect", "randomize", "--protocol", "s.json", *people, "--out", "m.csv"],
        "p.csv": ["predict", "r", "--out", "p.csv"],
        "report.html": ["report", "r"],
    }


def test_saved_results_are_kept_if_the_output_fails(invoke: Invoke, files: Files) -> None:
    assert invoke("collect protocol --eps-x 1 --columns age,height --out s.json").code == 0
    assert invoke("train mlp", *files.flags, "--unit", "none", "--set", "epochs=2", "--out", "r").code == 0
    for name, command in commands_that_save(files).items():
        with redirect_stdout(Filling(1, errno.ENOSPC)):  # which JSON tries before
            one_line(invoke(*command, "--json"), 1, "Cannot write to standard output: No space left")
        assert Path(name).exists(), name


@pytest.mark.parametrize("stream", [None, Filling(0, errno.ENOSPC)])
def test_nothing_is_written_if_json_cannot_be_printed(
    invoke: Invoke, files: Files, stream: io.StringIO | None
) -> None:
    assert invoke("train mlp", *files.flags, "--unit", "none", "--set", "epochs=2", "--out", "r").code == 0
    protocol = ["collect", "protocol", "--eps-x", 1, "--columns", "age", "--out", "s.json"]
    data_set = ["ledger", "init", "people", "--unit", "undirected-edge"]
    for command in (["report", "r"], protocol, data_set):
        with redirect_stdout(stream):
            one_line(invoke(*command, "--json"), 2, "No privacy budget was spent.")
    assert not Path("report.html").exists() and not Path("s.json").exists()
    assert invoke("ledger list --json").json["data_sets"] == []


def test_an_unwritable_output_is_an_error_of_one_line(invoke: Invoke) -> None:
    for stream, why in ((Filling(0, errno.ENOSPC), "No space left on device"), (None, "it is closed")):
        with redirect_stdout(stream):
            one_line(invoke("datasets"), 1, f"Cannot write to standard output: {why}")
            for command in ("--version", "--help", "collect --help"):
                one_line(invoke(command), 1, why)


def test_progress_notes_that_cannot_be_written_are_dropped(invoke: Invoke, files: Files) -> None:
    with redirect_stderr(Filling(0, errno.EPIPE)):
        assert invoke("train gap", *files.flags, *PRIVATE, "--json").json["runs"] == 1


def test_closed_streams_do_not_pass_their_descriptors_to_files() -> None:
    probe = "import os; from graphveil.cli import _prepare_streams as p; p(); assert os.dup(0) > 2"
    shell = f'exec "{sys.executable}" -c "{probe}" >&- 2>&-'
    assert subprocess.run(["sh", "-c", shell], check=False).returncode == 0


# -- errors of the operating system --------------------------------------------------------------------------


def test_a_lack_of_file_descriptors_is_reported(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Source, "load", fail)
    answer = invoke("train gap", *files.flags, *PRIVATE)
    one_line(answer, 1, "Too many open files. Close files, or allow more open files (ulimit -n).")
    assert "Unexpected" not in answer.err


def test_no_home_directory_is_an_error_with_a_fix(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with environment(XDG_STATE_HOME=None):
        one_line(invoke("train gap", *files.flags, *PRIVATE, "--out", "r"), 2, "XDG_STATE_HOME")
    assert not Path("r").exists()


def test_names_that_are_too_long_or_look_like_markup_are_misuse(invoke: Invoke, files: Files) -> None:
    long = "a" * 300
    one_line(invoke("train gap", *files.flags, *PRIVATE, "--out", long), 2, "Choose a shorter --out")
    one_line(invoke("train gap --dataset [/x]", *PRIVATE), 2, "[/x]")
    named = files.nodes.rename(files.nodes.with_name(f"{'n' * 240}.csv"))
    assert invoke("train mlp", *Files(named, files.edges).flags, *PRIVATE).code == 0
    (folder,) = Path("runs").iterdir()
    one_line(invoke("predict", folder, "--out", f"{long}.csv"), 2, "Choose a shorter name.")


# -- hostile names -----------------------------------------------------------------------------------------


def test_control_characters_in_names_are_escaped(invoke: Invoke, files: Files) -> None:
    missing = invoke("train gap", *Files(Path(f"{ESCAPE}.csv"), files.edges).flags, *PRIVATE)
    one_line(missing, 2, "\\x1b]0;owned\\x07")
    named = files.nodes.rename(files.nodes.with_name(f"{ESCAPE}.csv"))
    head, *rows = read(named)
    write(named, [head, *([*row[:3], f"{ESCAPE}:smile:{row[3]}"] for row in rows)])
    answers = [invoke("train gap", *Files(named, files.edges).flags, *PRIVATE, "--out", f"r{ESCAPE}")]
    answers += [invoke(command, f"r{ESCAPE}") for command in ("explain", "predict")]
    for answer in answers:
        assert answer.code == 0, answer.err
        assert "\x1b" not in answer.out + answer.err
    assert "\x1b" not in Path(f"r{ESCAPE}/release/MODEL_CARD.md").read_text()
    assert "\x1b" not in Path(f"r{ESCAPE}/internal/report.html").read_text()


def test_formulas_in_predictions_are_escaped(invoke: Invoke, files: Files) -> None:
    head, *rows = read(files.nodes)
    formula = '=HYPERLINK("http://x","y")'
    write(files.nodes, [head, *([*row[:3], formula + row[3]] for row in rows)])
    assert invoke("train gap", *files.flags, *PRIVATE, "--out", "r").code == 0
    assert invoke("predict r --out p.csv").code == 0
    assert {row[1][:2] for row in read(Path("p.csv"))[1:]} == {"'="}
    assert f"'{formula[:6]}" in invoke("predict r").out
    assert invoke("predict r --json").json["predictions"][0]["prediction"].startswith("=")


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "more noise": lambda record: record["releases"][0].update(noise_std=[1e9]),
    "no noise": lambda record: record["releases"][0].update(noise_std=[]),
    "less sensitive": lambda record: record["releases"][0].update(sensitivity=1e-3),
    "a release less": lambda record: record["releases"].pop(),
    "another kind": lambda record: record["releases"][0].update(kind="label"),
}


@pytest.mark.parametrize("case", EDITS)
def test_explain_rejects_a_table_that_contradicts_the_events(
    invoke: Invoke, trained: Path, case: str
) -> None:
    assert [line["relative_noise"] for line in invoke("explain", trained, "--json").json["releases"]] == [
        pytest.approx(6.6166, rel=1e-4)
    ] * 2
    edited(trained / "release/privacy.json", EDITS[case])
    one_line(invoke("explain", trained), 2, "does not match the events")


# -- letters -----------------------------------------------------------------------------------------------

IN_ASCII = """
import sys
from graphveil.cli import main, train
from graphveil.runs.source import Source
read = Source.load
def named(self, *given):
    graph = read(self, *given)
    return graph.replace(class_names=tuple(f"Gr\\u00f6\\u00dfe {n}" for n in range(graph.num_classes)))
train.DEMO = "synthetic/tiny"
codes = []
for words in sys.argv[1:]:
    words = words.split(" ")
    Source.load = named if words[0] == "demo" else read
    try:
        main(words)
    except SystemExit as stop:
        codes.append(stop.code or 0)
print(codes, file=sys.stderr)
"""


def test_commands_work_in_an_ascii_locale(files: Files, tmp_path: Path) -> None:
    """File names in Unicode, and letters in what is written and printed; all in one process."""
    from pyarrow import csv

    folder = tmp_path / "größe"
    suffixes = (".parquet", ".csv")
    named = Files(*(folder / f"{name}{suffix}" for name, suffix in zip("öü", suffixes, strict=True)))
    for ours, theirs in ((files.nodes, named.nodes), (files.edges, named.edges)):
        tables.write(theirs, csv.read_csv(ours))
    commands = [
        " ".join(["train mlp", *named.flags, "--unit none --set epochs=2 --out größe/r"]),
        *(f"predict größe/r --out größe/p{suffix}" for suffix in suffixes),
        "ledger init own --unit undirected-edge --dataset synthetic/tiny",
        "ledger show größe",
        "demo --out demo",
    ]
    own = str(tmp_path / "own")  # a folder called graphveil in the working one would be taken for the package
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = subprocess.run(
        [sys.executable, "-c", IN_ASCII, *map(os.fsencode, commands)],
        cwd=tmp_path,
        env={**os.environ, **plain, "XDG_STATE_HOME": own, "XDG_DATA_HOME": own},
        capture_output=True,
        check=False,
    )
    assert ended.stderr.splitlines()[-1] == b"[0, 0, 0, 0, 2, 0]", ended.stderr.decode()
    assert b"UTF-8" in ended.stderr and ended.stdout.isascii()
    for suffix in suffixes:
        assert FileSource(folder / f"p{suffix}").read(["node"], {}).num_rows == NODES
    assert "Größe 0" in (tmp_path / "demo/release/MODEL_CARD.md").read_text(encoding="utf-8")
    assert "\u2264" in (tmp_path / "demo/internal/report.html").read_text(encoding="utf-8")


def test_a_file_name_that_is_not_utf8_is_rejected(invoke: Invoke, files: Files) -> None:
    odd = files.nodes.rename(files.nodes.with_name(os.fsdecode(b"n\xff.csv")))
    one_line(invoke("check --nodes", odd, "--edges", files.edges), 2, "is not UTF-8. Rename the file")


# -- logs --------------------------------------------------------------------------------------------------


def test_logs_contain_no_error_messages(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch, progress: Progress
) -> None:
    def fail(*_: object, **__: object) -> None:
        try:
            raise ValueError(SECRET)
        except ValueError as error:
            raise TypeError(f"{SECRET} is no number") from error

    temporary = Path(tempfile.gettempdir())
    before = set(temporary.glob("graphveil-error-*.log"))
    with monkeypatch.context() as patch:
        patch.setattr(Source, "load", fail)
        one_line(invoke("train gap", *files.flags, *PRIVATE), 1, "TypeError. Details: ")
        (found,) = set(temporary.glob("graphveil-error-*.log")) - before
    progress.then = fail
    one_line(invoke("train gap", *files.flags, *PRIVATE, "--out", "r"), 1, "TypeError. Details: ")
    for log in (found, Path("r/internal/error.log")):
        assert SECRET not in log.read_text()
        assert "builtins.ValueError\n\nthen:\n\nTraceback" in log.read_text()
        assert "in fail" in log.read_text()


# -- damaged files -----------------------------------------------------------------------------------------

HUGE = 10**400


@pytest.mark.parametrize("place", ["privacy.json", "model.json"])
def test_a_number_beyond_all_floats_is_rejected(invoke: Invoke, trained: Path, place: str) -> None:
    part = "guarantee" if place == "privacy.json" else "parameters"
    edited(trained / "release" / place, lambda record: record[part].update(epsilon=HUGE))
    for command in ("explain", "predict")[place == "model.json" :]:
        one_line(invoke(command, trained), 2, place)


@pytest.fixture
def halted(invoke: Invoke, prepare: Prepare) -> Iterator[list[Any]]:
    """Flags of a run that was stopped when all but publishing was done."""

    def train(files: Files) -> list[Any]:
        return ["train", "gap", *files.flags, *PRIVATE, "--out", "r"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_summarize", stop)
        folder = prepare("halted", lambda files: [train(files)], code=130)
    with inside(folder):
        yield [*train(Files(folder / "nodes.csv", folder / "edges.csv")), "--resume"]


@pytest.mark.parametrize(
    "name", ["model.json", "predictions.parquet", "aggregates.safetensors", "PRIVACY.md"]
)
def test_a_corrupted_staged_file_is_not_published(invoke: Invoke, halted: list[Any], name: str) -> None:
    path = Path("r", "internal", "work", "run-0", "release", name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    one_line(invoke(*halted), 2, "were changed after the run wrote them")
    assert not Path("r/release").exists()


def fixed(text: str) -> Callable[[str], str]:
    return lambda _: text


@pytest.mark.parametrize("name", ["run-0/record.json", "data.json"])
@pytest.mark.parametrize(
    "damage", [*map(fixed, ("", "[]", "{}")), lambda t: t.replace("1", "2"), lambda t: t[:-9]]
)
def test_damaged_internal_files_are_reported(
    invoke: Invoke, halted: list[Any], name: str, damage: Callable[[str], str]
) -> None:
    path = Path("r/internal/work", name)
    path.write_text(damage(path.read_text()))
    one_line(invoke(*halted), 2, f"{name} is damaged")


def test_corrupted_tensors_are_not_used(invoke: Invoke, files: Files, progress: Progress) -> None:
    flags = ["train", "gap", *files.flags, *PRIVATE[:-1], "epochs=20", "--out", "r"]
    with progress.stopped_at("classifier", 12):
        assert invoke(*flags).code == 130
    method = Path("r", "internal", "work", "run-0", "method")
    for name in ("encoder.safetensors", "release/answer-1.safetensors", "classifier.checkpoint.safetensors"):
        whole = (method / name).read_bytes()
        (method / name).write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        one_line(invoke(*flags, "--resume"), 2, f"{name} is damaged")
        (method / name).write_bytes(whole)
    assert invoke(*flags, "--resume").code == 0


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"test_accuracy": 3}'])
def test_damaged_metrics_of_a_finished_run_are_reported(
    invoke: Invoke, halted: list[Any], content: str
) -> None:
    assert invoke(*halted).code == 0
    Path("r/internal/metrics.json").write_text(content)
    one_line(invoke(*halted), 2, "metrics.json is damaged. The run itself is finished")


class Killed(BaseException):
    """What a signal does to a process, as an exception."""


@pytest.mark.parametrize("moment", ["before saving", "after saving", "before erasing", "after erasing"])
def test_a_killed_run_leaves_no_key(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch, keys: Callable[[], list[Path]], moment: str
) -> None:
    when, verb = moment.split()
    name = {"saving": "save", "erasing": "erase"}[verb]
    real = getattr(KeyStore, name)

    def killed(self: KeyStore, key: Any) -> None:
        if when == "after":
            real(self, key)
        raise Killed

    flags = ["train", "mlp", *files.flags, *PRIVATE, "--out", "r"]
    with monkeypatch.context() as patch:
        patch.setattr(KeyStore, name, killed)
        with pytest.raises(Killed):
            invoke(*flags)
    assert invoke(*flags, "--resume").code == 0
    assert keys() == []
