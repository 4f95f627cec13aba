"""Apply every seeded bug of the project to a copy in memory, and print which check caught it.

    python benchmarks/mutations.py [--only WORD] [--out mutations.csv]

Bugs and checks are those of ``tests/contracts/table.py``: each bug is a patch that a careless change might
be, and lies beside the check that has to fail with it and pass without. A child process applies it, so
nothing outlives it. Rows that are in the CSV already are not run again. Exits with 1 if a bug got away.
"""

import argparse
import csv
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
HEAD = ("bug", "caught by", "room", "kind", "caught", "seconds")
CASE = "tests/contracts/test_seeded_bugs.py::test_a_seeded_bug_is_caught"


def table() -> list[dict[str, str]]:
    """Return every bug with its check."""
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    from contracts.table import TABLE, name_of

    return [
        {
            "bug": seeded.name,
            "caught by": name_of(seeded.check),
            "room": seeded.check.__module__.rpartition(".")[2]
            if hasattr(seeded.check, "__module__")
            else "-",
            "kind": str(seeded.kind or "-"),
            "case": str(seeded),
        }
        for seeded in TABLE
    ]


def caught(case: str) -> tuple[bool, float]:
    """Run one bug under its check in a process of its own."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow or not slow"]
    done = subprocess.run(
        [*command, f"{CASE}[{case}]"], cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and "1 passed" in done.stdout, time.perf_counter() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="bugs or checks with this word in their name")
    parser.add_argument("--out", type=Path, default=Path("mutations.csv"))
    args = parser.parse_args()
    known: dict[str, dict[str, str]] = {}
    if args.out.exists():
        with args.out.open(newline="") as file:
            known = {f"{row['bug']}-{row['caught by']}": row for row in csv.DictReader(file)}
    rows = [row for row in table() if args.only in row["case"]]
    missed = 0
    for number, row in enumerate(rows, 1):
        key = f"{row['bug']}-{row['caught by']}"
        if key not in known:
            found, seconds = caught(row["case"])
            known[key] = {**row, "caught": "yes" if found else "NO", "seconds": f"{seconds:.1f}"}
            _append(args.out, known[key])
        missed += known[key]["caught"] != "yes"
        print(f"{number:4}/{len(rows)}  {known[key]['caught']:3}  {row['bug']}  <-  {row['caught by']}")
    print(f"{len(rows) - missed} of {len(rows)} seeded bugs were caught")
    sys.exit(1 if missed else 0)


def _append(path: Path, row: dict[str, str]) -> None:
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, HEAD, extrasaction="ignore")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
