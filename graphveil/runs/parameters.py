"""Constructor keywords from text: ``key=value``, typed by the method's own fields."""

import csv
import difflib
import importlib.util
import json
import math
import sys
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from graphveil._util import checks
from graphveil.data.tables.options import check_spelling
from graphveil.errors import ConfigError
from graphveil.estimators import METHODS, register

if TYPE_CHECKING:
    from graphveil.estimators.base import Estimator
    from graphveil.mechanisms import WeightedAllocation

_BOOLEANS = dict.fromkeys(("true", "yes", "on", "1"), True)
_BOOLEANS |= dict.fromkeys(("false", "no", "off", "0"), False)
_NONE = ("none", "null")
_LISTED = 8  # parameters that an error lists; of more, it lists the closest
# Of a union, the most restrictive member is tried first, then text, "none" included, then lists.
_STRICTNESS: dict[Any, int] = {bool: 0, int: 1, float: 2, str: 4, types.NoneType: 5, tuple: 6}


class _ParseError(Exception):
    """The text is no value of the type."""


def method_class(name: str) -> "type[Estimator]":
    if name not in METHODS:  # which finds methods as published that it does not list
        checks.one_of(tuple(METHODS), METHOD=name)
    return METHODS[name]


def model_class(name: str) -> Any:
    from graphveil.publish.results import LINK_METRICS

    if name not in LINK_METRICS:
        return method_class(name)
    from graphveil.links import link_model_class

    return link_model_class(name)


def check_parameters(cls: Any, parameters: Mapping[str, Any]) -> None:
    """Raise an error for a keyword that a method does not have, or for a value of another type.

    >>> from graphveil.estimators import METHODS
    >>> check_parameters(METHODS["gap"], {"hops": "two"})
    Traceback (most recent call last):
    graphveil.errors.ConfigError: hops='two' must be a whole number, and is of type str.
    """
    from graphveil.estimators.saved import parameter_types

    check_names(cls, parameters)
    for name, value in parameters.items():
        checks.fitting(name, value, parameter_types(cls)[name])


def check_names(cls: Any, names: Iterable[str]) -> None:
    """Raise an error for names that are not constructor keywords of a method, with the nearest match.

    >>> from graphveil.estimators import METHODS
    >>> check_names(METHODS["gap"], ["hoops"])
    Traceback (most recent call last):
    graphveil.errors.ConfigError: 'hoops' is not a parameter of gap; did you mean 'hops'?
    """
    from graphveil.estimators.saved import parameter_types

    for name in names:
        if name not in parameter_types(cls):
            nearest = checks.suggestion(name, parameter_types(cls))
            raise ConfigError(f"{name!r} is not a parameter of {cls.method}{nearest}")


def parse_parameters(
    method: str, flags: Mapping[str, Any], settings: Iterable[str], theta: Path | None = None
) -> dict[str, Any]:
    """Return the constructor keywords of a method from flags, ``key=value`` texts and a file of weights.

    >>> parse_parameters("mlp", {"delta": "1e-7"}, ["hidden=32", "batch_norm=no", "patience=none"])
    {'hidden': 32, 'batch_norm': False, 'patience': None, 'delta': 1e-07}
    """
    from graphveil.estimators.saved import parameter_types

    cls = model_class(method)
    parameters = read_settings(settings, parameter_types(cls), cls.method)
    if "seed" in parameters:
        raise ConfigError("The seed is not a parameter of a method. Use --seed instead of --set seed.")
    for name, value in {**flags, "theta": None if theta is None else read_theta(theta).theta}.items():
        if value is None:
            continue
        if name in parameters:
            raise ConfigError(f"{name} is given twice, by its option and by --set {name}. Keep one.")
        check_names(cls, [name])
        parameters[name] = parse_value(name, value, float | str) if name == "delta" else value
    return parameters


def read_settings(
    settings: Iterable[str], known: Mapping[str, Any], owner: str, *, several: bool = False
) -> dict[str, Any]:
    """Parse ``key=value`` texts with known keys and types; ``owner`` names their owner in errors.

    Args:
        several: Whether a text is a list of values, except for a keyword that is a list itself.

    >>> read_settings(["k=5"], {"k": int}, "feature-rr")
    {'k': 5}
    >>> read_settings(["hops=1,2"], {"hops": int}, "gap", several=True)
    {'hops': (1, 2)}
    """
    parsed = dict[str, Any]()
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            form = "name=a,b,c" if several else "key=value"
            raise ConfigError(f"--set {setting!r} has no value. Write --set {form}.")
        if key not in known:
            near = checks.suggestion(key, known) or "."
            few = [*known] if len(known) <= _LISTED else difflib.get_close_matches(key, known, n=3, cutoff=0)
            head = "Parameters" if len(few) == len(known) else "The closest parameters"
            raise ConfigError(f"--set {key}: {owner} has no such parameter{near} {head}: {', '.join(few)}.")
        if key in parsed:
            keep = f"Write --set {key}=a,b,c." if several else "Keep one."
            raise ConfigError(f"--set {key} is given twice. {keep}")
        if several:
            texts = [text] if get_origin(known[key]) is tuple else list_items(f"--set {key}", text)
            parsed[key] = tuple(parse_value(key, item, known[key]) for item in texts)
        else:
            parsed[key] = parse_value(key, text, known[key])
    return parsed


