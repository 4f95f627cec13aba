"""One run of a link predictor or a recommender: its data, its plan, its folder, and its predictions."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from graphveil._util import checks
from graphveil._util.figures import counted
from graphveil.core.unit import DirectedEdge, NodeRecord, parse_unit
from graphveil.data import Graph, Interactions, tables
from graphveil.data.graph_files import read_ids
from graphveil.data.interactions import RATING_NAMES, known_ids
from graphveil.data.tables.ids import References
from graphveil.errors import ConfigError
from graphveil.estimators.method import FitPreview
from graphveil.links import LINKS, RECOMMENDER, find_link_folder, link_model_class
from graphveil.links.link_predictor import LinkPredictor
from graphveil.links.recommender import Recommender
from graphveil.privacy import Guarantee
from graphveil.publish.queries import stages_of
from graphveil.publish.reports import link_report_page
from graphveil.publish.results import METRIC_NOTES
from graphveil.runs.charges import RunAccount, add_receipts, undone_if_rejected
from graphveil.runs.compliance_report import write_reports
from graphveil.runs.experiment import MAX_RUNS
from graphveil.runs.preview import auto_delta_source, combined_guarantee
from graphveil.runs.run_folder import RunFolder, check_data, forget_data, read_json
from graphveil.runs.source import Source
from graphveil.training.metrics import Interval

_NO_LABELS = ("0", "1")
_RATED = ("rating", "min_rating")
NO_METRICS = {
    LINKS: "No metrics were released, because no pairs are held out (held_out=0).",
    RECOMMENDER: "No metrics were released. Add --private-metrics to release some.",
}

LinkData: TypeAlias = Graph | Interactions
LinkModel: TypeAlias = LinkPredictor | Recommender
Model = TypeVar("Model", LinkPredictor, Recommender)


@dataclass(frozen=True, kw_only=True)
class LinkExperiment:
    """Fits of a link predictor or a recommender on the same data.

    Args:
        method: ``"links"`` or ``"recommender"``.
        source: Source of the graph. For a recommender the node table lists all users, and the edge table has
            one row per item on a list.
        items: For a recommender: table of all items, with the column of edge targets.
        rating, min_rating: For a recommender: column of ratings in the edge table, and the lowest rating of
            an item on a list.
        parameters: Constructor keywords, all but ``seed``.
        seed: Seed of public randomness of the first run; run r has ``seed + r``.
        runs: Number of fits. The release is that of the first one.
    """

    method: str
    source: Source
    items: Path | None = None
    rating: str | None = None
    min_rating: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    runs: int = 1

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        checks.integer_at_least(1, runs=self.runs)
        checks.within(1, MAX_RUNS, runs=self.runs)
        parse_unit(self.parameters.get("unit"))
        if self.parameters.get("epsilon") is None:
            raise ConfigError(
                f"{self.method} needs a privacy budget. Pass epsilon=, for example epsilon=1.0."
            )
        self.model(0)
        if (self.items is None) != (self.method == LinkPredictor.method):
            needs = "has no items" if self.items is not None else "needs --items, a table of all items"
            raise ConfigError(f"Method {self.method} {needs}. Correct the command.")
        if (self.rating is None) != (self.min_rating is None):
            raise ConfigError(
                "--rating and --min-rating go together: the column of ratings, and the lowest rating that "
                "counts as a like. Give both, for example --rating stars --min-rating 4, or neither."
            )
        if self.rating is not None and self.items is None:
            raise ConfigError(f"Method {self.method} has no ratings. Remove --rating and --min-rating.")
        if self.items is not None and self.source.weight is not None:
            raise ConfigError(
                "Method recommender does not use --weight and --max-weight. Remove them; to keep high "
                f"ratings only, use --rating {self.source.weight} --min-rating 4."
            )
        if self.items is not None and self.source.edges is None:
            raise ConfigError(
                "recommender reads lists of items from tables. Set --edges, --nodes (all users) and --items "
                "instead of --dataset or --graph."
            )

    def model(self, run: int) -> LinkModel:
        """Return the unfitted model of a run."""
        parameters = dict(self.parameters)
        if parameters.get("unsafe_noise_seed") is not None:
            parameters["unsafe_noise_seed"] += run
        return link_model_class(self.method)(seed=self.seed + run, **parameters)

    def list_words(self) -> str:
        """Return which rows of the table are items of a list, for the plan of a recommender."""
        edges = self.source.edges
        assert edges is not None
        if self.rating is not None:
            return f"rows of {edges.name} with {self.rating} of at least {self.min_rating:g}"
        names = tables.column_names(edges, [], self.source.csv_format)
        rated = next((name for name in names if name.lower() in RATING_NAMES), None)
        more = (
            f"; column {rated!r} is ignored, so low ratings count as likes (--rating {rated} --min-rating 4)"
        )
        return f"every row of {edges.name}{'' if rated is None else more}"

    def load(self) -> LinkData:
        """Read the graph, or the lists of all users."""
        if self.items is not None:
            return read_interactions(self.source, self.items, self.rating, self.min_rating)
        # A graph has classes, also where no node has a label.
        return self.source.load(_NO_LABELS if self.source.nodes and self.source.label is None else None)

    def as_dict(self) -> dict[str, Any]:
        """Return the whole configuration as plain values, one key a choice."""
        from graphveil.publish.schemas import plain_parameters

        parameters = plain_parameters(dict(self.parameters))
        return {
            "method": self.method,
            "seed": self.seed,
            "runs": self.runs,
            **{f"data.{name}": value for name, value in self.source.as_dict().items()},
            **({} if self.items is None else {"data.items": str(self.items)}),
            **(
                {}
                if self.rating is None
                else {"data.rating": self.rating, "data.min_rating": self.min_rating}
            ),
            **{f"set.{name}": value for name, value in sorted(parameters.items())},
        }


def read_interactions(
    source: Source, items: Path, rating: str | None = None, min_rating: float | None = None
) -> Interactions:
    """Read lists of items from three tables: the users, the items, and one row per item on a list.

    Args:
        source: Tables of users and of lists, and their columns.
        items: Table of items.
        rating: Column of ratings in the table of lists.
        min_rating: Lowest rating of an item on a list.

    Raises:
        GraphError: If a column is missing, or an id is unknown, missing, or listed twice.
    """
    assert source.nodes is not None and source.edges is not None and source.target is not None
    assert source.id is not None and source.source is not None
    path, how = source.edges, source.csv_format
    ends = [source.source, source.target]
    lists = tables.read_ids(path, ends, [] if rating is None else [rating], csv_format=how)
    known = (known_ids(source.nodes, source.id, how), known_ids(items, source.target, how))
    references = (
        References(
            *(tables.column(lists, name), f"column {name!r} of {path.name}", f"table[{name!r}]"),
            known=ids,
            written=tables.is_csv(path),
        )
        for name, ids in zip(ends, known, strict=True)
    )
    return Interactions.from_tables(
        *references,
        ratings=None if rating is None else tables.column(lists, rating),
        min_rating=min_rating,
        unknown_ids=source.unknown_ids or "error",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkPlan:
    """The plan that is shown before anything is spent.

    Args:
        experiment: Configuration.
        data: The graph, or the lists of all users.
        sizes: Its public sizes, in words.
        preview: Query plan, guarantee and outputs.
    """

    experiment: LinkExperiment
    data: LinkData
    sizes: str
    preview: FitPreview

    @classmethod
    def from_experiment(cls, experiment: LinkExperiment) -> "LinkPlan":
        """Read the data, and check and plan the fit; nothing is spent."""
        return cls.from_data(experiment, experiment.load())

    @classmethod
    def from_data(cls, experiment: LinkExperiment, data: LinkData) -> "LinkPlan":
        """Check and plan the fit on data that were read before; nothing is spent."""
        sizes = (
            f"{counted(data.num_users, 'user')}, {counted(data.num_items, 'item')}"
            if isinstance(data, Interactions)
            else f"{counted(data.num_nodes, 'node')}, {counted(data.num_features, 'feature')}"
        )
        model: Any = experiment.model(0)  # of these data
        return cls(experiment=experiment, data=data, sizes=sizes, preview=model.preview(data))

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one fit."""
        return self.preview.guarantee

    @property
    def guarantee_all_runs(self) -> Guarantee:
        """The guarantee of all fits together."""
        return combined_guarantee([self.guarantee] * self.experiment.runs)

    @property
    def delta_source(self) -> str:
        """The origin of delta, in words."""
        given = self.experiment.parameters.get
        if given("delta", "auto") != "auto":
            return "as given"
        data, sizes = self.data, counted(self.graph.num_nodes, "node")
        if isinstance(data, Interactions):
            records = self.guarantee.unit == NodeRecord.name
            sizes = (
                counted(data.num_users, "user") if records else f"{data.graph.num_nodes:,} users and items"
            )
        return auto_delta_source(self.guarantee, given("max_units"), sizes)

    @property
    def graph(self) -> Graph:
        """The graph whose edges are queried."""
        return self.data.graph if isinstance(self.data, Interactions) else self.data


