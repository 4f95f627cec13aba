"""Node-level query plan of ClassCode, and the division of one total mu over the queries.

Recipe S: encoder steps, three adaptive aggregations, and steps that fit the weights of aggregates and
features. Recipe R: encoder steps, one aggregation, and a combiner. Accuracy counts come last.
"""

import math
from dataclasses import dataclass

from graphveil._util import checks
from graphveil.core.queries.out_edge_sums import LEVEL, OutEdgeCodeSumQuery, OutEdgeSumQuery, replaced_change
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.query import Query
from graphveil.core.unit import NodeRecord
from graphveil.errors import ConfigError
from graphveil.estimators.public_sizes import GROUPS, PARTITION, TRAIN, VAL
from graphveil.estimators.training.record_plan import metric_queries

# Squared weights in sixteenths. Level 0 is not released; from there on factors of sqrt 2.
LEVELS = (0, *(round(16 * 2 ** (k / 2)) for k in range(20)))
FLAT_LEVELS = LEVELS[:2]  # released at weight one, or not
FIRST_LEVELS = LEVELS[:10]  # up to weight four
WEIGHTS = 2  # of recipe S: number of weights of features and aggregates
WEIGHTS_CLIP = 2.0  # clipping norm of a record's gradient by them
_EVIDENCE_WEIGHTS_SHARE = 0.02  # of mu^2, in recipe S: two numbers need little
_READING_SHARE, _COMBINER_SHARE = 0.2, 0.1  # of mu^2, for the encoder and the combiner of recipe R
_GRID_BITS, _FINEST_NOISE = 14, 256  # grid steps in the smallest noise of the aggregates
_MAX_CODE_BITS = 4  # finer grids make float32 sums of many contributions slow
_ROUNDING = 1e-12
_SHARE_RANGE, _RISE, _CLASSES = (0.1, 0.6), 0.2, 6


@dataclass(frozen=True)
class NoiseScales:
    """The noise at which a labeled record and an unlabeled one have the same privacy cost mu.

    ``encoder`` and ``combiner`` are noise multipliers of single steps (0 without such steps). ``pushes`` are
    standard deviations for labeled messages of norm one. ``bound`` is the norm bound of unlabeled messages.
    """

    encoder: float
    pushes: tuple[float, ...]
    combiner: float
    bound: float


@dataclass(frozen=True, kw_only=True)
class BudgetSplit:
    """Shares of mu^2: a labeled record is charged for all queries, an unlabeled one for its messages only.

    With mu^2 = sum of the steps' (shift / noise)^2, a labeled record's shares are fe for T1 encoder steps, fc
    for T2 combiner steps (recipe S: steps that weight aggregates) and fa = 1 - fe - fc for the aggregations.
    An unlabeled record takes part in the same aggregations with messages of norm at most B = 1 / sqrt(fa).
    With B^2 fa = 1 this is the whole budget.

    Args:
        encoder: fe; ``encoder_share`` suggests one.
        combiner: fc; 0 without a combiner.
        pushes: Shares of fa, one per aggregation; they sum to one.
        encoder_steps: T1.
        combiner_steps: T2.

    Raises:
        ConfigError: If a share or a number of steps is outside its range, or shares do not sum to one.
    """

    encoder: float = 0.1
    combiner: float = 0.0
    pushes: tuple[float, ...] = (0.4, 0.3, 0.3)
    encoder_steps: int = 60
    combiner_steps: int = 40

    def __post_init__(self) -> None:
        """Check the shares."""
        checks.within(0.001, 0.9, encoder=self.encoder)
        checks.within(0, 0.9, combiner=self.combiner)
        checks.integer_at_least(1, encoder_steps=self.encoder_steps, combiner_steps=self.combiner_steps)
        for share in self.pushes:
            checks.positive(pushes=share)
        if abs(sum(self.pushes) - 1) > _ROUNDING or self.aggregation < 0.05:
            raise ConfigError(
                f"The budget shares encoder={self.encoder}, combiner={self.combiner} and "
                f"pushes={self.pushes} are invalid. The shares in pushes must sum to 1, and encoder plus "
                "combiner must be at most 0.95."
            )

    @property
    def aggregation(self) -> float:
        """fa: the share of the aggregations."""
        return 1 - self.encoder - self.combiner

    def noise(self, mu: float) -> NoiseScales:
        """Return the noise for a total mu under nulled records; divide mu by the unit's change first.

        z1 = sqrt(T1 / fe) / mu, sigma_k = 1 / (mu sqrt(fa f_k)), z2 = sqrt(T2 / fc) / mu.

        >>> noise = BudgetSplit(encoder=0.1).noise(0.26805112)
        >>> round(noise.encoder, 4), [round(sigma, 4) for sigma in noise.pushes], round(noise.bound, 6)
        (91.3814, [6.2177, 7.1796, 7.1796], 1.054093)
        """
        checks.positive(mu=mu)
        return NoiseScales(
            math.sqrt(self.encoder_steps / self.encoder) / mu,
            tuple(1 / (mu * math.sqrt(self.aggregation * share)) for share in self.pushes),
            math.sqrt(self.combiner_steps / self.combiner) / mu if self.combiner else 0.0,
            1 / math.sqrt(self.aggregation),
        )


