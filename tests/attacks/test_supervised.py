"""Supervised attackers: they learn from known pairs, and do not read the pairs that they score."""

from dataclasses import replace

import numpy as np
import pytest

import graphveil as gv
from graphveil.attacks import (
    AdversaryKnowledge,
    LinkSettings,
    SecretEdges,
    attack_links,
    draw_pairs,
    fit_discriminator,
    public_knowledge,
    roc_auc,
    supervised_scores,
)
from graphveil.attacks.linkteller import SUPERVISED, SUPERVISED_PUBLIC
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.random import PublicStreams
from graphveil.errors import ConfigError

TINY = gv.load_dataset("synthetic/tiny")
PAIRS = draw_pairs(SecretEdges.from_adjacency(TINY.adjacency), count=120)


def test_discriminator_finds_differences_and_no_others() -> None:
    rng = np.random.default_rng(0)
    x, kind = rng.normal(size=(600, 3)), rng.random(600) < 0.5
    x[:, 1] += 2 * kind
    model = fit_discriminator(x[:300], kind[:300])
    assert roc_auc(model.scores(x[300:]), kind[300:]) > 0.88
    noise = fit_discriminator(x[:300, [0, 2]], kind[:300])
    assert 0.4 < roc_auc(noise.scores(x[300:, [0, 2]]), kind[300:]) < 0.6


def test_attacker_without_knowledge_is_at_chance() -> None:
    rng = np.random.default_rng(1)
    nothing = AdversaryKnowledge({"noise": rng.normal(size=(len(PAIRS.nodes), 4))})
    assert 0.4 < roc_auc(supervised_scores(nothing, PAIRS), PAIRS.joined) < 0.6


def test_attacker_with_the_edges_finds_them() -> None:
    influence = np.zeros((len(PAIRS.nodes),) * 2)
    influence[PAIRS.one, PAIRS.other] = influence[PAIRS.other, PAIRS.one] = PAIRS.joined
    assert roc_auc(supervised_scores(AdversaryKnowledge({}, influence), PAIRS), PAIRS.joined) > 0.99


def test_public_knowledge_has_neither_labels_of_test_nodes_nor_edges() -> None:
    known = public_knowledge(TINY, PAIRS).rows
    tested = TINY.labeled_in("test").numpy()[PAIRS.nodes]
    assert not known["labels"][tested].any() and known["labels"][~tested].any(axis=1).all()
    empty = Adjacency.from_edges([], [], num_nodes=TINY.num_nodes, directed=False)
    without = public_knowledge(TINY.replace(adjacency=empty), PAIRS).rows
    assert known.keys() == without.keys()
    assert all(np.array_equal(rows, without[name]) for name, rows in known.items())


def test_scores_do_not_depend_on_the_truth_of_scored_pairs() -> None:
    pairs = draw_pairs(SecretEdges.from_adjacency(TINY.adjacency), count=45)
    known = public_knowledge(TINY, pairs)
    first = PublicStreams(0).numpy("folds").integers(2, size=len(pairs.joined)) == 0
    otherwise = replace(pairs, joined=np.where(first, ~pairs.joined, pairs.joined))
    found, changed = (supervised_scores(known, one) for one in (pairs, otherwise))
    assert np.array_equal(found[first], changed[first])
    assert not np.array_equal(found[~first], changed[~first])  # these are scored by a model of the others


def test_predictions_reveal_more_than_public_data() -> None:
    model = gv.GCN(unit="none", seed=0, epochs=15).fit(TINY)
    report = attack_links(model, TINY, LinkSettings(nodes=80, supervised=True))
    assert report[SUPERVISED].roc.auc > report[SUPERVISED_PUBLIC].roc.auc


def test_rejects_too_many_nodes() -> None:
    with pytest.raises(ConfigError, match="Use a smaller number"):
        LinkSettings(nodes=100_000)
