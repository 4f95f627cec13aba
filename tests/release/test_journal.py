import json
import shutil
import stat
from pathlib import Path

import pytest
import torch
from contracts.checks import DiesOnStore, Killed, path, plan_of

from graphveil.core.journal import FolderJournal, MemoryJournal, Record
from graphveil.core.keys import KeyStore, ReleaseKey
from graphveil.core.ledger import Entry, MemoryLedger
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.release import Release
from graphveil.errors import ArtifactError, BudgetError, ReleaseError

ROWS = torch.eye(5, 2)
WRONG_TABLES = dict.fromkeys(["release_id", "nonce", "reproducible", "closed", "plan"], "a") | {
    "descriptors": [],
    "fingerprints": 1,
}
TABLES = json.dumps(WRONG_TABLES).encode()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run" / "internal"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "state"


def opened(
    run: Path, keys: Path, hops: int = 1, journal: FolderJournal | None = None, **more: object
) -> Release:
    budget = more.pop("budget", None) or MemoryLedger()
    journal = journal or FolderJournal(run, KeyStore(keys))
    return Release.open(plan_of(hops), path(), budget=budget, journal=journal, **more)  # type: ignore[arg-type]


def test_the_master_key_is_private_and_outside_the_run(run: Path, keys: Path) -> None:
    release = opened(run, keys)
    release.answer(NeighborSumData(ROWS))
    (key,) = keys.glob("*.key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    master = key.read_bytes()
    assert len(master) == 32
    for file in run.rglob("*"):
        assert master not in file.read_bytes()
        assert master.hex() not in file.read_text(errors="replace")


def test_keys_are_stored_in_the_user_state_directory_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Release.open(plan_of(), path(), budget=MemoryLedger(), journal=FolderJournal(run))
    assert len(list((tmp_path / "state" / "graphveil" / "keys").iterdir())) == 1


def test_the_descriptor_is_on_disk_before_the_first_draw(run: Path, keys: Path) -> None:
    with pytest.raises(Killed):
        Release.open(
            plan_of(), path(), budget=MemoryLedger(), journal=DiesOnStore(run, KeyStore(keys))
        ).answer(NeighborSumData(ROWS))
    record = json.loads((run / "release.json").read_text())
    assert record["closed"] is False
    assert json.loads(record["descriptors"]["0"])["index"] == 0
    assert not list(run.glob("answer-*"))


def test_a_resume_reads_stored_answers_and_draws_the_others(run: Path, keys: Path) -> None:
    first = opened(run, keys, hops=2).answer(NeighborSumData(ROWS))
    resumed = opened(run, keys, hops=2)
    assert torch.equal(resumed.answer(NeighborSumData(ROWS)), first)
    assert not torch.equal(resumed.answer(NeighborSumData(ROWS)), first)
    resumed.close()


def test_a_release_resumed_in_a_new_process_is_recorded_in_its_ledger(run: Path, keys: Path) -> None:
    first, again = MemoryLedger(), MemoryLedger()
    one = opened(run, keys, budget=first)
    two = opened(run, keys, budget=again)
    assert one.release_id == two.release_id
    assert len(first.entries) == len(again.entries) == 1
    opened(run, keys, budget=first)
    assert len(first.entries) == 1


def test_a_rejected_budget_leaves_nothing_to_resume(run: Path, keys: Path) -> None:
    with pytest.raises(BudgetError):
        opened(run, keys, budget=MemoryLedger(epsilon=0.1, delta=1e-5))
    assert not run.exists()
    assert not keys.exists()


def test_a_lost_key_is_a_clear_error(run: Path, keys: Path) -> None:
    opened(run, keys)
    for key in keys.iterdir():
        key.unlink()
    with pytest.raises(ReleaseError, match=r"noise key of release .* is missing.*stays charged.*new folder"):
        opened(run, keys)


class DiesOnErase(KeyStore):
    def erase(self, release_id: str) -> None:
        raise Killed


def test_a_key_left_by_a_run_killed_while_closing_is_erased(run: Path, keys: Path) -> None:
    release = opened(run, keys, journal=FolderJournal(run, DiesOnErase(keys)))
    answer = release.answer(NeighborSumData(ROWS))
    with pytest.raises(Killed):
        release.close()
    assert len(list(keys.glob("*.key"))) == 1
    assert torch.equal(opened(run, keys).answer(NeighborSumData(ROWS)), answer)
    assert not list(keys.iterdir())


def test_a_folder_without_the_key_of_its_fingerprints_recognizes_nothing(run: Path, keys: Path) -> None:
    release = opened(run, keys)
    release.answer(NeighborSumData(ROWS))
    release.close()
    (key,) = run.glob("*.key")
    assert key.stat().st_mode & 0o777 == 0o600
    key.unlink()
    with pytest.raises(ReleaseError, match="recognizes its data is missing"):
        opened(run, keys)


def test_fingerprints_under_two_keys_differ_for_equal_data(run: Path, keys: Path) -> None:
    def fingerprints(folder: Path) -> set[str]:
        opened(folder, keys).answer(NeighborSumData(ROWS))
        return set(json.loads((folder / "release.json").read_text())["fingerprints"].values())

    assert not fingerprints(run) & fingerprints(run.parent / "again")


def test_an_answer_missing_from_a_closed_release_is_never_redrawn(run: Path, keys: Path) -> None:
    release = opened(run, keys)
    release.answer(NeighborSumData(ROWS))
    release.close()
    (run / "answer-0.safetensors").unlink()
    with pytest.raises(ReleaseError, match="finished and its noise key is deleted"):
        opened(run, keys).answer(NeighborSumData(ROWS))


def test_a_closed_release_rejects_another_plan(run: Path, keys: Path) -> None:
    release = opened(run, keys)
    release.answer(NeighborSumData(ROWS))
    release.close()
    with pytest.raises(ReleaseError, match="is rejected"):
        opened(run, keys, hops=2)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"17", b'{"release_id": "a"}', b"\xff\xfe", TABLES])
