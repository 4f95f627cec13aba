"""Every example of the command-line reference runs as printed, in a folder that has the files it names."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow
PAGES = Path(__file__).parents[2] / "docs/reference/cli"
TABLES = "--nodes customers.csv --edges calls.csv --id user --label plan --source a --target b"
NEW = "--nodes new.csv --edges new_edges.csv --id user --source a --target b"
SETUP = (
    "ledger init crm --unit undirected-edge --epsilon 4 --delta 1e-6",
    f"train classcode {TABLES} --unit undirected-edge --epsilon 1 --delta 1e-7 --ledger crm --out runs/first",
    f"train gap {TABLES} --unit undirected-edge --epsilon 1 --delta 1e-7 --ledger crm --out runs/second",
    "train lpgnn --dataset synthetic/tiny --unit local-attributes --set eps_x=4 --set eps_y=2 "
    "--set labels=rr --out runs/local",
    "train links --dataset synthetic/demo --unit undirected-edge --epsilon 1 --out runs/links",
    "perturb edge-rand --dataset synthetic/demo --unit undirected-edge --epsilon 4 --out noisy",
    "collect protocol --columns age,visits --high 100 --classes yes,no --eps-x 1 --eps-y 1 --out survey.json",
    "collect randomize --protocol survey.json --nodes own.csv --id user --label plan --out reports.csv",
    "keys keys.json",
    f"ledger init users --unit undirected-edge --epsilon 4 --delta 1e-6 {NEW}",
    "ledger init users --unit node-record --epsilon 8 --delta 1e-6",
    "ledger backup backup.sqlite",
)
CREATED = {"collect protocol": "survey.json", "keys": "keys.json", "ledger backup": "backup.sqlite"}


def examples() -> Iterator[str]:
    """Yield the examples of the reference pages, without ``graphveil``."""
    for page in sorted(PAGES.glob("*.md")):
        for block in re.findall(r"```\w*\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("$ graphveil ") and "[OPTIONS]" not in line:
                    yield " ".join(line.removeprefix("$ graphveil ").split())


def run(command: str, folder: Path) -> subprocess.Popen[str]:
    """Start a command in a folder that also holds its user's files."""
    return subprocess.Popen(
        [sys.executable, "-m", "graphveil", *shlex.split(command)],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name != "GRAPHVEIL_LEDGER"},
            "XDG_STATE_HOME": str(folder / "home"),
            "XDG_DATA_HOME": str(folder / "home"),
            "COLUMNS": "100",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if command.endswith("--json") else subprocess.STDOUT,
        text=True,
    )


def write_tables(folder: Path) -> None:
    """Write the node and edge tables that the examples name."""
    random = np.random.default_rng(0)
    users, others, customers = ([f"{letter}{number}" for number in range(200)] for letter in "uvc")
    plan = ["yes" if number < 100 else "no" for number in range(200)]
    age, visits = random.integers(18, 90, 200), random.integers(0, 100, 200)
    pairs = {tuple(sorted(random.choice(200, 2, replace=False))) for _ in range(800)}
    tables = {
        "nodes.csv": {"user": users, "plan": plan, "age": age.tolist(), "visits": visits.tolist()},
        "edges.csv": {"a": [users[a] for a, _ in pairs], "b": [users[b] for _, b in pairs]},
        "customers.csv": {"user": customers, "plan": plan, "age": age.tolist(), "visits": visits.tolist()},
        "calls.csv": {"a": [customers[a] for a, _ in pairs], "b": [customers[b] for _, b in pairs]},
        "new.csv": {"user": others, "age": age.tolist(), "visits": visits.tolist()},
        "new_edges.csv": {"a": others[:-1], "b": others[1:]},
    }
    for name, columns in tables.items():
        with (folder / name).open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(columns)
            rows.writerows(zip(*columns.values(), strict=True))
    shutil.copy(folder / "nodes.csv", folder / "own.csv")
    pq.write_table(pa.table(tables["nodes.csv"]), folder / "nodes.parquet")
    pq.write_table(pa.table(tables["edges.csv"]), folder / "part-0.parquet")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with tables, runs, a protocol, reports, keys and a ledger."""
    folder = tmp_path_factory.mktemp("prepared")
    write_tables(folder)
    for command in SETUP:
        process = run(command, folder)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, f"{command}\n{output}"
    return folder


def test_the_reference_has_examples() -> None:
    assert len(list(examples())) >= 70


@pytest.mark.parametrize("command", list(examples()))
def test_an_example_of_the_reference_runs(command: str, prepared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(prepared, folder)
    for name in re.findall(r"--out (\S+)", command):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        elif name != "survey.json":
            (folder / name).unlink(missing_ok=True)
    for start, name in CREATED.items():
        if command.startswith(start):
            (folder / name).unlink()
    if command.startswith("ledger init"):
        shutil.rmtree(folder / "home")
    with run(command, folder) as process:
        if command.startswith("serve"):
            assert process.stdout is not None
            output = next(line for line in process.stdout if "http://" in line)
            process.send_signal(signal.SIGINT)
        else:
            output = process.communicate(timeout=1200)[0]
        process.wait(timeout=60)
    assert process.returncode == 0, output
    if command.endswith("--json"):
        json.loads(output)
