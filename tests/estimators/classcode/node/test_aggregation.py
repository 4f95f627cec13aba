"""Recipe S: messages, adaptive levels, aggregates by precision, and weights of features and aggregates."""

import math

import numpy as np
import pytest
import torch
from contracts.steps import KEY, SilentRelease

from graphveil.audit.query_neighbor_tests import ZeroNoiseSteps
from graphveil.core.noise.steps import StepNoise
from graphveil.core.queries.out_edge_sums import simplex_codes
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.estimators.classcode.likelihoods import DecodedRows
from graphveil.estimators.classcode.node import (
    LEVELS,
    WEIGHTS_CLIP,
    NodeMessages,
    aggregate_and_decode,
    allocate_levels,
    combine,
    combiner_inputs,
    fit_combiner,
    fit_evidence_weights,
    limited_schedule,
)
from tests.estimators.classcode.node.exact_aggregation import ExactAggregation

CLASSES = 3
NONE = torch.zeros(90, dtype=torch.bool)

# -- messages ----------------------------------------------------------------------------------------------

LABELED = torch.tensor([True, True, False, False])
LOG = torch.tensor([[0.0, 0.0, 9.0], [0.0, 0.0, 9.0], [30.0, 0.0, 0.0], [0.0, 0.4, 0.0]]).log_softmax(dim=1)


def messages(labels: list[int], bound: float = 1.4) -> NodeMessages:
    return NodeMessages(torch.tensor(labels), LABELED, 3, bound)


def test_labeled_nodes_send_their_label_whatever_their_features() -> None:
    sent = messages([0, 1, 2, 2])
    for vectors in (sent.first(LOG), sent.later(LOG)):
        torch.testing.assert_close(vectors[:2], simplex_codes(3)[:2], rtol=2e-6, atol=2e-6)


def test_norms_stay_below_their_bounds() -> None:
    sent = messages([0, 1, 2, 2])
    first, later = (vectors.norm(dim=1) for vectors in (sent.first(LOG), sent.later(LOG)))
    for norms in (first, later):
        assert (norms[:2] < 1).all() and (norms[2:] < 1.4).all()
    assert first[3] < 0.3  # an uncertain node sends a short vector at first,
    torch.testing.assert_close(later[2:], torch.full((2,), 1.4).double(), rtol=2e-6, atol=0)  # not later


def test_labels_outside_the_group_and_missing_labels_are_not_sent() -> None:
    torch.testing.assert_close(messages([0, 1, 2, 2]).later(LOG), messages([0, 1, -1, 0]).later(LOG))
    sent = messages([0, -1, 2, 2])
    assert (sent.first(LOG)[1] == 0).all() and (sent.later(LOG)[1] == 0).all()


@pytest.mark.parametrize("log", [LOG, torch.zeros(4, 3)])
def test_with_bound_zero_unlabeled_nodes_send_nothing(log: torch.Tensor) -> None:
    sent = messages([0, 1, 2, 2], bound=0.0)
    assert (sent.first(log)[2:] == 0).all() and (sent.later(log)[2:] == 0).all()


# -- levels ------------------------------------------------------------------------------------------------


def test_levels_are_whole_sixteenths_in_steps_of_root_two() -> None:
    assert LEVELS[:3] == (0, 16, 23) and len(LEVELS) == 21
    ratios = np.array(LEVELS[2:]) / np.array(LEVELS[1:-1])
    np.testing.assert_allclose(ratios, math.sqrt(2), rtol=0.02)


@pytest.mark.parametrize("factor", [1.0, 2**0.2])
def test_weights_are_rounded_to_the_nearest_level(factor: float) -> None:
    squared = torch.tensor(LEVELS[1:]).double() / 16 * factor
    squared[0] = 1.0
    even = torch.full((21,), 0.95).double()
    decoded = DecodedRows(torch.zeros(21, 3), torch.cat([squared, torch.tensor([1e9])]).reciprocal(), even)
    assert allocate_levels(decoded, NONE[:21]).tolist() == [*range(1, 21), 20]


