"""Public names of graphveil.data, which are imported when they are first used."""

import inspect

import pytest

import graphveil.data as package


@pytest.mark.parametrize("name", package.__all__)
def test_public_names_can_be_imported_and_are_documented(name: str) -> None:
    found = getattr(package, name)
    assert inspect.getdoc(found) or not (inspect.isclass(found) or inspect.isroutine(found))


def test_unknown_names_raise_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'load_graph'"):
        package.load_graph  # noqa: B018
