"""Published mechanisms, restated: those whose claims are refuted, with counterexamples, and sound ones.

>>> from graphveil.papers.as_published.gallery import BROKEN
>>> BROKEN["one direction"].run_neighbor_test(pairs=100).kinds
('change',)
"""

from graphveil.papers.as_published.gallery import edges, records, trees
from graphveil.papers.as_published.gallery.published_mechanism import (
    MECHANISMS,
    PublishedMechanism,
    RestatedValue,
)

_ORDER = [module.__name__ for module in (edges, trees, records)]
_SORTED = sorted(MECHANISMS, key=lambda one: _ORDER.index(one.mechanism.__module__))
BROKEN: dict[str, PublishedMechanism] = {one.name: one for one in _SORTED if one.kind}
SOUND: dict[str, PublishedMechanism] = {one.name: one for one in _SORTED if not one.kind}

__all__ = ["BROKEN", "SOUND", "PublishedMechanism", "RestatedValue"]
