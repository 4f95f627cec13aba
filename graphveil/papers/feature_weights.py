"""Public feature weights of HeteroRR, from scores of public records.

Such weights do not spend privacy budget. For weights computed from the record that they randomize, see
``as_published/record_feature_rr.py``.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil.core.noise.sampling import Floats, Integers
from graphveil.errors import ConfigError, MissingDependencyError, UnsupportedGuaranteeError
from graphveil.mechanisms.features import WeightedAllocation

Predict = Callable[[Floats], npt.ArrayLike]
_LEAST_PROBABILITY = 1e-12  # minimum probability, so that the loss of a wrong prediction is finite


def shares(values: npt.ArrayLike) -> Floats:
    """Return |v_i| / ||v||_1 of each row: equations 5 and 6 of HeteroRR. A row of zeros has equal shares.

    The values are z - zhat for the sensitivity (zhat: the features with sensitive ones masked), or SHAP
    values for the importance.

    >>> shares([[1.0, -3.0], [0.0, 0.0]]).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    size = np.abs(_matrix("values", values))
    total = size.sum(axis=1, keepdims=True)
    even = np.full_like(size, 1 / size.shape[1])
    np.divide(size, total, out=even, where=total > 0)
    return even


def combined(importance: npt.ArrayLike, sensitivity: npt.ArrayLike, gamma: float) -> Floats:
    """Return theta before normalization, row by row: equation 7 of HeteroRR.

        gamma alpha_i + (1 - gamma) (beta_min + beta_max - beta_i),

    with alpha the shares of the importance and beta those of the sensitivity. Important features with low
    sensitivity get the largest weight. A row sums to gamma + (1 - gamma) (d (beta_min + beta_max) - 1), not
    to one.

    >>> combined([[0.5, 0.5]], [[0.9, 0.1]], 0.5).tolist()
    [[0.3, 0.7]]
    """
    checks.within(0, 1, gamma=gamma)
    alpha, beta = shares(importance), shares(sensitivity)
    if alpha.shape[1] != beta.shape[1]:
        raise ConfigError(
            f"importance has {alpha.shape[1]} features, but sensitivity has {beta.shape[1]}. Both "
            "must have the same number."
        )
    ends = beta.min(axis=1, keepdims=True) + beta.max(axis=1, keepdims=True)
    theta: Floats = gamma * alpha + (1 - gamma) * (ends - beta)
    return theta


def public_weights(
    importance: npt.ArrayLike,
    sensitivity: npt.ArrayLike | None = None,
    *,
    public_records: bool,
    gamma: float = 0.5,
    allocation: Literal["linear", "cube_root"] = "linear",
) -> WeightedAllocation:
    """Return one theta for all records from the scores of public ones, for ``FeatureRR``.

    The shares of the records are averaged, combined by ``combined``, and normalized.

    Args:
        importance: Scores of size, such as SHAP values, (records, dim) or (dim,).
        sensitivity: Differences z - zhat, in the same shape; None to use the importance only.
        public_records: Assumption asserted by you: the scores were computed from public records only.
        gamma: Weight of the importance, from 0 (sensitivity only) to 1 (importance only).
        allocation: Transformation of the scores, ``"linear"`` as in the paper, or ``"cube_root"``, which
            minimizes the squared error of unbiased estimates, weighted by the combined scores.

    Returns:
        The allocation of the budget among features.

    Raises:
        UnsupportedGuaranteeError: If the records are not public: theta would depend on them.
        ConfigError: If scores are not finite or have different shapes, or gamma lies outside [0, 1].

    >>> public_weights([[0.5, 0.5]], [[0.9, 0.1]], public_records=True).theta
    (0.3, 0.7)
    >>> public_weights([8.0, 1.0], public_records=True, allocation="cube_root").theta
    (0.6666666666666667, 0.33333333333333337)
    """
    if public_records is not True:
        raise UnsupportedGuaranteeError(
            "Scores computed from private records reveal them, which epsilon does not bound. Compute "
            "the scores from public records and pass public_records=True, or use Split()."
        )
    checks.one_of(("linear", "cube_root"), allocation=allocation)
    alpha = shares(importance).mean(axis=0)
    beta = alpha if sensitivity is None else shares(sensitivity).mean(axis=0)
    scores = combined(alpha, beta, 1.0 if sensitivity is None else gamma)[0]
    return (
        WeightedAllocation.linear(scores) if allocation == "linear" else WeightedAllocation.cube_root(scores)
    )


