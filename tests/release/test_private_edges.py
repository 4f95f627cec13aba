"""One object of the release path reads protected edges.

READERS lists every other file outside of `core/edges/` and `data/` that reads the arrays of an adjacency,
with the reason why that is no unprotected read. A new reader fails the test. Lower MOST_READERS when you
remove a file.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "graphveil"
READS = {"indptr", "indices", "weights", "arrays", "edge_index"}
HOLDS = {"adjacency", "_adjacency"}

MOST_READERS = 14
READERS = {  # by part and file
    "core/private_edges.py": "the reader of queries",
    "core/exact_sums.py": "unit none",
    "nn/message_passing.py": "unit none, or public edges",
    "papers/as_published/edge_samples.py": "no valid guarantee",
    "papers/as_published/subgraph_sums.py": "no valid guarantee",
    "attacks/linkteller.py": "in the clear, internal",
    "audit/canaries.py": "made graphs, or the owner's own: internal",
    "audit/secret_edges.py": "in the clear, internal: for attacks and comparisons",
    "papers/as_published/measures.py": "in the clear, published data",
    "papers/similarity.py": "public edges",
    "local/posterior_mixture.py": "public edges",
    "perturb/mechanism.py": "public edges",
    "estimators/spectral.py": "released edges, or any without privacy",
    "local/local_method.py": "public edges",
}


def reads(path: Path) -> Iterator[str]:
    """Yield each place of a file that reads an adjacency's arrays, by the names that adjacencies go by."""
    for scope in ast.walk(ast.parse(path.read_text())):
        if isinstance(scope, ast.FunctionDef):
            held = {name for node in ast.walk(scope) for name in _held(node)}
            for node in ast.walk(scope):
                if isinstance(node, ast.Attribute) and node.attr in READS and _is_edges(node.value, held):
                    yield f"line {node.lineno}: {ast.unparse(node)}"


def _held(node: ast.AST) -> Iterator[str]:
    """Yield the names that a parameter or an assignment gives to an adjacency."""
    if isinstance(node, ast.arg) and "Adjacency" in ast.dump(node):
        yield node.arg
    if isinstance(node, ast.Assign):
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
        for target, value in zip(targets, values, strict=False):
            if isinstance(target, ast.Name) and _is_edges(value, set()):
                yield target.id


def _is_edges(node: ast.expr, held: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in HOLDS
    return isinstance(node, ast.Name) and node.id in held | HOLDS


def test_only_listed_files_read_edges() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        part = path.relative_to(PACKAGE)
        if part.parts[0] != "data" and part.parts[:2] != ("core", "edges"):
            found[part.as_posix()] = list(reads(path))
    assert {name: places for name, places in found.items() if places and name not in READERS} == {}
    assert {name for name in READERS if not found.get(name)} == set(), "take these off the list"
    assert len(READERS) == MOST_READERS, "a file more reads edges; or lower MOST_READERS with the list"


@pytest.mark.parametrize(
    "text",
    [
        "def f(adjacency):\n    return adjacency.indptr",
        "def f(x: Adjacency):\n    return x.indices",
        "def f(graph):\n    edges = graph.adjacency\n    return edges.indices",
        "def f(self):\n    n, edges = 1, self._adjacency\n    return edges.weights",
        "def f(graph):\n    return graph.adjacency.edge_index()",
    ],
)
def test_a_read_is_seen_under_other_names(text: str, tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(text)
    assert len(list(reads(tmp_path / "part.py"))) == 1