def list_items(flag: str, text: str | None) -> tuple[str, ...]:
    """Return the items of a list a,b,c; none if the option is not given.

    >>> list_items("--at", "0.5, 4"), list_items("--at", None)
    (('0.5', '4'), ())
    """
    found = () if text is None else tuple(item.strip() for item in text.split(","))
    if "" in found:
        raise ConfigError(f"{flag} {text!r} has an empty item. Write a list without empty items: a,b,c.")
    return found


def read_theta(path: Path) -> "WeightedAllocation":
    """Return the public weights of a JSON file, which are checked and never mended."""
    from graphveil.mechanisms import WeightedAllocation

    try:
        theta = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise ConfigError(f"Cannot read a JSON list of weights from {path}. Check --theta.") from None
    if not isinstance(theta, list) or any(isinstance(weight, str | bool | dict) for weight in theta):
        raise ConfigError(f"{path} must contain a JSON list of weights, one number per feature.")
    return WeightedAllocation(theta)


def parse_classes(text: str) -> tuple[str, ...]:
    """Read the names of classes from one line of CSV, in which a name with a comma is quoted.

    >>> parse_classes('red,"green, or blue"')
    ('red', 'green, or blue')
    """
    names = tuple(name.strip() for row in csv.reader([text], skipinitialspace=True) for name in row)
    if len(names) < 2 or len(set(names)) < len(names) or "" in names:
        raise ConfigError("--classes needs at least two different names, for example --classes a,b,c.")
    for name in names:
        check_spelling("--classes", name, "--classes a,b,c")
    return names


def parse_class_weight(text: str) -> str | dict[str, float]:
    """Read ``--class-weight``: ``balanced``, or the weights of classes.

    >>> parse_class_weight("balanced"), parse_class_weight("fraud=5, ok=0.5")
    ('balanced', {'fraud': 5.0, 'ok': 0.5})
    """
    if text.strip() == "balanced":
        return "balanced"
    weights = dict[str, float]()
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.rpartition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not (name and equals and math.isfinite(weight)) or name in weights:
            raise ConfigError(
                f"--class-weight {text!r} is neither 'balanced' nor a list of weights, each class once. "
                "Write --class-weight balanced, or --class-weight NAME=WEIGHT,NAME=WEIGHT."
            )
        weights[name] = weight
    return weights


def parse_value(key: str, text: str, hint: Any) -> Any:
    """Read one text as a value of a type.

    >>> parse_value("delta", "1e-7", float | str), parse_value("hops", "2", int | None)
    (1e-07, 2)
    """
    try:
        return _parse(text.strip(), hint)
    except _ParseError:
        raise ConfigError(f"{key}={text!r} is not valid: {key} is {_describe(hint)}") from None


def _parse(text: str, hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        for member in sorted(get_args(hint), key=_strictness):
            with suppress(_ParseError):
                return _parse(text, member)
    if get_origin(hint) is Literal:
        return _choice(text, {str(choice): choice for choice in get_args(hint)})
    if get_origin(hint) is tuple:
        return _items(text, get_args(hint))
    if hint is types.NoneType:
        return _choice(text.lower(), dict.fromkeys(_NONE))
    if hint is bool:
        return _choice(text.lower(), _BOOLEANS)
    if hint in (int, float, str):
        try:
            return hint(text)
        except ValueError:
            raise _ParseError from None
    raise _ParseError


def _strictness(hint: Any) -> int:
    return _STRICTNESS.get(getattr(hint, "__origin__", hint), 3)


def _choice(text: str, choices: dict[str, Any]) -> Any:
    if text not in choices:
        raise _ParseError
    return choices[text]


def _items(text: str, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    inside = text.strip("()[]").strip()
    texts = [item.strip() for item in inside.removesuffix(",").split(",")] if inside else []
    if "" in texts:
        raise _ParseError
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(texts)
    if len(hints) != len(texts):
        raise _ParseError
    return tuple(_parse(item.strip(), hint) for item, hint in zip(texts, hints, strict=True))


def _describe(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_describe(member) for member in get_args(hint))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return "a comma-separated list"
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        types.NoneType: "none",
    }
    return names.get(hint, str(hint))


def load_custom_module(text: str) -> str | None:
    """Return the name of an architecture, or of the module in a file that is run; None for a method."""
    from graphveil.estimators.base import Estimator
    from graphveil.estimators.own.code import ARCHITECTURES, factory_name

    if text in ARCHITECTURES:
        return text
    found = load_custom_code(text)
    return None if isinstance(found, type) and issubclass(found, Estimator) else factory_name(found)


def load_custom_code(text: str) -> Any:
    """Run a file and register the object NAME in it, from ``FILE.py:NAME``.

    A custom method is added to ``METHODS``; any other class or function of two sizes can then be used as
    ``module``. Paths stored in run folders never reach this function.
    """
    from graphveil.estimators.own.code import ARCHITECTURES  # lazy: loads torch

    path, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier() or not path.endswith(".py"):
        raise ConfigError(
            f"--module {text!r} is neither a built-in architecture ({', '.join(ARCHITECTURES)}) nor "
            "of the form FILE.py:NAME, for example models.py:MyGNN."
        )
    file = Path(path)
    if not file.is_file():
        raise ConfigError(f"--module: there is no file {path}. Check its path.")
    found = getattr(_imported(file), name, None)
    if found is None:
        raise ConfigError(f"--module: {file.name} does not define {name!r}.")
    return register(found)


def _imported(file: Path) -> Any:
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
