"""Constructor keywords of the methods that learn from randomized records."""

from dataclasses import dataclass
from typing import Literal

from graphveil.local.lpgnn.feature_reports import BinCount, Samples
from graphveil.local.lpgnn.label_reports import Labels
from graphveil.local.lpgnn.noisy_labels import Select
from graphveil.local.lpgnn.posterior_mixture import Prior
from graphveil.local.lpgnn.scaling import Scaling
from graphveil.mechanisms.feature_rr import Decode
from graphveil.mechanisms.feature_rr import Mode as Rounding
from graphveil.mechanisms.features import Ends
from graphveil.propagation.kprop import Aggregator, Isolated

PosteriorUse = Literal["product", "evidence"]
POSTERIOR_USE: tuple[PosteriorUse, ...] = ("product", "evidence")


@dataclass(kw_only=True, eq=False, repr=False)
class LabelKeywords:
    """How each node randomizes its label.

    Args:
        eps_y: the budget of a node's label; inf sends it as it is.
        labels: how it is randomized: ``"rr"`` (randomized response: one class is said), ``"subset"`` (subset
            selection: several are, which tells more where there are many classes for the budget) or
            ``"hashing"`` (one of a few public groups of classes is, which tells nearly as much, and false
            clients least).
    """

    eps_y: float | None = None
    labels: Labels = "rr"


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureKeywords:
    """How each node randomizes its features.

    Args:
        eps_x: the budget of a node's features; inf sends them as they are.
        features: how features are randomized: ``"multi-bit"``, ``"1bm"``, ``"lpm"``, ``"agm"``, ``"duchi"``,
            ``"piecewise"``, ``"pm-sub"``, ``"hybrid"``, ``"three-outputs"`` (a sample of features each),
            ``"feature-rr"`` or ``"feature-rr-naive"``.
        m: of ``"multi-bit"``: ``"best"``, ``"floor"`` (the paper's) or a number of features.
        theta: public weights of the features, which add up to one: feature i tells at eps_x theta_i. Of
            ``"feature-rr"``, ``"lpm"`` and those that tell about a sample otherwise.
        k, rounding, decode: of ``"feature-rr"``: its bins, see :class:`~graphveil.mechanisms.FeatureRR`.
        low, high: the public range of all features, or one end a feature; what lies outside is cut. How many
            values are is counted in ``clipped_``, which is private.
        scaling: how features come into that range: ``"none"``, ``"row"`` (each node by its own smallest and
            largest feature) or ``"columns"`` (by everybody's, as in the paper: see below).
        data_dependent_bounds: your word for ``"columns"``, which depends on the records it is computed from
            and voids the guarantee.
    """

    eps_x: float | None = None
    features: str = "multi-bit"
    m: Samples = "best"
    theta: tuple[float, ...] | None = None
    k: BinCount = "auto"
    rounding: Rounding = "stochastic"
    decode: Decode = "unbiased"
    low: Ends = 0.0
    high: Ends = 1.0
    scaling: Scaling = "none"
    data_dependent_bounds: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class LocalKeywords(FeatureKeywords, LabelKeywords):
    """How each node randomizes its record, whatever is learned from the reports.

    Under unit ``local-attributes`` every node randomizes its features, and training and validation nodes
    their label, before the method sees anything. Nodes of another graph randomize their features alone. Under
    unit ``none`` records are exact. Arguments are those of :class:`FeatureKeywords` and
    :class:`LabelKeywords`.

    Guarantee: eps_x-LDP for a node's features and eps_y-LDP for its label, so eps_x + eps_y for the record;
    eps_x for one of another graph. With ``features="agm"`` it is (epsilon, delta).
    """


@dataclass(kw_only=True, eq=False, repr=False)
class LpgnnKeywords:
    """How a network learns from randomized records and public edges.

    Args:
        x_steps: K_x.
        y_steps: K_y; 0 learns what each node said about itself.
        aggregator: A^: ``"gcn"`` or ``"mean"``.
        self_loops: whether A^ has them.
        isolated: a node without neighbors gets ``"zero"`` from A^, or is left as it is (``"keep"``).
        backbone: ``"sage"``, ``"gcn"``, ``"gat"``, or ``"mlp"``, which sends no messages.
        forward_correction: whether the noise of labels is part of the model (T); otherwise it is learned.
        missing_labels: the share of training and validation nodes without a label, who say a class at random:
            public, since it cannot be told from what is said. It is part of T; a wrong one costs accuracy and
            no privacy.
        posterior_steps: if above 0, the network's probabilities are multiplied by what the randomized labels
            around a node say about it, from so many hops away (``log_posterior``): 16 for sparse graphs, 8
            for denser ones.
        prior: what those labels say: ``"diffusion"`` (a guess from afar, and what neighbors are guessed to
            be), ``"mixture"`` (with belief propagation and communities, as in
            :class:`~graphveil.local.label_posterior.LabelPosterior`) or ``"robust"`` (the same, and classes
            that false clients claim are not taken to be more common).
        posterior_use: ``"product"`` of both, or by ``"evidence"`` network, posterior or product: whatever
            makes what nodes said likeliest that neither heard. That trains a network for each of three parts.
        select: which epoch is kept: ``"paper"`` (every figure on noisy labels has to improve, none may pass
            what is possible) or ``"likelihood"`` (the least loss on randomized validation labels).
        hidden: width of the hidden layer (of each of four heads, for ``"gat"``).
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        dropout: share of hidden entries dropped while training.
        epochs: training epochs.
        learning_rate: the step size of Adam.
        weight_decay: the penalty on squared weights.
    """

    x_steps: int = 4
    y_steps: int = 4
    aggregator: Aggregator = "gcn"
    self_loops: bool = False
    isolated: Isolated = "zero"
    backbone: str = "sage"
    forward_correction: bool = True
    missing_labels: float = 0.0
    posterior_steps: int = 0
    prior: Prior = "diffusion"
    posterior_use: PosteriorUse = "product"
    select: Select = "paper"
    hidden: int = 16
    activation: str = "selu"
    dropout: float = 0.0
    epochs: int = 500
    learning_rate: float = 0.01
    weight_decay: float = 0.0
