"""Attackers do not read what they are scored by: other truths, the same scores."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil._util.random import PublicStreams
from graphveil.data import Adjacency
from graphveil.lab.attacks import (
    MembershipSettings,
    SecretEdges,
    attack_membership,
    attack_records,
    draw_pairs,
    link_scores,
    public_knowledge,
    supervised_scores,
)
from graphveil.lab.attacks.membership import CONFIDENCE, SHADOW_MLP
from graphveil.lab.attacks.reconstruction import ADAPTIVE, MEAN, NAIVE
from graphveil.mechanisms import MultiBit

TINY = gv.load_dataset("synthetic/tiny")
PAIRS = draw_pairs(SecretEdges.from_adjacency(TINY.adjacency), count=45)
KNOWN = public_knowledge(TINY, PAIRS)


def test_membership_is_scored_from_outputs_alone() -> None:
    model = gv.MLP(unit="none", seed=0, epochs=20, tuned=False).fit(TINY)
    swapped = TINY.with_split(TINY.mask("test"), TINY.mask("val"), TINY.mask("train"))
    asked = MembershipSettings(per_class=40, disjoint=False)
    one, other = (attack_membership(model, graph, asked).attackers for graph in (TINY, swapped))
    for name in (SHADOW_MLP, CONFIDENCE):
        assert one[name].auc == pytest.approx(1 - other[name].auc, abs=1e-9)


def test_public_knowledge_has_no_edges() -> None:
    nobody = Adjacency.from_edges([], [], num_nodes=TINY.num_nodes, directed=False)
    without = public_knowledge(TINY.replace(adjacency=nobody), PAIRS)
    assert KNOWN.rows.keys() == without.rows.keys()
    assert all(np.array_equal(rows, without.rows[name]) for name, rows in KNOWN.rows.items())


def test_influence_is_ranked_without_the_truth() -> None:
    influence = np.random.default_rng(0).random((45, 45))
    otherwise = replace(PAIRS, joined=~PAIRS.joined)
    assert np.array_equal(link_scores(influence, PAIRS), link_scores(influence, otherwise))


def test_a_supervised_attacker_is_not_told_the_pairs_that_it_judges() -> None:
    first = PublicStreams(0).numpy("folds").integers(2, size=len(PAIRS.joined)) == 0
    otherwise = replace(PAIRS, joined=np.where(first, ~PAIRS.joined, PAIRS.joined))
    found, changed = (supervised_scores(KNOWN, pairs) for pairs in (PAIRS, otherwise))
    assert np.array_equal(found[first], changed[first])
    assert not np.array_equal(found[~first], changed[~first])  # there they were told


def test_an_inverse_is_learned_before_it_sees_the_secret_records() -> None:
    x = torch.rand(120, 6, generator=torch.Generator().manual_seed(0)).double().numpy()
    law, seen = MultiBit(epsilon=2.0, dim=6), []

    def learn(told: np.ndarray, records: np.ndarray) -> "gv.attacks.inverses.Map":
        seen.append(records)
        return lambda rows: rows

    report = attack_records(x[:80], x[80:], law, learn=learn, copies=2)
    assert [len(records) for records in seen] == [80, 160]
    assert all(np.array_equal(records[:80], x[:80]) for records in seen)
    assert np.array_equal(report.drawn[NAIVE], report.drawn[ADAPTIVE])  # of the same messages
    assert np.allclose(report.drawn[MEAN], x[:80].mean(axis=0))
