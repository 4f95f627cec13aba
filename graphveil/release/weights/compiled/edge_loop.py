"""The loop of every compiled sum: over a block's rows, and over some edges of a row at a time."""

from typing import Protocol

from graphveil._llvm import Code

Names = tuple[str, ...]


class SumBody(Protocol):
    """What is done in the loop. Sums are vectors of 32-bit integers, and edges are named by their places."""

    @property
    def width(self) -> int:
        """The numbers of a sum."""

    @property
    def run_in_all_threads(self) -> int:
        """How many edges are added at a time."""

    def begin(self, code: Code, row: str) -> Names:
        """Add what is done once a row, before its edges, and return its names."""

    def some(self, code: Code, own: Names, total: str, edge: str) -> str:
        """Return a sum with the edges from one on in it, as many as go together."""

    def rest(self, code: Code, own: Names, total: str, edge: str, stop: str) -> str:
        """Return a sum with the edges in it that are left from one on: fewer, but one at least."""

    def finish(self, code: Code, own: Names, total: str) -> None:
        """Write a row's sum."""


def over_edges(code: Code, summing: SumBody) -> None:
    """Add the loop over ``%rows`` rows, whose edges begin and end where ``%offsets`` say."""
    kind = f"<{summing.width} x i32>"
    with code.each("%rows") as row:
        first, stop = (_offset(code, place) for place in (row, code(f"add nuw i64 {row}, 1")))
        whole = code(f"and i64 {code(f'sub nuw i64 {stop}, {first}')}, -{summing.run_in_all_threads}")
        last = code(f"add nuw i64 {first}, {whole}")
        own = summing.begin(code, row)
        with code.loop("ult", last, ("i64", first), (kind, "zeroinitializer")) as loop:
            edge, total = loop.values
            total = summing.some(code, own, total, edge)
            loop.then = [code(f"add nuw i64 {edge}, {summing.run_in_all_threads}"), total]
        with code.loop("ult", stop, ("i64", last), (kind, loop.values[1])) as once:
            edge, total = once.values
            once.then = [stop, summing.rest(code, own, total, edge, stop)]
        summing.finish(code, own, once.values[1])


def _offset(code: Code, place: str) -> str:
    return code(f"zext i32 {code.load('i32', code.at('%offsets', 'i32', place))} to i64")
