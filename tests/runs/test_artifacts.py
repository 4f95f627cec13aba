import csv
from pathlib import Path

import pytest

from graphveil.errors import ArtifactError, ConfigError
from graphveil.runs.run_folder import RunFolder, default_folder, read_json, write_history

CONFIGURATION = {"method": "gap", "set.epsilon": 1.0}


@pytest.fixture
def locked(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    with folder.locked(CONFIGURATION):
        pass
    return folder


def test_a_folder_that_a_process_has_is_rejected(locked: RunFolder) -> None:
    other = RunFolder(locked.root).locked(CONFIGURATION, resume=True)
    rejected = pytest.raises(ConfigError, match="Another process uses")
    with locked.locked(CONFIGURATION, resume=True), rejected, other:
        pytest.fail("two processes work in it")
    with locked.locked(CONFIGURATION, resume=True):
        assert locked.lock.is_file()


def test_a_new_or_empty_folder_is_accepted(tmp_path: Path) -> None:
    RunFolder(tmp_path).check(CONFIGURATION, resume=False)
    RunFolder(tmp_path / "new").check(CONFIGURATION, resume=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["new", "."])
def test_where_no_run_is_none_is_resumed(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"does not contain a run to resume. Correct --out"):
        RunFolder(tmp_path / name).check(CONFIGURATION, resume=True)


def test_the_lock_records_configuration_and_versions(locked: RunFolder) -> None:
    content = read_json(locked.lock)
    assert content["configuration"] == CONFIGURATION
    assert {"graphveil", "python", "torch", "numpy"} <= set(content["versions"])


def test_resuming_needs_the_same_configuration(locked: RunFolder) -> None:
    locked.check(CONFIGURATION, resume=True)
    with pytest.raises(ConfigError, match="epsilon, hops differ"):
        locked.check({"method": "gap", "set.epsilon": 2.0, "set.hops": 1}, resume=True)
    with pytest.raises(ConfigError, match="--resume"):
        locked.check(CONFIGURATION, resume=False)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "x", "version": 1, "configuration": {}}'])
def test_a_damaged_lock_is_rejected(locked: RunFolder, content: str) -> None:
    locked.lock.write_text(content)
    with pytest.raises(ConfigError, match="damaged"):
        locked.check(CONFIGURATION, resume=True)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ConfigError, match="not an empty folder"):
        RunFolder(tmp_path / "run").check(CONFIGURATION, resume=False)


def test_publishing_moves_a_whole_release_and_drops_the_work(locked: RunFolder) -> None:
    staged = locked.workspace(0) / "release"
    staged.mkdir(parents=True)
    (staged / "model.json").write_text("{}")
    assert not locked.complete
    locked.publish(locked.workspace(0), locked.staged(locked.workspace(0)))
    assert (locked.release / "model.json").is_file()
    assert not locked.work.exists()
    assert not locked.per_node.exists()


def test_what_is_withheld_is_in_place_before_the_release(locked: RunFolder) -> None:
    for name in ("release", "per_node"):
        (locked.workspace(0) / name).mkdir(parents=True)
        (locked.workspace(0) / name / "file").write_text("written by the run")
    digests = locked.staged(locked.workspace(0))
    (locked.workspace(0) / "release" / "file").write_text("changed")
    with pytest.raises(ArtifactError, match="were changed after the run wrote them"):
        locked.publish(locked.workspace(0), digests)
    assert locked.per_node.is_dir() and not locked.release.exists()


def test_publishing_goes_on_where_it_was_killed(locked: RunFolder) -> None:
    locked.per_node.mkdir(parents=True)
    (locked.per_node / "predictions.parquet").write_text("first")
    (locked.workspace(0) / "release").mkdir(parents=True)
    locked.publish(locked.workspace(0), locked.staged(locked.workspace(0)))
    assert locked.release.is_dir()
    assert (locked.per_node / "predictions.parquet").read_text() == "first"


def test_default_folders_are_new() -> None:
    first = default_folder("gap", "twitch/DE")
    assert first.name.startswith("gap-twitch-DE-")
    assert default_folder("gap", "twitch/DE") != first


def test_history_is_csv(tmp_path: Path) -> None:
    write_history(tmp_path / "h.csv", [[0, "mlp", "classifier", 0, 1.5, None, 0.25]])
    with (tmp_path / "h.csv").open(newline="") as file:
        head, row = csv.reader(file)
    assert head[0] == "seed"
    assert row == ["0", "mlp", "classifier", "0", "1.5", "", "0.25"]
