"""Attackers who are told some of the pairs: what they learn, and that they are not told what they judge."""

import numpy as np
import pytest

import graphveil as gv
from graphveil.errors import ConfigError
from graphveil.lab.attacks import (
    AdversaryKnowledge,
    LinkSettings,
    Pairs,
    SecretEdges,
    attack_links,
    draw_pairs,
    fit_discriminator,
    public_knowledge,
    roc_auc,
    supervised_scores,
)
from graphveil.lab.attacks.linkteller import BY_FEATURES, SUPERVISED, SUPERVISED_PUBLIC

TINY = gv.load_dataset("synthetic/tiny")
PAIRS = draw_pairs(SecretEdges.from_adjacency(TINY.adjacency), count=120)


def test_two_kinds_are_told_apart_where_they_differ_and_only_there() -> None:
    rng = np.random.default_rng(0)
    x, kind = rng.normal(size=(600, 3)), rng.random(600) < 0.5
    x[:, 1] += 2 * kind
    model = fit_discriminator(x[:300], kind[:300], epochs=40)
    assert roc_auc(model.scores(x[300:]), kind[300:]) > 0.88
    noise = fit_discriminator(x[:300, [0, 2]], kind[:300], epochs=40)
    assert 0.4 < roc_auc(noise.scores(x[300:, [0, 2]]), kind[300:]) < 0.6


def test_an_attacker_without_knowledge_stays_at_chance() -> None:
    rng = np.random.default_rng(1)
    nothing = AdversaryKnowledge({"noise": rng.normal(size=(len(PAIRS.nodes), 4))})
    assert 0.4 < roc_auc(supervised_scores(nothing, PAIRS), PAIRS.joined) < 0.6


def test_an_attacker_who_sees_the_edges_finds_them() -> None:
    influence = np.zeros((len(PAIRS.nodes),) * 2)
    influence[PAIRS.one, PAIRS.other] = influence[PAIRS.other, PAIRS.one] = PAIRS.joined
    assert roc_auc(supervised_scores(AdversaryKnowledge({}, influence), PAIRS), PAIRS.joined) > 0.99


def test_labels_of_test_nodes_are_not_public() -> None:
    rows = public_knowledge(TINY, PAIRS).rows["labels"]
    tested = TINY.mask("test").numpy()[PAIRS.nodes]
    assert not rows[tested].any() and rows[~tested].any(axis=1).all()


def test_a_plain_network_tells_more_than_the_public_data() -> None:
    model = gv.GCN(unit="none", seed=0, epochs=15).fit(TINY)
    report = attack_links(model, TINY, LinkSettings(nodes=80, supervised=True))
    gained = report.difference(SUPERVISED, SUPERVISED_PUBLIC, draws=20)
    assert gained.low > 0 and gained.mean == report[SUPERVISED].roc.auc - report[SUPERVISED_PUBLIC].roc.auc
    assert report.difference(BY_FEATURES, BY_FEATURES, draws=5).high == 0


def test_too_many_nodes_are_refused() -> None:
    with pytest.raises(ConfigError, match="draw fewer"):
        LinkSettings(nodes=100_000)
    with pytest.raises(ConfigError, match="folds=1"):
        supervised_scores(
            AdversaryKnowledge({}), Pairs(*[np.zeros(1, dtype=int)] * 3, np.ones(1, dtype=bool)), folds=1
        )