def execute(
    plan: LinkPlan, folder: RunFolder, account: RunAccount | None = None, *, resume: bool = False
) -> dict[str, Any]:
    """Fit, write the run folder, and return the object that ``train --json`` prints.

    Each fit is charged to the ledger of the data before these are read. An interrupted run resumes with the
    same noise.
    """
    experiment, graph = plan.experiment, plan.graph
    started, fresh = time.perf_counter(), folder.missing
    workspace = folder.workspace(experiment.seed)
    with folder.locked(experiment.as_dict(), resume=resume):
        with undone_if_rejected(folder, graph, account, made=fresh, resume=resume):
            check_data(folder, graph)
            models: list[Any] = [experiment.model(run) for run in range(experiment.runs)]  # of these data
            for run, model in enumerate(models):
                model.fit(plan.data, workspace=folder.workspace(experiment.seed + run) / "method")
        if account is not None:
            add_receipts(folder.receipts, account)
        release = workspace / folder.release.name
        shutil.rmtree(release, ignore_errors=True)  # of an interrupted attempt
        models[0].save(release, dataset=experiment.source.published_name)
        metrics = _metrics(plan, models, time.perf_counter() - started)
        curves = getattr(models[0], "curves_", None)  # of links only
        held_out = None if curves is None else curves._asdict()
        page = partial(link_report_page, metrics, held_out, models[0].guarantee)
        write_reports(folder, metrics, release, page, account)
        forget_data(folder)
        folder.publish(workspace)
    return metrics


