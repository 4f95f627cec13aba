"""What leaves a node is randomised, by the law that the guarantee is about."""

import math

import numpy as np
import pytest
import torch

from graphveil.graph import to_dense
from graphveil.mechanisms import Bounds, LabelRR, MultiBit
from graphveil.models.lpgnn.feature_reports import FeatureReporting, report_rows
from graphveil.models.lpgnn.randomised import UNKNOWN, Randomiser
from tests.models.conftest import CLASSES, FEATURES, grouped

GRAPH = grouped(nodes=3000)
RANDOMISER = Randomiser(
    mechanism=MultiBit(epsilon=2.0, dim=FEATURES, m=1), label=LabelRR(epsilon=1.0, classes=CLASSES)
)
DEVIATIONS = 5  # standard deviations that a mean may be off


def test_labels_are_kept_as_often_as_the_law_says() -> None:
    labels = RANDOMISER(GRAPH, GRAPH.x, 0, None).labels
    told = labels != UNKNOWN
    kept = (labels == GRAPH.y)[told].double().mean().item()
    keep = RANDOMISER.label.keep
    assert abs(kept - keep) < DEVIATIONS * math.sqrt(keep * (1 - keep) / int(told.sum()))


def test_no_label_of_a_test_node_is_told() -> None:
    labels = RANDOMISER(GRAPH, GRAPH.x, 0, None).labels
    assert torch.equal(labels == UNKNOWN, GRAPH.mask("test"))


def test_a_node_tells_one_bit_and_estimates_are_unbiased() -> None:
    estimates = RANDOMISER(GRAPH, GRAPH.x, 0, None).features
    told = estimates.deviations
    assert not isinstance(told, torch.Tensor)
    assert np.array_equal(np.diff(told.indptr), np.ones(GRAPH.num_nodes))
    assert len(np.unique(np.abs(told.data).round(4))) == 1, "a bit has two values"
    error = (estimates.dense() - to_dense(GRAPH.x)).double().mean(dim=0).numpy()
    variance = RANDOMISER.mechanism.variance(to_dense(GRAPH.x).numpy()).mean(axis=0)
    assert (np.abs(error) < DEVIATIONS * np.sqrt(variance / GRAPH.num_nodes)).all()


def test_the_row_of_a_release_has_the_worst_noise_of_any_value() -> None:
    law = FeatureReporting(name="three-outputs", epsilon=2.0, bounds=Bounds(0.0, 10.0)).mechanism(1)
    features, _ = report_rows(law, LabelRR(epsilon=1.0, classes=3))
    grid = law.variance(np.linspace(0, 10, 20_001)[:, None])
    assert features.noise_std == [pytest.approx(math.sqrt(grid.max()), rel=1e-6)]
