"""Source mutations: replace text inside one named function of a copy of the package.

The table is `tests/contracts/seeded_bugs.py`. `benchmarks/mutations.py` applies each row of it and runs the
named test; `tests/contracts/test_seeded_bugs.py` checks that every row still applies.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATHS = ("installed", "torch", "compiled")


class StaleMutationError(Exception):
    """A mutation does not fit the source any more."""


@dataclass(frozen=True)
class Edit:
    """One replacement of text.

    Attributes:
        place: `module:qualname` of the function, method or class; an empty qualname is the whole module,
            which may be in C.
        old: Text that occurs exactly once within that object, copied as it is in the file.
        new: Text that takes its place.
    """

    place: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        """Path of the module, relative to the folder that contains the package."""
        module = Path(*self.place.partition(":")[0].split("."))
        others = module / "__init__.py", module.with_suffix(".c")
        return next((other for other in others if (ROOT / other).is_file()), module.with_suffix(".py"))

    def applied(self, text: str) -> str:
        """Return the source of the module with the replacement.

        Raises:
            StaleMutationError: If the object does not exist, `old` does not occur exactly once, or the result
                does not parse.
        """
        qualname = self.place.partition(":")[2]
        found = [(start, end) for start, end in _spans(text, qualname) if self.old in text[start:end]]
        if len(found) != 1 or text[found[0][0] : found[0][1]].count(self.old) != 1:
            raise StaleMutationError(f"{self.place} does not contain this text exactly once: {self.old!r}")
        start, end = found[0]
        part = text[start:end].replace(self.old, self.new)
        changed = text[:start] + part + text[end:]
        if changed == text:
            raise StaleMutationError(f"{self.place}: old and new text are the same: {self.old!r}")
        if self.path.suffix == ".c":
            return changed
        try:
            ast.parse(f"if True:\n{part}" if part[0].isspace() else part)  # the whole takes ten times as long
        except SyntaxError as error:
            raise StaleMutationError(f"{self.place} does not parse after the replacement: {error}") from error
        return changed


def _spans(text: str, qualname: str) -> Iterator[tuple[int, int]]:
    """Yield where objects of a qualified name begin and end, decorators included."""
    if not qualname:
        yield 0, len(text)
        return
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    for node in _named(_parsed(text), qualname.split(".")):
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        yield lines[first - 1], lines[node.end_lineno or node.lineno]


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _named(parent: ast.AST, names: list[str]) -> Iterator[Definition]:
    for node in _definitions(parent):
        if node.name == names[0]:
            yield from _named(node, names[1:]) if names[1:] else [node]


def _definitions(parent: ast.AST) -> Iterator[Definition]:
    """Yield functions and classes defined directly in an object, also under `if` and `try`."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Definition):
            yield node
        elif not isinstance(node, ast.expr):
            yield from _definitions(node)


@dataclass(frozen=True)
class Row:
    """One mutation with one test that must fail with it.

    Attributes:
        name: What is wrong.
        edits: Replacements, applied together.
        test: Node id of the test.
        reason: Text that the failure must contain. Without it only a failed assertion, `pytest.fail` or an
            exception that was expected and not raised counts.
        path: Which implementation runs. "installed" and "compiled" use the loops in C if they are built;
            "torch" runs as if they were not.
    """

    name: str
    edits: tuple[Edit, ...]
    test: str
    reason: str | None = None
    path: str = "installed"

    def __str__(self) -> str:
        suffix = "" if self.path == "installed" else f" ({self.path})"
        return f"{self.name}{suffix} <- {self.test}"

    @property
    def digest(self) -> str:
        """Short digest of everything that the row says."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def sources(self, folder: Path) -> dict[Path, str]:
        """Return the changed source files, by their paths relative to the folder of the package."""
        changed: dict[Path, str] = {}
        for edit in self.edits:
            text = changed.get(edit.path)
            changed[edit.path] = edit.applied((folder / edit.path).read_text() if text is None else text)
        return changed


def rows_of(bugs: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """Yield a row for each test and each path of each entry of a table."""
    for bug in bugs:
        unknown = set(bug) - {"name", "edits", "test", "reason", "paths"}
        if unknown:
            raise ValueError(f"{bug['name']} has unknown fields: {sorted(unknown)}")
        tests = [bug["test"]] if isinstance(bug["test"], str) else bug["test"]
        edits = tuple(Edit(*edit) for edit in bug["edits"])
        for test in tests:
            for path in bug.get("paths", PATHS[:1]):
                yield Row(bug["name"], edits, test, bug.get("reason"), path)
