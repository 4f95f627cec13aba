"""Runs that several tests begin with: made once, and put back as they were for each test."""

import io
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from command import PRIVATE, QUICK, Files, Invoke, environment

Commands = Callable[[Files], Sequence[Sequence[object]]]
Prepare = Callable[..., Path]


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder that has its own ledger and state."""
    ledger, state = str(folder / "ledger.sqlite"), str(folder / "state")
    with environment(GRAPHVEIL_LEDGER=ledger, XDG_STATE_HOME=state), chdir(folder / "here"):
        yield


@pytest.fixture(scope="session")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """Return what gives a folder with two tables in which commands have run; they run once a session.

    A run folder names its ledger by its path, so each test finds the folder at the same place.
    """
    from graphveil.cli import main

    base = tmp_path_factory.mktemp("prepared")

    def prepared(name: str, commands: Commands, *, code: int = 0) -> Path:
        folder, kept = base / name, base / f"{name} kept"
        if kept.exists():
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            return folder
        (folder / "here").mkdir(parents=True)
        with inside(folder), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as printed:
            for words in commands(Files.written(folder)):
                with pytest.raises(SystemExit) as stop:
                    main([*str(words[0]).split(), *map(str, words[1:])])
                assert (stop.value.code or 0) == code, printed.getvalue()
        shutil.copytree(folder, kept)
        return folder

    return prepared


@pytest.fixture
def trained(invoke: Invoke, prepare: Prepare) -> Iterator[Path]:
    """A finished run of GAP."""
    train = ["--out", "first"]
    with inside(prepare("gap", lambda files: [["train", "gap", *files.flags, *PRIVATE, *QUICK, *train]])):
        yield Path("first")
