"""Damaged run folders end in an error of ours, whatever command reads them."""

import json
import random
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
from command import Answer, Files, Invoke, environment

from graphveil import errors

GAP = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7", "--no-baseline", "--set", "epochs=1"]
OURS = {name for name in vars(errors) if name.endswith("Error")} | {"UsageError"}
VALUES = (None, "", "x", 0, -1, 1.5, 1e400, True, [], {}, [[]], [{}], {"x": 1}, "\ud800", 1 << 70)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("explain", "RUN"),
    ("predict", "RUN"),
    ("ledger", "check-runs", "RUN"),
    ("report", "RUN", "--out", "report.html"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with receipts, a prediction of another graph with its own, and the ledger beside it."""
    from graphveil.cli import main

    folder = tmp_path_factory.mktemp("run")
    files = Files.written(folder)
    with environment(GRAPHVEIL_LEDGER=str(folder / "ledger.sqlite")), chdir(folder):
        for words in (
            ["train", "gap", *files.flags, *GAP, "--out", "run"],
            ["predict", "run", "--nodes", str(files.nodes), "--edges", _other(files), "--out", "other.csv"],
        ):
            with pytest.raises(SystemExit) as stop:
                main(words)
            assert not stop.value.code
    return folder


def _other(files: Files) -> str:
    fewer = files.edges.with_name("fewer.csv")
    fewer.write_text("".join(files.edges.read_text().splitlines(keepends=True)[:-5]))
    return str(fewer)


def texts(folder: Path) -> list[Path]:
    return sorted((folder / "run").rglob("*.json"))


def bits(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 4))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def values(path: Path, rng: random.Random) -> None:
    """Put another value at one place of the object, at any depth."""
    whole = json.loads(path.read_bytes())
    places: list[tuple[object, object]] = []
    todo: list[object] = [whole]
    while todo:
        one = todo.pop()
        if isinstance(one, dict | list):
            keys = list(one) if isinstance(one, dict) else range(len(one))
            places += [(one, key) for key in keys]
            todo += [one[key] for key in keys]
    if not places:
        return
    where, key = rng.choice(places)
    if rng.random() < 0.3:
        del where[key]  # type: ignore[attr-defined]  # of a list or an object
    else:
        where[key] = rng.choice(VALUES)  # type: ignore[index]  # of a list or an object
    path.write_text(json.dumps(whole))


def another(path: Path, rng: random.Random) -> None:
    path.write_text(rng.choice(("", "[]", "null", "1", "{}", "[" * 3000, '{"receipts": [1]}', "NaN", "\x00")))


KINDS: tuple[Callable[[Path, random.Random], None], ...] = (bits, cut, values, another)
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 60))]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_run_folder_ends_in_an_error_of_ours(
    run: Path, invoke: Invoke, tmp_path: Path, seed: int, kind: Callable[[Path, random.Random], None]
) -> None:
    rng = random.Random(f"{kind.__name__} {seed}")
    for number in range(4):
        folder = tmp_path / str(number)
        shutil.copytree(run / "run", folder / "run")
        damaged = rng.choice(texts(folder))
        kind(damaged, rng)
        for command in COMMANDS:
            words = [str(folder / "run") if word == "RUN" else word for word in command]
            with environment(GRAPHVEIL_LEDGER=str(run / "ledger.sqlite")):
                reported = invoke(*words, "--json")
            where = f"{' '.join(command)} with {damaged.relative_to(folder)}: {damaged.read_bytes()[:300]!r}"
            assert reported.code in (0, 1, 2), where
            if reported.code and not _known(reported):
                pytest.fail(f"{reported.err} {where}")
        (Path("report.html")).unlink(missing_ok=True)


def _known(reported: Answer) -> bool:
    found = json.loads(reported.out.splitlines()[-1])
    return "error" not in found or found["error"]["kind"] in OURS
