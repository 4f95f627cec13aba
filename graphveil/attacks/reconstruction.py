"""Reconstruction of records from randomized embeddings, by an inverse that is fitted to public records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.ndimage import uniform_filter

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.attacks.roc import Floats
from graphveil.core.features import to_dense
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.local.local_method import LocalMethod
from graphveil.mechanisms import FeatureMechanism, LocalNoise

Map: TypeAlias = Callable[[Floats], Floats]
Learner: TypeAlias = Callable[[Floats, Floats], Map]  # embeddings and their records, to an inverse
NAIVE, ADAPTIVE = "naive (learned without noise)", "adaptive (learned with the same noise)"
MEAN, SHUFFLED = "mean of public records", "shuffled (somebody else's)"
_WINDOW = 7
_LUMINANCE, _CONTRAST = 0.01**2, 0.03**2  # of images between 0 and 1
_PENALTIES = 10.0 ** np.arange(-6, 7)
_HELD_OUT = 0.2


def identity(x: Floats) -> Floats:
    return x


def ridge(seen: Floats, records: Floats) -> Map:
    """Fit the best linear inverse, with a penalty that is chosen on held-out records."""
    held = round(_HELD_OUT * len(seen))
    mean, offset = seen.mean(axis=0), records.mean(axis=0)
    centered, wanted = seen - mean, records - offset
    values, basis = np.linalg.eigh(centered[held:].T @ centered[held:])
    turned, target = centered[held:] @ basis, wanted[held:]
    fitted = turned.T @ target

    def weights(penalty: float) -> Floats:
        size = np.maximum(values, 0) + penalty * len(target)
        return np.asarray(basis @ (fitted / size[:, None]))

    def loss(penalty: float) -> float:
        return float(((centered[:held] @ weights(penalty) - wanted[:held]) ** 2).mean())

    chosen = weights(min(_PENALTIES, key=loss))
    return lambda x: np.asarray((x - mean) @ chosen + offset)


@checked
@dataclass(frozen=True, eq=False)
class ReconstructionReport:
    """Quality of the reconstructions of attackers and controls. Internal.

    Args:
        qualities: Measures by attacker (``quality``).
        drawn: Reconstructions by attacker (records, d).
        epsilon: Budget of one record.

    Privacy:
        Computed from true records, without a guarantee. Internal.
    """

    qualities: Mapping[str, Mapping[str, float | None]]
    drawn: Mapping[str, Floats]
    epsilon: float

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON output of ``graphveil attack reconstruction``."""
        return {
            "internal": True,
            "attack": "reconstruction",
            "epsilon": self.epsilon if np.isfinite(self.epsilon) else "inf",
            "records": len(self.drawn[MEAN]),
            "attackers": [{"attacker": name, **found} for name, found in self.qualities.items()],
        }


@checked
def attack_records(
    public: Floats,
    secret: Floats,
    mechanism: FeatureMechanism,
    *,
    embed: Map = identity,
    learn: Learner = ridge,
    side: int | None = None,
    copies: int = 4,
    seed: int = 0,
) -> ReconstructionReport:
    """Reconstruct records from their randomized embeddings, and measure the quality.

    The embedding is public, and so are some records of the same kind. The *naive* attacker fits an inverse to
    their clean embeddings. The *adaptive* attacker fits it to embeddings that it randomized with the same
    mechanism; it returns the mean if noise hides everything else. Both are compared with two controls: the
    mean of the public records, and the adaptive attacker's records assigned to other people. A reconstruction
    that is no closer than these reveals nothing about a person.

    Args:
        public: The attacker's own records (n, d).
        secret: The attacked records (m, d).
        mechanism: Local randomizer of a node's embedding.
        embed: Public map that nodes apply first, into the mechanism's bounds.
        learn: Function that fits an inverse.
        side: Side length of images, for structural similarity; None for tables.
        copies: Number of randomized copies of each public record, for the adaptive attacker.
        seed: Seed of all noise and draws.

    Returns:
        The reconstructions and their quality.

    Raises:
        ConfigError: If the shapes do not match, or an argument is out of range.

    Privacy:
        Reads: the secret records. Charges: nothing, since the noise is reproducible and for experiments only.
        The result is internal.

    >>> from graphveil.mechanisms import MultiBit
    >>> x = np.random.default_rng(0).random((300, 4))
    >>> exact = attack_records(x[:200], x[200:], MultiBit(epsilon=np.inf, dim=4))
    >>> exact.qualities["naive (learned without noise)"]["identified"]
    1.0
    """
    checks.integer_at_least(0, seed=seed)
    checks.integer_at_least(1, copies=copies)
    checks.shape((-1, -1), public=public)
    checks.shape((-1, public.shape[1]), secret=secret)
    if side is not None:
        _check_images(side, public=public)
    clean, noise = embed(public), LocalNoise(unsafe_noise_seed=seed)
    seen = _randomized(mechanism, embed(secret), noise, "victims")
    noisy = _randomized(mechanism, np.tile(clean, (copies, 1)), noise, "attacker")
    naive, adaptive = learn(clean, public)(seen), learn(noisy, np.tile(public, (copies, 1)))(seen)
    order = PublicStreams(seed).numpy("shuffled").permutation(len(secret))
    drawn = {
        NAIVE: naive,
        ADAPTIVE: adaptive,
        MEAN: np.broadcast_to(public.mean(axis=0), secret.shape),
        SHUFFLED: adaptive[order],
    }
    qualities = {name: quality(found, secret, side=side) for name, found in drawn.items()}
    return ReconstructionReport(qualities, drawn, mechanism.epsilon)


