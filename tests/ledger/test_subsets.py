"""Subsets of a dataset are charged to its account, whatever their size; ledgers of earlier versions open."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from graphveil.data.fingerprint import id_fingerprint_parts
from graphveil.ledger import Ledger, bindings
from ledger.conftest import KINDS, entry

both = pytest.mark.parametrize("kind", KINDS)


def people(ledger: Ledger, numbers: Iterable[int], edges: str = "") -> dict[str, str]:
    """Return the fingerprints of a graph of some people."""
    ids = [f"user-{number}" for number in numbers]
    return ledger.fingerprints({"edges": [f"{edges}{ids}".encode()], **id_fingerprint_parts(ids)})


def charge(ledger: Ledger, name: str, tags: dict[str, str]) -> str:
    """Record a release of data that the ledger recognizes or not; return the account."""
    account = ledger.find_or_create(tags)
    account.record(entry(name))
    return account.name


def stored_people(ledger: Ledger) -> list[int]:
    """Return the number of people that each version of the first dataset stores."""
    rows = ledger.export("data-1")
    return [len(bindings._hashes(row["fingerprints"]["sketch"])) for row in rows if row["kind"] == "bind"]


@both
def test_every_small_subset_of_a_large_dataset_is_charged_to_its_account(ledger: Ledger, kind: str) -> None:
    assert charge(ledger, "whole", people(ledger, range(40_000))) == "data-1"
    rng = np.random.default_rng(0)
    for size in (1, 20):
        for number in range(24 if kind == "sqlite" and size == 20 else 4):
            tags = people(ledger, rng.choice(40_000, size, replace=False))
            assert ledger.find_or_create(tags).name == "data-1", (size, number)
            assert ledger.shared_nodes(tags) == {"data-1": 1.0}
    assert charge(ledger, "subset", people(ledger, range(7, 27))) == "data-1"
    others = people(ledger, range(40_000, 40_020))
    assert ledger.shared_nodes(others) == {} and ledger.find_or_create(others).name == "data-2"
    assert ledger.verify() == []


@both
def test_versions_of_a_dataset_store_new_people_only(ledger: Ledger, kind: str) -> None:
    for version, count in enumerate((5_000, 5_000, 5_010, 4_000)):
        assert charge(ledger, f"r{version}", people(ledger, range(count), edges=str(version))) == "data-1"
    assert stored_people(ledger) == [5_000, 0, 10, 0]
    for numbers in (range(5_000, 5_010), range(4_500, 4_510), [4_999, 5_009]):
        assert ledger.shared_nodes(people(ledger, numbers)) == {"data-1": 1.0}
    assert ledger.shared_nodes(people(ledger, range(5_000, 5_020))) == {"data-1": 0.5}


@both
def test_a_ledger_of_an_earlier_version_opens_and_learns_all_people(
    ledger: Ledger, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stored 2,048 of the people, which the next release of the same data completes."""
    with monkeypatch.context() as patch:
        patch.setattr(bindings, "SIZE", 2048)
        tags = people(ledger, range(40_000))
        assert charge(ledger, "old", tags) == "data-1"
    subsets = [people(ledger, range(first, first + 20)) for first in range(0, 2_000, 50)]
    missed = sum(ledger.find_or_create(one).name != "data-1" for one in subsets)
    assert 0 < missed < len(subsets)
    whole = people(ledger, range(40_000))
    assert ledger.shared_nodes(whole) == {"data-1": 1.0}
    assert charge(ledger, "new", whole) == charge(ledger, "again", whole) == "data-1"
    assert stored_people(ledger) == [2_048, 40_000]
    assert all(ledger.find_or_create(one).name == "data-1" for one in subsets)
    assert ledger.verify() == []


def test_of_more_people_a_sample_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "SIZE", 3_000)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for version in range(2):  # the second has the same people, and only other edges
        assert charge(ledger, f"r{version}", people(ledger, range(9_000), edges=str(version))) == "data-1"
    assert charge(ledger, "r2", people(ledger, range(9_500))) == "data-1"
    assert stored_people(ledger) == [3_000, 3_000, 3_000]
    assert ledger.shared_nodes(people(ledger, range(500))) == {"data-1": 1.0}
    half = ledger.shared_nodes(people(ledger, range(5_000, 14_000)))["data-1"]
    assert half == pytest.approx(0.5, abs=0.06)
    found = [
        ledger.find_or_create(people(ledger, range(first, first + 3))).name == "data-1"
        for first in range(0, 900, 3)
    ]
    assert np.mean(found) == pytest.approx(1 - (1 - 3_000 / 9_500) ** 3, abs=0.1)  # as the module states
    ledger.close()
