from typing import Any, Literal

import pytest

import graphveil as gv
from graphveil.errors import ConfigError
from graphveil.estimators.saved import parameter_types
from graphveil.runs.parameters import parse_classes, parse_value, read_settings


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("2", int, 2),
        ("2", float, 2.0),
        ("1e-7", float | str, 1e-7),
        ("auto", float | str, "auto"),
        ("none", int | None, None),
        ("none", str | None, "none"),
        ("none", tuple[str, ...] | None, None),
        ("a,b", tuple[str, ...] | None, ("a", "b")),
        ("3", int | None, 3),
        ("True", bool, True),
        ("0", bool, False),
        ("paper", Literal["strict", "paper"], "paper"),
        ("1,2,3", tuple[int, ...], (1, 2, 3)),
        ("(0.5, 1)", tuple[float, float], (0.5, 1.0)),
        ("inf", float, float("inf")),
    ],
)
def test_values_are_typed_by_the_field(text: str, hint: Any, value: object) -> None:
    parsed = parse_value("key", text, hint)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [("two", int), ("2.5", int), ("maybe", bool), ("loose", Literal["strict"]), ("1,x", tuple[int, ...])],
)
def test_other_text_is_rejected_with_what_is_expected(text: str, hint: Any) -> None:
    with pytest.raises(ConfigError, match=r"key=.* is not valid: key is "):
        parse_value("key", text, hint)


# of text, "none" is a text: no mechanism, backend or module of one's own is said by leaving it out
NO_TEXT = (  # which would be a name
    *(("feature_range", None), ("perturb", None), ("encoder", None), ("head", None), ("backend", None)),
    ("positive", None),
)


def test_every_default_of_every_method_can_be_written_as_text() -> None:
    for name, cls in gv.METHODS.items():
        budgets: dict[str, Any] = {"epsilon": 1.0}
        local = name != "auto" and cls.is_local("local-attributes")
        if local:
            budgets = {"eps_x": 0.0 if cls.reads_labels_only({}) else 1.0, "eps_y": 0.5}
        unit = (
            "local-attributes" if local else "none" if name in ("sage", "gcn", "gat") else "undirected-edge"
        )
        if name == "heterorr":
            unit, budgets["eps_x"] = "edge-subset", 2.0
        if name in ("gnn", "module"):
            unit, budgets["module"] = "node-record", "MyGNN"
        if name == "relational":
            unit = "row"
        model = cls(unit=unit, **budgets)
        given = {name: value for name, value in model.get_params().items() if (name, value) not in NO_TEXT}
        settings = [f"{name}={value}" for name, value in given.items()]
        assert read_settings(settings, parameter_types(cls), name) == given


@pytest.mark.parametrize("text", ["'a','b'", "a,'b'", "\u2018a\u2019,b", "a\\,b"])
def test_classes_in_quotes_of_a_shell_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="has a quote or backslash"):
        parse_classes(text)
    assert parse_classes('a, "b, or c", it\'s') == ("a", "b, or c", "it's")
