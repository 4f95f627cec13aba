"""Published mechanisms that randomize records or train on them: violated claims and sound ones."""

import math

import numpy as np

from graphveil.audit.noise import Floats, GaussianLaw, NoiseRecorder
from graphveil.audit.small_graphs import CLASSES, FEATURES, SmallGraph
from graphveil.papers.as_published.gallery.published_mechanism import RestatedValue, published_mechanism

EPSILON, BINS, BITS = 1.0, 10, 9
PARAMETERS = 16
DEGREE, MULTIPLIER = 5, 2.0  # of a program's step


@published_mechanism(
    "label response", "randomized response on three classes", unit="local-attributes", claim={"epsilon": 1.0}
)
def label_response(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """Randomized response on labels of three classes.

    Keep with probability e^eps / (e^eps + 2).
    """
    e = math.exp(EPSILON)
    noise.choose((np.eye(3)[graph.y] * (e - 1) + 1) / (e + 2))


def weights(importance: np.ndarray, sensitive: np.ndarray, gamma: float = 0.5) -> np.ndarray:
    """FeatureRR, equation 7: gamma alpha + (1 - gamma) (beta_min + beta_max - beta)."""
    flipped: np.ndarray = sensitive.min() + sensitive.max() - sensitive
    mixed: np.ndarray = gamma * importance + (1 - gamma) * flipped
    return mixed


def one_sensitive(d: int) -> np.ndarray:
    """Return public scores of d features, one of which is sensitive."""
    return np.asarray(np.eye(d)[0])


def feature_rr(graph: SmallGraph, noise: NoiseRecorder, theta: np.ndarray) -> None:
    """Bins of every feature, randomized at epsilon theta_i: Pr(u | t) = rho^|u - t| / C_t."""
    bins = np.arange(BINS)
    for feature, share in enumerate(theta):
        at = np.maximum(np.ceil(BINS * graph.x[:, feature]), 1) - 1
        law = np.exp(-EPSILON * share * np.abs(bins - at[:, None]) / (BINS - 1))
        noise.choose(law / law.sum(axis=1, keepdims=True))


@published_mechanism(
    "weights that do not sum to one",
    "HeteroRR, equation 7 (FeatureRR)",
    unit="local-attributes",
    kind="change",
    claim={"epsilon": EPSILON},
    figure=RestatedValue(
        "sum of the weights for d = 50, one sensitive feature, gamma 0.5",
        "formula of equation 7",
        25.0,
        lambda: float(weights(np.full(50, 0.02), one_sensitive(50)).sum()),
        1e-9,
    ),
)
def weights_as_they_are(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """FeatureRR with the weights of equation 7, which do not sum to one.

    Each feature is randomized at epsilon theta_i, and theta is claimed to share epsilon. It sums to gamma +
    (1 - gamma)(d (beta_min + beta_max) - 1). Correction: normalize, as the paper's appendix does.
    """
    feature_rr(graph, noise, weights(np.full(FEATURES, 1 / FEATURES), one_sensitive(FEATURES)))


@published_mechanism(
    "FeatureRR", "public weights that sum to one", unit="local-attributes", claim={"epsilon": 1.0}
)
def weights_that_sum_to_one(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """FeatureRR with public weights, normalized.

    Each feature costs its share of epsilon.
    """
    theta = weights(np.full(FEATURES, 1 / FEATURES), one_sensitive(FEATURES))
    feature_rr(graph, noise, theta / theta.sum())


def log_odds(bits: int, features: int, epsilon: float) -> np.ndarray:
    """Return the log odds that bit j = 0 .. bits - 1 of a feature is kept, as the program has them."""
    j = np.arange(bits)
    return np.asarray(epsilon * ((bits - j) / bits - ((bits + 1) * features + 1) / (4 * features * bits)))


@published_mechanism(
    "bit flipping",
    "HeteroRR's released program for features",
    unit="local-attributes",
    kind="change",
    claim={"epsilon": EPSILON},
    cost=RestatedValue(
        "sum over the bits of 50 features, in units of epsilon",
        "the log odds in the program",
        147.08,
        lambda: 50 * float(np.abs(log_odds(9, 50, 1.0)).sum()),
        1e-4,
    ),
)
def flipped_bits(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """Nine bits per feature, each flipped independently.

    Nine bits a feature are flipped with log odds that are each a share of epsilon, not shares that sum to it:
    bits and features add up. Correction: a budget for each bit.
    """
    whole = np.rint(graph.x[:, :, None] * (2**BITS - 1)).astype(np.int64)
    bits = (whole >> np.arange(BITS)) & 1
    noise.flip(bits, log_odds(BITS, FEATURES, EPSILON))


def piecewise(epsilon: float) -> tuple[float, float, float]:
    """Return e^epsilon, t = e^(epsilon / 3) and the scale s of PM-SUB."""
    e, t = math.exp(epsilon), math.exp(epsilon / 3)
    return e, t, (e + t) / (t * (e - 1))


def reach(epsilon: float) -> float:
    """Return the largest output of PM-SUB."""
    _, t, s = piecewise(epsilon)
    return s * (t + 1)


@published_mechanism(
    "a deterministic tail",
    "HeteroRR's baseline program of PM-SUB",
    unit="local-attributes",
    kind="mixture",
    claim={"epsilon": EPSILON},
    figure=RestatedValue(
        "largest output of PM-SUB at epsilon 1", "formula of PM-SUB", 4.10970318, lambda: reach(1.0), 1e-8
    ),
)
def deterministic_tail(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
    """PM-SUB with a right tail that is a product of two numbers computed from x.

    The right tail returns (C - R) R, which is a function of x, where it should be uniform between R and C.
    One value identifies one person's x. Correction: a uniform draw.
    """
    e, t, s = piecewise(EPSILON)
    x = 2 * graph.x[:, 0] - 1
    left, right, most = s * (x * t - 1), s * (x * t + 1), s * (t + 1)
    part, place = noise.hidden.random((2, graph.nodes))
    inside, low = e / (e + t), t * (1 + x) / (2 * (e + t))
    return np.select(
        [part < inside, part < inside + low],
        [left + place * (right - left), -most + place * (left + most)],
        (most - right) * right,
    )


def base_sensitivity(degree: int) -> float:
    """Return by how many clipping norms a step of one hop may change: twice the D + 1 terms of a node."""
    return 2.0 * (degree + 1)


def terms_of(graph: SmallGraph) -> Floats:
    """Return every node's gradient at zero weights: softmax on the mean over itself and its neighbors.

    A node is in at most DEGREE other nodes' means; shape (nodes, features, classes).
    """
    kept = graph.a * (np.cumsum(graph.a, axis=0) <= DEGREE) + np.eye(graph.nodes)
    means = kept @ graph.x / kept.sum(axis=1, keepdims=True)
    wrong = 1 / CLASSES - np.eye(CLASSES)[graph.y]
    return np.asarray(means[:, :, None] * wrong[:, None, :] / graph.nodes)


def percentile_of_norms(terms: Floats) -> float:
    """Return the 75th percentile of the terms' norms."""
    return float(np.percentile(np.linalg.norm(terms, axis=(1, 2)), 75))


@published_mechanism(
    "a clipping norm from the gradients",
    "node-level DP-SGD of a one-hop network (Daigavane et al., arXiv 2111.15521), its program "
    "differentially_private_gnns",
    unit="local-attributes",
    kind="noise scale",
    claim={"mu": 1 / MULTIPLIER},
    figure=RestatedValue(
        "noise of a step over its clipping norm, K = 5, one hop, multiplier 2",
        "program: compute_base_sensitivity and dp_aggregate with configs/dpgcn.py",
        24.0,
        lambda: noise_by_clipping_norm(),
        1e-9,
    ),
)
def thresholds_from_gradients(graph: SmallGraph, noise: NoiseRecorder, public: float | None = None) -> None:
    """A step of a one-hop network; clipping norm and noise follow true gradients, or a public norm.

    Clipping norms are the 75th percentile of the gradients' norms at the training nodes before the first
    step, and they are not charged. The length of the noise reveals them. Correction: a public norm, or a
    noisy quantile that is charged.
    """
    terms = terms_of(graph)
    clip = percentile_of_norms(terms) if public is None else public
    norms = np.maximum(np.linalg.norm(terms, axis=(1, 2)), 1e-12)
    clipped = terms * np.minimum(1, clip / norms)[:, None, None]
    noise.gaussian(clipped.sum(axis=0), MULTIPLIER * base_sensitivity(DEGREE) * clip)


def noise_by_clipping_norm() -> float:
    """Return the noise of such a step, by the law that is drawn from, in units of its clipping norm."""
    noise, rng = NoiseRecorder(np.random.default_rng(0)), np.random.default_rng(1)
    graph = SmallGraph.from_edges(6, [(0, v) for v in range(1, 6)], directed=False, rng=rng)
    thresholds_from_gradients(graph, noise)
    law = noise.steps[0].law
    assert isinstance(law, GaussianLaw)
    return float(law.scale) / percentile_of_norms(terms_of(graph))


@published_mechanism(
    "a public clipping norm",
    "one training step, records replaced",
    unit="local-attributes",
    claim={"mu": 1.0},
)
def public_threshold(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """A training step with a public clipping norm.

    A replaced record changes the sum by twice the norm.
    """
    norms = np.linalg.norm(graph.x, axis=1)
    noise.gaussian((graph.x * np.minimum(1, 1 / np.maximum(norms, 1e-12))[:, None]).sum(axis=0), 2.0)


def divisor(records: int, batch: int) -> int:
    """Return the divisor of a step: n divided by the number of batches, rounded down."""
    return int(records * (1 / max(1, math.ceil(records / batch))))


@published_mechanism(
    "a floor of the expected batch size",
    "make_private of Opacus 1.0 to 1.6 (its issues 571 and 819), where n is part of a record",
    unit="node-record",
    kind="noise scale",
    claim={"mu": 1 / 2.0},
    figure=RestatedValue(
        "what a step of batches of two is divided by, eleven records (ten: 2)",
        "program: expected_batch_size of the optimizer that make_private returns",
        1,
        lambda: divisor(11, 2),
    ),
)
def floored_batch_size(
    graph: SmallGraph, noise: NoiseRecorder, batch: int = 2, multiplier: float = 2.0
) -> None:
    """A step divided by int(n / ceil(n / B)), for n records with a label, at zero gradients.

    The rate is one over the number of batches, ceil(n / B), and a step's sum and noise are divided by int(n
    rate). With n = 4 and B = 2 that is 2, and without one record 1: twice the noise. The accountant assumes a
    public noise scale. Correction: divide by a public number.

    The step is then noise alone for every batch, so its secret coins need not be drawn.
    """
    records = int((graph.y >= 0).sum())
    noise.gaussian(np.zeros(PARAMETERS), multiplier / max(1, divisor(records, batch)))
