"""Code of a user's own on the command line: its file is run because it was named there, and only then."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from graphveil.errors import ConfigError
from graphveil.estimators import register


def load_custom_code(text: str) -> Any:
    """Run a file and register what it calls NAME, from ``FILE.py:NAME``.

    A method of yours then stands in ``METHODS``, and any other class or function of two sizes can be named as
    ``module``. Nothing that is stored in a run folder ever leads here.

    Raises:
        ConfigError: the text is of another form, there is no such file or name, or the file fails.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier() or not path.endswith(".py"):
        raise ConfigError(f"--module {text!r} has another form than FILE.py:NAME, such as models.py:MyGNN")
    file = Path(path)
    if not file.is_file():
        raise ConfigError(f"--module: there is no file {path}; give its path")
    found = getattr(_imported(file), name, None)
    if found is None:
        raise ConfigError(f"--module: {file.name} has nothing that is called {name!r}")
    return register(found)


def _imported(file: Path) -> Any:
    """Run a file as a module of its own."""
    own = f"graphveil_own_{file.stem}"
    spec = importlib.util.spec_from_file_location(own, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[own]
        raise ConfigError(f"--module: {file.name} fails: {type(error).__name__}: {error}") from error
    return module
