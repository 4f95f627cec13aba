"""Imports point down and never in circles, each foreign package has one home, and nothing is ever unpickled.

Each test looks at all files and lists every line that breaks its rule.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from syntax import PACKAGE, trees, walked

LAYERS = [  # upwards; parts on one line do not import each other
    {"_util", "errors"},
    {"core"},
    {"data", "privacy", "release"},
    {"ledger", "mechanisms", "training"},
    {"cluster", "nn", "perturb", "publish"},
    {"estimators"},
    {"audit", "links", "local"},
    {"attacks", "auto"},
    {"runs"},
    {"papers", "serve"},
    {"cli"},
]
RINGS = {"cluster", "papers", "serve"}  # built on the other parts, which never import them
ENTRANCES = {"__init__", "__main__", "backends"}  # public names alone
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

HOMES = {  # foreign packages that only one part may import
    "dp_accounting": {"core"},
    "cryptography": {"cluster", "core"},
    "torch_geometric": {"data"},
    "fastapi": {"serve"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "prometheus_client": {"serve"},
    "sqlalchemy": {"data", "ledger"},
    "gensim": {"papers"},
    "shap": {"papers"},
    "jinja2": {"_util"},
    "matplotlib": {"papers", "publish"},
    "mlflow": {"runs"},
    "typer": {"cli"},
    "duckdb": {"data"},
    "ray": {"cluster"},
}
LAZY = {
    "jinja2",
    "matplotlib",
    "mlflow",
    "torch_geometric",
    "dp_accounting",
    "pyarrow",
    "gensim",
    "shap",
    "duckdb",
    "ray",
}  # heavy: imported where used
FORBIDDEN = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "random"}
PICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
PICKLER_NAMES = PICKLERS | {"Unpickler", "read_pickle", "unpickle_data"}
# Parcels between a driver and its Ray workers: each part is authenticated before it is unpickled.
MAY_PICKLE = {"cluster/sealing.py"}
MAY_RESTORE = {"core/clipping/isolation.py"}  # saves and restores Python's generator around custom modules
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


Imports = Iterator[tuple[ast.stmt, str]]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def part_of(path: Path) -> str:
    """Return the part of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(PACKAGE.parent)}:{getattr(node, 'lineno', 0)}"


