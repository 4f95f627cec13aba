"""Files that a resumed run goes on from: to the last bit, or rejected."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from graphveil._util.files import load_checked, save_checked
from graphveil.errors import ArtifactError

TENSORS = {
    "rows": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),
    "mask": torch.tensor([True, False]),
    "count": torch.tensor(7),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "none": torch.zeros(0, 4),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_checked(tmp_path / "state.safetensors", TENSORS, {"of": "größe"})
    return tmp_path / "state.safetensors"


def test_what_is_read_is_what_was_written(path: Path) -> None:
    tensors, words = load_checked(path)
    assert words == {"of": "größe"}
    assert {name: (value.dtype, value.tolist()) for name, value in tensors.items()} == {
        name: (value.dtype, value.tolist()) for name, value in TENSORS.items()
    }


def test_no_bit_may_flip(path: Path) -> None:
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            read = load_checked(path)
        except ArtifactError:
            continue
        assert str(read) == str(load_checked_bytes(path, whole)), place  # a blank of the header


def load_checked_bytes(path: Path, content: bytes) -> object:
    path.write_bytes(content)
    return load_checked(path)


@pytest.mark.parametrize("content", [b"", b"[1]", save(TENSORS), save(TENSORS, {"sha256": "0" * 64})])
def test_other_files_are_rejected(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="is damaged"):
        load_checked(path)


def test_a_file_that_is_cut_is_rejected(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match="is damaged"):
        load_checked(path)
