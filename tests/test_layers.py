"""The package imports downwards only, each foreign package has one home, and nothing is ever unpickled."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "graphveil"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    {"errors", "_check", "_escape", "_random", "_files", "_local_words"},
    {"privacy", "graph"},
    {"mechanisms", "structure", "propagation", "ledger"},
    {"weights", "train"},
    {"release"},
    {"collect", "perturb", "networks", "artifacts", "aggregate"},
    {"models"},
    {"attacks", "audit"},
    {"experiment", "reproduce"},
    {"cli", "serve"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

HOMES = {  # foreign packages that only one part may import
    "dp_accounting": {"privacy"},
    "cryptography": {"_random"},
    "torch_geometric": {"graph"},
    "fastapi": {"serve"},
    "uvicorn": {"serve"},
    "sqlalchemy": {"ledger"},
    "gensim": {"structure"},
    "shap": {"mechanisms"},
    "plotly": {"experiment"},
    "typer": {"cli"},
}
LAZY = {"torch_geometric", "dp_accounting", "pyarrow", "gensim", "shap"}  # heavy: imported where used
FORBIDDEN = ("pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "random")
FORBIDDEN_CALLS = {
    "torch.load",
    "torch.save",
    "torch.manual_seed",
    "torch.random.manual_seed",
    "np.random.seed",
    "numpy.random.seed",
    "random.seed",
    "eval",
    "exec",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


def part_of(path: Path) -> str:
    """Return the part of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each import of a file, at whatever depth, with the dotted name of what is imported."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno} imports relatively"
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def ours(path: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each import of another part of the package."""
    for node, target in imports(path):
        parts = target.split(".")
        if parts[0] == "graphveil" and parts[1:] not in ([], ["__version__"]):
            yield node, parts[1]


def test_every_part_of_the_package_has_a_layer() -> None:
    parts = {part_of(path) for path in FILES} - {"__init__", "__main__"}
    assert parts <= set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    if part in ("__init__", "__main__"):  # the front door opens onto everything
        return
    for node, target in ours(path):
        if target == part:
            continue
        assert target in LEVEL, f"line {node.lineno}: graphveil.{target} has no layer"
        ground = LEVEL[part] == LEVEL[target] == 0  # the ground layer leans on itself
        assert ground or LEVEL[target] < LEVEL[part], f"line {node.lineno}: {part} may not import {target}"


def test_the_ground_layer_has_no_cycle() -> None:
    edges = {
        part_of(path): {target for _, target in ours(path)} for path in FILES if part_of(path) in LAYERS[0]
    }
    while edges:
        leaves = [part for part, targets in edges.items() if not targets & edges.keys()]
        assert leaves, f"a cycle among {sorted(edges)}"
        for leaf in leaves:
            del edges[leaf]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_each_foreign_package_has_one_home(path: Path) -> None:
    for node, target in imports(path):
        package = target.split(".")[0]
        homes = HOMES.get(package)
        assert homes is None or part_of(path) in homes, f"line {node.lineno}: {package} lives in {homes}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_heavy_packages_are_imported_where_they_are_used(path: Path) -> None:
    for node in _run_on_import(ast.parse(path.read_text()).body):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] not in LAZY, f"line {node.lineno}: import {name} lazily"


def _run_on_import(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run when the module is imported; those under TYPE_CHECKING do not."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test):
            yield from _run_on_import(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from _run_on_import(node.body)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_is_pickled_seeded_globally_or_executed(path: Path) -> None:
    for node, target in imports(path):
        assert target.split(".")[0] not in FORBIDDEN, f"line {node.lineno}: {target}"
    for call in calls(path):
        assert ast.unparse(call.func) not in FORBIDDEN_CALLS, f"line {call.lineno}: {ast.unparse(call)}"
        for keyword in call.keywords:
            text = f"{keyword.arg}={ast.unparse(keyword.value)}"
            assert text not in ("allow_pickle=True", "weights_only=False"), f"line {call.lineno}: {text}"


def test_importing_the_package_stays_light() -> None:
    heavy = [
        "torch_geometric",
        "pyarrow",
        "dp_accounting",
        "scipy.io",
        "typer",
        "rich",
        "safetensors",
        "torch",
    ]
    probe = f"import sys, graphveil; print(*[name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
