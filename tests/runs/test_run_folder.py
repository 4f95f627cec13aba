"""A run folder whose process was killed holds a run to resume, or none has begun in it."""

import multiprocessing
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from graphveil.errors import ConfigError
from graphveil.runs.run_folder import RunFolder

FORK = multiprocessing.get_context("fork")
CONFIGURATION = {"set.epochs": 2}
WRITES = ("open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "shutil.rmtree")


def make(folder: RunFolder, drop: bool, last: int) -> None:
    """Make a run folder, and drop it; end the process at one of its writes."""
    count = 0

    def hook(event: str, given: tuple[object, ...]) -> None:
        nonlocal count
        if event in WRITES and folder.root.name in str(given[0]):
            count += 1
            if count > last:
                os._exit(9)

    missing = folder.missing
    if not drop:
        sys.addaudithook(hook)
    with folder.locked(CONFIGURATION):
        (folder.work / "data.json").write_text("{}")
        (folder.internal / "receipts.json").write_text("{}")
        if drop:
            sys.addaudithook(hook)
            folder.drop(made=missing)
    os._exit(0)


def usable(folder: RunFolder, *, resume: bool) -> bool:
    with suppress(ConfigError):
        folder.check(CONFIGURATION, resume=resume)
        return True
    return False


@pytest.mark.parametrize("drop", [False, True], ids=["begun", "dropped"])
def test_a_folder_of_a_killed_process_can_be_used_in_one_way(tmp_path: Path, drop: bool) -> None:
    ends = list[bool]()
    for last in range(60):
        folder = RunFolder(tmp_path / f"run-{last}-x")
        child = FORK.Process(target=make, args=(folder, drop, last))
        child.start()
        child.join()
        new, begun = usable(folder, resume=False), usable(folder, resume=True)
        assert new != begun, (last, sorted(tmp_path.rglob("*")))
        ends.append(new)
        with folder.locked(CONFIGURATION, resume=begun):
            assert folder.lock.is_file()
        assert usable(folder, resume=True)
        if child.exitcode == 0:
            break
    assert child.exitcode == 0 and len(ends) > 4
    # Killed early and late: first nothing has begun and then something has, or the other way round.
    assert (ends[0], ends[-1]) == ((False, True) if drop else (True, False))
    assert ends == sorted(ends, reverse=not drop)


def test_folders_with_other_files_are_not_used(tmp_path: Path) -> None:
    for name in ("notes.txt", "internal/notes.txt", "internal/work/data.json"):
        folder = RunFolder(tmp_path / name.replace("/", "-"))
        (folder.root / name).parent.mkdir(parents=True)
        (folder.root / name).write_text("mine")
        assert not usable(folder, resume=False)
        with pytest.raises(ConfigError, match="not an empty folder"):
            folder.check(CONFIGURATION, resume=False)
