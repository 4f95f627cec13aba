"""Generate two tables with typical defects, and measure the commands from them to a first result.

    python benchmarks/company_tables.py OUT              # writes OUT/customers.csv and OUT/transfers.csv
    python benchmarks/company_tables.py OUT --parquet --train --runs 3

The first table has 20,000 customers with text ids, dates, free text, categories, numbers and labels, partly
missing. The second has 150,000 transfers, with duplicates, self-loops and unknown ids. Transfers depend on
the label; features depend on it weakly.

``--train`` runs ``graphveil train classcode`` with column names only, and then the suggested command of its
error message. It prints the time and the accuracy of each, with the baseline.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

CUSTOMERS, TRANSFERS = 20_000, 150_000
SEGMENTS = ("private", "student", "family", "business", "senior")
COUNTRIES = ("AT", "BE", "CH", "DE", "DK", "ES", "FR", "IT", "NL", "PL", "PT", "SE")
PLANS = ("free", "plus", "pro")
_SAME_SEGMENT = 0.6  # share of transfers that stay inside a segment


def tables(customers: int, transfers: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """Return the table of customers and that of transfers."""
    rng = np.random.default_rng(seed)
    segment = rng.integers(len(SEGMENTS), size=customers)
    ids = np.array([f"C-{number:07d}" for number in rng.permutation(customers * 7)[:customers]])
    return _customers(rng, ids, segment), _transfers(rng, ids, segment, transfers)


def _customers(rng: np.random.Generator, ids: Any, segment: Any) -> pa.Table:
    count = len(ids)
    age = 22 + 9 * segment + rng.normal(0, 14, count)
    joined = np.datetime64("2012-01-01") + (rng.gamma(2, 500, count) + 90 * segment).astype(int)
    country = np.where(rng.random(count) < 0.25, segment % len(COUNTRIES), rng.integers(12, size=count))
    plan = np.where(rng.random(count) < 0.3, segment % len(PLANS), rng.integers(3, size=count))
    balance = np.exp(rng.normal(6 + 0.2 * segment, 1.2, count)).round(2)
    notes = [f"called on day {day}, ref {ref:06d}" for day, ref in rng.integers(1, 10**6, size=(count, 2))]
    columns = {
        "customer_id": pa.array(ids),
        "joined": _gaps(rng, joined, 0.01),
        "age": _gaps(rng, age.round(), 0.08),
        "balance": _gaps(rng, balance, 0.03),
        "newsletter": pa.array(rng.random(count) < 0.3 + 0.08 * segment),
        "country": _gaps(rng, np.array(COUNTRIES)[country], 0.02),
        "plan": pa.array(np.array(PLANS)[plan]),
        "note": _gaps(rng, np.array(notes), 0.4),
        "segment": _gaps(rng, np.array(SEGMENTS)[segment], 0.25),
    }
    return pa.table(columns)


def _gaps(rng: np.random.Generator, values: Any, share: float) -> pa.Array:
    return pa.array(values, mask=rng.random(len(values)) < share)


def _transfers(rng: np.random.Generator, ids: Any, segment: Any, count: int) -> pa.Table:
    order = np.argsort(segment, kind="stable")
    starts = np.searchsorted(segment[order], np.arange(len(SEGMENTS) + 1))
    sender = rng.integers(len(ids), size=count)
    own = segment[sender]
    inside = order[(starts[own] + rng.random(count) * (starts[own + 1] - starts[own])).astype(int)]
    receiver = np.where(rng.random(count) < _SAME_SEGMENT, inside, rng.integers(len(ids), size=count))
    receiver[: count // 100] = sender[: count // 100]  # self-loops
    repeated = slice(count // 100, count // 20)
    sender[repeated], receiver[repeated] = sender[-1], receiver[-1]
    ends = ids[receiver].astype(object)
    closed = rng.random(count) < 0.01
    ends[closed] = [f"X-{number:07d}" for number in rng.integers(10**6, size=int(closed.sum()))]
    shuffled = rng.permutation(count)
    return pa.table(
        {
            "from_id": pa.array(ids[sender][shuffled]),
            "to_id": pa.array(ends[shuffled].tolist()),
            "amount": pa.array(np.exp(rng.normal(4, 1, count)).round(2)),
            "booked": pa.array(np.datetime64("2024-01-01") + rng.integers(0, 360, count)),
        }
    )


def write(folder: Path, *, parquet: bool, seed: int, customers: int, transfers: int) -> tuple[Path, Path]:
    """Write both tables, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = "parquet" if parquet else "csv"
    paths = folder / f"customers.{suffix}", folder / f"transfers.{suffix}"
    for path, table in zip(paths, tables(customers, transfers, seed), strict=True):
        if parquet:
            pyarrow.parquet.write_table(table, path)
        else:
            pyarrow.csv.write_csv(table, path)
    return paths


def train(nodes: Path, edges: Path, runs: int) -> dict[str, Any]:
    """Train from two tables with column names only, and then with the suggested command."""
    columns = ["--id", "customer_id", "--label", "segment", "--source", "from_id", "--target", "to_id"]
    privacy = ["--unit", "undirected-edge", "--epsilon", "1", "--runs", str(runs), "--json"]
    files = ["--nodes", str(nodes), "--edges", str(edges)]
    words, steps = ["train", "classcode", *files, *columns, *privacy], list[dict[str, Any]]()
    for _ in range(2):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "graphveil", *words], capture_output=True, text=True)
        found = json.loads(done.stdout)
        steps.append({"seconds": round(time.perf_counter() - start, 1), "exit code": done.returncode})
        if done.returncode == 0:
            steps[-1] |= {key: found[key]["mean"] for key in ("test_accuracy", "mlp_test_accuracy")}
            return {"commands": len(steps), "rejected": len(steps) - 1, "steps": steps}
        steps[-1] |= {"problems": len(found["error"]["problems"]), "command": found["error"]["command"]}
        words = _words(found["error"]["command"])
    raise SystemExit("the suggested command was rejected")


def _words(command: str) -> list[str]:
    import shlex

    return shlex.split(command)[1:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the tables")
    parser.add_argument("--parquet", action="store_true", help="write parquet instead of CSV")
    parser.add_argument("--train", action="store_true", help="run the commands, and print their results")
    parser.add_argument("--runs", type=int, default=1, help="runs of each command")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tables")
    parser.add_argument("--customers", type=int, default=CUSTOMERS, help="number of rows")
    parser.add_argument("--transfers", type=int, default=TRANSFERS, help="number of rows")
    options = parser.parse_args()
    sizes = {"customers": options.customers, "transfers": options.transfers}
    written = write(options.out, parquet=options.parquet, seed=options.seed, **sizes)
    if options.train:
        print(json.dumps(train(*written, options.runs), indent=2))
