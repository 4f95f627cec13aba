"""Memory that is aligned and used again."""

import gc
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphveil import _aligned
from graphveil._aligned import aligned

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[_aligned._MemoryPool]:
    kept = _aligned._MemoryPool()
    monkeypatch.setattr(_aligned, "_pool", kept)
    yield kept


def sizes(kept: _aligned._MemoryPool) -> list[int]:
    """Return how many mebibytes the kept pieces have."""
    kept._gather()
    return sorted(len(memory) // MIB for memory in kept._memory)


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
    view: Callable[[torch.Tensor], torch.Tensor | npt.NDArray[np.uint8]], nothing_kept: _aligned._MemoryPool
) -> None:
    rows = mebibytes(4).view(4, MIB).fill_(3)
    held = view(rows)
    del rows
    gc.collect()
    assert not sizes(nothing_kept)
    mebibytes(4).fill_(1)
    assert bool((held == 3).all())
    del held
    assert sizes(nothing_kept) == [4, 4]


@pytest.mark.parametrize(("asked", "again"), [(8, True), (7, True), (6, False), (9, False)])
def test_memory_serves_what_is_nearly_as_large(
    asked: int, again: bool, nothing_kept: _aligned._MemoryPool
) -> None:
    mebibytes(8)
    rows = mebibytes(asked)
    assert rows.numel() == asked * MIB
    assert nothing_kept._lent // MIB == (8 if again else asked)


def test_memory_of_a_former_task_goes_and_that_of_turns_stays(nothing_kept: _aligned._MemoryPool) -> None:
    held = [mebibytes(count) for count in (4, 5, 20)]
    for _ in range(3):
        del held[0]
    aligned(100)  # the C library's own business
    assert sizes(nothing_kept) == [4, 5, 20]
    held.append(mebibytes(12))  # 41 would be held, and 43 may be
    assert sizes(nothing_kept) == [4, 5, 20]
    held.append(mebibytes(8))  # 49: the least that is enough goes, neither 4 nor 5
    assert sizes(nothing_kept) == [4, 5]


@given(st.lists(st.tuples(st.integers(2, 40), st.integers(0, 5)), max_size=40))
def test_what_is_kept_and_used_is_bounded_by_what_was_used_at_one_time(
    steps: list[tuple[int, int]],
) -> None:
    kept, lent, most = _aligned._MemoryPool(), list[_aligned.Memory](), 0
    for size, ended in steps:
        lent.append(kept.take(size * MIB))
        most = max(most, sum(map(len, lent)))
        assert sum(map(len, [*lent, *kept._memory])) <= 1.5 * most
        for _ in range(min(ended, len(lent))):
            kept.give(lent.pop(0))


def test_the_system_may_take_what_is_large_until_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    known = _aligned._madvise()

    def madvise(start: int, size: int, advice: int) -> int:
        told.append((start, size))
        return known(start, size, advice) if known else 0

    monkeypatch.setattr(_aligned, "_madvise", lambda: madvise)
    rows = mebibytes(40).fill_(1)
    begin = rows.data_ptr()
    del rows
    ((start, size),) = told
    assert start % (2 * MIB) == size % (2 * MIB) == 0  # whole pages, and none of a neighbor's
    assert begin <= start + 64 and start + size <= begin + 41 * MIB and size >= 36 * MIB
    rows = mebibytes(40)
    assert rows.data_ptr() == begin
    assert bool((rows.fill_(3) == 3).all())
    mebibytes(8)
    assert len(told) == 1


@pytest.mark.parametrize("system", [None, lambda *_: -1], ids=["has no such call", "refuses"])
def test_where_the_system_cannot_take_it_large_memory_is_not_kept(
    system: Callable[..., int] | None, nothing_kept: _aligned._MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_aligned, "_madvise", lambda: system)
    for count in (40, 8):
        mebibytes(count)
    assert sizes(nothing_kept) == [8]


def test_what_ends_while_memory_is_taken_waits(nothing_kept: _aligned._MemoryPool) -> None:
    held = [mebibytes(4)]

    class Ends(deque[tuple[int, _aligned.Memory | None]]):
        """Something ends within the line that looks whether something has."""

        def __len__(self) -> int:
            held.clear()
            return super().__len__()

    nothing_kept._given = Ends()
    place = held[0].data_ptr()
    assert mebibytes(4).data_ptr() == place


def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have(nothing_kept: _aligned._MemoryPool) -> None:
    with nothing_kept._lock, ThreadPoolExecutor(1) as pool:
        nothing_kept.renew()  # as after a fork
        pool.submit(mebibytes, 2).result(timeout=300)


def test_threads_never_share_memory() -> None:
    def written(number: int) -> bool:
        for _ in range(50):
            rows = mebibytes(1 + number % 3).fill_(number)
            if not bool((rows == number).all()):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(written, range(8)))
