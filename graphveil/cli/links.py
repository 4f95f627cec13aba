"""Predictions of runs of links and recommendations: scores of pairs, and the best candidates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from graphveil._util.figures import counted
from graphveil.cli.console import Screen, deliver
from graphveil.data import Interactions, tables
from graphveil.data.graph_files import read_ids
from graphveil.data.tables.files import FileSource
from graphveil.errors import ConfigError
from graphveil.links import LINKS, find_link_folder
from graphveil.links.link_predictor import LinkPredictor
from graphveil.links.recommender import Recommender
from graphveil.runs.run_folder import RunFolder
from graphveil.runs.source import ListSource, Source

Model = TypeVar("Model", LinkPredictor, Recommender)


def predict_links(
    run: Path,
    kind: str,
    screen: Screen,
    *,
    pairs: Path | None,
    top_k: int | None,
    out: Path | None,
    columns: dict[str, Any],
) -> None:
    """Write the scores of pairs, or the best candidates of each node or user.

    Args:
        columns: Options that name tables and columns; those of the run by default.
    """
    if (pairs is None) == (top_k is None):
        raise ConfigError(
            f"A run of {kind} predicts pairs. Add either --pairs FILE, or --top-k 10 for the best candidates."
        )
    if pairs is not None:
        table, note = pair_scores(run, pairs, columns), "Scores of pairs are post-processing of the release."
    else:
        assert top_k is not None
        table, note = best_candidates(run, kind, top_k, columns)
    screen.note(note)
    record: dict[str, Any] = {"method": kind, "rows": table.num_rows, "out": None, "charged": None}
    deliver(table, out, screen, record, count=counted(table.num_rows, "row"), key="rows")


def pair_scores(run: Path, pairs: Path, columns: Mapping[str, Any]) -> tables.Table:
    """Return a table of pairs with their probability of being an edge.

    Args:
        run: Run folder, or its release.
        pairs: Table with one row per pair.
        columns: Names of the columns ``source`` and ``target``; those of the run by default.

    Raises:
        ConfigError: If it is a run of a recommender, or a column is not named.
        GraphError: If the table cannot be read, or names unknown nodes.
    """
    import pyarrow as pa

    model = _loaded(run, LinkPredictor)
    names = {role: _column(run, role, columns) for role in ("source", "target")}
    first, second = (read_ids(FileSource(pairs), model.node_ids, column=name) for name in names.values())
    scores = model.predict_proba(np.stack([first, second]))
    ends = {names["source"]: model.node_ids[first], names["target"]: model.node_ids[second]}
    return pa.table({**{name: pa.array(ids) for name, ids in ends.items()}, "probability": scores})


def best_candidates(run: Path, kind: str, k: int, columns: Mapping[str, Any]) -> tuple[tables.Table, str]:
    """Return the best candidates of each node or user, and a note on who may see them.

    Args:
        run: Run folder, or for links its release.
        columns: Tables of a recommender's users; those of the run by default.
    """
    import pyarrow as pa

    if kind == LINKS:
        model = _loaded(run, LinkPredictor)
        places, scores = model.top_k(k=k)
        ids, found, owner, other = model.node_ids, model.node_ids[places], "node", "candidate"
        kept = places.ravel() >= 0
        note = (
            "Candidates are post-processing of the release and may be published. They include existing "
            "edges, since leaving these out would reveal them."
        )
    else:
        recommender, table = _loaded(run, Recommender), _lists(run, columns)
        found, scores = recommender.recommend(table, k=k)
        kept = ~np.ma.getmaskarray(found).ravel()  # a user may have fewer items left
        ids, owner, other = table.user_ids, "user", "item"
        note = (
            "Recommendations read the lists of the users. Show the rows of a user only to this user, and to "
            "people who are authorized to access the list."
        )
    ranks = np.tile(np.arange(1, found.shape[1] + 1), len(found))
    owners = pa.array(np.repeat(ids, found.shape[1]))
    ends = {owner: owners, "rank": ranks, other: pa.array(np.asarray(found).ravel())}
    return pa.table({**ends, "score": np.asarray(scores).ravel()}).filter(pa.array(kept)), note


def _loaded(run: Path, kind: type[Model]) -> Model:
    release = find_link_folder(run)
    if release is None or release.kind != kind.method:
        raise ConfigError(
            f"{run} does not contain a run of {kind.method}. --pairs is for links, and --top-k for "
            "links and recommender. Correct the run folder or the option."
        )
    return kind.load(release.path)


def _lists(run: Path, columns: Mapping[str, Any]) -> Interactions:
    """Return the lists of a run's users, or of others if their tables are named."""
    folder = RunFolder(run)
    if not folder.lock.is_file():
        raise ConfigError(
            f"{run} is only the release of a run, but the names of the tables are in its internal "
            "part. Pass the run folder."
        )
    data = {**folder.data_options, **columns}
    return cast("ListSource", Source.from_dict(data)).interactions()


def _column(run: Path, role: str, columns: Mapping[str, Any]) -> str:
    return str(columns.get(role) or RunFolder(run).data_options.get(role) or role)
