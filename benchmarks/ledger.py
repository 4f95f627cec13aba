"""Measure the time of a ledger entry in a ledger with many entries, and check that totals are exact.

    python benchmarks/ledger.py --count 100000 [--ledger URL] [--ends 1000]

An entry is recorded and committed, as for a release. Gaussian, pure and DP-SGD events alternate. The table
has the median and the 95th percentile of the wall time, and the mean CPU time of this process, for each tenth
of the entries. The last lines state whether the stored total equals the sum of all events in fractions, and
the time of ``verify``. The default ledger is a file in a temporary folder; set TMPDIR=/dev/shm to exclude the
disk.

With ``--ends N`` only the first N and the last N entries are recorded one by one. The others are written in
one transaction with the same contents, which ``verify`` checks.
"""

import argparse
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise

import sqlalchemy as sa

from graphveil.core.events import ApproximateDP, Event, Gaussian, PoissonGaussian
from graphveil.core.ledger import Entry
from graphveil.core.unit import UndirectedEdge
from graphveil.ledger import Ledger, PrivacyCost
from graphveil.ledger.chain import COMMIT, RESERVE, HashChain, account_in, canonical, link, update_account
from graphveil.ledger.database import data_sets, entries
from graphveil.privacy.serialization import events_from_plain, events_to_plain

EVENTS: list[Event] = [Gaussian(0.013), ApproximateDP(0.0245), Gaussian(0.1), PoissonGaussian(8.0, 0.01, 10)]
PARTS = 10


def main() -> None:
    """Record entries, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="number of entries")
    parser.add_argument("--ledger", help="URL of an empty ledger")
    parser.add_argument(
        "--ends", type=int, help="entries at the start and at the end that are recorded one by one"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Ledger(options.ledger or f"{folder}/ledger.sqlite"), options.count, options.ends)


def measure(ledger: Ledger, count: int, ends: int | None) -> None:
    """Record a number of releases in a ledger, and print their times."""
    ledger.init("friends", "undirected-edge", epsilon="1000000", delta="1e-6")
    print("| entries | median ms | 95th percentile, ms | CPU ms |\n|---|---|---|---|")
    if ends is None:
        tenths = [round(count * part / PARTS) for part in range(PARTS + 1)]
        times = [record_entries(ledger, *part) for part in pairwise(tenths)]
    else:
        first = record_entries(ledger, 0, ends)
        write(ledger, ends, count - ends)
        times = [first, record_entries(ledger, count - ends, count)]
    (wall, cpu), (last_wall, last_cpu) = times[0], times[-1]
    print(f"\nlast part / first part: wall time {last_wall / wall:.2f}, CPU time {last_cpu / cpu:.2f}")
    check(ledger, count)


def name_of(number: int) -> str:
    """Return the reference of an entry: like a random id, without a common prefix with its neighbors."""
    return f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def record_entries(ledger: Ledger, first: int, last: int) -> tuple[float, float]:
    """Record releases one by one. Return the median wall and the mean CPU time in milliseconds."""
    account, wall, start = ledger.data_set("friends"), list[float](), time.process_time()
    for number in range(first, last):
        name, started = name_of(number), time.perf_counter()
        account.record(Entry(name, "rows", EVENTS[number % len(EVENTS)], unit=UndirectedEdge()))
        account.commit(name)
        wall.append(1e3 * (time.perf_counter() - started))
    cpu = 1e3 * (time.process_time() - start) / len(wall)
    median, percentile = statistics.median(wall), statistics.quantiles(wall, n=20)[-1]
    print(f"| {first + 1:,} to {last:,} | {median:.2f} | {percentile:.2f} | {cpu:.2f} |", flush=True)
    return median, cpu


def write(ledger: Ledger, first: int, last: int) -> None:
    """Write the entries of these releases in one transaction, with the contents of single entries."""
    costs = [PrivacyCost.from_entry(Entry("one", "rows", event)) for event in EVENTS]
    plain = [events_to_plain(event) for event in EVENTS]
    unit = {"unit": "undirected-edge", "label": "rows", "max_degree": None, "slack": 0.0}

    def task(line: sa.Connection) -> None:
        chain, rows = HashChain.locked(line, "friends"), list[dict[str, object]]()
        account = account_in(line, "friends", unit["unit"])
        total, now = account.total, datetime.now(UTC).isoformat(timespec="milliseconds")
        for number in range(first, last):
            which, name = number % len(EVENTS), name_of(number)
            total = total.plus(costs[which])
            for kind, more in ((RESERVE, {**unit, "events": plain[which]}), (COMMIT, {})):
                chain.length += 1
                about = {"number": chain.length, "kind": kind, "reference": name}
                body = canonical({**more, **about, "data_set": "friends", "time": now})
                chain.head = link(chain.head, body)
                rows.append({**about, "data_set": "friends", "body": body, "hash": chain.head})
        line.execute(entries.insert(), rows)
        line.execute(data_sets.update().values(length=chain.length, head=chain.head))
        kept = canonical(total.as_plain())
        update_account(line, "friends", unit["unit"], releases=last, total=kept)

    ledger._store.write(task)


def check(ledger: Ledger, count: int) -> None:
    """Print whether the stored total is the exact sum, and whether the hash chain is valid."""
    (account,) = ledger.accounts("friends")
    copies = [len(range(place, count, len(EVENTS))) for place in range(len(EVENTS))]
    counted_events = list(zip(copies, EVENTS, strict=True))
    squares = sum(n * Fraction(event.mu) ** 2 for n, event in counted_events if isinstance(event, Gaussian))
    counted = {event: n for n, event in counted_events if not isinstance(event, Gaussian)}
    kept = {events_from_plain(json.loads(kind)).events[0]: n for kind, n in account.total.others.items()}
    print(f"releases {account.releases:,}; mu squared exact: {account.total.mu_squared == squares}")
    print(f"counts of other events exact: {kept == counted}, {sorted(kept.values())}")
    start = time.perf_counter()
    print(f"problems found by verify: {ledger.verify()}; {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
