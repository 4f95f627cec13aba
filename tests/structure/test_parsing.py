"""Similarities by name: parameters are literals, and mistakes are named."""

import pytest

from graphveil.errors import ConfigError
from graphveil.papers.similarity import SIMILARITIES, MultiHop, Node2Vec, parse_similarity


@pytest.mark.parametrize("name", SIMILARITIES)
def test_every_name_has_its_defaults(name: str) -> None:
    assert parse_similarity(name) == SIMILARITIES[name]() == parse_similarity(f"{name}()")


def test_parameters_go_in_brackets() -> None:
    assert parse_similarity("multihop(n=3, delta=0.1)") == MultiHop(n=3, delta=0.1)
    assert parse_similarity(" node2vec(top=None, above=0.9,q=2)") == Node2Vec(top=None, above=0.9, q=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("multihops", "did you mean 'multihop'"),
        ("", "Use one of multihop"),
        ("multihop(m=3)", "name=value"),
        ("multihop(3)", "name=value"),
        ("multihop(n=3", "is not supported"),
        ("multihop(n=)", "name=value"),
        ("multihop(n=__import__('os'))", "name=value"),
        ("multihop(**{'n': 3})", "name=value"),
        ("multihop(n=0)", "n=0"),
        ("multihop(n='a')", "n='a'"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_similarity(text)
