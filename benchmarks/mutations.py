"""Apply every seeded bug to a copy of the package, and check that its test fails.

    python benchmarks/mutations.py [--only WORD] [--out mutations.csv] [--workers 2] [--table FILE]

The table is `tests/contracts/seeded_bugs.py`. Each test must pass on the unchanged copy. With the bug it must
fail by an assertion, or for the reason that the row states. Rows that the CSV lists as caught are not run
again. Exits with 1 if a bug was not caught.
"""

import argparse
import csv
import os
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: the processes below are forked

from contracts.mutation_runner import Result, run_rows  # noqa: E402  (needs the path above)
from contracts.mutations import Row, rows_of  # noqa: E402  (needs the path above)

HEAD = ("bug", "path", "test", "caught", "seconds", "detail", "digest")


class Report:
    """A CSV file with one line for each row, written as rows end."""

    def __init__(self, path: Path) -> None:
        """Read the rows that were caught before."""
        self._path = path
        self.known: dict[str, dict[str, str]] = {}
        if path.exists():
            with path.open(newline="") as file:
                lines = list(csv.DictReader(file))
            self.known = {line["digest"]: line for line in lines if line["caught"] == "yes"}

    def add(self, row: Row, result: Result) -> None:
        """Append a row and print it."""
        caught = {True: "yes", False: "NO", None: "skipped"}[result.caught]
        values = (row.name, row.path, row.test, caught, f"{result.seconds:.1f}", result.detail, row.digest)
        fresh = not self._path.exists()
        with self._path.open("a", newline="") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow(HEAD)
            writer.writerow(values)
        print(f"{caught:7} {result.seconds:5.1f} s  {row}", flush=True)
        if caught == "NO":
            print("        " + result.detail.replace("\n", "\n        "), flush=True)


def main() -> None:
    """Run the rows without a result, and print how many were caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="run rows with this text in their name or test")
    parser.add_argument("--out", type=Path, default=Path("mutations.csv"), help="CSV of results, continued")
    parser.add_argument("--workers", type=int, default=2, help="mutations that are run at the same time")
    default = ROOT / "tests/contracts/seeded_bugs.py"
    parser.add_argument("--table", type=Path, default=default, help="Python file with a list BUGS")
    args = parser.parse_args()
    rows = [row for row in rows_of(runpy.run_path(str(args.table))["BUGS"]) if args.only in str(row)]
    report = Report(args.out)
    todo = [row for row in rows if row.digest not in report.known]
    results: dict[Row, Result] = {}
    for row, result in run_rows(todo, args.workers):
        report.add(row, result)
        results[row] = result
    missed = [row for row, result in results.items() if result.caught is False]
    skipped = [row for row, result in results.items() if result.caught is None]
    seconds = sum(result.seconds for result in results.values())
    print(f"{len(rows) - len(missed) - len(skipped)} of {len(rows)} rows were caught, {len(skipped)} skipped")
    print(f"{len({row.name for row in rows})} bugs; {seconds:.0f} s of tests in this run")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