def _metrics(plan: LinkPlan, models: Sequence[LinkModel], seconds: float) -> dict[str, Any]:
    """Return the object that ``train --json`` prints: released values and public sizes only."""
    experiment, guarantee = plan.experiment, models[0].guarantee
    released = [model.private_metrics_ or {} for model in models]
    private, together = released[0], plan.guarantee_all_runs
    assert guarantee is not None  # unit none was rejected before
    plain = together.as_dict()
    total = {name: plain[name] for name in ("epsilon", "delta", "releases")}
    return {
        "method": experiment.method,
        "dataset": experiment.source.name,
        "sizes": plan.sizes,
        "unit": guarantee.unit,
        "mode": "strict",
        "epsilon": experiment.parameters.get("epsilon"),
        "delta": guarantee.delta,
        "seed": experiment.seed,
        "runs": experiment.runs,
        "covered": True,
        "private_metrics": {name: one.as_dict() for name, one in private.items()},
        "metric_values": {
            name: [one[name].as_dict()["value"] for one in released if name in one] for name in private
        },
        "remarks": _remarks(experiment, private, guarantee.unit),
        "guarantee": guarantee.as_dict(),
        "baseline_guarantee": None,
        "guarantee_all_runs": total,
        "releases": [row.as_release() for row in plan.preview.rows],
        "stages": [stage.as_stage() for stage in stages_of(plan.preview.plan)],
        "deviations": list(guarantee.deviations),
        "summary": guarantee.summary(),
        "statement": guarantee.formal_statement(),
        "seconds_wall": round(seconds, 3),
    }


