"""Attackers who know some of the edges, and learn from them what joined nodes look like."""

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.random import PublicStreams
from graphveil.lab.attacks.discriminator import fit_discriminator
from graphveil.lab.attacks.knowledge import AdversaryKnowledge
from graphveil.lab.attacks.pairs import Pairs
from graphveil.lab.attacks.roc import Bools, Floats
from graphveil.lab.attacks.secret_edges import Integers

_MAX_TRAIN_EDGES, _NON_EDGES_PER_EDGE = (
    1_000,
    8,
)  # edges that are learned from, and for each so many pairs apart
_AT_ONCE = 1 << 17
_DECAY = 1e-3


@checked
def supervised_scores(known: AdversaryKnowledge, pairs: Pairs, *, folds: int = 2, seed: int = 0) -> Floats:
    """Return the scores of an attacker who is told the truth about all folds of the pairs but one.

    That is the strongest knowledge that the literature gives a link attacker (He et al., Stealing links from
    graph neural networks, 2021: with part of the graph). Pairs are dealt into folds at random; those of a
    fold are judged by a classifier of the others (:func:`fit_discriminator`), so with two folds half of the
    edges are known. Scores of two folds are made comparable as ranks within their fold.

    Args:
        known: what pairs are compared by.
        pairs: whom to judge.
        folds: how many, 2 or more.
        seed: of the folds and the classifiers.
    """
    checks.integer_at_least(2, folds=folds)
    rng = PublicStreams(seed).numpy("folds")
    fold = rng.integers(folds, size=len(pairs.joined))
    scores = np.zeros(len(pairs.joined))
    for number in range(folds):
        train_pairs, judged = _sample_pairs(fold != number, pairs.joined, rng), np.flatnonzero(fold == number)
        model = fit_discriminator(
            known.columns(pairs.one[train_pairs], pairs.other[train_pairs]),
            pairs.joined[train_pairs],
            seed=seed + number,
            weight_decay=_DECAY,
        )
        for start in range(0, len(judged), _AT_ONCE):
            some = judged[start : start + _AT_ONCE]
            scores[some] = model.scores(known.columns(pairs.one[some], pairs.other[some]))
        scores[judged] = _ranks(scores[judged])
    return scores


def _sample_pairs(train_pairs: Bools, joined: Bools, rng: np.random.Generator) -> Integers:
    """Return pairs that are joined among those told, and more of those apart."""
    edges, apart = (rng.permutation(np.flatnonzero(train_pairs & kind)) for kind in (joined, ~joined))
    edges = edges[:_MAX_TRAIN_EDGES]
    return np.concatenate([edges, apart[: max(_NON_EDGES_PER_EDGE * len(edges), 1)]])


def _ranks(scores: Floats) -> Floats:
    """Return ranks between 0 and 1; ties have one rank."""
    values, place = np.unique(scores, return_inverse=True)
    below = np.cumsum(np.bincount(place, minlength=len(values)))
    return np.asarray(below[place] / len(scores))
