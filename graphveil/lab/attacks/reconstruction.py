"""Reconstruction: records from what their nodes sent, by an inverse that was learned on public records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import uniform_filter

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.lab.attacks.inverses import Learner, Map, identity, ridge
from graphveil.lab.attacks.roc import Floats
from graphveil.mechanisms import FeatureMechanism, LocalNoise

NAIVE, ADAPTIVE = "naive (learned without noise)", "adaptive (learned with the same noise)"
MEAN, SHUFFLED = "mean of public records", "shuffled (somebody else's)"
_WINDOW = 7
_LUMINANCE, _CONTRAST = 0.01**2, 0.03**2  # of images between 0 and 1


@checked
@dataclass(frozen=True, eq=False)
class ReconstructionReport:
    """How close attackers and controls come to the records. Internal.

    Args:
        qualities: figures by attacker (:func:`quality`).
        drawn: what each of them reconstructed, (records, d).
        epsilon: the budget of one record.
    """

    qualities: Mapping[str, Mapping[str, float | None]]
    drawn: Mapping[str, Floats]
    epsilon: float

    def as_dict(self) -> dict[str, Any]:
        """Return what ``graphveil attack reconstruction --json`` prints."""
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
    """Return how well records are reconstructed from randomized embeddings of them.

    The embedding is public, and so are some records of the same kind. The *naive* attacker learns its inverse
    from their clean embeddings, the *adaptive* one from embeddings that it randomized itself by the same
    mechanism: the honest adversary, who gives the mean where noise leaves nothing else. Beside them stand the
    mean of the public records, and the adaptive attacker's records dealt to the wrong people: what is no
    closer than that tells nothing about anybody.

    Args:
        public: the attacker's own records (n, d).
        secret: those that are attacked (m, d).
        mechanism: what a node does to its embedding before it sends it.
        embed: the public map that nodes apply first, into the mechanism's bounds.
        learn: how an inverse is learned.
        side: of images, for structural similarity; None for tables.
        copies: how often the adaptive attacker randomizes each public record.
        seed: of all noise and draws. It is an experiment's noise, on records that the caller knows.

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
        checks.integer_at_least(_WINDOW, side=side)
        checks.shape((-1, side * side), public=public)
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


@checked
def quality(found: Floats, true: Floats, *, side: int | None = None) -> dict[str, float | None]:
    """Return how close reconstructions are: squared error, PSNR, SSIM, R^2, people identified.

    R^2 is the share of all attributes' variance that is explained, which is below 0 for a guess worse than
    their means. A person is identified if the nearest of all true records is its own; ties share.

    Args:
        found, true: records (m, d), between 0 and 1 if they are images.
        side: of images, for SSIM over windows of seven pixels; None leaves it out.
    """
    if found.shape != true.shape or not len(true):
        raise ConfigError(f"reconstructions of shape {found.shape} are not of records of shape {true.shape}")
    if side is not None:
        checks.integer_at_least(_WINDOW, side=side)
        checks.shape((-1, side * side), found=found)
    error = float(((found - true) ** 2).mean())
    variance = float(((true - true.mean(axis=0)) ** 2).mean())
    return {
        "mse": error,
        "psnr": float(-10 * np.log10(error)) if error > 0 else None,
        "ssim": None if side is None else _mean_similarity(found, true, side),
        "r2": 1 - error / variance if variance > 0 else None,
        "identified": _identified(found, true),
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


def _randomized(mechanism: FeatureMechanism, rows: Floats, noise: LocalNoise, purpose: str) -> Floats:
    return mechanism.estimate(mechanism.perturb(rows, stream=noise.stream(purpose))).astype(np.float64)


def _mean_similarity(found: Floats, true: Floats, side: int) -> float:
    shape = (-1, side, side)
    pairs = zip(found.reshape(shape), true.reshape(shape), strict=True)
    return float(np.mean([similarity(one, other) for one, other in pairs]))


def _identified(found: Floats, true: Floats) -> float:
    """Return the share of reconstructions whose nearest true record is their own."""
    distances = (true**2).sum(axis=1) - 2 * found @ true.T
    nearest = distances.min(axis=1, keepdims=True)
    best = distances <= nearest + 1e-9
    return float((np.diag(best) / best.sum(axis=1)).mean())
