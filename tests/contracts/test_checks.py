"""The shipped release passes every check of `contracts.checks`."""

from collections.abc import Callable

import pytest

from contracts.checks import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_release(check: Callable[[], None]) -> None:
    check()
