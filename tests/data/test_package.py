"""What the package shows, what it may import, and what it must not import before it is needed."""

import ast
import inspect
from pathlib import Path

import pytest

import graphveil.data as package

MODULES = sorted(Path(package.__file__).parent.glob("*.py"))
BELOW = {
    "graphveil.errors",
    "graphveil._aligned",
    "graphveil",
}
HEAVY = ("torch_geometric", "pyarrow", "scipy.io")

SURFACE = [
    "RECIPES",
    "Adjacency",
    "DatasetRecipe",
    "EdgeSet",
    "Features",
    "Graph",
    "PublicPart",
    "Split",
    "dataset_info",
    "hash_split",
    "list_datasets",
    "load_dataset",
    "open_graph",
    "prepare",
    "random_split",
    "read_graph",
    "rows",
    "split",
    "synthetic",
    "to_dense",
]


def imports(nodes):
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_surface():
    assert package.__all__ == SURFACE


@pytest.mark.parametrize("name", SURFACE)
def test_public_functions_and_classes_are_documented(name):
    thing = getattr(package, name)
    if inspect.isfunction(thing) or inspect.isclass(thing):
        assert inspect.getdoc(thing)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_imports_downwards_only(path):
    for module in imports(ast.walk(ast.parse(path.read_text()))):
        own = module.split(".")[:2] in (["graphveil", "data"], ["graphveil", "_util"])
        assert own or module in BELOW or not module.startswith("graphveil")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_heavy_packages_wait_until_they_are_needed(path):
    for module in imports(ast.parse(path.read_text()).body):
        assert not module.startswith(HEAVY)
