"""Shared by the graph tests: where the public data sets lie, and a node table that is fine as it is."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of public data sets, or a skip with the reason."""
    beside = Path(__file__).parents[2].parent / "shared" / "data"
    root = Path(os.environ.get("GRAPHVEIL_DATA", beside))
    if not root.is_dir():
        pytest.skip("the public data sets are not here; set GRAPHVEIL_DATA to their folder")
    return root