def imports(tree: ast.Module) -> Imports:
    """Yield each import of a file, at whatever depth, with the dotted name of what is imported."""
    for node in walked(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def ours(tree: ast.Module) -> Imports:
    """Yield each import from the package; its version is not a part of it."""
    for node, target in imports(tree):
        if target.startswith("graphveil.") and target != "graphveil.__version__":
            yield node, target


def dependencies() -> dict[str, set[str]]:
    """Return what each module imports, in functions and for types too; of a package, its ``__init__``."""
    modules, found = {module_of(path): tree for path, tree in trees().items()}, {}
    for module, tree in modules.items():
        targets = {target for _, target in ours(tree)}
        found[module] = {one if one in modules else one.rpartition(".")[0] for one in targets} - {module}
    return found


def circular(edges: dict[str, set[str]]) -> set[str]:
    """Return the modules that reach themselves along imports."""
    return {module for module in edges if module in _reached(edges, module)}


def _reached(edges: dict[str, set[str]], start: str) -> set[str]:
    found, left = set[str](), [start]
    while left:
        fresh = edges[left.pop()] - found
        found |= fresh
        left += fresh
    return found


def test_every_part_of_the_package_has_a_layer() -> None:
    parts = {part_of(path) for path in trees()} - ENTRANCES
    assert parts <= set(LEVEL)


def test_the_documented_layers_are_the_enforced_ones() -> None:
    page = (PACKAGE.parent / "docs" / "project" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Layers")[2].partition("```\n")[2].partition("```")[0].splitlines()
    documented = [set(re.split(r", | \| ", line[3:])) for line in reversed(table)]
    assert documented == LAYERS


def test_assertions_only_narrow_types() -> None:
    """``python -O`` removes assertions, so none may reject what a caller passes."""
    assert not [
        f"{place(path, node)}: {ast.unparse(node.test)}"
        for path, tree in trees().items()
        for node in walked(tree)
        if isinstance(node, ast.Assert) and not _narrows(node.test)
    ]


def _narrows(test: ast.expr) -> bool:
    """Return whether a condition compares with None or is an isinstance check, or several of these."""
    match test:
        case ast.BoolOp(op=ast.And()):
            return all(map(_narrows, test.values))
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.Call(func=ast.Name(id="isinstance")):
            return True
    return False


def test_every_import_is_absolute() -> None:
    assert not [
        place(path, node)
        for path, tree in trees().items()
        for node in walked(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]


def test_imports_point_down() -> None:
    assert not [
        f"{place(path, node)}: {part_of(path)} may not import {target}"
        for path, tree in trees().items()
        if part_of(path) not in ENTRANCES
        for node, target in ours(tree)
        if not _points_down(part_of(path), target.split(".")[1])
    ]


def test_the_core_imports_nothing_of_the_package_but_errors_and_utilities() -> None:
    """Not in functions and not for types either: what a guarantee rests on is in one folder."""
    allowed = ("graphveil.core.", "graphveil.errors.", "graphveil._util.")
    assert not [
        f"{place(path, node)}: {target}"
        for path, tree in trees().items()
        if part_of(path) == "core"
        for node, target in imports(tree)
        if target.split(".")[0] == "graphveil" and not target.startswith(allowed)
    ]


DOORS = {  # what opens a handle, and the files that may
    "_unwrap": set[str](),
    "_unwrap_queried": set[str](),
    "unwrapped": set[str](),
    "unwrapped_fields": set[str](),
    "per_node": {"estimators/fitted.py", "estimators/prediction_cache.py"},  # which store predictions
    "exact_labels": {"estimators/base.py"},  # the interface of the data owner
    "owner_total": {"local/local_estimator.py", "local/heterorr.py"},  # the same
    "kept_rows": {"estimators/gap/method.py"},  # stores them in a run's internal folder
    "cache_key": {"data/graph.py"},
    "features_digest": {"data/graph.py", "estimators/inference.py", "local/local_method.py"},  # in memory
}
PROTECTED = {"adjacency", "x", "y", "targets", "label_sets", "labeled", "train_mask", "val_mask", "test_mask"}
# The core, what loads a graph, and what acts for the owner or claims nothing.
READERS = ("core/", "data/", "attacks/", "audit/", "papers/as_published/")


@pytest.mark.parametrize("name", DOORS)
def test_only_the_core_opens_handles(name: str) -> None:
    assert not [
        place(path, node)
        for path, tree in trees().items()
        if part_of(path) != "core" and path.relative_to(PACKAGE).as_posix() not in DOORS[name]
        for node in walked(tree)
        if (isinstance(node, ast.alias) and node.name == name)
        or (name in ("_unwrap", "_unwrap_queried", "features_digest") and getattr(node, "attr", "") == name)
    ]


def _owner(node: ast.Attribute) -> str:
    return str(getattr(node.value, "id", getattr(node.value, "attr", "")))


def test_nothing_but_the_core_reads_protected_fields_of_a_graph() -> None:
    """A method reads a view, in which protected fields are handles; a name says which of both it is."""
    assert not [
        f"{place(path, node)}: {ast.unparse(node)}"
        for path, tree in trees().items()
        if not path.relative_to(PACKAGE).as_posix().startswith(READERS)
        for node in walked(tree)
        if isinstance(node, ast.Attribute) and node.attr in PROTECTED
        if "graph" in _owner(node) or _owner(node) in ("scaled", "other", "data")
    ]


def test_one_function_records_entries_in_a_ledger() -> None:
    """``charge`` of the core; ledgers call each other, and a session records the history of a training."""
    found = {
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"
        for path, tree in trees().items()
        if path.parts[len(PACKAGE.parts)] != "ledger" and path != PACKAGE / "core" / "ledger.py"
        for node in walked(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "record"
        if node.args and ast.unparse(node.func.value) != "session"
    }
    assert not found


def test_a_guarantee_is_imported_with_its_words() -> None:
    """``graphveil.privacy`` sets ``Guarantee.words``, so parts above the core take the class from there."""
    assert not [
        f"{place(path, node)}: import Guarantee from graphveil.privacy"
        for path, tree in trees().items()
        if part_of(path) not in ("core", "privacy")
        for node, target in imports(tree)
        if target == "graphveil.core.guarantee.Guarantee"
    ]


def test_no_inner_part_imports_a_ring() -> None:
    inner = set(LEVEL) - RINGS - {"cli"}
    assert not [
        f"{place(path, node)}: {target}"
        for path, tree in trees().items()
        if part_of(path) in inner
        for node, target in ours(tree)
        if target.split(".")[1] in RINGS
    ]


def _points_down(part: str, target: str) -> bool:
    """Whether one part may import another; the ground layer leans on itself, where no circle is allowed."""
    if target == part:
        return True
    return target in LEVEL and (LEVEL[part] == LEVEL[target] == 0 or LEVEL[target] < LEVEL[part])


def test_nothing_imports_in_a_circle() -> None:
    found = circular(dependencies())
    assert not found, sorted(found)


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"a"}}
    assert circular(edges) == {"a", "b", "c"}
    assert circular(edges | {"c": {"d"}}) == set()


def test_each_foreign_package_has_one_home() -> None:
    assert not [
        f"{place(path, node)}: {target} lives in {HOMES[target.split('.')[0]]}"
        for path, tree in trees().items()
        for node, target in imports(tree)
        if part_of(path) not in HOMES.get(target.split(".")[0], {part_of(path)})
    ]


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    assert not [
        f"{place(path, node)}: import {name} lazily"
        for path, tree in trees().items()
        for node in _run_on_import(tree.body)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
        if name.split(".")[0] in LAZY
    ]


def _run_on_import(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run when the module is imported; those under TYPE_CHECKING do not."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test):
            yield from _run_on_import(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from _run_on_import(node.body)


def test_nothing_is_pickled_seeded_globally_or_executed() -> None:
    found = [(path, node, what) for path, tree in trees().items() for node, what in _dangerous(tree)]
    pickling = {path.relative_to(PACKAGE).as_posix() for path, _, what in found if _pickles(what)}
    assert pickling == MAY_PICKLE
    others = [(path, node, what) for path, node, what in found if not _pickles(what)]
    restoring = {path.relative_to(PACKAGE).as_posix() for path, _, what in others if what == "random"}
    assert restoring == MAY_RESTORE
    assert not [f"{place(path, node)}: {what}" for path, node, what in others if what != "random"]


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import _pickle as p",
        "import os, pickle",
        "from ray import cloudpickle",
        "from pickle import loads",
        "from torch.serialization import pickle",
        "import ray\nray.cloudpickle.loads(b'')",
        "import pandas as pd\npd.read_pickle('x')",
        "from importlib import import_module\nimport_module('ray.cloudpickle')",
        "__import__('pickle')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import torch\ntorch.load('x', weights_only=False)",
        "import torch as t\nt.load('x')",
        "from torch import load",
    ],
)
def test_a_pickle_is_seen_under_other_names(text: str) -> None:
    assert list(_dangerous(ast.parse(text)))


def _pickles(what: str) -> bool:
    return bool(set(re.findall(r"\w+", what)) & PICKLER_NAMES)


def _dangerous(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield what unpickles, seeds for everybody, or executes what it is given."""
    torches = {"torch"}
    for node, target in imports(tree):
        parts = target.split(".")
        if parts[0] in FORBIDDEN or PICKLERS & set(parts) or target in FORBIDDEN_CALLS:
            yield node, target
        if isinstance(node, ast.Import):
            torches |= {one.asname for one in node.names if one.name == "torch" and one.asname}
    for node in walked(tree):
        if isinstance(node, ast.Attribute) and node.attr in PICKLER_NAMES:
            yield node, ast.unparse(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split(".")  # what import_module and __import__ are given
            if words[-1] in PICKLERS and all(word.isidentifier() for word in words):
                yield node, node.value
    for call in (node for node in walked(tree) if isinstance(node, ast.Call)):
        name, _, rest = ast.unparse(call.func).partition(".")
        if (f"torch.{rest}" if name in torches else ast.unparse(call.func)) in FORBIDDEN_CALLS:
            yield call, ast.unparse(call)
        keywords = {f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in call.keywords}
        yield from ((call, text) for text in keywords & {"allow_pickle=True", "weights_only=False"})


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
