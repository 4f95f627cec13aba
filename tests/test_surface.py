"""The front door: which names it has, that they are there, and that opening it costs nothing."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import graphveil as gv
from graphveil import estimators
from graphveil.core.backends import BACKENDS

PUBLIC = {
    "AutoClassifier",
    "ClassCode",
    "Estimator",
    "GAP",
    "GAT",
    "GCN",
    "Graph",
    "Guarantee",
    "HeteroRR",
    "Interactions",
    "LPGNN",
    "LabelPosterior",
    "LinkPredictor",
    "METHODS",
    "MLP",
    "MemoryLedger",
    "PrivateGNN",
    "PrivateModule",
    "Recommender",
    "RelationalClassifier",
    "ReleasedRows",
    "Rows",
    "SAGE",
    "SimGAT",
    "Spectral",
    "Tables",
    "attach_ledger",
    "attacks",
    "audit",
    "ledger_of",
    "calibrate",
    "compare",
    "backends",
    "errors",
    "list_datasets",
    "load_dataset",
    "load_model",
    "mechanisms",
    "open_graph",
    "perturb",
    "private_hops",
    "read_graph",
    "register",
    "split",
    "sweep",
}
_BOTH_LISTS = "__all__ in graphveil/__init__.py, or PUBLIC in tests/test_surface.py"


def test_the_list_of_public_names() -> None:
    # A name that is listed twice fails.
    assert sorted(gv.__all__) == sorted(PUBLIC), f"edit {_BOTH_LISTS}"
    assert len(gv.__all__) <= 45, "remove a public name from graphveil/__init__.py before you add one"


def test_what_is_there_after_an_import_is_public_and_submodules_need_no_import_of_their_own() -> None:
    pages = (Path(__file__).parents[1] / "docs" / "reference" / "python").glob("*.md")
    named = {name for page in pages for name in re.findall(r"heading: gv\.([a-z_]+)\.", page.read_text())}
    shown, modules, imported = run(  # in one process, where each would load torch
        "import graphveil; print(*(n for n in dir(graphveil) if not n.startswith('_')))\n"
        f"print(*(type(getattr(graphveil, n)).__name__ for n in {sorted(named)}))\n"
        "del graphveil\n"
        "from graphveil import *; print(*(n for n in dir() if not n.startswith('__')))"
    ).splitlines()
    assert set(shown.split()) == PUBLIC, f"edit __dir__ in graphveil/__init__.py, or {_BOTH_LISTS}"
    assert named and set(modules.split()) == {"module"}
    assert set(imported.split()) == PUBLIC, f"edit {_BOTH_LISTS}"


def test_type_checkers_see_the_names_that_are_there() -> None:
    tree = ast.parse(Path(gv.__file__).read_text())
    for_types = next(n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test))
    seen = {(a.name, node.module) for node in for_types.body for a in node.names}  # type: ignore[attr-defined]
    assert {name for name, _ in seen} == PUBLIC, "edit the TYPE_CHECKING imports in graphveil/__init__.py"
    for name, module in seen:
        home = import_module(module)
        found = getattr(home, name) if hasattr(home, name) else import_module(f"{module}.{name}")
        assert found is getattr(gv, name), f"edit the home of {name} in graphveil/__init__.py"


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(gv, name).__doc__, f"write a docstring for {name} in {getattr(gv, name).__module__}"
    assert name in dir(gv), "edit __dir__ in graphveil/__init__.py"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Gap'"):
        _ = gv.Gap  # type: ignore[attr-defined]


def test_the_table_of_methods_is_closed_and_agrees_with_its_classes() -> None:
    in_the_clear = ["sage", "gcn", "gat"]
    local, own = ["lpgnn", "label-posterior", "heterorr", "simgat"], ["gnn", "module"]
    assert [name for name in gv.METHODS if name not in estimators._REGISTERED] == [
        "auto",
        "mlp",
        "gap",
        *in_the_clear,
        "classcode",
        "relational",
        "spectral",
        "lpgnet",
        *local,
        *own,
    ], "edit _CLASSES in graphveil/estimators/__init__.py, and this list"
    for name, cls in gv.METHODS.items():
        assert cls.method == name, f"edit method of {cls.__name__} in {cls.__module__}"
    with pytest.raises(KeyError):
        gv.METHODS["os.system"]


def test_help_documentation_and_public_names_have_every_backend() -> None:
    from graphveil.cli import options

    table, documented = "BACKENDS in graphveil/core/backends.py", gv.backends.__doc__
    text = options.described(options.SharedOptions)["backend"].text
    homes = {
        f"{kind.__module__}:{kind.__name__}" for kind in vars(gv.backends).values() if isinstance(kind, type)
    }
    for name, home in BACKENDS.items():
        assert re.search(rf"\b{name}\b", text), (
            f"{name} of {table} is not in the help of graphveil/cli/options.py"
        )
        assert f'"{name}"' in str(documented), f"document {name} of {table} in graphveil/backends.py"
        assert home in homes, f"import {home} of {table} in graphveil/backends.py"


def test_the_version_is_that_of_the_package() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert gv.__version__ == pyproject["project"]["version"]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "scipy", "pyarrow", "pydantic", "rich", "typer")
    assert run(f"import sys, graphveil; print([m for m in {heavy!r} if m in sys.modules])") == "[]"


def test_running_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "graphveil", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"graphveil {gv.__version__}"


def test_fits_do_not_load_the_compiler_of_torch() -> None:
    """Only custom modules need ``torch.func.grad``, which spends a second on importing ``torch._dynamo``."""
    code = (
        "import sys, graphveil as gv\n"
        "graph = gv.load_dataset('synthetic/tiny')\n"
        "gv.ClassCode(unit='node-record', epsilon=8).fit(graph)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    assert run(code) == "False"
