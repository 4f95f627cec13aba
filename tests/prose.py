"""Everything that a person reads of the project, piece by piece: pages, docstrings and string literals."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from syntax import trees, walked

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Prose:
    """A piece of text that somebody reads.

    Args:
        path: its file, from the root of the project.
        kind: ``page``, ``docstring`` or ``string``.
        written: as it is written.
    """

    path: str
    kind: str
    written: str

    @cached_property
    def text(self) -> str:
        """The text with single spaces."""
        return " ".join(self.written.split())

    @cached_property
    def words(self) -> str:
        """The same without code: names, options, keys, doctests, blocks and where links lead."""
        if self.kind == "string" and " " not in self.written:
            return ""  # a name
        without = re.sub(r"^ *```.*?^ *```", " ", self.written, flags=re.MULTILINE | re.DOTALL)
        without = re.sub(r"^ +\w+(, \w+)*: ", " ", without, flags=re.MULTILINE)  # of arguments
        without = re.sub(r"^ *(>>>|\.\.\.) .*$", " ", without, flags=re.MULTILINE)
        return " ".join(re.sub(r"``.+?``|`[^`]+`|\]\([^)]*\)|'[\w-]+'", " ", without).split())


def pages() -> Iterator[Prose]:
    """Yield the README, the changelog and all pages of the documentation, notebooks among them."""
    roots = (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))
    docs = (path for kind in ("*.md", "*.ipynb") for path in (ROOT / "docs").rglob(kind))
    for path in (*roots, *sorted(docs)):
        yield _prose(path, "page", path.read_text(encoding="utf-8"))


def sources() -> Iterator[Prose]:
    """Yield the docstrings and the string literals of the package."""
    for path, tree in trees().items():
        nodes = walked(tree)
        documented = (
            node
            for node in nodes
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        )
        docstrings = {id(node.body[0].value) for node in documented if ast.get_docstring(node) is not None}  # type: ignore[attr-defined]
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts = (part.value for part in node.values if isinstance(part, ast.Constant))
                yield _prose(path, "string", " {} ".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield _prose(path, "docstring" if id(node) in docstrings else "string", node.value)


def _prose(path: Path, kind: str, text: str) -> Prose:
    return Prose(path.relative_to(ROOT).as_posix(), kind, text)
