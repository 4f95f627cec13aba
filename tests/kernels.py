"""What a machine without the C extension computes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from graphveil.core.noise import _kernels


@contextmanager
def no_kernels() -> Iterator[None]:
    """Compute without the C extension inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_kernels, "_native", None)
        yield
