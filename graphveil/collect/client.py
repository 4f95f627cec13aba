"""The side of the device: one record in, one message out. It needs NumPy and the operating system only."""

import os

import numpy as np
import numpy.typing as npt

from graphveil.collect.message import ID_BYTES, encode_all
from graphveil.collect.survey import Survey
from graphveil.errors import ConfigError, GraphError
from graphveil.mechanisms._draws import Integers, Real, Words


class Entropy:
    """Words from the operating system's generator: fresh at every call, and never repeated."""

    def serve(self, rows: Integers) -> None:
        """Serve every row: no two calls give the same words."""

    def words(self, rows: Integers, *, words_per_row: int) -> Words:
        """Return words of shape (rows, words_per_row)."""
        return _fresh(len(rows), words_per_row)

    def blocks(self, rows: Integers, offsets: Integers) -> Words:
        """Return words of shape (rows, 2)."""
        return _fresh(len(rows), 2)


def answer(survey: Survey, *, features: npt.ArrayLike | None = None, label: int | None = None) -> bytes:
    """Randomise one record and return the message to send.

    The message promises what ``survey.statement()`` says, whatever becomes of it. Call this once a survey and
    keep the message: a second answer of the same person doubles what is told about them.

    Args:
        survey: the public parameters; look at them before you answer.
        features: the record's features, shape (dim,); values outside the bounds are clipped.
        label: the record's class.

    Raises:
        ConfigError: features or label are missing, or the survey does not ask for them.
        GraphError: a value is NaN or infinite, the shape is wrong, or the label is none of the classes.
    """
    _check_parts(survey, features, label)
    record = None if survey.features is None else _record(features, survey.features.dim)
    one = None if survey.label is None else np.asarray(label)
    if one is not None and one.ndim:
        raise GraphError("a label is one whole number")
    return answer_all(survey, features=record, labels=None if one is None else one[None])[0]


def answer_all(
    survey: Survey, *, features: Real | None = None, labels: Integers | None = None
) -> list[bytes]:
    """Randomise many records, each on its own, and return the messages in order.

    For whoever holds several people's records: what :func:`answer` says of one holds of each.

    Args:
        survey: the public parameters.
        features: numbers (records, dim); values outside the bounds are clipped.
        labels: classes (records,).

    Raises:
        ConfigError: features or labels are missing, or the survey does not ask for them.
        GraphError: a value is NaN or infinite, a shape is wrong, or a label is none of the classes.

    >>> from graphveil.mechanisms import MultiBit
    >>> survey = Survey(features=MultiBit(epsilon=1.0, dim=2))
    >>> [len(message) for message in answer_all(survey, features=np.array([[0.1, 0.9], [0.5, 0.0]]))]
    [42, 42]
    """
    _check_parts(survey, features, labels)
    sizes = {len(part) for part in (features, labels) if part is not None}
    if len(sizes) != 1:
        raise GraphError("features and labels must be of the same records")
    ids = [os.urandom(ID_BYTES) for _ in range(sizes.pop())]
    reports = said = None
    if survey.features is not None and features is not None:
        reports = survey.features.perturb(features, stream=Entropy())
    if survey.label is not None and labels is not None:
        said = survey.label.perturb(labels, stream=Entropy())
    return encode_all(survey, ids, reports, said)


def _check_parts(survey: Survey, features: object, label: object) -> None:
    if (features is None) != (survey.features is None) or (label is None) != (survey.label is None):
        raise ConfigError("an answer has features and label exactly where the survey asks for them")


def _record(features: npt.ArrayLike | None, dim: int) -> Real:
    """Return one record's features as a matrix of one row."""
    try:
        record = np.asarray(features)
    except ValueError as error:
        raise GraphError(f"features must be {dim} numbers") from error
    if record.dtype.kind not in "iufb" or record.ndim != 1:
        raise GraphError(f"features must be {dim} numbers")
    return record.astype(np.float64)[None]


def _fresh(rows: int, words: int) -> Words:
    return np.frombuffer(os.urandom(8 * rows * words), dtype="<u8").reshape(rows, words)
