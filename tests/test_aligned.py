"""Memory that is aligned and used again."""

import gc
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
import torch

from graphveil import _aligned
from graphveil._aligned import aligned

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[_aligned._Kept]:
    kept = _aligned._Kept()
    monkeypatch.setattr(_aligned, "_kept", kept)
    yield kept


def mebibytes(count: int) -> torch.Tensor:
    return aligned(count * MIB, dtype=torch.uint8)


@pytest.mark.parametrize("shape", [(0, 3), (1,), (5, 16), (1 << 10, 1 << 10), ()])
@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.float32, torch.float64])
def test_rows_begin_at_a_line_of_the_cache(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows = aligned(*shape, dtype=dtype)
    assert rows.shape == torch.Size(shape)
    assert rows.dtype == dtype
    assert rows.is_contiguous()
    assert rows.numel() == 0 or rows.data_ptr() % 64 == 0
    assert torch.equal(rows.fill_(7), torch.full(shape, 7, dtype=dtype))


def test_what_nobody_refers_to_is_used_again() -> None:
    first = mebibytes(4)
    place = first.data_ptr()
    del first
    assert mebibytes(4).data_ptr() == place


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor | npt.NDArray[np.uint8]]] = {
    "some rows": lambda rows: rows[1:3],
    "NumPy's": lambda rows: rows.numpy()[:3],
    "columns": lambda rows: rows.T[7],
    "gradients'": lambda rows: rows.detach(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_what_somebody_refers_to_is_not(
    view: Callable[[torch.Tensor], torch.Tensor | npt.NDArray[np.uint8]], nothing_kept: _aligned._Kept
) -> None:
    rows = mebibytes(4).view(4, MIB).fill_(3)
    held = view(rows)
    del rows
    gc.collect()
    assert not nothing_kept._memory
    mebibytes(4).fill_(1)
    assert bool((held == 3).all())
    del held
    assert len(nothing_kept._memory) == 2


@pytest.mark.parametrize(("asked", "again"), [(8, True), (7, True), (6, False), (9, False)])
def test_memory_serves_what_is_nearly_as_large(asked: int, again: bool) -> None:
    first = mebibytes(8)
    place = first.data_ptr()
    del first
    assert (mebibytes(asked).data_ptr() == place) == again


def test_little_of_it_is_kept(nothing_kept: _aligned._Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_aligned, "KEPT", 10 * MIB)
    for count in (4, 5, 6):
        mebibytes(count)
    assert [len(memory) // MIB for memory in nothing_kept._memory] == [6]
    mebibytes(11)
    aligned(100)  # the C library's own business
    assert [len(memory) // MIB for memory in nothing_kept._memory] == [6]


def test_memory_that_another_thread_takes_meanwhile_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = _aligned._Kept()

    class Taken(deque[_aligned.Memory]):
        """Is empty by the time that anybody takes something out."""

        def popleft(self) -> _aligned.Memory:
            self.clear()
            return super().popleft()

    monkeypatch.setattr(_aligned, "KEPT", 2 * MIB)
    kept._memory = Taken([np.empty(2 * MIB, dtype=np.uint8)])
    kept.give(np.empty(2 * MIB, dtype=np.uint8))
    kept._memory = Taken([np.empty(2 * MIB, dtype=np.uint8)])
    assert len(kept.take(2 * MIB)) == 2 * MIB


def test_small_memory_disturbs_no_large_one(nothing_kept: _aligned._Kept) -> None:
    for count in (2, 3):
        mebibytes(count)
    before = [memory.ctypes.data for memory in nothing_kept._memory]
    aligned(100)
    assert [memory.ctypes.data for memory in nothing_kept._memory] == before


def test_threads_never_share_memory() -> None:
    def written(number: int) -> bool:
        for _ in range(50):
            rows = mebibytes(1 + number % 3).fill_(number)
            if not bool((rows == number).all()):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(written, range(8)))
