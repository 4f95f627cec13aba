"""Compiled passes over rows, which threads share out among themselves.

Rows are taken in turns from a counter, so that a thread which begins late, or meets long rows, takes fewer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from graphveil._llvm import Code, Compiled, compile_for_host
from graphveil._team import in_threads
from graphveil._util.threads import available_threads

_SHARES = 16  # of a thread at most, since some rows are longer than others,
_ROWS = 1 << 10  # and of so many rows at least
_TURN, _COUNT, _SHARE, _HEAD = range(4)  # places of what is given to a shared pass, and where the rest begins
Column = tuple[int, int]  # the address of the first row of a table, and the bytes from each row to the next


@dataclass(frozen=True)
class RowPass:
    """A compiled pass over rows: its function ``run`` takes their number, numbers, and then addresses."""

    compiled: Compiled

    def __call__(self, rows: int, numbers: Sequence[int], columns: Sequence[Column], most: int) -> None:
        """Pass over all rows.

        Args:
            rows: how many rows there are.
            numbers: what the function takes after the number of rows.
            columns: what it takes then, each with its step from row to row; 0 for what is not of rows.
            most: threads that the work is worth.
        """
        threads = available_threads(most)
        share = max(min(rows, _ROWS), -(-rows // (_SHARES * threads))) if threads > 1 else rows
        steps = (step for _, step in columns)
        in_threads(
            self.compiled, [0, rows, share, *numbers, *(place for place, _ in columns), *steps], threads
        )


def row_pass(program: str, numbers: int, addresses: int) -> RowPass:
    """Compile a program's function ``run`` of a number of rows, further numbers, and then addresses."""
    return RowPass(compile_for_host(program + _in_turns(numbers, addresses), 1, 1, "turns"))


def _in_turns(numbers: int, addresses: int) -> str:
    """Return a function that takes shares of rows until there are none left, and runs the pass on each."""
    code = Code("t")
    first_place = _HEAD + numbers - 1
    more = [code.load("i64", code.at("%given", "i64", place)) for place in range(_HEAD, first_place)]
    places, steps = (
        [code.load("i64", code.at("%given", "i64", begin + k)) for k in range(addresses)]
        for begin in (first_place, first_place + addresses)
    )
    rows, share = (code.load("i64", code.at("%given", "i64", place)) for place in (_COUNT, _SHARE))
    take = f"atomicrmw add ptr {code.at('%given', 'i64', _TURN)}, i64 1 monotonic"
    with code.loop("ult", rows, ("i64", code(f"mul i64 {code(take)}, {share}"))) as turn:
        first = turn.values[0]
        left = code(f"sub i64 {rows}, {first}")
        fewer = code(f"icmp ult i64 {left}, {share}")
        given = [f"i64 {code(f'select i1 {fewer}, i64 {left}, i64 {share}')}"]
        given += [f"i64 {number}" for number in more]
        for place, step in zip(places, steps, strict=True):
            here = code(f"add i64 {place}, {code(f'mul i64 {first}, {step}')}")
            given.append(f"ptr {code(f'inttoptr i64 {here} to ptr')}")
        code.do(f"call void @run({', '.join(given)})")
        turn.then = [code(f"mul i64 {code(take)}, {share}")]
    return f"""
define void @turns(i64 %seat, ptr %given) {{
start:
  {code}
  ret void
}}
"""
