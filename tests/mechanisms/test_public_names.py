"""The door of the package: which names it has, and that a name loads only what it needs."""

import subprocess
import sys

import pytest

from graphveil import mechanisms


def test_every_public_name_has_a_home_and_is_documented() -> None:
    assert set(mechanisms._LAZY_IMPORTS) == set(mechanisms.__all__)
    assert dir(mechanisms) == sorted(mechanisms.__all__)
    for name in mechanisms.__all__:
        assert getattr(mechanisms, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Multibit'"):
        _ = mechanisms.Multibit


def test_local_mechanisms_load_without_torch() -> None:
    code = "import sys; from graphveil.mechanisms import FeatureRR, LabelRR, MultiBit, PerFeature; "
    code += "print([name for name in ('torch', 'scipy', 'cryptography') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
