"""Published mechanisms, restated: those whose claims are refuted, with counterexamples, and sound ones.

>>> from graphveil.papers.as_published.gallery import BROKEN
>>> BROKEN["one direction"].run_neighbor_test(pairs=100).kinds
('change',)
"""

from graphveil.papers.as_published.gallery import edges, records, trees
from graphveil.papers.as_published.gallery.published_mechanism import PublishedMechanism, RestatedValue

BROKEN: dict[str, PublishedMechanism] = {
    exhibit.name: exhibit for exhibit in (*edges.BROKEN, *trees.BROKEN, *records.BROKEN)
}
SOUND: dict[str, PublishedMechanism] = {
    exhibit.name: exhibit for exhibit in (*edges.SOUND, *trees.SOUND, *records.SOUND)
}

__all__ = ["BROKEN", "SOUND", "PublishedMechanism", "RestatedValue"]
