"""Link prediction and recommendation with differential privacy."""

from typing import TYPE_CHECKING

from graphveil.links.pairs import LinkFolder, find_link_folder
from graphveil.publish.results import LINKS, RECOMMENDER

if TYPE_CHECKING:
    from pathlib import Path

    from graphveil.estimators.lifecycle import Model
    from graphveil.links.link_predictor import LinkPredictor
    from graphveil.links.recommender import Recommender

__all__ = ["LINKS", "RECOMMENDER", "LinkFolder", "find_link_folder", "link_model_class", "load_any"]


def load_any(folder: "str | Path") -> "Model":
    """Load a model of nodes, pairs or lists from a run folder or its release."""
    from graphveil.estimators.saved import load_model

    found = find_link_folder(folder)
    return load_model(folder) if found is None else link_model_class(found.kind).load(found.path)


def link_model_class(kind: str) -> "type[LinkPredictor] | type[Recommender]":
    from graphveil.links.link_predictor import LinkPredictor
    from graphveil.links.recommender import Recommender

    return LinkPredictor if kind == LINKS else Recommender
