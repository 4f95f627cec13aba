"""Many processes that know the ledger alone, with threads inside: each books releases of one price.

    python -m ledger.bookers URL PRICE WORKERS THREADS TRIES SECONDS

PRICE is events and slack as the book writes them. They begin once something stands on standard input, pause
up to so many seconds before each booking, and print how many were granted to each process.
"""

import json
import multiprocessing
import random
import sys
import threading
import time

from graphveil.errors import BudgetError
from graphveil.ledger import Entry, Ledger
from graphveil.privacy import UndirectedEdge
from graphveil.privacy.serialization import events_from_plain


def granted(place: str, privacy_cost: str, worker: int, threads: int, tries: int, seconds: float) -> int:
    """Book from several threads; how often it was granted."""
    friends, found = Ledger(place).data_set("friends"), list[bool]()
    told = json.loads(privacy_cost)
    event = events_from_plain(told["events"])

    def book(thread: int) -> None:
        for number in range(tries):
            time.sleep(seconds * random.random())
            entry = Entry(f"{worker}-{thread}-{number}", "rows", event, told["slack"], UndirectedEdge())
            try:
                friends.record(entry)
                friends.commit(entry.release_id)
            except BudgetError:
                found.append(False)
            else:
                found.append(True)

    each = [threading.Thread(target=book, args=(thread,)) for thread in range(threads)]
    for one in each:
        one.start()
    for one in each:
        one.join()
    assert len(found) == threads * tries  # nobody gave up for another reason
    return sum(found)


def main(place: str, privacy_cost: str, *numbers: str) -> None:
    """Fork the processes, and add up."""
    workers, threads, tries, seconds = *map(int, numbers[:3]), float(numbers[3])
    assert "torch" not in sys.modules
    sys.stdin.readline()
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        jobs = [(place, privacy_cost, worker, threads, tries, seconds) for worker in range(workers)]
        sys.stdout.write(json.dumps(pool.starmap(granted, jobs, chunksize=1)))


if __name__ == "__main__":
    main(*sys.argv[1:])
