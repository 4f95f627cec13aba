"""Null records: records for which a user's module raises contribute nothing, and no exception reveals them.

An exception after the charge would be an exact answer about the record that caused it. A batch that raises is
therefore run again without such records, in the same shapes. The results of all other records are
bit-identical.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
_RAISES = ContextVar("raises", default=False)


@contextmanager
def synthetic_records() -> Iterator[None]:
    """Let exceptions of a module propagate within the context, where no protected record is read."""
    token = _RAISES.set(True)
    try:
        yield
    finally:
        _RAISES.reset(token)


def maskable_exceptions() -> tuple[type[BaseException], ...]:
    """Return the exception types that are masked for a protected record. A keyboard interrupt propagates."""
    return () if _RAISES.get() else (Exception, SystemExit)


def run_masking_failures(
    run: Callable[..., T], records: tuple[Tensor, ...]
) -> tuple[T | None, Tensor | None]:
    """Run a batch; records for which it raises are replaced by another record of the batch.

    A record fails if a batch of copies of it raises, which depends on that record alone.

    Args:
        run: Takes tensors (B, ..), and processes records separately.
        records: The batch.

    Returns:
        The result of ``run``, None if all records fail; and a mask (B) of failed records, None if none fails.

    Raises:
        torch.OutOfMemoryError: If an accelerator has no memory for batches of this size, which is public.

    >>> found, failed = run_masking_failures(torch.linalg.inv, (torch.tensor([[[2.0]], [[0.0]]]),))
    >>> found.flatten().tolist(), failed.tolist()
    ([0.5, 0.5], [False, True])
    """
    try:
        return run(*records), None
    except torch.OutOfMemoryError:
        raise
    except maskable_exceptions():
        pass
    everyone = torch.arange(len(records[0]))
    failed, suspects = torch.zeros(len(everyone), dtype=torch.bool), [everyone]
    while suspects:
        some = suspects.pop()
        if not _fails(run, records, some[everyone % len(some)]):
            continue
        if len(some) > 1:
            suspects += some.chunk(2)
        else:
            failed[some] = True
    if failed.all():
        return None, failed
    other = (~failed).nonzero()[0, 0]
    return run(*(part[torch.where(failed, other, everyone)] for part in records)), failed


def _fails(run: Callable[..., T], records: tuple[Tensor, ...], index: Tensor) -> bool:
    try:
        run(*(part[index] for part in records))
    except maskable_exceptions():
        return True
    return False


def finite_rows(rows: Tensor) -> Tensor:
    """Return the rows with zeros in place of those that are not finite, each by its own values.

    >>> finite_rows(torch.tensor([[1.0, torch.inf], [2.0, 3.0]])).tolist()
    [[0.0, 0.0], [2.0, 3.0]]
    """
    return torch.where(rows.isfinite().all(dim=-1, keepdim=True), rows, 0.0)
