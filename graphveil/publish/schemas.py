"""The JSON files of a release folder as validated models: closed fields and strict types."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from graphveil._util.files import write_atomic
from graphveil.data.tables.encoding import ColumnRule, Encoding
from graphveil.errors import ArtifactError, UnitError
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import GuaranteeRecord
from graphveil.publish.queries import QUERY_KINDS, QueryRow

VERSION: Literal[1] = 1
MAX_INTEGER = 10**7  # no width, depth or count of a model is larger; seeds and public bounds may be
_MAX_BYTES = 16 << 20
INFINITE = "inf"  # how a file writes it


class StrictSchema(BaseModel):
    """A model with a closed set of fields and strict types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


AnySchema = TypeVar("AnySchema", bound=StrictSchema)


class ReleasedShape(StrictSchema):
    """The public sizes that determine networks and plans."""

    features: int = Field(ge=1, le=MAX_INTEGER)
    classes: int = Field(ge=1, le=MAX_INTEGER)  # 1 if a number is predicted
    nodes: int | None = Field(default=None, ge=1)
    train_records: int | None = Field(default=None, ge=0)


class ScaledColumnSchema(StrictSchema):
    """One scaled column of features."""

    column: int = Field(ge=0, lt=MAX_INTEGER)
    center: float = Field(allow_inf_nan=False)
    scale: float = Field(gt=0, allow_inf_nan=False)
    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)
    public: bool = False


class ScalingSchema(StrictSchema):
    """How feature columns are scaled before networks read them."""

    columns: list[ScaledColumnSchema]
    bound: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    learned: list[int] = []


def _possible_rule(rule: ColumnRule) -> ColumnRule:
    """Return a stored rule, whose type has no bounds; the error of a file never repeats its value."""
    places = 2 if rule.places is None else rule.places
    if not 0 <= rule.width <= MAX_INTEGER or not 2 <= places <= MAX_INTEGER:
        raise ValueError("A column has an impossible width or number of places.")
    return rule


class ModelFile(StrictSchema):
    """``model.json``: the method and its public configuration."""

    format: Literal["graphveil-model"] = "graphveil-model"
    version: Literal[1] = VERSION
    library: str = Field(max_length=40)
    method: str = Field(max_length=40)
    parameters: dict[str, Any]
    shape: ReleasedShape
    class_names: list[str]
    scaling: ScalingSchema | None = None
    columns: list[Annotated[ColumnRule, AfterValidator(_possible_rule)]] | None = None


def _known_query_kind(kind: str) -> str:
    """Return a stored kind; the error of a file never repeats its value."""
    if kind not in QUERY_KINDS:
        raise ValueError("There is no kind of query with this name.")
    return kind


class ReleaseSchema(StrictSchema):
    """One noisy result of a query of protected data."""

    kind: Annotated[str, AfterValidator(_known_query_kind)]
    sensitivity: float = Field(gt=0, allow_inf_nan=False)
    noise_std: list[float]
    values_per_node: int | None
    steps: int | None = Field(default=None, ge=1)
    pays: list[str] = []
    words: str = Field(default="", max_length=200)


class PrivacyFile(StrictSchema):
    """``privacy.json``: the guarantee for readers, and the inputs of its accounting."""

    format: Literal["graphveil-privacy"] = "graphveil-privacy"
    version: Literal[1] = VERSION
    guarantee: dict[str, Any]
    record: GuaranteeRecord
    sampler: str | None
    releases: list[ReleaseSchema]


def write_schema(path: Path, record: StrictSchema) -> None:
    write_atomic(path, (record.model_dump_json(indent=1) + "\n").encode())


def read_schema(path: Path, kind: type[AnySchema]) -> AnySchema:
    """Read and validate a model; errors name the field, never its value."""
    if path.stat().st_size > _MAX_BYTES:
        raise ArtifactError(
            f"{path.name} is larger than {_MAX_BYTES >> 20} MiB, the largest size of such a file. "
            "Restore it from the original run."
        )
    with rejecting(path):
        try:
            return kind.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ArtifactError(
                f"{path.name}: {first_complaint(error)}. Restore it from the original run."
            ) from None


@contextmanager
def rejecting(path: Path) -> Iterator[None]:
    """Convert any error of a parser on a damaged or malicious file into one typed error."""
    try:
        yield
    except ArtifactError:
        raise
    except Exception as error:
        raise ArtifactError(
            f"{path.name} is damaged or does not match the rest of its folder "
            f"({type(error).__name__}). Restore it from the original run."
        ) from None


def plain_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON values, without infinity and without code.

    A budget of inf becomes text, a class or function its name, and a number that names a class text.

    >>> plain_parameters({"eps_x": math.inf, "hidden": 16})
    {'eps_x': 'inf', 'hidden': 16}
    """
    named = {
        name: {str(key): part for key, part in value.items()} if isinstance(value, Mapping) else value
        for name, value in parameters.items()
    }
    return {
        name: INFINITE if value == math.inf else getattr(value, "__name__", value)
        for name, value in named.items()
    }


def first_complaint(error: ValidationError) -> str:
    """Return the first validation error, without the offending value."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the file"
    return f"{place[:80]}: {first['msg'].lower()}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """All contents of a release folder, and the per-node results if they are available.

    Args:
        features, classes, nodes, train_records: Public sizes; None for those that a file omits.
        class_names: Labels by class number; empty for unnamed classes.
        proba: Probabilities (N, C), or predicted numbers (N, 1); None if they are not public.
        ids: The nodes' own ids, or None for numbers.
        scaling: Scaling of feature columns, as plain values; None without scaling.
        encoding: Names of feature columns, and how each became features; None without a table.
        chosen_method: Method that was chosen among several, for the model card; None if there was no choice.
    """

    method: str
    parameters: Mapping[str, Any]
    features: int
    classes: int
    guarantee: Guarantee
    nodes: int | None = None
    train_records: int | None = None
    class_names: tuple[str, ...] = ()
    rows: tuple[QueryRow, ...] = ()
    sampler: str | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)
    released: Mapping[str, Tensor] = field(default_factory=dict)
    proba: Tensor | None = None
    ids: npt.NDArray[Any] | None = None
    scaling: Mapping[str, Any] | None = None
    encoding: Encoding | None = None
    chosen_method: str | None = None

    @property
    def own_proba(self) -> Tensor:
        """Probabilities (N, C)."""
        if self.proba is None:
            raise no_predictions_note(self.guarantee)
        return self.proba

    @property
    def named_classes(self) -> tuple[str, ...]:
        """The label of each class, or its number if labels have no names; empty if a number is predicted."""
        if self.classes == 1:
            return ()
        return self.class_names or tuple(str(number) for number in range(self.classes))


def no_predictions_note(guarantee: Guarantee) -> ArtifactError | UnitError:
    if guarantee.edge_use == "neighbors":
        return uncovered_weights_note()
    return ArtifactError(
        f"This release contains no predictions, because under unit {guarantee.unit!r} they are "
        "only for people authorized to access the record of a node. Load the run folder that has "
        "per_node/ next to release/, or name it: load_model(..., per_node=...)."
    )


def uncovered_weights_note() -> UnitError:
    """Return the error for parameters trained on exact neighbors, where no prediction is covered."""
    return UnitError(
        "The guarantee of this model covers its parameters only: a prediction reads the exact "
        "records of neighbors without protection. Run model.module_ only if every viewer is "
        "authorized to access these records, or fit with neighborhood='published', which covers "
        "predictions."
    )
