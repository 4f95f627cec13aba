"""Link prediction and recommendation with differential privacy."""

from typing import TYPE_CHECKING

from graphveil.links.folder import LinkFolder, find_link_folder
from graphveil.publish.results import LINKS, RECOMMENDER

if TYPE_CHECKING:
    from graphveil.links.link_predictor import LinkPredictor
    from graphveil.links.recommender import Recommender

__all__ = ["LINKS", "RECOMMENDER", "LinkFolder", "find_link_folder", "link_model_class"]


def link_model_class(kind: str) -> "type[LinkPredictor] | type[Recommender]":
    """Return the class of ``links`` or ``recommender``."""
    from graphveil.links.link_predictor import LinkPredictor
    from graphveil.links.recommender import Recommender

    return LinkPredictor if kind == LINKS else Recommender