def test_weak_and_uncertain_aggregates_are_raised_and_the_smallest_weight_is_one() -> None:
    decoded = DecodedRows(torch.zeros(3, 3), torch.tensor([8.0, 2.0, 8.0]), torch.tensor([0.0, 0.0, 0.35]))
    assert allocate_levels(decoded, NONE[:3]).tolist() == [1, 5, 7]  # strength over 4; (H + .05) times 8
    prioritized = torch.tensor([False, False, True])
    assert allocate_levels(decoded, prioritized).tolist() == [1, 5, 19]  # and times 64


# -- aggregations ------------------------------------------------------------------------------------------


def homophilous(num_nodes: int = 90, degree: int = 12, seed: int = 0):
    """Return out-neighbors of mostly the same class, labels, and the labeled nodes."""
    rng = np.random.default_rng(seed)
    y = np.arange(num_nodes) % CLASSES
    out_neighbors = {}
    for u in range(num_nodes):
        liking = np.where(y == y[u], 8.0, 1.0) * (np.arange(num_nodes) != u)
        count = int(rng.integers(0, degree + 1))
        out_neighbors[u] = rng.choice(num_nodes, size=count, replace=False, p=liking / liking.sum()).tolist()
    return out_neighbors, torch.from_numpy(y), torch.from_numpy(rng.random(num_nodes) < 0.7)


def aggregated(released: str, prioritized: bool, sigmas: tuple[float, ...], noise: float = 0.0):
    """Return decoded aggregates of a homophilous graph, the calls, and the labeled nodes."""
    out_neighbors, y, labeled = homophilous()
    push, sent = ExactAggregation(out_neighbors, 90, noise=noise), NodeMessages(y, labeled, CLASSES, 1.1)
    chosen = ~labeled if released == "unlabeled" else torch.ones(90, dtype=torch.bool)
    first = ~labeled if prioritized else NONE
    found = aggregate_and_decode(push, sigmas, sent, torch.zeros(90, 3), chosen, first)
    return found, push, labeled


def test_aggregates_are_combined_by_their_precision() -> None:
    found, push, _ = aggregated("all", False, (1.0, 0.5))
    rows = [push.mean(*call) for call in push.calls]
    torch.testing.assert_close(found.rows, (rows[0] + 4 * rows[1]) / 5, rtol=1e-5, atol=1e-5)
    assert found.sigma == pytest.approx(5**-0.5)


def test_only_targets_are_released_and_decoded() -> None:
    found, push, labeled = aggregated("unlabeled", False, (0.1, 0.1), noise=0.1)
    for _, levels in push.calls:
        assert (levels[labeled] == 0).all() and (levels[~labeled] > 0).all()
    assert (found.log_likelihoods[labeled] == 0).all() and (found.rows[labeled] == 0).all()
    every, _, _ = aggregated("all", False, (0.1, 0.1), noise=0.1)
    strength = [each.rows[~labeled].norm(dim=1).mean() for each in (found, every)]
    assert strength[0] > 1.3 * strength[1]  # fewer aggregates share each source's weight


def test_prioritized_nodes_have_four_times_the_weight_of_others() -> None:
    found, push, labeled = aggregated("all", True, (1.0, 1.0))
    (_, first), (_, later) = push.calls
    assert first[~labeled].unique().tolist() == [9] and first[labeled].unique().tolist() == [1]
    assert LEVELS[9] == 16 * LEVELS[1]
    assert later[~labeled].double().mean() > later[labeled].double().mean() + 3
    even, _, _ = aggregated("all", False, (1.0,))
    strength = [each.rows[~labeled].norm(dim=1).mean() for each in (found, even)]
    assert strength[0] > 1.2 * strength[1]


