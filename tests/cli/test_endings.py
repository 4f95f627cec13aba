"""How commands end: full disks after a charge, signals, missing values, existing files, modes."""

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Files, Invoke, other_of

from cli.conftest import Prepare, inside
from graphveil import __main__
from graphveil._util import process
from graphveil.ledger import DataSetLedger

PRIVATE = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7", "--set", "epochs=2"]
SURVEY = ["--eps-x", 6, "--columns", "age,height", "--low", -10, "--high", "10,20", "--eps-y", 2]


@pytest.fixture
def prepared(invoke: Invoke, prepare: Prepare) -> Iterator[dict[str, list[object]]]:
    """Return commands that charge a ledger and write, and leave what they read."""
    nodes = ["--protocol", "s.json", "--id", "user", "--label", "team"]
    folder = prepare(
        "charging",
        lambda files: [
            ["collect", "protocol", *SURVEY, "--classes", "t0,t1,t2", "--out", "s.json"],
            ["collect", "randomize", *nodes, "--nodes", files.nodes, "--out", "m.csv"],
            ["ledger", "init", "people", "--unit", "local-attributes"],
            ["train", "gap", *files.flags, *PRIVATE, "--out", "run"],
        ],
    )
    files = Files(folder / "nodes.csv", folder / "edges.csv")
    received = ["--protocol", "s.json", "--reports", "m.csv", "--id", "user", "--ledger", "people"]
    ends = ["--edges", files.edges, "--source", "a", "--target", "b"]
    columns = ["--id", "user", "--source", "a", "--target", "b"]
    tables = ["--nodes", files.nodes, "--edges", files.edges, *columns]
    answer = ["collect", "randomize", *nodes, "--nodes", files.nodes]
    with inside(folder):
        yield {
            "answer": [*answer, "--out", "again.csv", "--ledger", "people"],
            "decode": ["collect", "decode", *received, "--out", "nodes.parquet"],
            "learn": ["collect", "learn", *received, *ends, "--out", "model", "--set", "epochs=1"],
            "perturb": ["perturb", "edge-rand", *tables, *PRIVATE[:4], "--out", "graph"],
            "predict": ["predict", "run", *other_of(files), "--out", "p.csv"],
            "train": ["train", "gap", *files.flags, *PRIVATE, "--out", "second"],
            "sweep": ["sweep", "gap", *files.flags, *PRIVATE, "--out", "grid"],
        }


