"""Served runs: released rows of nodes, or a model of pairs that scores and recommends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphveil.data.tables.encoding import Encoding
from graphveil.errors import ArtifactError, ConfigError
from graphveil.links import LinkFolder, find_link_folder, link_model_class
from graphveil.privacy import Guarantee
from graphveil.publish.release_folder import NODE, PREDICTION, find_release, read_release, withheld_files
from graphveil.serve.schemas import PairsRequest, RequestError, pair_ids_not_found

if TYPE_CHECKING:
    from graphveil.links.link_predictor import LinkPredictor
    from graphveil.links.recommender import Recommender

# Models of pairs are imported in functions: a worker reads this module before it handles signals.
Id = int | str
Row = dict[str, Any]
MAX_LISTS = 100  # nodes or lists of a request: each is scored against all nodes or items


class _KnownIds:
    """The ids of a run, of nodes or of items."""

    if TYPE_CHECKING:

        @property
        def places(self) -> Mapping[Id, int]:
            """Row of each id."""

    @cached_property
    def id_type(self) -> type | None:
        """The type of all ids, or None where there are several."""
        types = {type(one) for one in self.places}
        return types.pop() if len(types) == 1 else None

    def spelled(self, ids: Sequence[Id]) -> list[Id]:
        """Return ids as the run has them: if all of its ids are text, 7 means "7".

        JSON has numbers and text, a CSV file has only text. 7 never means "007".

        Args:
            ids: Ids of a request.
        """
        return [str(one) for one in ids] if self.id_type is str else list(ids)

    def unknown(self, ids: Sequence[Id]) -> list[int]:
        """Return the positions of ids that the run does not have.

        Args:
            ids: Ids of a request.
        """
        return [position for position, one in enumerate(ids) if one not in self.places]


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedRun(_KnownIds):
    """The public part of one run. No noisy aggregate and no parameter is stored.

    Args:
        name: Name of the folder.
        guarantee: Guarantee of the run.
        class_names: Names of the classes, by class number.
        features: Number of features of a record.
        encoding: Names of the feature columns and their encoding; None if they have none.
        proba: Released probabilities, of shape (N, C), or numbers (N, 1).
        places: Row of each id.

    Privacy:
        Contains released outputs alone. Under node-level units a row is internal to its subject.
    """

    name: str
    guarantee: Guarantee
    class_names: tuple[str, ...]
    features: int
    encoding: Encoding | None
    proba: npt.NDArray[np.float32]
    places: Mapping[Id, int]

    @cached_property
    def by_subject(self) -> bool:
        """Whether a row is only returned to its own subject."""
        return bool(withheld_files(self.guarantee.unit))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of probabilities."""
        return tuple(f"p_{name}" for name in self.class_names)

    def rows(self, ids: Sequence[Id]) -> list[Row]:
        """Return the released rows of known ids.

        Args:
            ids: Ids that the run has.

        Privacy:
            Reads: released predictions. Charges: nothing. Under node-level units a row is only for people
            authorized to access its node's record.
        """
        return [self.row_of(one, self.proba[self.places[one]]) for one in ids]

    def row_of(self, one: Id, proba: npt.NDArray[np.float32]) -> Row:
        """Return a row with these probabilities.

        Args:
            one: Id of the node.
            proba: Probability of each class, or one predicted number.
        """
        if not self.class_names:
            return {NODE: one, PREDICTION: float(proba[0])}
        figures = dict(zip(self.columns, proba.tolist(), strict=True))
        return {NODE: one, PREDICTION: self.class_names[int(proba.argmax())], **figures}


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedPairs(_KnownIds):
    """The released model of a link predictor or a recommender.

    Privacy:
        Contains released values alone, so every answer is post-processing. A recommender reads the lists of
        a request. They are neither stored nor logged, and the answer is for their sender.
    """

    name: str
    model: "LinkPredictor | Recommender"

    by_subject = False  # no answer belongs to a subject other than the sender

    @classmethod
    def read(cls, folder: LinkFolder) -> "ServedPairs":
        found = cls(name=_name(folder.path), model=link_model_class(folder.kind).load(folder.path))
        if len(found.places) < len(found.ids):
            raise ArtifactError(
                "The model lists a node twice, so it was changed. Restore the original run folder."
            )
        return found

    @cached_property
    def guarantee(self) -> Guarantee:
        assert self.model.guarantee is not None  # a folder is written with one
        return self.model.guarantee

    @cached_property
    def ids(self) -> list[Id]:
        from graphveil.links.link_predictor import LinkPredictor

        model = self.model
        found = model.node_ids if isinstance(model, LinkPredictor) else model.items_.item_ids
        return list(found.tolist())

    @cached_property
    def places(self) -> Mapping[Id, int]:
        return {one: place for place, one in enumerate(self.ids)}

    def answer(self, question: PairsRequest, most: int) -> dict[str, Any]:
        from graphveil.links.link_predictor import LinkPredictor
        from graphveil.links.recommender import Recommender

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
        if lists > MAX_LISTS or ids > most:
            named = "lists" if what == "lists" and lists > MAX_LISTS else "ids"
            raise RequestError("too_many_ids", most=MAX_LISTS if lists > MAX_LISTS else most, what=named)

    def _places(self, ids: Sequence[Id]) -> npt.NDArray[np.int64]:
        spelled = self.spelled(ids)
        if unknown := self.unknown(spelled):
            raise pair_ids_not_found(unknown)
        return np.array([self.places[one] for one in spelled], dtype=np.int64)


def _listed(ids: Any, scores: Any, kept: Any) -> list[list[dict[str, Any]]]:
    return [
        [{"id": one, "score": round(float(score), 6)} for one, score, keep in zip(*row, strict=True) if keep]
        for row in zip(ids.tolist(), scores.tolist(), kept.tolist(), strict=True)
    ]


def read_runs(folders: Sequence[str | Path]) -> tuple[ServedRun | ServedPairs, ...]:
    """Read the released predictions, or models of pairs, of some runs.

    Args:
        folders: Run folders.

    Returns:
        The runs, in order.

    Raises:
        ArtifactError: If a folder has no run, is damaged, or its ``per_node/`` is missing.
        ConfigError: If two folders have the same name.

    Privacy:
        Reads: released outputs, and ``per_node/`` under node-level units. Charges: nothing.
    """
    runs = tuple(map(_read, map(Path, folders)))
    if len({run.name for run in runs}) < len(runs):
        raise ConfigError(
            "Two runs have the same folder name, which is their name in requests. Rename one folder."
        )
    return runs


def _name(folder: Path) -> str:
    whole = folder.resolve()
    return whole.parent.name if whole.name == "release" else whole.name


def _read(folder: Path) -> ServedRun | ServedPairs:
    pairs = find_link_folder(folder)
    if pairs is not None:
        return ServedPairs.read(pairs)
    snapshot = read_release(folder, find_release(folder))
    proba = snapshot.own_proba.float().numpy()
    # Without ids, nodes are numbered from 0.
    ids: list[Id] = list(range(len(proba))) if snapshot.ids is None else snapshot.ids.tolist()
    places = {one: place for place, one in enumerate(ids)}  # a repeated id has one place
    if len(places) < len(proba):
        raise ArtifactError(
            "The stored predictions list a node twice, so they were changed. Restore the original run folder."
        )
    return ServedRun(
        name=_name(folder),
        guarantee=snapshot.guarantee,
        class_names=snapshot.named_classes,
        features=snapshot.features,
        encoding=snapshot.encoding,
        proba=proba,
        places=places,
    )