def test_a_damaged_record_is_a_typed_error(run: Path, keys: Path, content: bytes) -> None:
    opened(run, keys)
    (run / "release.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"release\.json.*damaged"):
        opened(run, keys)


def test_a_damaged_answer_is_a_typed_error(run: Path, keys: Path) -> None:
    opened(run, keys).answer(NeighborSumData(ROWS))
    (run / "answer-0.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ArtifactError, match="damaged"):
        opened(run, keys).answer(NeighborSumData(ROWS))


def test_an_answer_of_another_release_or_place_is_rejected(run: Path, keys: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for folder in (run, other):
        release = opened(folder, keys, hops=2)
        release.answer(NeighborSumData(ROWS))
        release.answer(NeighborSumData(ROWS))
    foreign = (other / "answer-0.safetensors").read_bytes(), (run / "answer-1.safetensors").read_bytes()
    for answer in foreign:
        (run / "answer-0.safetensors").write_bytes(answer)
        with pytest.raises(ArtifactError, match="does not belong to this release"):
            opened(run, keys, hops=2).answer(NeighborSumData(ROWS))


@pytest.mark.parametrize("release_id", ["../../etc/passwd", "a/b", "", "."])
def test_a_hostile_release_id_reaches_no_file(run: Path, keys: Path, release_id: str) -> None:
    opened(run, keys)
    record = json.loads((run / "release.json").read_text())
    (run / "release.json").write_text(json.dumps(record | {"release_id": release_id}))
    with pytest.raises(ReleaseError, match="letters and digits"):
        opened(run, keys)


def test_a_journal_in_memory_serves_one_release() -> None:
    journal = MemoryJournal()
    Release.open(plan_of(2), path(), budget=MemoryLedger(), journal=journal).answer(NeighborSumData(ROWS))
    with pytest.raises(ReleaseError, match="another release"):
        Release.open(plan_of(2), path(), budget=MemoryLedger(), journal=journal)


def test_a_journals_repr_shows_no_descriptor() -> None:
    journal = MemoryJournal()
    Release.open(plan_of(), path(), budget=MemoryLedger(), journal=journal).answer(NeighborSumData(ROWS))
    assert repr(journal) == "MemoryJournal()"


class DyingJournal(FolderJournal):
    when = ""

    def begin(self, key: ReleaseKey, plan: Record) -> None:
        if self.when != "before":
            super().begin(key, plan)
        if self.when:
            raise Killed


class DyingLedger(MemoryLedger):
    when = ""

    def record(self, entry: Entry) -> None:
        if self.when != "before":
            super().record(entry)
        if self.when:
            raise Killed


@pytest.mark.parametrize("step", ["begin", "record"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_release_interrupted_while_charging_is_charged_once(
    run: Path, keys: Path, step: str, when: str
) -> None:
    budget, journal = DyingLedger(), DyingJournal(run, KeyStore(keys))
    dying = journal if step == "begin" else budget
    dying.when = when
    with pytest.raises(Killed):
        opened(run, keys, journal=journal, budget=budget)
    dying.when = ""
    opened(run, keys, budget=budget).answer(NeighborSumData(ROWS))
    assert len(budget.entries) == 1


def test_a_copied_folder_answers_no_query_with_other_inputs(run: Path, keys: Path) -> None:
    """One entry in the ledger, one input for each query, in whichever copy it is answered first."""
    budget = MemoryLedger()
    opened(run, keys, hops=2, budget=budget)
    copies = [run.with_name(name) for name in ("one", "two", "three")]
    for copy in copies:
        shutil.copytree(run, copy)
    first = opened(copies[0], keys, hops=2, budget=budget)
    answer = first.answer(NeighborSumData(ROWS))
    with pytest.raises(ReleaseError, match="another copy of this folder"):
        opened(copies[1], keys, hops=2, budget=budget).answer(NeighborSumData(ROWS.flip(0)))
    again = opened(copies[2], keys, hops=2, budget=budget)
    assert torch.equal(again.answer(NeighborSumData(ROWS)), answer)
    again.answer(NeighborSumData(ROWS))
    with pytest.raises(ReleaseError, match="another copy of this folder"):
        first.answer(NeighborSumData(ROWS.flip(0)))
    assert len(budget.entries) == 1
    again.close()
    assert not list(keys.iterdir())
    with pytest.raises(ReleaseError, match="is missing"):
        opened(copies[1], keys, hops=2, budget=budget)
