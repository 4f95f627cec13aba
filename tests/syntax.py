"""Syntax trees of the package, parsed and walked once for all tests that read them."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "graphveil"


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the tree of each file of the package."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def walked(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a tree."""
    return tuple(ast.walk(tree))
