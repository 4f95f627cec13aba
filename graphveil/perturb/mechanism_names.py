"""Mechanisms by name, as a configuration says them: ``edge-rr(structure=lazy_audited, rounds=50)``."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from graphveil._util.checks import parse_arguments, parse_name, suggestion
from graphveil.errors import ConfigError
from graphveil.perturb.mechanism import GraphMechanism, mechanism_for_mode
from graphveil.privacy.guarantee import Mode

_ELSEWHERE = ("epsilon", "max_edges")  # fields of mechanisms that have keywords and flags of their own


def mechanism_settings(mechanism: type[GraphMechanism]) -> list[str]:
    """Return the settings that a mechanism has in brackets."""
    return [part.name for part in fields(mechanism) if part.init and part.name not in _ELSEWHERE]


def parse_mechanism(
    text: str, known: Mapping[str, type[GraphMechanism]], *, mode: Mode = "strict", **common: Any
) -> GraphMechanism:
    """Return the mechanism that a text names, with its settings in brackets.

    Args:
        text: a name, or a name with settings.
        known: the mechanisms that there are, by name.
        mode: strict, or the published code's.
        common: further fields; one that the mechanism lacks is left out, one in brackets wins.

    Raises:
        ConfigError: no mechanism has this name, or it does not take these settings.
        NotImplementedGuaranteeError: no published code is reproduced for it.

    >>> from graphveil.perturb import MECHANISMS
    >>> parse_mechanism("arr(density_fraction=0.2)", MECHANISMS, epsilon=1.0, seed=3)
    ARR(epsilon=1.0, max_edges=20000000, density_fraction=0.2)
    """
    name = parse_name(text)
    if name not in known:
        raise ConfigError(
            f"perturb={text!r} names no mechanism{suggestion(name, known)}; take one of {', '.join(known)}, "
            "with settings in brackets if need be: edge-rr(structure=public, rounds=200)"
        )
    kind, given = mechanism_for_mode(known[name], mode), _settings(text)
    own = mechanism_settings(kind)
    unknown = [setting for setting in given if setting not in own]
    if unknown:
        raise ConfigError(
            f"perturb={text!r}: {name} has no setting {unknown[0]!r}{suggestion(unknown[0], own)}; it has "
            f"{', '.join(own) or 'none'}"
        )
    has = [part.name for part in fields(kind) if part.init]
    return kind(**({part: value for part, value in common.items() if part in has} | given))


def _settings(text: str) -> dict[str, Any]:
    try:
        return parse_arguments(text)
    except (TypeError, ValueError, SyntaxError):
        raise ConfigError(
            f"perturb={text!r}: settings are name=value pairs, as in edge-rr(structure=public, rounds=200)"
        ) from None
