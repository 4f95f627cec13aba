"""Apply every seeded bug of the project, and print which check caught it.

    python benchmarks/mutations.py [--only WORD] [--out mutations.csv]

Bugs and checks are those of ``tests/contracts/table.py``: each bug is a patch that a careless change might
be, and lies beside the check that has to fail with it and pass without. One process applies them one after
the other to the modules that it has loaded, and takes each back. Rows that are in the CSV already are not
run again. Exits with 1 if a bug got away.
"""

import argparse
import csv
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAD = ("bug", "caught by", "caught", "seconds")
CASE = "tests/contracts/test_seeded_bugs.py::test_a_seeded_bug_is_caught"


class Table:
    """Writes a row for each bug as its check ends, and leaves out those that are known."""

    def __init__(self, path: Path, word: str) -> None:
        """Read what is known."""
        self._path, self._word = path, word
        self.rows: dict[str, dict[str, str]] = {}
        if path.exists():
            with path.open(newline="") as file:
                self.rows = {f"{row['bug']}-{row['caught by']}": row for row in csv.DictReader(file)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the cases that are not known yet."""
        items[:] = [item for item in items if self._word in item.name and _case(item.nodeid) not in self.rows]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what became of a bug."""
        if report.when != "call":
            return
        case = _case(report.nodeid)
        bug, _, check = case.partition("-")
        row = dict(
            zip(HEAD, (bug, check, "yes" if report.passed else "NO", f"{report.duration:.1f}"), strict=True)
        )
        fresh, self.rows[case] = not self._path.exists(), row
        with self._path.open("a", newline="") as file:
            writer = csv.DictWriter(file, HEAD)
            if fresh:
                writer.writeheader()
            writer.writerow(row)
        print(f"\n{row['caught']:3}  {bug}  <-  {check}", flush=True)


def _case(nodeid: str) -> str:
    return nodeid.partition("[")[2].removesuffix("]")


def main() -> None:
    """Run what is not known, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="bugs or checks with this word in their name")
    parser.add_argument("--out", type=Path, default=Path("mutations.csv"))
    args = parser.parse_args()
    table = Table(args.out, args.only)
    flags = ["-q", "-p", "no:cacheprovider", "-m", "slow or not slow", f"--rootdir={ROOT}"]
    pytest.main([*flags, str(ROOT / CASE)], plugins=[table])
    rows = [row for case, row in table.rows.items() if args.only in case]
    missed = [row["bug"] for row in rows if row["caught"] != "yes"]
    for row in rows:
        print(f"{row['caught']:3}  {row['bug']}  <-  {row['caught by']}")
    print(f"{len(rows) - len(missed)} of {len(rows)} seeded bugs were caught")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