def code_push(
    unit: NodeRecord,
    classes: int,
    sigma: float,
    bounds: tuple[float, ...],
    out_degree_bound: int,
    levels: tuple[int, ...] = (LEVEL,),
) -> OutEdgeSumQuery:
    """Return a push of codes.

    Args:
        unit: Unit of the plan.
        classes: C.
        sigma: Standard deviation of the noise if a record moves the rows by ``unit.change`` bounds. Replaced
            codes of more than two classes differ by less, and the noise is smaller by the same factor.
        bounds: Maximum norm of a message by group.
        out_degree_bound: D.
        levels: Squared weights of the rows in sixteenths.

    >>> pushes = [code_push(NodeRecord(replace_one=True), classes, 4.0, (1.0,), 1) for classes in (2, 6)]
    >>> [(push.wire_name, round(push.sigma, 4)) for push in pushes]
    [('PushQuery', 4.0), ('OutEdgeCodeSumQuery', 3.0984)]
    """
    loudest = math.sqrt(max(levels) / LEVEL) * max(bounds)
    bits = max(_GRID_BITS, math.ceil(math.log2(2 * _FINEST_NOISE * loudest / sigma)))
    query: type[OutEdgeSumQuery] = OutEdgeSumQuery
    if unit.replace_one and classes > 2:
        query, sigma = OutEdgeCodeSumQuery, sigma * replaced_change(classes) / unit.change
        # Truncation reduces factors by up to (C-1)^1.5 steps.
        bits += min(math.ceil(1.5 * math.log2(classes - 1)), _MAX_CODE_BITS)
    return query(
        dim=classes - 1,
        sigma=sigma,
        out_degree_bound=out_degree_bound,
        levels=levels,
        partition=PARTITION,
        bounds=bounds,
        grid_bits=bits,
    )


def encoder_share(mu: float, parameters: int, records: int, classes: int = 6) -> float:
    """Return the encoder's share fe in recipe S: clip(6.5 k q^0.7, 0.1 k, 0.6) with q = sqrt(p) / (mu n).

    q compares the noise of a linear model with p parameters to the information in n records. With a small
    budget the features have more of it, since they need less; with a larger one the aggregates, which are
    more informative. Aggregates of few classes have few coordinates and tolerate more noise: k = max(1, 6 /
    C). Where 6.5 k q^0.7 is above 1, the features could use more than there is, and the bound 0.6 rises, to
    0.8 at 2. The constants were fitted to the test accuracy of four public graphs at epsilon 1 to 16, k and
    the rise to validation nodes of PubMed and Cora. Every input is public.

    >>> [round(encoder_share(mu, 438 * 6, 14235), 2) for mu in (0.268, 0.925, 2.905)]
    [0.32, 0.13, 0.1]
    >>> round(encoder_share(0.268, 501 * 3, 14777, classes=3), 2)
    0.51
    """
    low, high = _SHARE_RANGE
    few = max(1.0, _CLASSES / classes)
    wanted = 6.5 * few * math.pow(math.sqrt(parameters) / (mu * records), 0.7)
    return min(max(wanted, low * few), high + _RISE * min(max(wanted - 1, 0.0), 1.0))


