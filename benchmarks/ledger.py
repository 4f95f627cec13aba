"""What a booking costs when there are many already, and whether the total is exact.

    python benchmarks/ledger.py --count 100000 [--place URL]

A booking is what a release does: reserve, then commit. Prices are Gaussian, pure and trained ones in turn.
Printed are the median and the 95th percentile of the milliseconds of each tenth, the mean of what this
process computed in them, and at the end whether the total that the ledger kept is the sum of all prices in
fractions, and how long ``verify`` took. The place is an empty ledger, by default a file in a temporary
folder: TMPDIR says where, and in memory (``/dev/shm``) nothing waits for the disk.
"""

import argparse
import json
import statistics
import tempfile
import time
from fractions import Fraction

from graphveil.ledger import Ledger
from graphveil.privacy import Entry, UndirectedEdge
from graphveil.privacy.events import ApproximateDP, Event, Gaussian, PoissonGaussian
from graphveil.privacy.serialization import events_from_plain

EVENTS: list[Event] = [Gaussian(0.013), ApproximateDP(0.0245), Gaussian(0.1), PoissonGaussian(8.0, 0.01, 10)]
PARTS = 10


def main() -> None:
    """Book, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--place", help="URL of an empty ledger")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Ledger(given.place or f"{folder}/ledger.sqlite"), given.count)


def measure(ledger: Ledger, count: int) -> None:
    """Book so many releases in a ledger, and print what each tenth of them took."""
    ledger.init("friends", "undirected-edge", epsilon="1000000", delta="1e-6")
    friends, took, computed = ledger.data_set("friends"), list[float](), [time.process_time()]
    print("| bookings | median ms | 95 % ms | computed ms |\n|---|---|---|---|")
    for number in range(count):
        name, begun = f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}", time.perf_counter()
        friends.record(Entry(name, "rows", EVENTS[number % len(EVENTS)], unit=UndirectedEdge()))
        friends.commit(name)
        took.append(1e3 * (time.perf_counter() - begun))
        if (number + 1) % (count // PARTS) == 0:
            part = took[-(count // PARTS) :]
            computed.append(time.process_time())
            mean = 1e3 * (computed[-1] - computed[-2]) / len(part)
            figures = statistics.median(part), statistics.quantiles(part, n=20)[-1], mean
            print(f"| {number + 1:,} | {' | '.join(f'{figure:.2f}' for figure in figures)} |", flush=True)
    few = max(1, count // 100)
    first, last = statistics.median(took[:few]), statistics.median(took[-few:])
    print(f"\nthe last hundredth costs {last / first:.2f} of the first ({first:.2f} and {last:.2f} ms)")
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
