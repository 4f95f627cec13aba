"""What is asked, and how answers are randomised: public parameters, the same for device and server."""

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from graphveil.errors import ConfigError, MessageError
from graphveil.mechanisms.claim import Claim
from graphveil.mechanisms.local.allocation import Split, Weights
from graphveil.mechanisms.local.bounds import Bounds
from graphveil.mechanisms.local.feature_rr import FeatureRR
from graphveil.mechanisms.local.labels import LabelRR
from graphveil.mechanisms.local.multibit import MultiBit
from graphveil.mechanisms.local.statement import NOT_COLLECTED, node_features_statement

FORMAT = "graphveil-survey/1"
DIGEST_BYTES = 16

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The public parameters of one collection. A person answers it at most once.

    Args:
        features: how features are randomised, None if they are not collected.
        label: how the label is randomised, None if it is not collected.
        purpose: what the collection is for; it makes two collections of equal parameters differ.
        columns: what each feature is, in their order; empty if devices know it.
        class_names: what each class is, in their order; empty if devices know it.

    Raises:
        ConfigError: nothing is collected, or nothing is randomised; features would leave as they are, or
            names do not fit.

    >>> survey = Survey(label=LabelRR(epsilon=1.0, classes=3), purpose="pilot")
    >>> Survey.from_json(survey.to_json()) == survey
    True
    >>> survey.claim.epsilon
    1.0
    """

    features: MultiBit | FeatureRR | None = None
    label: LabelRR | None = None
    purpose: str = ""
    columns: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is something to collect, and that it is randomised."""
        if not isinstance(self.purpose, str):
            raise ConfigError("a survey's purpose is a text")
        if self.features is None and self.label is None:
            raise ConfigError("a survey collects features, a label or both")
        if not isinstance(self.features, MultiBit | FeatureRR | None):
            raise ConfigError("a survey collects features with MultiBit or FeatureRR")
        if self.features is not None and math.isinf(self.features.epsilon):
            raise ConfigError("features at epsilon=inf are not randomised; a survey does not collect them")
        if self.features is None and self.open_parts:
            raise ConfigError(
                "a label at epsilon=inf is not randomised, and the survey asks for nothing else: it would "
                "protect nobody; give the label a budget"
            )
        _check_names("columns", self.columns, 0 if self.features is None else self.features.dim)
        _check_names("class_names", self.class_names, 0 if self.label is None else self.label.classes)

    @property
    def claims(self) -> tuple[Claim, Claim]:
        """What an answer promises about the features and about the label."""
        features = NOT_COLLECTED if self.features is None else self.features.claim
        return features, NOT_COLLECTED if self.label is None else self.label.claim

    @property
    def claim(self) -> Claim:
        """What a whole answer promises: the two budgets add up."""
        features, label = self.claims
        return features + label

    @property
    def open_parts(self) -> tuple[str, ...]:
        """What of an answer is not protected: the label, if it is asked for as it is.

        >>> from graphveil.mechanisms import MultiBit
        >>> label = LabelRR(epsilon=math.inf, classes=3)
        >>> Survey(features=MultiBit(epsilon=1.0, dim=8), label=label).open_parts
        ('label',)
        """
        return ("label",) if self.label is not None and math.isinf(self.label.epsilon) else ()

    def statement(self, *, on_devices: bool | None = True) -> str:
        """Return the guarantee in words, of answers given on devices unless said otherwise."""
        return node_features_statement(*self.claims, on_devices=on_devices)

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that stand for every parameter; a message carries them."""
        return hashlib.sha256(self.to_json().encode()).digest()[:DIGEST_BYTES]

    def to_json(self) -> str:
        """Return the survey as canonical JSON, to be handed to devices."""
        parts = {
            "format": FORMAT,
            "purpose": self.purpose,
            "features": None
            if self.features is None
            else _features_json(self.features) | _names("columns", self.columns),
            "label": None
            if self.label is None
            else _label_json(self.label) | _names("names", self.class_names),
        }
        return json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Survey":
        """Return the survey of a JSON text.

        Raises:
            MessageError: it is not one, or of another version.
            ConfigError: a parameter is outside its range.
        """
        parts = _object(text)
        if parts.get("format") != FORMAT:
            raise MessageError(f"this is no survey of format {FORMAT}")
        try:
            features, label = _section(parts["features"]), _section(parts["label"])
            columns, names = features.pop("columns", ()), label.pop("names", ())
            survey = cls(
                features=_features(features) if features else None,
                label=_label(label) if label else None,
                purpose=parts["purpose"],
                columns=tuple(columns),
                class_names=tuple(names),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise MessageError(
                "a parameter of the survey is missing, unknown or of the wrong type"
            ) from error
        if survey.to_json() != text:
            raise MessageError("the survey is not in canonical form; take it as its author wrote it")
        return survey


def _features_json(law: MultiBit | FeatureRR) -> Json:
    common = {
        "epsilon": float(law.epsilon),
        "dim": law.dim,
        "low": law.bounds.low,
        "high": law.bounds.high,
        "from_data": law.bounds.from_data,
    }
    if isinstance(law, MultiBit):
        return common | {"mechanism": "multi-bit", "m": law.m}
    theta = law.allocation.theta if isinstance(law.allocation, Weights) else None
    return common | {
        "mechanism": "feature-rr",
        "k": law.k,
        "mode": law.mode,
        "decode": law.decode,
        "theta": theta,
    }


def _label_json(law: LabelRR) -> Json:
    return {"epsilon": _number(law.epsilon), "classes": law.classes}


def _names(key: str, names: tuple[str, ...]) -> Json:
    """Return names as a part of the JSON, which has none where there are none."""
    return {key: list(names)} if names else {}


def _check_names(what: str, names: tuple[str, ...], count: int) -> None:
    """Require as many different texts as there are features or classes, or none."""
    if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{what} must be texts")
    if names and (len(names) != count or len(set(names)) != count):
        raise ConfigError(f"{what} must be {count} different names, or none")


def _section(part: object) -> Json:
    """Return a copy of a part of the survey, to take its parameters from; empty if there is none."""
    if part is not None and not isinstance(part, dict):
        raise TypeError
    return dict(part or {})


def _features(given: Json) -> MultiBit | FeatureRR:
    mechanism = given.pop("mechanism")
    low, high = (
        tuple(end) if isinstance(end, list) else end for end in (given.pop("low"), given.pop("high"))
    )
    if not isinstance(from_data := given.pop("from_data"), bool):
        raise TypeError
    given["bounds"] = Bounds(low, high, from_data=from_data)
    if mechanism == "multi-bit":
        return MultiBit(**given)
    if mechanism != "feature-rr":
        raise MessageError("the survey names a mechanism that this version does not know")
    theta = given.pop("theta")
    return FeatureRR(**given, allocation=Split() if theta is None else Weights(theta))


def _label(given: Json) -> LabelRR:
    epsilon = given.pop("epsilon")
    return LabelRR(epsilon=math.inf if epsilon == "inf" else epsilon, **given)


def _number(value: float) -> float | str:
    """Return a number that JSON has."""
    return "inf" if math.isinf(value) else float(value)


def _object(text: str) -> Json:
    try:
        parts = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise MessageError("the survey is no JSON text") from error
    if not isinstance(parts, dict):
        raise MessageError("the survey is no JSON object")
    return parts
