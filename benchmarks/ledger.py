"""What a booking costs when there are many already, and whether the total is exact.

    python benchmarks/ledger.py --count 100000 [--place URL] [--ends 1000]

A booking is what a release does: reserve, then commit. Prices are Gaussian, pure and trained ones in turn.
Printed are the median and the 95th percentile of the milliseconds of each tenth, the mean of what this
process computed in them, and at the end whether the total that the ledger kept is the sum of all prices in
fractions, and how long ``verify`` took. The place is an empty ledger, by default a file in a temporary
folder: TMPDIR says where, and in memory (``/dev/shm``) nothing waits for the disk.

With ``--ends N`` only the first N and the last N are booked one by one. Those between are written in one
transaction, with the bytes that bookings would have left, which ``verify`` checks.
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

from graphveil.ledger import Entry, Ledger, PrivacyCost
from graphveil.ledger.chain import COMMIT, RESERVE, HashChain, account_in, canonical, link, update_account
from graphveil.ledger.database import data_sets, entries
from graphveil.privacy import UndirectedEdge
from graphveil.privacy.events import ApproximateDP, Event, Gaussian, PoissonGaussian
from graphveil.privacy.serialization import events_from_plain, events_to_plain

EVENTS: list[Event] = [Gaussian(0.013), ApproximateDP(0.0245), Gaussian(0.1), PoissonGaussian(8.0, 0.01, 10)]
PARTS = 10


def main() -> None:
    """Book, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--place", help="URL of an empty ledger")
    parser.add_argument("--ends", type=int, help="how many to book one by one, at either end")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Ledger(given.place or f"{folder}/ledger.sqlite"), given.count, given.ends)


def measure(ledger: Ledger, count: int, ends: int | None) -> None:
    """Book so many releases in a ledger, and print what they took."""
    ledger.init("friends", "undirected-edge", epsilon="1000000", delta="1e-6")
    print("| bookings | median ms | 95 % ms | computed ms |\n|---|---|---|---|")
    if ends is None:
        tenths = [round(count * part / PARTS) for part in range(PARTS + 1)]
        figures = [booked(ledger, *part) for part in pairwise(tenths)]
    else:
        first = booked(ledger, 0, ends)
        write(ledger, ends, count - ends)
        figures = [first, booked(ledger, count - ends, count)]
    (wall, computed), (last_wall, last_computed) = figures[0], figures[-1]
    print(
        f"\nthe last part costs {last_wall / wall:.2f} of the first, computes {last_computed / computed:.2f}"
    )
    check(ledger, count)


def name_of(number: int) -> str:
    """Return the reference of a booking, as unlike its neighbors' as an id is."""
    return f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def booked(ledger: Ledger, first: int, last: int) -> tuple[float, float]:
    """Book some releases one by one; the median of their milliseconds, and the mean of those computed."""
    friends, took, begun = ledger.data_set("friends"), list[float](), time.process_time()
    for number in range(first, last):
        name, started = name_of(number), time.perf_counter()
        friends.record(Entry(name, "rows", EVENTS[number % len(EVENTS)], unit=UndirectedEdge()))
        friends.commit(name)
        took.append(1e3 * (time.perf_counter() - started))
    computed = 1e3 * (time.process_time() - begun) / len(took)
    median, ninety_five = statistics.median(took), statistics.quantiles(took, n=20)[-1]
    print(f"| {first + 1:,} to {last:,} | {median:.2f} | {ninety_five:.2f} | {computed:.2f} |", flush=True)
    return median, computed


def write(ledger: Ledger, first: int, last: int) -> None:
    """Write what booking these releases would have left, in one transaction."""
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
    """Print whether the total is the sum of all prices, and whether the chain holds."""
    (account,) = ledger.accounts("friends")
    copies = [len(range(place, count, len(EVENTS))) for place in range(len(EVENTS))]
    priced = list(zip(copies, EVENTS, strict=True))
    squares = sum(n * Fraction(event.mu) ** 2 for n, event in priced if isinstance(event, Gaussian))
    counted = {event: n for n, event in priced if not isinstance(event, Gaussian)}
    kept = {events_from_plain(json.loads(kind)).events[0]: n for kind, n in account.total.others.items()}
    print(f"releases {account.releases:,}; mu squared exact: {account.total.mu_squared == squares}")
    print(f"counts of other kinds exact: {kept == counted}, {sorted(kept.values())}")
    begun = time.perf_counter()
    print(f"breaks: {ledger.verify()}, looked for in {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
