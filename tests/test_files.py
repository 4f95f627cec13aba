"""Atomic writes of files and folders, their permissions, and paths from callers."""

import ast
import errno
import os
import resource
from pathlib import Path

import pytest
from syntax import trees, walked

from graphveil._util.files import as_path, atomic_folder, can_create, write_atomic, writing_folder
from graphveil.errors import ConfigError


class Killed(BaseException):
    """An interruption that is no ``Exception``."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_write_atomic_creates_folders_and_replaces_files(tmp_path: Path) -> None:
    write_atomic(tmp_path / "run" / "record.json", b"one")
    write_atomic(tmp_path / "run" / "record.json", b"two")
    assert (tmp_path / "run" / "record.json").read_bytes() == b"two"
    assert names(tmp_path / "run") == ["record.json"]


@pytest.mark.parametrize(
    ("name", "made"), [("new", True), ("some/more/new", True), ("file/new", False), ("x" * 250, False)]
)
def test_can_create_tries_the_name_and_leaves_nothing(tmp_path: Path, name: str, made: bool) -> None:
    (tmp_path / "file").write_text("")
    assert can_create(tmp_path / name) == made
    assert names(tmp_path) == ["file"]
    assert not can_create(Path("/proc/new"))  # where also the superuser cannot


def test_a_full_disk_error_names_the_file(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as failure:
            write_atomic(tmp_path / "record.json", b"new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failure.value.filename == str(tmp_path / "record.json")
    assert names(tmp_path) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "record.json", b"old")
    with pytest.raises(TypeError):
        write_atomic(tmp_path / "record.json", "no bytes")  # type: ignore[arg-type]
    assert (tmp_path / "record.json").read_bytes() == b"old"
    assert names(tmp_path) == ["record.json"]


def test_a_folder_appears_when_it_is_complete_and_replaces_an_old_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with atomic_folder(tmp_path / "release") as work:
            (work / name).write_text(name)
            assert (tmp_path / "release").exists() == (name == "b")
        assert names(tmp_path / "release") == [name] and names(tmp_path) == ["release"]


def test_a_failed_folder_is_removed(tmp_path: Path) -> None:
    with pytest.raises(Killed), atomic_folder(tmp_path / "release") as work:
        (work / "a").write_text("a")
        raise Killed
    assert names(tmp_path) == []


def test_an_interrupted_replacement_restores_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with atomic_folder(tmp_path / "release") as work:
        (work / "a").write_text("a")
    replace, moves = Path.replace, 0

    def die_on_the_second(self: Path, target: Path) -> Path:
        nonlocal moves
        moves += 1
        if moves == 2:
            raise Killed
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", die_on_the_second)
    with pytest.raises(Killed), atomic_folder(tmp_path / "release") as work:
        (work / "b").write_text("b")
    assert names(tmp_path / "release") == ["a"]
    assert names(tmp_path) == ["release"]


def test_folders_are_readable_for_others_unless_they_are_private(tmp_path: Path) -> None:
    for name, private in (("release", False), ("per_node", True)):
        with atomic_folder(tmp_path / name, private=private) as work:
            write_atomic(work / "a", b"a")
            (work / "b").write_text("b")
    release, per_node = (tmp_path / name for name in ("release", "per_node"))
    assert mode(release) == 0o755
    assert {mode(file) for file in release.iterdir()} == {0o644}
    assert mode(per_node) == 0o700


# -- encodings ----


def opens_text(call: ast.Call) -> bool:
    """Whether a call opens a file as text, in an encoding of the locale unless one is given."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if name in ("write_text", "read_text"):
        return True
    if name == "open" and isinstance(call.func, ast.Attribute) and call.args and not modes:
        return False  # of descriptors, or of another object
    return name in ("open", "fdopen") and not any("b" in mode for mode in modes)


def test_every_text_file_is_opened_with_an_encoding() -> None:
    for path, tree in trees().items():
        for call in walked(tree):
            if isinstance(call, ast.Call) and opens_text(call):
                named = {keyword.arg: keyword.value for keyword in call.keywords}
                assert "encoding" in named, f"{path.name}:{call.lineno} leaves the encoding open"


@pytest.mark.parametrize("given", [None, 5, 1.5, b"x", ["x"], "a\0b", "a" * 256, "ok/" + "\u00e9" * 128])
def test_rejects_values_that_are_no_path(given: object) -> None:
    with pytest.raises(ConfigError, match=r"^folder (must be a path|is too long)"):
        as_path(given, "folder")
    assert as_path("runs/" + "a" * 255, "folder") == as_path(Path("runs") / ("a" * 255), "folder")


@pytest.mark.parametrize(
    ("error", "message"),
    [(errno.ENOSPC, "make room"), (errno.EDQUOT, "make room"), (errno.EACCES, "choose another folder")],
)
def test_system_errors_are_converted_with_a_fix(tmp_path: Path, error: int, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"cannot write to .*new \({os.strerror(error)}\); {message}"):  # noqa: SIM117
        with writing_folder(tmp_path / "new"):
            raise OSError(error, os.strerror(error))
