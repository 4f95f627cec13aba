"""Served runs: a guarantee, and one released row per node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphveil.data.tables.encoding import Encoding
from graphveil.errors import ArtifactError, ConfigError
from graphveil.links import find_link_folder
from graphveil.privacy import Guarantee
from graphveil.publish.release_folder import NODE, PREDICTION, find_release, read_release, withheld_files

if TYPE_CHECKING:
    from graphveil.serve.pairs import ServedPairs

Id = int | str
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedRun:
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

        Returns:
            Ids of the type that the run has.
        """
        return [str(one) for one in ids] if self.id_type is str else list(ids)

    def unknown(self, ids: Sequence[Id]) -> list[int]:
        """Return the positions of ids that the run does not have.

        Args:
            ids: Ids of a request.

        Returns:
            Positions, from 0.
        """
        return [position for position, one in enumerate(ids) if one not in self.places]

    def rows(self, ids: Sequence[Id]) -> list[Row]:
        """Return the released rows of known ids.

        Args:
            ids: Ids that the run has.

        Returns:
            One row for each id, with the columns of ``predictions.parquet``.

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

        Returns:
            The row, with the columns of ``predictions.parquet``.
        """
        if not self.class_names:
            return {NODE: one, PREDICTION: float(proba[0])}
        figures = dict(zip(self.columns, proba.tolist(), strict=True))
        return {NODE: one, PREDICTION: self.class_names[int(proba.argmax())], **figures}


def read_runs(folders: Sequence[str | Path]) -> "tuple[ServedRun | ServedPairs, ...]":
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


def _read(folder: Path) -> "ServedRun | ServedPairs":
    pairs = find_link_folder(folder)
    if pairs is not None:
        from graphveil.serve.pairs import ServedPairs

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
    whole = folder.resolve()
    return ServedRun(
        name=whole.parent.name if whole.name == "release" else whole.name,
        guarantee=snapshot.guarantee,
        class_names=snapshot.named_classes,
        features=snapshot.features,
        encoding=snapshot.encoding,
        proba=proba,
        places=places,
    )