def permutation_importance(
    predict: Predict, x: Floats, labels: Integers, *, rng: np.random.Generator, repeats: int = 5
) -> Floats:
    """Return the increase of a public model's loss if a feature is shuffled among public records, (dim,).

    This is the increase of the mean cross-entropy, averaged over the repeats, 0 if there is none (Breiman
    2001; Fisher, Rudin, Dominici, JMLR 2019). The model is a function of the whole matrix, so a network on a
    public graph is supported.

    Args:
        predict: Model that maps features (records, dim) to probabilities (records, classes).
        x, labels: Public records.
        rng: Public randomness.
        repeats: Number of shuffles per feature.

    Returns:
        Increase of the loss by feature, (dim,).

    Raises:
        ConfigError: If the model does not return probabilities, or a feature is not finite.

    Privacy:
        Reads: public records only. Charges: nothing.

    >>> predict = lambda x: np.stack([1 - x[:, 0], x[:, 0]], axis=1)
    >>> x = np.array([[0.1, 0.5], [0.9, 0.2], [0.8, 0.9], [0.2, 0.6]])
    >>> scores = permutation_importance(predict, x, np.array([0, 1, 1, 0]), rng=np.random.default_rng(0))
    >>> bool(scores[0] > 0.5), float(scores[1])
    (True, 0.0)
    """
    checks.integer_at_least(1, repeats=repeats)
    x = _matrix("x", x)
    base, scores, other = _cross_entropy(predict(x), labels), np.zeros(x.shape[1]), x.copy()
    for feature in range(x.shape[1]):
        for _ in range(repeats):
            other[:, feature] = rng.permutation(x[:, feature])
            scores[feature] += _cross_entropy(predict(other), labels) - base
        other[:, feature] = x[:, feature]
    return np.maximum(scores / repeats, 0)


def shap_importance(predict: Predict, x: Floats, background: Floats, *, seed: int = 0) -> Floats:
    """Return SHAP values of public records under a public model, for ``public_weights``, (records, dim).

    These are absolute values, averaged over the outputs (Lundberg, Lee, NeurIPS 2017). The package ``shap``
    computes them with permutations of the features: 2 dim + 1 evaluations per record, exact where features do
    not interact. The model receives one record at a time, so it cannot be a graph network. For a graph
    network, use ``permutation_importance``.

    Args:
        predict: Model that maps features (records, dim) to outputs (records, k) or (records,).
        x: Public records to explain.
        background: Public records that absent features are sampled from.
        seed: Seed of the permutations.

    Returns:
        Absolute SHAP values, (records, dim).

    Raises:
        MissingDependencyError: If shap is not installed.

    Privacy:
        Reads: public records only. Charges: nothing.
    """
    try:
        import shap
    except ImportError:
        raise MissingDependencyError(
            "SHAP values need the package shap. Install it with pip install 'graphveil[shap]', or "
            "use permutation_importance."
        ) from None
    x, background = _matrix("x", x), _matrix("background", background)
    masker = shap.maskers.Independent(background, max_samples=len(background))
    state = np.random.get_state()  # noqa: NPY002 - shap seeds the global generator; nobody else should notice
    try:
        explainer = shap.explainers.Permutation(predict, masker, seed=seed)
        found = explainer(x, max_evals=2 * x.shape[1] + 1, silent=True).values
    finally:
        np.random.set_state(state)  # noqa: NPY002 - as above
    values: Floats = np.abs(np.asarray(found, dtype=np.float64).reshape(*x.shape, -1)).mean(axis=2)
    return values


def _cross_entropy(probabilities: npt.ArrayLike, labels: Integers) -> float:
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or len(p) != len(labels):
        raise ConfigError("predict must return probabilities of shape (records, classes)")
    return float(-np.log(np.maximum(p[np.arange(len(p)), labels], _LEAST_PROBABILITY)).mean())


def _matrix(name: str, values: npt.ArrayLike) -> Floats:
    try:
        array = np.atleast_2d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must contain numbers, with shape (records, dim)") from error
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise ConfigError(f"{name} must contain finite numbers, with shape (records, dim)")
    return array