def test_aggregations_recover_the_classes_of_a_homophilous_graph() -> None:
    out_neighbors, y, labeled = homophilous(300, 20)
    push, everyone = ExactAggregation(out_neighbors, 300, noise=0.2), torch.ones(300, dtype=torch.bool)
    sent = NodeMessages(y, labeled, 3, 1.1)
    found = aggregate_and_decode(push, (0.2,) * 3, sent, torch.zeros(300, 3), everyone, ~everyone)
    assert (found.log_likelihoods.argmax(dim=1) == y).float().mean() > 0.75
    # Later messages of unlabeled sources have full norm, and the class that the aggregates suggest.
    later = push.calls[-1][0][~labeled]
    torch.testing.assert_close(later.norm(dim=1), torch.full((len(later),), 1.1).double(), rtol=1e-5, atol=0)
    assert ((later @ simplex_codes(3).T).argmax(dim=1) == y[~labeled]).float().mean() > 0.7


# -- weights of features and aggregates --------------------------------------------------------------------


class NormalNoise(ZeroNoiseSteps):
    """Noise of a standard deviation that the query need not have."""

    def noise(self, step: int) -> np.ndarray:
        drawn = np.random.default_rng(step).normal(size=self.parameters)
        return np.rint(drawn * self.given_sigma * self.steps).astype(np.int64)  # type: ignore[attr-defined]


class NoisyRelease(SilentRelease):
    """Answers training steps with noise of a given standard deviation."""

    def __init__(self, sigma: float) -> None:
        self._sigma = sigma

    def noise(self, parameters: int) -> StepNoise:
        noise = NormalNoise(KEY, parameters=parameters, noise_multiplier=1.0)
        noise.given_sigma = self._sigma  # type: ignore[attr-defined]
        return noise


def fitted_weights(count: int, strength: float, z: float = 1.0, noise: float = 0.0) -> list[float]:
    """Return weights of calibrated posteriors, and of aggregates whose likelihoods are twice too large."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(4, (count,), generator=generator)
    right = torch.nn.functional.one_hot(y, 4).double()
    features = 1.0 * right + torch.randn(count, 4, generator=generator).double()
    rows = 2 * (strength * right + torch.randn(count, 4, generator=generator).double())
    query = DPSGDQuery(parameters=2, steps=20, noise_multiplier=z, clip=WEIGHTS_CLIP)
    labeled = slice(count // 2)
    release = NoisyRelease(noise)
    chosen = features.log_softmax(dim=1)[labeled], rows[labeled], y[labeled]
    return fit_evidence_weights(*chosen, query, release).tolist()  # type: ignore[arg-type]


def test_overconfident_aggregates_have_less_weight_and_useless_ones_hardly_any() -> None:
    assert fitted_weights(4000, 1.0) == pytest.approx([1.0, 0.5], abs=0.12)
    assert fitted_weights(4000, 0.0)[1] < 0.1
    assert fitted_weights(4000, -1.0)[1] == 0.0  # misleading aggregates are ignored and not inverted


def test_few_records_change_the_weights_by_a_quarter_at_most() -> None:
    assert np.abs(np.array(fitted_weights(60, 1.0, z=118.0, noise=118.0)) - 1).max() < 0.9
    for clip, rate, momentum in ((WEIGHTS_CLIP, 1.0, 0.0), (1.0, 8.0, 0.9)):  # evidence weights, combiner
        query = DPSGDQuery(parameters=2, steps=20, noise_multiplier=118.0, clip=clip)
        few, many = (limited_schedule(query, n, rate=rate, momentum=momentum) for n in (30, 140_000))
        assert few.clip * few.averaged_noise * 118.0 / 30 == pytest.approx(0.25)
        assert many.clip * many.learning_rate == rate


def test_few_records_keep_the_prior_of_the_combiner() -> None:
    y = torch.arange(300) % 3
    generator = torch.Generator().manual_seed(0)
    sums = simplex_codes(3)[y] * 3 + torch.randn(300, 2, generator=generator).double()
    flat = torch.zeros(300, 3).double()
    inputs = combiner_inputs(flat, sums, flat)
    query = DPSGDQuery(parameters=33, steps=40, noise_multiplier=75.0)
    fitted = fit_combiner(inputs[:90], y[:90], query, NoisyRelease(75.0))  # type: ignore[arg-type]
    assert (combine(fitted, inputs[90:]).argmax(dim=1) == y[90:]).float().mean() > 0.85