def _remarks(experiment: LinkExperiment, private: Mapping[str, Interval], unit: str) -> str:
    """Return what the released metrics mean."""
    method = experiment.method
    if not private and (method, unit) == (RECOMMENDER, DirectedEdge.name):
        return f"No metrics were released: a hit rate reads whole lists, which unit {unit} does not protect."
    if not private and experiment.parameters.get("private_metrics"):
        return (
            "Hit rate: n/a, because the noisy number of held-out users with two items does not exceed "
            "its noise. Use more users or a larger --epsilon."
        )
    if not private:
        return NO_METRICS[method]
    area = private.get("roc_auc")
    if area is None or not area.low <= 0.5 <= area.high:
        return METRIC_NOTES[method]
    return (
        f"{METRIC_NOTES[method]} The interval of ROC-AUC contains 0.5, which random scores have: with this "
        "noise the metrics do not show whether the scores are informative."
    )


# -- predictions -----------------------------------------------------------------------------------------


def read_kind(run: Path) -> str | None:
    """Return the method of a run of links or recommendations; None for other runs."""
    release = find_link_folder(run)
    return None if release is None else release.kind


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
    first, second = (read_ids(pairs, model.node_ids, column=name) for name in names.values())
    scores = model.predict_proba(np.stack([first, second]))
    ends = {names["source"]: model.node_ids[first], names["target"]: model.node_ids[second]}
    return pa.table({**{name: pa.array(ids) for name, ids in ends.items()}, "probability": scores})


def best_candidates(run: Path, k: int, columns: Mapping[str, Any]) -> tuple[tables.Table, str]:
    """Return the best candidates of each node or user, and a note on who may see them.

    Args:
        run: Run folder, or for links its release.
        k: Number of candidates.
        columns: Tables of a recommender's users; those of the run by default.
    """
    import pyarrow as pa

    if read_kind(run) == LinkPredictor.method:
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
    """Return the model of a run, which must be of this kind.

    Raises:
        ConfigError: If it is of the other kind.
    """
    release = find_link_folder(run)
    if release is None or release.kind != kind.method:
        raise ConfigError(
            f"{run} does not contain a run of {kind.method}. --pairs is for links, and --top-k for "
            "links and recommender. Correct the run folder or the option."
        )
    return kind.load(release.path)


def _lists(run: Path, columns: Mapping[str, Any]) -> Interactions:
    """Return the lists of a run's users, or of others if their tables are named.

    Raises:
        ConfigError: If the tables of the run are not known.
    """
    folder = RunFolder(run)
    if not folder.lock.is_file():
        raise ConfigError(
            f"{run} is only the release of a run, but the names of the tables are in its internal "
            "part. Pass the run folder."
        )
    known = read_json(folder.lock)["configuration"]
    data = {name.removeprefix("data."): value for name, value in known.items() if name.startswith("data.")}
    data |= {name: value for name, value in columns.items() if value is not None}
    items, rating, lowest = Path(data.pop("items")), data.pop("rating", None), data.pop("min_rating", None)
    return read_interactions(Source.from_dict(data), items, rating, lowest)


def _column(run: Path, role: str, columns: Mapping[str, Any]) -> str:
    """Return the column of a role, by default that of the run's edges."""
    folder = RunFolder(run)
    known = read_json(folder.lock)["configuration"] if folder.lock.is_file() else {}
    return str(columns.get(role) or known.get(f"data.{role}") or role)
