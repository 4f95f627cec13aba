"""What the system says of the caches, and what is taken where it says nothing that can be read."""

from pathlib import Path

import pytest

from graphveil._util import caches


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ({1: "48K", 2: "2048K", 3: "480M"}, 2 << 20),
        ({1: "32K", 2: "1M"}, 1 << 20),
        ({1: "32K", 3: "8M"}, 1 << 20),
        ({2: "unknown"}, 1 << 20),
        ({2: ""}, 1 << 20),
        ({}, 1 << 20),
    ],
)
def test_the_second_level_is_as_large_as_the_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[int, str], known: int
) -> None:
    for place, (level, size) in enumerate(said.items()):
        folder = tmp_path / f"index{place}"
        folder.mkdir()
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
    monkeypatch.setattr(caches, "_SYSTEM", tmp_path)
    assert caches.second_level.__wrapped__() == known