@dataclass(frozen=True, kw_only=True)
class NodeLevelReleasePlan:
    """The queries of a fit, in order, for any total mu; the queries of every record cost at most that.

    Training records are charged for all queries. With ``train_on_val`` validation records are trained on as
    well, since nothing is selected on them. Records outside of training are charged for their messages, which
    may have a larger norm, or with ``metrics`` for noisy counts.

    Args:
        unit: ``node-record``; replace-one doubles every sensitivity except that of codes (``code_push``).
        features: f.
        classes: C.
        records: Public number of labeled nodes, for the encoder's share.
        reads_own_edges: Recipe R instead of S.
        fits_evidence_weights: Whether S learns the weight of aggregates; needs those of labeled nodes.
        share: The encoder's share; None for a suitable one.
        unlabeled_send: Whether nodes outside of training send GNN messages.
        metrics: Whether metrics are released.
        out_degree_bound: D of the aggregations.

    >>> plan = NodeLevelReleasePlan(unit=NodeRecord(), features=9, classes=3, records=500, share=0.1)
    >>> [query.kind for query in plan.queries(0.5)]
    ['steps', 'rows', 'rows', 'rows', 'steps']
    """

    unit: NodeRecord
    features: int
    classes: int
    records: int
    reads_own_edges: bool = False
    fits_evidence_weights: bool = True
    share: float | None = None
    unlabeled_send: bool = True
    metrics: bool = False
    out_degree_bound: int = 1

    def budget_split(self, mu: float) -> BudgetSplit:
        """Return the division of a total mu.

        In recipe R the encoder needs so little of the budget that one share suits all tested graphs and
        budgets.
        """
        if self.reads_own_edges:
            share = _READING_SHARE if self.share is None else self.share
            return BudgetSplit(encoder=share, combiner=_COMBINER_SHARE, pushes=(1.0,))
        suits = encoder_share(mu, (self.features + 1) * self.classes, self.records, self.classes)
        evidence_weights = _EVIDENCE_WEIGHTS_SHARE if self.fits_evidence_weights else 0.0
        share = suits if self.share is None else self.share
        return BudgetSplit(encoder=share, combiner=evidence_weights, combiner_steps=20)

    def queries(self, mu: float) -> tuple[Query, ...]:
        """Return the queries."""
        budget_split = self.budget_split(mu)
        noise = budget_split.noise(mu / self.unit.change)
        # Validation labels are used for training, unless validation nodes are counted.
        pays = tuple(group == TRAIN or (group == VAL and not self.metrics) for group in range(GROUPS))
        # Records outside of training are charged for their messages only, so these may be longer. With
        # metrics the rest of their budget is used for the counts.
        outside = float(self.unlabeled_send) * (1.0 if self.metrics else noise.bound)
        bounds = tuple(1.0 if paying else outside for paying in pays)
        encoder = DPSGDQuery(
            parameters=(self.features + 1) * self.classes,
            steps=budget_split.encoder_steps,
            noise_multiplier=noise.encoder,
            partition=PARTITION,
            pays=pays,
        )
        queries: list[Query] = [encoder]
        for number, sigma in enumerate(noise.pushes):
            same_priority = self.reads_own_edges or not self.fits_evidence_weights
            levels = LEVELS if number else FLAT_LEVELS if same_priority else FIRST_LEVELS
            queries.append(code_push(self.unit, self.classes, sigma, bounds, self.out_degree_bound, levels))
        if noise.combiner:
            combiner = (4 * self.classes - 1) * self.classes
            last = DPSGDQuery(
                parameters=combiner if self.reads_own_edges else WEIGHTS,
                steps=budget_split.combiner_steps,
                noise_multiplier=noise.combiner,
                clip=1.0 if self.reads_own_edges else WEIGHTS_CLIP,
                partition=PARTITION,
                pays=pays,
            )
            queries.append(last)
        spare = mu * math.sqrt(1 - budget_split.aggregation)  # records outside of training skip the steps
        counts = metric_queries(self.unit, self.classes, spare, spare) if self.metrics else ()
        return (*queries, *counts)
