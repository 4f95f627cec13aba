"""Attackers who read no influence: nodes whose rows look alike are taken to be joined (LSA2)."""

import numpy as np

from graphveil._util.checks import checked
from graphveil.lab.attacks.matrices import Matrix, dense_rows
from graphveil.lab.attacks.pairs import Pairs
from graphveil.lab.attacks.roc import Floats

_MIN_NORM = 1e-12


@checked
def correlations(rows: Matrix, pairs: Pairs) -> Floats:
    """Return the correlation of the two ends' rows, each less its own mean: one score a pair.

    With posteriors it is LSA2-post, with features LSA2-attr (Wu et al., after He et al.): the latter knows
    nothing but what is public, and is what every attack has to be compared with.

    Args:
        rows: (N, d), an array, a tensor or a SciPy matrix.
        pairs: which pairs.
    """
    drawn = dense_rows(rows, pairs.nodes)
    centered = drawn - drawn.mean(axis=1, keepdims=True)
    unit = centered / np.maximum(np.linalg.norm(centered, axis=1, keepdims=True), _MIN_NORM)
    return np.asarray((unit @ unit.T)[pairs.one, pairs.other])
