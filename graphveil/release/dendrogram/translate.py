"""A few loops of plain Python in LLVM's language: the text that is translated is the oracle, too.

A function to translate has annotated parameters (``int``, ``float``, ``Ints``, ``Floats``) and holds
assignments, ``if``, ``while``, ``return``, arithmetic, comparisons, ``and`` and ``or`` (both sides are
evaluated), entries of arrays, ``log``, ``log1p``, ``exp``, and calls of functions translated with it. A
variable has the type of its first assignment, and an integer beside a float becomes one. Whole numbers have
64 bits and do not overflow here; ``//`` and ``%`` are for non-negative ones. Operations are those of C in
double precision, in the order in which they are written, so both ways give the same bits.

Why so. A chain of moves cannot be vectorized: each step depends on the last. Interpreted, a step takes some
ten microseconds, and compiled one or two. A second text of the loop in another language would have to be kept
equal by hand. Whatever else Python can say is refused (``NotImplementedError``, with the syntax tree of it)
when the module's own loops are translated: no data decides that, so only who changes a loop can see it.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil._llvm import Compiled, compile_for_host

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_TYPES = {"int": "i64", "float": "double", "Ints": "ints", "Floats": "floats"}
_IN_LLVM = {"ints": "ptr", "floats": "ptr"}
_ENTRY = {"ints": "i64", "floats": "double"}
_INT = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "sdiv", ast.Mod: "srem"}
_FLOAT = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_ORDER = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_MATH_FUNCTIONS = ("log", "log1p", "exp")

Value = tuple[str, str]  # type and name


def compile_function(main: Callable[..., None], *others: Callable[..., Any]) -> Compiled:
    """Return a function that takes the addresses of a table of numbers and then of the arrays of ``main``.

    Its numbers come first, all of them ``int``; floats are handed over in arrays. ``main`` returns nothing.
    """
    trees = [_tree(function) for function in (*others, main)]
    kinds = {tree.name: _returns(tree) for tree in trees}
    texts = [_Function(tree, kinds).text() for tree in trees]
    parameters = [_kind(arg) for arg in trees[-1].args.args]
    numbers = parameters.count("i64")
    declared = [f"declare double @{name}(double)" for name in _MATH_FUNCTIONS]
    return compile_for_host("\n".join([*declared, *texts]), numbers, len(parameters) - numbers)


def _tree(function: Callable[..., Any]) -> ast.FunctionDef:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    return tree


def _returns(tree: ast.FunctionDef) -> str:
    found = ast.unparse(tree.returns) if tree.returns else "None"
    return "void" if found == "None" else _TYPES[found]


def _kind(arg: ast.arg) -> str:
    assert arg.annotation is not None
    return _TYPES[ast.unparse(arg.annotation)]


class _Function:
    """One function under translation: variables lie in memory, from where LLVM takes them to registers."""

    def __init__(self, tree: ast.FunctionDef, kinds: dict[str, str]) -> None:
        """Take a function, and what those return that it may call."""
        self._tree, self._kinds = tree, kinds
        self._lines: list[str] = []
        self._entry: list[str] = []
        self._types: dict[str, str] = {}
        self._count = 0

    def text(self) -> str:
        """Return the function in LLVM's language."""
        given = [(arg.arg, _kind(arg)) for arg in self._tree.args.args]
        for name, kind in given:
            self._store(name, (kind, f"%given.{name}"))
        self._body(self._tree.body)
        kind = self._kinds[self._tree.name]
        ending = "ret void" if kind == "void" else "unreachable"
        public = kind == "void"
        listed = ", ".join(f"{_IN_LLVM.get(each, each)} %given.{name}" for name, each in given)
        head = (
            f"define {'' if public else 'internal '}{kind} @{'run' if public else self._tree.name}({listed})"
        )
        lines = "\n  ".join([*self._entry, *self._lines, ending])
        return f"{head} {{\nentry:\n  {lines}\n}}"

    def _name(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def _do(self, kind: str, operation: str) -> Value:
        name = self._name()
        self._lines.append(f"{name} = {operation}")
        return kind, name

    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                read = ast.parse(ast.unparse(target), mode="eval").body
                self._assign(target, self._arithmetic(op, self._value(read), self._value(value)))
            case ast.If(test=test, body=body, orelse=other):
                self._branch(test, body, other)
            case ast.While(test=test, body=body):
                self._loop(test, body)
            case ast.Return(value=ast.expr() as value):
                kind = self._kinds[self._tree.name]
                self._lines.append(f"ret {kind} {self._as(kind, self._value(value))}")
                self._label(f"after{self._name()[2:]}", jump=False)
            case ast.Expr(value=ast.Constant()):
                pass  # the docstring
            case _:
                raise NotImplementedError(ast.dump(node))

    def _assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._store(target.id, value)
            return
        assert isinstance(target, ast.Subscript)
        kind, address = self._address(target)
        self._lines.append(f"store {kind} {self._as(kind, value)}, ptr {address}")

    def _store(self, name: str, value: Value) -> None:
        kind = self._types.setdefault(name, value[0])
        stored = _IN_LLVM.get(kind, kind)
        if f"%own.{name} = alloca {stored}" not in self._entry:
            self._entry.append(f"%own.{name} = alloca {stored}")
        self._lines.append(f"store {stored} {self._as(kind, value)}, ptr %own.{name}")

    def _address(self, target: ast.Subscript) -> Value:
        kind, base = self._value(target.value)
        index = self._value(target.slice)[1]
        entry = _ENTRY[kind]
        return entry, self._do(entry, f"getelementptr {entry}, ptr {base}, i64 {index}")[1]

    def _label(self, name: str, *, jump: bool = True) -> None:
        if jump:
            self._lines.append(f"br label %{name}")
        self._lines.append(f"{name}:")

    def _branch(self, test: ast.expr, body: list[ast.stmt], other: list[ast.stmt]) -> None:
        mark = self._name()[2:]
        condition = self._truth(test)
        self._lines.append(f"br i1 {condition}, label %then{mark}, label %else{mark}")
        self._label(f"then{mark}", jump=False)
        self._body(body)
        self._lines.append(f"br label %end{mark}")
        self._label(f"else{mark}", jump=False)
        self._body(other)
        self._label(f"end{mark}")

    def _loop(self, test: ast.expr, body: list[ast.stmt]) -> None:
        mark = self._name()[2:]
        self._label(f"test{mark}")
        condition = self._truth(test)
        self._lines.append(f"br i1 {condition}, label %body{mark}, label %done{mark}")
        self._label(f"body{mark}", jump=False)
        self._body(body)
        self._lines.append(f"br label %test{mark}")
        self._label(f"done{mark}", jump=False)

    def _truth(self, node: ast.expr) -> str:
        match node:
            case ast.BoolOp(op=op, values=values):
                names = [self._truth(value) for value in values]
                word = "and" if isinstance(op, ast.And) else "or"
                found = names[0]
                for name in names[1:]:
                    found = self._do("i1", f"{word} i1 {found}, {name}")[1]
                return found
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(_ORDER[type(op)], self._value(left), self._value(right))
            case _:
                raise NotImplementedError(ast.dump(node))

    def _compared(self, order: str, left: Value, right: Value) -> str:
        if "double" in (left[0], right[0]):
            return self._do("i1", f"fcmp o{order} double {self._float(left)}, {self._float(right)}")[1]
        sign = "" if order in ("eq", "ne") else "s"
        return self._do("i1", f"icmp {sign}{order} i64 {left[1]}, {right[1]}")[1]

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() as number):
                return "i64", str(number)
            case ast.Constant(value=float() as number):
                return "double", f"0x{np.float64(number).view(np.uint64):016X}"
            case ast.Name(id=name):
                kind = self._types[name]
                return self._do(kind, f"load {_IN_LLVM.get(kind, kind)}, ptr %own.{name}")
            case ast.Subscript():
                kind, address = self._address(node)
                return self._do(kind, f"load {kind}, ptr {address}")
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
                return self._value(ast.Constant(-value))  # type: ignore[operator]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._arithmetic(ast.Sub(), ("i64", "0"), self._value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(op, self._value(left), self._value(right))
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._call(name, [self._value(arg) for arg in args])
            case _:
                raise NotImplementedError(ast.dump(node))

    def _arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        if "double" in (left[0], right[0]) or isinstance(op, ast.Div):
            word = _FLOAT[type(op)]
            return self._do("double", f"{word} double {self._float(left)}, {self._float(right)}")
        return self._do("i64", f"{_INT[type(op)]} i64 {left[1]}, {right[1]}")

    def _call(self, name: str, given: list[Value]) -> Value:
        if name in _MATH_FUNCTIONS:
            return self._do("double", f"call double @{name}(double {self._float(given[0])})")
        listed = ", ".join(f"{_IN_LLVM.get(kind, kind)} {value}" for kind, value in given)
        return self._do(self._kinds[name], f"call {self._kinds[name]} @{name}({listed})")

    def _float(self, value: Value) -> str:
        return self._as("double", value)

    def _as(self, kind: str, value: Value) -> str:
        if kind == "double" and value[0] == "i64":
            return self._do("double", f"sitofp i64 {value[1]} to double")[1]
        return value[1]
