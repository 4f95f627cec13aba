"""Every check passes on the shipped mechanism, and every seeded bug fails the check that is there for it."""

from collections.abc import Callable

import pytest
import torch

from contracts.bugs import BUGS, Bug, table
from contracts.checks import CHECKS
from contracts.replay import CODES
from graphveil.release import GroupWeights, NeighborSumQuery
from graphveil.release.neighbor_sums import grid_table


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_shipped_mechanism_passes(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize(("bug", "check"), BUGS, ids=lambda part: part.__name__)
def test_a_seeded_bug_is_caught(bug: Bug, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


def test_there_are_enough_bugs_and_each_check_catches_one() -> None:
    assert len({bug for bug, _ in BUGS}) >= 25
    assert {check for _, check in BUGS} == set(CHECKS)


def test_the_copy_that_bugs_are_seeded_in_is_faithful() -> None:
    query = NeighborSumQuery(GroupWeights.steered(), (1.0, 1.0, 1.0), 2)
    rows = torch.cat([CODES, 1.5 * CODES, torch.zeros(3, 2)])
    groups = torch.tensor([0, 1, 2] * 3)
    assert torch.equal(table(rows, groups, query), grid_table(rows, groups, query))
