"""For all tests, before anything imports torch: no thread spins while it waits, and no draw has a deadline.

Both matter on a busy machine: small models crawl where threads spin, and a deadline fails whoever waits.
"""

import os
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
settings.register_profile("graphveil", deadline=None)
settings.load_profile("graphveil")


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Put the quick method for units of records into the table of methods."""
    from models.doubles import Double

    from graphveil import models

    monkeypatch.setitem(models._CLASSES, Double.method, (Double.__module__, Double.__name__))
    return Double
