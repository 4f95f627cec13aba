"""Whole trainings beside processes that book through the ledger alone: a budget for N releases grants N."""

import json
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from command import Files, Invoke

from graphveil.ledger import Ledger, PrivacyCost
from ledger.conftest import KINDS

UNIT = ("--unit", "undirected-edge", "--epsilon", "0.1", "--delta", "1e-7")
TRAIN = (*UNIT, "--no-baseline", "--set", "epochs=2", "--ledger")
THREADS, SHORT = 2, 2  # two more releases are asked for than there is room for

CASES = [
    pytest.param("sqlite", 4, 1, id="sqlite-few"),
    *(pytest.param(kind, 64, 4, marks=pytest.mark.slow, id=f"{kind}-64") for kind in KINDS),
]


def command(*words: object) -> "subprocess.Popen[str]":
    given: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", *map(str, words)], env=where, text=True, **given)


def limit_of(ledger: Ledger, releases: int) -> dict[str, Decimal]:
    """Return a limit that so many releases like the first one fit into, and no more."""
    (account,) = ledger.accounts("friends")
    assert account.releases == 1
    fits, exceeds = (PrivacyCost().plus(account.total, n).epsilon(1e-7) for n in (releases, releases + 1))
    return {"epsilon": Decimal(f"{(fits + exceeds) / 2:.12f}"), "delta": Decimal("1e-7")}


@pytest.mark.parametrize(("kind", "workers", "trainings"), CASES)
def test_trainings_and_bookings_share_one_budget(
    place: str, invoke: Invoke, files: Files, workers: int, trainings: int
) -> None:
    ledger, tries = Ledger(place), 4
    ledger.init("friends", "undirected-edge")
    train = ("train", "gap", *files.flags, *TRAIN, f"{place}#friends", "--out")
    assert invoke(*train, "first").code == 0
    (privacy_cost,) = [
        json.dumps({"events": row["events"], "slack": row["slack"]})
        for row in ledger.export("friends")
        if row["kind"] == "reserve"
    ]
    room = 1 + trainings + workers * THREADS * tries - SHORT
    ledger.raise_limit("friends", "undirected-edge", **limit_of(ledger, room), reason="a study")
    seconds = 0.1 if workers < 64 else 4.0
    bookers = command("ledger.bookers", place, privacy_cost, workers, THREADS, tries, seconds)
    runs = [command("graphveil", *train, f"run-{number}") for number in range(trainings)]
    assert runs[0].stderr is not None
    next(line for line in runs[0].stderr if line.startswith("ledger"))  # of its plan: it is about to book
    granted = json.loads(bookers.communicate("go\n")[0])
    codes = [(run.communicate(), run.returncode)[1] for run in runs]
    assert set(codes) <= {0, 2}
    assert 1 + codes.count(0) + sum(granted) == room
    (account,) = ledger.accounts("friends")
    assert (account.releases, ledger.verify()) == (room, [])
    assert account.limit is not None
    assert account.total.epsilon(account.limit.delta) <= account.limit.epsilon
    sys.stdout.write(  # for whoever measures: pytest -s
        f"\nroom for {room}: {codes.count(0)} of {trainings} trainings, {sum(granted)} of "
        f"{workers * THREADS * tries} bookings by {workers} processes\n"
    )
