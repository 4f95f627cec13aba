"""What leaves a node is randomized, by the law that the guarantee is about."""

import math

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.core.features import to_dense
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.method import State
from graphveil.estimators.session import Session
from graphveil.local.posterior_mixture import class_shares
from graphveil.local.reports import (
    UNKNOWN,
    FeatureKeywords,
    Randomizer,
    ReportConfig,
    estimate_features,
    feature_row,
    label_report_nodes,
)
from graphveil.mechanisms import LabelRR, LocalNoise, MultiBit
from tests.estimators.conftest import CLASSES, FEATURES, grouped

GRAPH = grouped(nodes=3000)
RANDOMIZER = Randomizer(
    mechanism=MultiBit(epsilon=2.0, dim=FEATURES, m=1), label=LabelRR(epsilon=1.0, classes=CLASSES)
)
DEVIATIONS = 5  # standard deviations that a mean may be off


def reports_of(graph: Graph) -> State:
    session = Session(streams=PublicStreams(0), noise_seed=0)
    return RANDOMIZER.randomize(label_report_nodes(graph), session, graph.y, graph.x)


def test_labels_are_kept_with_their_probability() -> None:
    labels = reports_of(GRAPH)["labels"]
    reported = labels != UNKNOWN
    kept = (labels == GRAPH.y)[reported].double().mean().item()
    keep = RANDOMIZER.label.keep
    assert abs(kept - keep) < DEVIATIONS * math.sqrt(keep * (1 - keep) / int(reported.sum()))


def test_test_nodes_report_no_label() -> None:
    labels = reports_of(GRAPH)["labels"]
    assert torch.equal(labels == UNKNOWN, GRAPH.labeled_in("test"))


def test_a_node_reports_one_bit_and_estimates_are_unbiased() -> None:
    estimates = estimate_features(RANDOMIZER.mechanism, reports_of(GRAPH), GRAPH.x)
    deviations = estimates.deviations
    assert not isinstance(deviations, torch.Tensor)
    assert np.array_equal(np.diff(deviations.indptr), np.ones(GRAPH.num_nodes))
    assert len(np.unique(np.abs(deviations.data).round(4))) == 1, "a bit has two values"
    error = (estimates.dense() - to_dense(GRAPH.x)).double().mean(dim=0).numpy()
    variance = RANDOMIZER.mechanism.variance(to_dense(GRAPH.x).numpy()).mean(axis=0)
    assert (np.abs(error) < DEVIATIONS * np.sqrt(variance / GRAPH.num_nodes)).all()


def test_the_row_of_a_release_has_the_worst_noise_of_any_value() -> None:
    keywords = FeatureKeywords(features="three-outputs", eps_x=2.0, high=10.0)
    law = ReportConfig(features=keywords).mechanism(1)
    features = feature_row(law)
    grid = law.variance(np.linspace(0, 10, 20_001)[:, None])
    assert features.noise_std == [pytest.approx(math.sqrt(grid.max()), rel=1e-6)]


# -- who has a label ---------------------------------------------------------------------------------------


def without_labels(graph: Graph, share: float, seed: int = 0) -> Graph:
    """The graph after a share of its nodes has lost its label."""
    missing = torch.from_numpy(np.random.default_rng(seed).random(graph.num_nodes) < share)
    return graph.replace(y=torch.where(missing, UNKNOWN, graph.y))


def test_nodes_without_a_label_report_a_uniform_class() -> None:
    graph = without_labels(GRAPH, 0.5)
    labels = reports_of(graph)["labels"]
    assert torch.equal(labels == UNKNOWN, GRAPH.test_mask), "a missing label must not be visible as -1"
    missing = (graph.y == UNKNOWN) & ~GRAPH.test_mask
    shares = torch.bincount(labels[missing], minlength=CLASSES).double() / int(missing.sum())
    chance = 1 / CLASSES
    spread = DEVIATIONS * math.sqrt(chance * (1 - chance) / int(missing.sum()))
    assert (shares - chance).abs().max() < spread
    whole = reports_of(GRAPH)["labels"]
    assert torch.equal(labels[~missing], whole[~missing]), "a label changed the report of another node"


def test_training_nodes_do_not_depend_on_the_presence_of_labels(graph: Graph) -> None:
    local = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 2.0, "seed": 0, "epochs": 2}
    local |= {"labels": "rr", "unsafe_noise_seed": 3}
    whole = gv.LPGNN(**local).fit(graph).aggregates_["labels"]
    for share in (0.3, 1.0):  # a graph without labels can be fitted, too: to noise
        some = gv.LPGNN(**local).fit(without_labels(graph, share))
        reported = some.aggregates_["labels"]
        assert torch.equal(reported == UNKNOWN, whole == UNKNOWN)
        for part in ("train", "val"):
            members = getattr(graph, f"{part}_mask")
            agrees = (some.predict() == reported)[members].float().mean()
            assert some.score(without_labels(graph, share), part) == pytest.approx(float(agrees))


def test_the_statement_covers_the_presence_of_labels(graph: Graph) -> None:
    local = {"unit": "local-attributes", "eps_x": 1.0, "labels": "rr", "seed": 0, "epochs": 2}
    words = "a training or validation node without a label reports a random class"
    assert words in gv.LPGNN(**local, eps_y=2.0).fit(graph).guarantee.formal_statement()
    open_labels = without_labels(graph.replace(), 0.3)
    opened = gv.LPGNN(**local, eps_y=math.inf).fit(open_labels)
    assert words not in opened.guarantee.formal_statement()
    telling = (open_labels.labeled_in("train", "val")).logical_not()
    assert torch.equal(opened.aggregates_["labels"] == UNKNOWN, telling), "nothing is hidden at infinity"


def test_a_share_of_missing_labels_is_part_of_the_channel(graph: Graph) -> None:
    local = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 2.0}
    labels = torch.where(graph.test_mask, UNKNOWN, graph.y)
    plain, mixed = (gv.LPGNN(**local, missing_labels=m).config for m in (0.0, 0.4))
    noisy, fewer = plain.noisy(graph, labels), mixed.noisy(graph, labels)
    assert torch.allclose(fewer.transition, 0.6 * noisy.transition + 0.4 / CLASSES)
    assert fewer.keep == pytest.approx(0.6 * noisy.keep + 0.4 / CLASSES)
    for wrong in (
        {"missing_labels": 1.0},
        {"missing_labels": -0.1},
        {"missing_labels": 0.1, "eps_y": math.inf},
    ):
        with pytest.raises(ConfigError, match="missing_labels="):
            gv.LPGNN(**local | wrong)


def test_class_shares_are_unbiased_with_missing_labels() -> None:
    law, shares, missing = LabelRR(epsilon=2.0, classes=4), np.array([0.55, 0.25, 0.15, 0.05]), 0.4
    rng = np.random.default_rng(1)
    y = np.where(rng.random(200_000) < missing, UNKNOWN, rng.choice(4, 200_000, p=shares))
    said = np.bincount(law.perturb(y, stream=LocalNoise(1).stream("labels")), minlength=4) / 200_000
    found = {
        m: class_shares(torch.tensor(said), torch.tensor(law.transition_with(m))) for m in (0.0, missing)
    }
    assert found[missing].numpy() == pytest.approx(shares, abs=0.01)
    assert abs(float(found[0.0][0]) - shares[0]) > 0.08, "the share has to matter"
