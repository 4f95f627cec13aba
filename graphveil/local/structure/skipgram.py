"""Skip-gram on walks, by gensim: an optional package."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from graphveil.errors import MissingDependencyError
from graphveil.local.structure.nearest import Vectors
from graphveil.local.structure.walks import ENDED, Nodes

_SEEDS = 2**32  # gensim's seeds are 32-bit numbers


@dataclass(frozen=True)
class Sentences:
    """Walks as gensim reads them, as often as it likes: lists of node numbers."""

    paths: Nodes

    def __iter__(self) -> Iterator[list[int]]:
        """Yield each walk up to its dead end."""
        for path in self.paths:
            yield path[path != ENDED].tolist()


def check_gensim() -> None:
    """Require gensim, without the seconds that loading it takes.

    Raises:
        MissingDependencyError: it is not installed.
    """
    if find_spec("gensim") is None:
        raise _missing()


def _missing() -> MissingDependencyError:
    return MissingDependencyError(
        "walks are embedded by gensim, which is not installed; run pip install 'graphveil[simgat]', or "
        "take similarity='multihop' or 'factorized', which do without"
    )


def skip_gram(
    paths: Nodes, *, num_nodes: int, dim: int, window: int, epochs: int, negative: int, seed: int
) -> Vectors:
    """Return a vector for every node that predicts the nodes near it on walks (Perozzi et al., KDD 2014).

    One worker, so that the same seed gives the same bits.

    Args:
        paths: walks, int32 (walks, length); -1 after a dead end.
        num_nodes: N.
        dim: the length of vectors.
        window: how far apart on a walk two nodes are near, at most.
        epochs: passes over the walks.
        negative: negative samples a pair, or 0 for hierarchical softmax.
        seed: a public number.

    Raises:
        MissingDependencyError: gensim is not installed.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise _missing() from None
    model = Word2Vec(
        Sentences(paths),
        sg=1,
        hs=int(negative == 0),
        negative=negative,
        vector_size=dim,
        window=window,
        min_count=1,
        sample=0,
        epochs=epochs,
        workers=1,
        seed=seed % _SEEDS,
        hashfxn=int,  # not hash(), which may differ between processes
    )
    vectors = np.zeros((num_nodes, dim), dtype=np.float32)
    vectors[np.array(model.wv.index_to_key)] = model.wv.vectors
    return vectors
