"""The side of the device: one record in, one message out. It needs NumPy and the operating system only."""

import os

import numpy as np
import numpy.typing as npt

from graphveil.collect.message import ID_BYTES, Answer, encode
from graphveil.collect.survey import Survey
from graphveil.errors import ConfigError, GraphError
from graphveil.mechanisms._draws import Integers, Words
from graphveil.mechanisms.local.features import Reports


class Entropy:
    """Words from the operating system's generator: fresh at every call, and never repeated."""

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
    if (features is None) != (survey.features is None) or (label is None) != (survey.label is None):
        raise ConfigError("an answer has features and label exactly where the survey asks for them")
    return encode(survey, Answer(os.urandom(ID_BYTES), _features(survey, features), _label(survey, label)))


def _features(survey: Survey, features: npt.ArrayLike | None) -> Reports | None:
    if survey.features is None:
        return None
    try:
        record = np.asarray(features)
    except ValueError as error:
        raise GraphError(f"features must be {survey.features.dim} numbers") from error
    if record.dtype.kind not in "iufb" or record.ndim != 1:
        raise GraphError(f"features must be {survey.features.dim} numbers")
    return survey.features.perturb(record.astype(np.float64)[None], stream=Entropy())


def _label(survey: Survey, label: int | None) -> int | None:
    if survey.label is None:
        return None
    one = np.asarray(label)
    if one.ndim:
        raise GraphError("a label is one whole number")
    return int(survey.label.perturb(one[None], stream=Entropy())[0])


def _fresh(rows: int, words: int) -> Words:
    return np.frombuffer(os.urandom(8 * rows * words), dtype="<u8").reshape(rows, words)
