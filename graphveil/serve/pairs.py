"""Served models of pairs: scores and best candidates of node pairs, and items for the lists of a request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil.errors import ArtifactError
from graphveil.links import LinkFolder, link_model_class
from graphveil.links.link_predictor import LinkPredictor
from graphveil.links.recommender import Recommender
from graphveil.privacy import Guarantee
from graphveil.serve.schemas import PairsRequest, RequestError, pair_ids_not_found

Id = int | str
MAX_LISTS = 100  # nodes or lists of a request: each is scored against all nodes or items


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedPairs:
    """The released model of a link predictor or a recommender.

    Privacy:
        Contains released values alone, so every answer is post-processing. A recommender reads the lists of
        a request. They are neither stored nor logged, and the answer is for their sender.
    """

    name: str
    model: LinkPredictor | Recommender

    by_subject = False  # no answer belongs to a subject other than the sender

    @classmethod
    def read(cls, folder: LinkFolder) -> "ServedPairs":
        """Read the public folder of a model."""
        whole = folder.path.resolve()
        found = cls(
            name=whole.parent.name if whole.name == "release" else whole.name,
            model=link_model_class(folder.kind).load(folder.path),
        )
        if len(found.places) < len(found.ids):
            raise ArtifactError(
                "The model lists a node twice, so it was changed. Restore the original run folder."
            )
        return found

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of the model."""
        assert self.model.guarantee is not None  # a folder is written with one
        return self.model.guarantee

    @cached_property
    def ids(self) -> list[Id]:
        """The id of each node, or of each item."""
        model = self.model
        found = model.node_ids if isinstance(model, LinkPredictor) else model.items_.item_ids
        return list(found.tolist())

    @cached_property
    def places(self) -> Mapping[Id, int]:
        """The index of each id."""
        return {one: place for place, one in enumerate(self.ids)}

    def answer(self, question: PairsRequest, most: int) -> dict[str, Any]:
        """Return scores of pairs, or the best candidates of nodes or lists."""
        known, model = question.known, self.model
        if (known == "lists") == isinstance(model, LinkPredictor):
            raise RequestError("other_model")
        if isinstance(model, Recommender):
            lists = question.lists or []
            self._limit(len(lists), sum(map(len, lists)), most, "lists")
            places = self._places([one for some in lists for one in some])
            owned = np.split(np.array(self.ids)[places], np.cumsum([len(some) for some in lists])[:-1])
            k = min(question.k, len(self.ids))
            found = model.recommend([some.tolist() for some in owned], k=k)
            kept = ~np.ma.getmaskarray(found.scores)
            return {"candidates": _listed(found.items, found.scores, kept)}
        if known == "pairs":
            pairs = [one for pair in question.pairs or [] for one in pair]
            self._limit(0, len(pairs), most)
            ends = self._places(pairs).reshape(-1, 2)
            return {"probabilities": [round(float(one), 6) for one in model.predict_proba(ends.T)]}
        self._limit(len(question.ids or []), 0, most)
        nodes, scores = model.top_k(self._places(question.ids or []), min(question.k, len(self.ids) - 1))
        return {"candidates": _listed(np.array(self.ids)[nodes], scores, nodes >= 0)}

    def _limit(self, lists: int, ids: int, most: int, what: str = "ids") -> None:
        """Reject a request that would take too long."""
        if lists > MAX_LISTS or ids > most:
            named = "lists" if what == "lists" and lists > MAX_LISTS else "ids"
            raise RequestError("too_many_ids", most=MAX_LISTS if lists > MAX_LISTS else most, what=named)

    def _places(self, ids: Sequence[Id]) -> npt.NDArray[np.int64]:
        """Return the index of each id; 7 means "7" if all ids are text."""
        text = bool(self.ids) and isinstance(self.ids[0], str)
        spelled = [str(one) for one in ids] if text else list(ids)
        unknown = [number for number, one in enumerate(spelled) if one not in self.places]
        if unknown:
            raise pair_ids_not_found(unknown)
        return np.array([self.places[one] for one in spelled], dtype=np.int64)


def _listed(ids: Any, scores: Any, kept: Any) -> list[list[dict[str, Any]]]:
    """Return the candidates of each row that are kept, best first."""
    return [
        [{"id": one, "score": round(float(score), 6)} for one, score, keep in zip(*row, strict=True) if keep]
        for row in zip(ids.tolist(), scores.tolist(), kept.tolist(), strict=True)
    ]