@pytest.mark.parametrize("name", ["answer", "decode", "learn", "perturb", "predict", "train", "sweep"])
def test_a_full_disk_after_the_charge_is_a_failure(
    name: str, invoke: Invoke, prepared: dict[str, list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = prepared[name]
    charged: list[str] = []
    commit, fsync = DataSetLedger.commit, os.fsync

    def committed(self: DataSetLedger, release: str) -> None:
        commit(self, release)
        charged.append(release)

    def full(handle: int) -> None:
        if charged:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(DataSetLedger, "commit", committed)
    monkeypatch.setattr(os, "fsync", full)
    answer = invoke(*command, "--json")
    assert charged
    assert answer.code == answer.json["error"]["exit_code"] == 1, answer.err
    reported = answer.err.strip().splitlines()[-1]
    assert "was spent and cannot be refunded" in reported or "--resume" in reported
    assert "No privacy budget was spent" not in reported


@pytest.mark.parametrize("name", ["answer", "decode", "learn", "perturb", "predict", "train", "sweep"])
def test_existing_files_are_never_overwritten(
    name: str, invoke: Invoke, prepared: dict[str, list[object]]
) -> None:
    command = prepared[name]
    out = Path(str(command[command.index("--out") + 1]))
    out.write_text("precious")
    answer = invoke(*command)
    assert (answer.code, out.read_bytes()) == (2, b"precious")


WITHOUT_VALUE = {
    "purpose": ["collect", "protocol", "--purpose", "--json"],
    "reason": ["ledger", "raise", "people", "--reason", "--json"],
    "out": ["train", "gap", "--out", "--json"],
    "subject": ["serve", "--subject", "--json"],
    "keys": ["keys", "--subject", "--json"],
    "set": ["train", "gap", "--set", "--resume"],
    "short help": ["train", "gap", "--out", "-h"],
    "unknown": ["train", "gap", "--ledger", "--jsn"],
    "epsilon": ["perturb", "edge-rand", "--epsilon", "--json"],
}


@pytest.mark.parametrize("case", WITHOUT_VALUE)
def test_an_option_is_never_read_as_a_value(case: str, invoke: Invoke) -> None:
    answer = invoke(*WITHOUT_VALUE[case])
    assert (answer.code, list(Path().iterdir())) == (2, [])
    assert "needs a value" in answer.err or "No such option" in answer.err


def test_a_value_may_begin_with_dashes_after_an_equals_sign_or_be_negative(invoke: Invoke) -> None:
    made = invoke("collect protocol", *SURVEY, "--classes", 3, "--purpose=--json", "--out", "s.json")
    assert made.code == 0 and "--json" in Path("s.json").read_text()


EMPTY_ITEMS = {
    "methods": ["sweep", ","],
    "a method": ["sweep", "gap,,mlp"],
    "budgets": ["sweep", "gap", "--epsilon", ","],
    "a budget": ["sweep", "gap", "--epsilon", "1,"],
    "no budget": ["sweep", "gap", "--epsilon", ""],
    "settings": ["sweep", "gap", "--epsilon", "1", "--set", "hops=1,,2"],
    "data sets": ["reproduce", "gap:table1", "--datasets", ","],
    "places": ["reproduce", "gap:table1", "--at", "1,,2"],
    "columns": ["collect", "protocol", "--eps-x", "1", "--columns", "a,,b"],
    "bounds": ["collect", "protocol", "--eps-x", "1", "--columns", "a,b", "--low", ","],
    "classes": ["collect", "protocol", "--eps-y", "1", "--classes", "a,,b"],
    "layers": ["train", "mlp", "--unit", "none", "--set", "theta=0.5,,0.5"],
}


@pytest.mark.parametrize("case", EMPTY_ITEMS)
def test_empty_items_of_lists_are_rejected(case: str, invoke: Invoke) -> None:
    out = ["--out", "new"] if EMPTY_ITEMS[case][0] in ("sweep", "reproduce") else ["--out", "s.json"]
    data = ["--dataset", "synthetic/tiny"] if EMPTY_ITEMS[case][0] in ("sweep", "train") else []
    answer = invoke(*EMPTY_ITEMS[case], *data, *out)
    assert (answer.code, list(Path().glob("[ns]*"))) == (2, [])


@pytest.mark.parametrize("mechanism", ["edge-rand", "lap-graph", "arr", "priv-hrg"])
@pytest.mark.parametrize("epsilon", ["1e300", "700", "100", "37"])
def test_a_budget_that_protects_nothing_is_rejected(mechanism: str, epsilon: str, invoke: Invoke) -> None:
    data = ["--dataset", "synthetic/tiny", "--unit", "undirected-edge", "--out", "graph"]
    answer = invoke("perturb", mechanism, *data, "--epsilon", epsilon)
    assert answer.code == 2 and "gives no protection" in answer.err and not Path("graph").exists()


def test_a_budget_that_reveals_almost_every_edge_is_marked(invoke: Invoke) -> None:
    data = ["--dataset", "synthetic/tiny", "--unit", "undirected-edge"]
    answer = invoke("perturb edge-rand", *data, "--epsilon", "20", "--out", "graph")
    assert answer.code == 0 and "not protected in practice" in answer.err
    page = Path("graph/RELEASED.md").read_text()
    assert "not protected in practice" in page and "are not the true edges" not in page
    invoke("perturb edge-rand", *data, "--epsilon", "1", "--out", "other")
    assert "not protected in practice" not in Path("other/RELEASED.md").read_text()


def test_no_number_is_printed_with_hundreds_of_digits(invoke: Invoke) -> None:
    answer = invoke("collect protocol --eps-x 1e300 --dim 2 --eps-y 1e-9 --classes 3 --out s.json")
    assert "0" * 20 not in answer.out + answer.err and "00" * 20 not in answer.out


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_internal_files_are_private_and_no_file_is_writable_for_others(
    mask: int, invoke: Invoke, files: Files
) -> None:
    before = os.umask(mask)
    try:
        for arguments in (
            ["train", "gap", *files.flags, *PRIVATE, "--out", "runs/a"],
            ["predict", "runs/a", *other_of(files), "--out", "p.csv"],
            ["audit", "runs/a", "--pairs", "2"],
            ["attack", "linkteller", "runs/a", "--count", "60"],
            ["sweep", "mlp", *files.flags, *PRIVATE, "--out", "grid"],
            [
                "perturb",
                "edge-rand",
                *files.flags[:4],
                "--id",
                "user",
                "--source",
                "a",
                "--target",
                "b",
                *PRIVATE[:4],
                "--out",
                "new/graph",
            ],
            ["report", "runs/a", "--out", "pages/report.html"],
        ):
            answer = invoke(*arguments)
            assert answer.code == 0, answer.err
    finally:
        os.umask(before)
    modes = {
        path: stat.S_IMODE(path.stat().st_mode)
        for top in ("runs", "grid", "new", "pages")
        for path in [Path(top), *Path(top).rglob("*")]
    }
    assert not [path for path, mode in modes.items() if mode & 0o022]
    internal = {path: mode for path, mode in modes.items() if "internal" in path.parts}
    assert Path("runs/a/internal/graph_fingerprint.json") in internal
    assert {oct(mode) for path, mode in internal.items() if path.is_file()} == {"0o600"}
    assert {oct(mode) for path, mode in internal.items() if path.is_dir()} == {"0o700"}
    public = {
        mode
        for path, mode in modes.items()
        if path.is_file() and {"release", "graph"} & set(path.parts) and "internal" not in path.parts
    }
    assert public == {0o644 & ~mask}


def test_a_rejected_run_leaves_no_folder(invoke: Invoke, files: Files) -> None:
    for command in (
        [
            "reproduce",
            "gap:table1",
            "--datasets",
            "flickr_mir",
            "--root",
            "nowhere",
            "--runs",
            "1",
            "--jobs",
            "1",
        ],
        ["train", "gap", *files.flags, *PRIVATE[:4], "--delta", "0.5"],
        ["sweep", "gap", *files.flags, *PRIVATE[:4], "--delta", "0.5", "--out", "a/b"],
    ):
        assert invoke(*command).code == 2
        assert not {"reproduce", "runs", "a"} & {path.name for path in Path().iterdir()}


@pytest.mark.parametrize("command", ["--help >&-", "train --help >/dev/full", "datasets >/dev/full"])
def test_an_output_that_cannot_be_written_is_a_failure(command: str) -> None:
    command = f'exec "{sys.executable}" -m graphveil {command}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_ends_a_command_with_one_line_and_its_code(
    number: signal.Signals,
    code: int,
    files: Files,
    invoke: Invoke,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The run stops itself once it is charged, so that no moment depends on the machine."""
    command, commit = ["train", "gap", *files.flags, *PRIVATE, "--out", "run"], DataSetLedger.commit

    def stopping(self: DataSetLedger, release: str) -> None:
        commit(self, release)
        signal.raise_signal(number)

    before = signal.signal(number, signal.SIG_DFL)  # a shell's nohup would leave it ignored
    try:
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as stop:
            patch.setattr(DataSetLedger, "commit", stopping)
            patch.setattr(process, "_received", None)
            patch.setattr(sys, "argv", ["graphveil", *command])
            __main__.main()
    finally:
        signal.signal(number, before)
    printed = capsys.readouterr().err
    reported = [line for line in printed.splitlines() if line.startswith("graphveil: ")]
    assert (stop.value.code, len(reported)) == (code, 1), printed
    assert "Stopped. " in reported[0] and "--resume" in reported[0]
    assert invoke(*command, "--resume").code == 0