def attack_features(model: Estimator, graph: Graph, seed: int) -> ReconstructionReport:
    """Reconstruct the features of half of the nodes, given the features of the other half."""
    method = model.fitted.method
    mechanism = (
        method.report_config.mechanism(graph.num_features) if isinstance(method, LocalMethod) else None
    )
    if mechanism is None:
        raise ConfigError(
            "The reconstruction attack needs LDP reports of features (unit 'local-attributes', "
            f"methods lpgnn and simgat), but nodes in this run of {model.method} report "
            "no features."
        )
    bounds, x = mechanism.bounds, to_dense(graph.x).double().numpy()
    cut = np.asarray(bounds.real(bounds.unit(x)), dtype=np.float64)  # to the public range, as nodes do
    order = PublicStreams(seed).numpy("halves").permutation(len(x))
    public, secret = (cut[half] for half in np.array_split(order, 2))
    return attack_records(public, secret, mechanism, seed=seed)


def _check_images(side: int, **records: Floats) -> None:
    checks.integer_at_least(_WINDOW, side=side)
    checks.shape((-1, side * side), **records)


def _randomized(mechanism: FeatureMechanism, rows: Floats, noise: LocalNoise, purpose: str) -> Floats:
    return mechanism.estimate(mechanism.perturb(rows, stream=noise.stream(purpose))).astype(np.float64)


@checked
def quality(found: Floats, true: Floats, *, side: int | None = None) -> dict[str, float | None]:
    """Measure reconstructions: squared error, PSNR, SSIM, R^2, and the share of identified people.

    R^2 is the explained share of the variance of all attributes, below 0 for a guess worse than their means.
    A person is identified if the own record is the nearest of all true records; ties share.

    Args:
        found: Reconstructions (m, d), between 0 and 1 if they are images.
        true: True records (m, d).
        side: Side length of images, for SSIM over windows of seven pixels; None to leave SSIM out.

    Returns:
        The measures by name; None where a measure is undefined.

    Raises:
        ConfigError: If the shapes do not match.

    Privacy:
        Reads: the secret records. The result is internal.
    """
    if found.shape != true.shape or not len(true):
        raise ConfigError(
            f"the reconstructed records have the shape {found.shape}, but the true records have the "
            f"shape {true.shape}"
        )
    ssim = None
    if side is not None:
        _check_images(side, found=found)
        pairs = zip(found.reshape(-1, side, side), true.reshape(-1, side, side), strict=True)
        ssim = float(np.mean([similarity(one, other) for one, other in pairs]))
    error = float(((found - true) ** 2).mean())
    variance = float(((true - true.mean(axis=0)) ** 2).mean())
    distances = (true**2).sum(axis=1) - 2 * found @ true.T  # up to a constant of each reconstruction
    best = distances <= distances.min(axis=1, keepdims=True) + 1e-9
    return {
        "mse": error,
        "psnr": float(-10 * np.log10(error)) if error > 0 else None,
        "ssim": ssim,
        "r2": 1 - error / variance if variance > 0 else None,
        "identified": float((np.diag(best) / best.sum(axis=1)).mean()),
    }


def similarity(one: Floats, other: Floats) -> float:
    """Return the structural similarity of two images between 0 and 1 (Wang et al. 2004), uniform windows.

    >>> image = np.random.default_rng(0).random((8, 8))
    >>> similarity(image, image), similarity(image, 1 - image) < 0
    (1.0, True)
    """
    size = min(_WINDOW, *one.shape)
    means = [uniform_filter(part, size) for part in (one, other)]
    pairs = zip((one, other), means, strict=True)
    squares = [uniform_filter(part * part, size) - mean**2 for part, mean in pairs]
    shared = uniform_filter(one * other, size) - means[0] * means[1]
    above = (2 * means[0] * means[1] + _LUMINANCE) * (2 * shared + _CONTRAST)
    below = (means[0] ** 2 + means[1] ** 2 + _LUMINANCE) * (squares[0] + squares[1] + _CONTRAST)
    edge = size // 2  # windows that reach beyond the image are left out
    inner = (slice(edge, one.shape[0] - edge), slice(edge, one.shape[1] - edge))
    return float((above / below)[inner].mean())
