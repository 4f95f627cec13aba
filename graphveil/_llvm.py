"""LLVM's assembly language: lines of it, and what the processor at hand runs.

[llvmlite](https://llvmlite.readthedocs.io) is an optional package; where it is missing nothing is compiled.
Vectors are the language's and of no processor: ``<16 x i16>`` becomes AVX-512, AVX2 or NEON.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_LINE, _PAGE = 64, 1 << 12  # bytes


@dataclass(frozen=True)
class Compiled:
    """A function for the processor at hand, and where it is, for other compiled functions to call."""

    address: int
    _engine: Any  # whose memory the code is in
    _call: Any

    def __call__(self, *given: int) -> None:
        """Run it on numbers and then addresses."""
        self._call(*given)


@dataclass
class Loop:
    """What a loop keeps from turn to turn: its values as a turn begins, and as the next one will.

    When the loop has ended, its values are the last ones.
    """

    values: list[str]
    then: list[str]


class Code:
    """Lines of one part of a program; the names that they compute begin with the part's."""

    def __init__(self, part: str) -> None:
        """Start without lines, in the block ``start``."""
        self._part, self._block = part, "start"
        self._lines: list[str] = []
        self.declared: set[str] = set()

    def __str__(self) -> str:
        """Return the lines."""
        return "\n  ".join(self._lines)

    def __call__(self, operation: str) -> str:
        """Add a line that computes something, and return its name."""
        name = f"%{self._part}{len(self._lines)}"
        self._lines.append(f"{name} = {operation}")
        return name

    def do(self, operation: str) -> None:
        """Add a line that computes nothing."""
        self._lines.append(operation)

    @contextmanager
    def loop(self, relation: str, bound: str, *first: tuple[str, str]) -> Iterator[Loop]:
        """Repeat the lines while the first of some values, given with their kinds, relates to a bound."""
        label, before = f"{self._part}{len(self._lines)}", self._block
        self._enter(f"{label}.turn", f"br label %{label}.turn")
        place = len(self._lines)
        loop = Loop([self("phi") for _ in first], [])
        more = self(f"icmp {relation} {first[0][0]} {loop.values[0]}, {bound}")
        self._enter(f"{label}.body", f"br i1 {more}, label %{label}.body, label %{label}.end")
        yield loop
        for line, (kind, start), then in zip(range(place, place + len(first)), first, loop.then, strict=True):
            self._lines[line] += f" {kind} [{start}, %{before}], [{then}, %{self._block}]"
        self._enter(f"{label}.end", f"br label %{label}.turn")

    @contextmanager
    def each(self, count: str, step: str | int = 1) -> Iterator[str]:
        """Repeat the lines for 0, step, 2 step and so on below a count."""
        with self.loop("ult", count, ("i64", "0")) as loop:
            yield loop.values[0]
            loop.then = [self(f"add nuw i64 {loop.values[0]}, {step}")]

    def _enter(self, block: str, branch: str) -> None:
        """End a block with a branch, and begin another one."""
        self._lines += [branch, f"{block}:"]
        self._block = block

    def call(self, kind: str, function: str, *given: tuple[str, str]) -> str:
        """Return what one of the language's own functions makes of arguments, each with its kind."""
        self.declared.add(f"declare {kind} @llvm.{function}({', '.join(each for each, _ in given)})")
        return self(f"call {kind} @llvm.{function}({', '.join(map(' '.join, given))})")

    def clear(self, address: str, count: int) -> None:
        """Fill some bytes with zeros."""
        self.declared.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        self.do(f"call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {count}, i1 false)")

    def at(self, table: str, kind: str, index: str | int) -> str:
        """Return the address of an entry of a table."""
        return self(f"getelementptr {kind}, ptr {table}, i64 {index}")

    def load(self, kind: str, address: str) -> str:
        """Return what is at an address; a vector need not be aligned."""
        return self(f"load {kind}, ptr {address}{', align 2' if kind.startswith('<') else ''}")

    def prefetch(self, address: str, *, once: bool = False) -> None:
        """Let memory bring the line of an address into the second level of the cache; wait for nothing.

        What is read ``once`` passes that level by, where the processor can, and pushes nothing out of it.
        """
        self.declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 {0 if once else 2}, i32 1)")

    def prefetch_next_page(self, address: str, size: int) -> None:
        """Let memory bring what lies a page further on: a processor's own guesses end with each page."""
        for line in range(0, size, _LINE):
            self.prefetch(self.at(address, "i8", _PAGE + line))

    def columns(self, address: str, kind: str, width: int, dim: int) -> str:
        """Return a row of numbers, filled up with zeros."""
        row, size = f"<{width} x {kind}>", 8 if kind == "double" else 4
        if width == dim:
            return self(f"load {row}, ptr {address}, align {size}")
        name = f"masked.load.v{width}{'i' if kind == 'i32' else 'f'}{8 * size}.p0"
        fixed = ("i32", str(size)), (f"<{width} x i1>", _first(dim, width)), (row, "zeroinitializer")
        return self.call(row, name, ("ptr", address), *fixed)

    def put(self, row: str, address: str, width: int, dim: int) -> None:
        """Write the first columns of a row of floats."""
        kind = f"<{width} x float>"
        if width == dim:
            self.do(f"store {kind} {row}, ptr {address}, align 4")
            return
        flags, store = f"<{width} x i1>", f"@llvm.masked.store.v{width}f32.p0"
        self.declared.add(f"declare void {store}({kind}, ptr, i32, {flags})")
        self.do(f"call void {store}({kind} {row}, ptr {address}, i32 4, {flags} {_first(dim, width)})")

    def total(self, row: str, width: int) -> str:
        """Return the sum of a row of doubles, in an order that suits the processor."""
        kind, name = f"<{width} x double>", f"@llvm.vector.reduce.fadd.v{width}f64"
        self.declared.add(f"declare double {name}(double, {kind})")
        return self(f"call reassoc double {name}(double 0.0, {kind} {row})")

    def wide(self, short: str, count: int) -> str:
        """Return a vector of 16-bit integers in 32 bits each."""
        return self(f"sext <{count} x i16> {short} to <{count} x i32>")

    def all(self, value: str, kind: str, count: int) -> str:
        """Return a vector with one value in all lanes."""
        vector = f"<{count} x {kind}>"
        lane = self(f"insertelement {vector} poison, {kind} {value}, i64 0")
        return self(f"shufflevector {vector} {lane}, {vector} poison, <{count} x i32> zeroinitializer")

    def mixed(self, first: str, second: str, count: int, lanes: Sequence[int], kind: str = "i16") -> str:
        """Return some lanes of two vectors, those of the second counted on from the first's."""
        vectors, mask = (
            f"<{count} x {kind}> {first}, <{count} x {kind}> {second}",
            [f"i32 {x}" for x in lanes],
        )
        return self(f"shufflevector {vectors}, <{len(mask)} x i32> <{', '.join(mask)}>")

    def lanes(self, vector: str, kind: str, count: int) -> list[str]:
        """Return the entries of a vector."""
        return [self(f"extractelement <{count} x {kind}> {vector}, i64 {lane}") for lane in range(count)]

    def gathered(self, values: Sequence[str], kind: str) -> str:
        """Return a vector of these entries."""
        vector = "poison"
        for lane, value in enumerate(values):
            vector = self(f"insertelement <{len(values)} x {kind}> {vector}, {kind} {value}, i64 {lane}")
        return vector

    def folded(self, vector: str, lanes: int) -> str:
        """Return the sums of neighboring lanes of a vector of 32-bit integers: half as many."""
        return self._sum(vector, "poison", lanes, range(0, lanes, 2), range(1, lanes, 2))

    def sums(self, first: str, second: str, lanes: int) -> str:
        """Return a, b, c and d, each a sum over lanes, for vectors of 32-bit integers (a, c) and (b, d).

        Each of the four has at least four lanes. They are folded together, since the sum over the lanes of
        one costs more than a product, and moved within 128 bits as long as possible, which costs less.
        """
        fours, half = range(0, lanes, 4), lanes // 2
        low, high = (
            [f + s + other for f in fours for s in (skip, skip + 1) for other in (0, lanes)]
            for skip in (0, 2)
        )
        folded = self._sum(first, second, lanes, low, high)
        ends = [self.mixed(folded, "poison", lanes, range(start, start + half), "i32") for start in (0, half)]
        low, high = (
            [f + s + other for f in range(0, half, 4) for other in (0, half) for s in (skip, skip + 1)]
            for skip in (0, 2)
        )
        folded = self._sum(ends[0], ends[1], half, low, high)
        while half > 4:
            half //= 2
            folded = self._sum(folded, "poison", 2 * half, range(half), range(half, 2 * half))
        return folded

    def _sum(self, first: str, second: str, lanes: int, some: Sequence[int], others: Sequence[int]) -> str:
        """Return the sums of some lanes of two vectors and others."""
        one, other = (self.mixed(first, second, lanes, chosen, "i32") for chosen in (some, others))
        return self(f"add <{len(some)} x i32> {one}, {other}")


def _first(dim: int, width: int) -> str:
    """Return flags of the first columns."""
    return f"<{', '.join(f'i1 {str(column < dim).lower()}' for column in range(width))}>"


def can_compile() -> bool:
    """Whether llvmlite is there and loads, in a version that is new enough."""
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError):  # not there, or without the library that it is about
        return False
    return hasattr(llvm, "create_pass_builder")  # from 0.45


def host_features() -> dict[str, bool]:
    """Return which instructions the processor at hand has, by LLVM's names for them."""
    import llvmlite.binding as llvm

    return {str(name): bool(there) for name, there in llvm.get_host_cpu_features().items()}


def compile_for_host(program: str, numbers: int, addresses: int, name: str = "run") -> Compiled:
    """Compile a program, and return its function of that name, of some 64-bit numbers and then addresses."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(program)
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3
    )
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = False  # what is worth it is written in vectors; other loops are short
    llvm.create_pass_builder(machine, options).getModulePassManager().run(
        module, llvm.create_pass_builder(machine, options)
    )
    engine: Any = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * numbers, *[ctypes.c_void_p] * addresses)
    address = engine.get_function_address(name)
    return Compiled(address, engine, kind(address))
