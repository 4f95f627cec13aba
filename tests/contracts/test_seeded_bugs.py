"""Every check passes on what is shipped, and every seeded bug of the table fails the check named beside it.

``python -m pytest tests/contracts/test_seeded_bugs.py -m "slow or not slow"`` runs all of them.
"""

from collections import Counter
from collections.abc import Iterable
from inspect import signature
from typing import Any

import pytest
import torch

from contracts.bugs import BUGS, table
from contracts.checks import CHECKS
from contracts.replay import CODES
from contracts.table import KINDS, TABLE, Check, Seeded, name_of
from graphveil.release import GroupWeights, NeighborSumQuery
from graphveil.release.rows.neighbor_sums import grid_table

Given = dict[str, Any]
PASSING = {name_of(seeded.check): seeded.check for seeded in TABLE}
ELSEWHERE = tuple(name for name in PASSING if name.startswith(("test_", "pairs.")))  # run as tests there, too


def marked(names: Iterable[Any], slow: Any) -> list[Any]:
    """Return cases, those that take long marked as such."""
    return [pytest.param(n, id=str(n), marks=[pytest.mark.slow] if slow(n) else []) for n in names]


def given_to(check: Check, request: pytest.FixtureRequest) -> Given:
    """Return the fixtures that a check asks for by name."""
    asked = [name for name, one in signature(check).parameters.items() if one.default is one.empty]
    return {name: request.getfixturevalue(name) for name in asked if name != "monkeypatch"}


def run(check: Check, given: Given) -> None:
    """Run a check; what it patches ends with it, before a bug does."""
    with pytest.MonkeyPatch.context() as patch:
        more = {"monkeypatch": patch} if "monkeypatch" in signature(check).parameters else {}
        check(**given, **more)


@pytest.mark.parametrize("name", marked(PASSING, ELSEWHERE.__contains__))
def test_what_is_shipped_passes(name: str, request: pytest.FixtureRequest) -> None:
    run(PASSING[name], given_to(PASSING[name], request))


@pytest.mark.parametrize("seeded", marked(TABLE, lambda seeded: seeded.slow))
def test_a_seeded_bug_is_caught(seeded: Seeded, request: pytest.FixtureRequest) -> None:
    given = given_to(seeded.check, request)
    with pytest.MonkeyPatch.context() as patch:
        seeded.bug(patch)
        with pytest.raises((AssertionError, pytest.fail.Exception), match=seeded.said):
            run(seeded.check, given)


def test_the_table_is_long_enough_and_has_every_kind() -> None:
    assert len({seeded.name for seeded in TABLE}) >= 90
    kinds = Counter(seeded.kind for seeded in TABLE)
    assert set(KINDS) == set(range(1, 12))
    assert all(kinds[kind] for kind in KINDS)


def test_each_check_of_a_release_catches_a_bug() -> None:
    assert {check for _, check in BUGS} == set(CHECKS)


def test_the_copy_that_bugs_are_seeded_in_is_faithful() -> None:
    query = NeighborSumQuery(GroupWeights.steered(), (1.0, 1.0, 1.0), 2)
    rows = torch.cat([CODES, 1.5 * CODES, torch.zeros(3, 2)])
    groups = torch.tensor([0, 1, 2] * 3)
    assert torch.equal(table(rows, groups, query), grid_table(rows, groups, query))
