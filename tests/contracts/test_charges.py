"""Every job is charged what its plan states, before any noise is drawn, in every kind of ledger.

A job is charged the events of its guarantee and nothing else: to each dataset that it may read. The entries
are written before the first word of noise, and stay if the job fails then. A rejected job draws nothing.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from command import PRIVATE, Files, Invoke, read, write
from drawn import words_of_noise
from ledger.conftest import KINDS, place, server

import graphveil as gv
from graphveil import METHODS, perturb
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.features import to_dense
from graphveil.core.ledger import MemoryLedger, PrivacyLedger, attach_ledger
from graphveil.data import Graph, Interactions
from graphveil.data.relational import TABLE_UNITS
from graphveil.errors import BudgetError
from graphveil.ledger import Ledger
from graphveil.links.link_predictor import LinkPredictor
from graphveil.links.recommender import Recommender
from graphveil.privacy import Guarantee
from graphveil.runs.charges import earlier_predictions, receipts_in
from graphveil.runs.run_folder import RunFolder
from tests.estimators.conftest import grouped, with_little_training
from tests.estimators.gnn.modules import Mean
from tests.estimators.relational.drawn import drawn

__all__ = ["place", "server"]  # fixtures
NODES = 60
Fixed = dict[str, Any]

EDGE: Fixed = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-6, "seed": 0}
DIRECTED: Fixed = {**EDGE, "unit": "directed-edge"}
RECORD: Fixed = {"unit": "node-record", "epsilon": 1.0, "delta": 1e-5, "seed": 0}
WHOLE: Fixed = {**RECORD, "unit": "node"}
BOUNDED: Fixed = {**RECORD, "unit": "node-bounded-degree", "max_degree": 60}
ROW: Fixed = {**EDGE, "unit": "row"}
PERSON: Fixed = {**RECORD, "unit": "person"}
LOCAL: Fixed = {"unit": "local-attributes", "seed": 0}
REPORTS: Fixed = {**LOCAL, "eps_x": 1.0, "eps_y": 2.0}
SHORT: Fixed = {"epochs": 2}
FITS: dict[str, tuple[str, Fixed]] = {  # name: method, and its parameters
    "auto": ("auto", EDGE),
    "auto, directed": ("auto", DIRECTED),
    "auto, records": ("auto", RECORD),
    "auto, nodes": ("auto", WHOLE),
    "auto, reports": ("auto", {**LOCAL, "eps_y": 2.0, "eps_x": 0.0}),
    "mlp, records": ("mlp", {**RECORD, **SHORT}),
    "mlp, nodes": ("mlp", {**WHOLE, **SHORT}),
    "mlp, bounded": ("mlp", {**BOUNDED, **SHORT}),
    "mlp, metrics": ("mlp", {**RECORD, **SHORT, "private_metrics": True}),
    "gap": ("gap", {**EDGE, **SHORT}),
    "gap, directed, three hops": ("gap", {**DIRECTED, **SHORT, "hops": 3}),
    "gap, records": ("gap", {**RECORD, **SHORT, "out_degree_bound": 4}),
    "gap, bounded": ("gap", {**BOUNDED, **SHORT}),
    "gap, nodes": ("gap", {**WHOLE, **SHORT}),
    "gap, nodes, metrics": ("gap", {**WHOLE, **SHORT, "private_metrics": True}),
    "gap, metrics": ("gap", {**RECORD, **SHORT, "out_degree_bound": 4, "private_metrics": True}),
    "gcn, released graph": ("gcn", {**EDGE, **SHORT, "perturb": "edge-rand"}),
    "gat, released graph": ("gat", {**DIRECTED, **SHORT, "perturb": "edge-rand"}),
    "sage, released graph": ("sage", {**EDGE, **SHORT, "perturb": "edge-rand"}),
    "classcode": ("classcode", EDGE),
    "classcode, directed": ("classcode", DIRECTED),
    "classcode, sums": ("classcode", {**EDGE, "noise": "gaussian"}),
    "classcode, records": ("classcode", {**RECORD, "out_degree_bound": 4}),
    "classcode, replaced records": ("classcode", {**RECORD, "replace_one": True, "out_degree_bound": 4}),
    "classcode, nodes": ("classcode", WHOLE),
    "classcode, replaced nodes": ("classcode", {**WHOLE, "replace_one": True, "read_own_edges": False}),
    "relational, rows": ("relational", ROW),
    "relational, persons": ("relational", PERSON),
    "relational, replaced persons": ("relational", {**PERSON, "replace_one": True, "items": True}),
    "relational, metrics": ("relational", {**PERSON, "private_metrics": True}),
    "mlp, persons": ("mlp", {**PERSON, **SHORT}),
    "auto, rows": ("auto", ROW),
    "auto, persons": ("auto", PERSON),
    "spectral": ("spectral", EDGE),
    "lpgnet": ("lpgnet", {**EDGE, **SHORT}),
    "lpgnet, directed, three": ("lpgnet", {**DIRECTED, **SHORT, "stacks": 3}),
    "lpgnn": ("lpgnn", {**REPORTS, **SHORT}),
    "label-posterior": ("label-posterior", {**LOCAL, "eps_y": 2.0}),
    "heterorr": ("heterorr", {"unit": "edge-subset", "epsilon": 2.0, "eps_x": 4.0, "seed": 0, **SHORT}),
    "simgat": ("simgat", {**REPORTS, **SHORT}),
    "gnn, records": ("gnn", {**RECORD, **SHORT, "module": Mean, "leaves": 4, "encoder_share": 0.1}),
    "module, records": ("module", {**RECORD, **SHORT, "module": torch.nn.Linear}),
}


def test_every_method_is_here() -> None:
    from graphveil import estimators

    assert {method for method, _ in FITS.values()} == set(METHODS) - set(estimators._REGISTERED)


class Books:
    """Ledgers of one kind, by the name of their data."""

    def __init__(self, make: Callable[[str], PrivacyLedger]) -> None:
        self._make = make
        self.ledgers: dict[str, PrivacyLedger] = {}

    def attach(self, edges: EdgeSet, name: str) -> None:
        """Attach the ledger of this name to every part of an edge set."""
        if name not in self.ledgers:
            self.ledgers[name] = self._make(name)
        for part in edges.parts:
            attach_ledger(part, self.ledgers[name])

    def graph(self, name: str, *, seed: int = 0, directed: bool = False) -> Graph:
        """Return a new graph with a ledger of its own."""
        found = grouped(directed=directed, nodes=NODES, seed=seed)
        self.attach(found.edge_set, name)
        return found

    def tables(self, name: str) -> Graph:
        """Return new tables with a ledger of their own."""
        found = drawn(4, mutual=False).built().graph
        self.attach(found.edge_set, name)
        return found

    def entries(self) -> "Charged":
        """Return what was charged, by name."""
        return {
            name: [charge(entry.event, entry.unit, entry.slack) for entry in ledger.entries]
            for name, ledger in self.ledgers.items()
        }


Charged = dict[str, list[str]]  # by the name of the data, in order
Release = Callable[[], Charged]


def charge(event: Any, unit: Any, slack: float) -> str:
    """Return a charge as text, without the digests that bind groups and pairs to one release."""
    return re.sub(r"(/([0-9a-f]{16,}|0))+(?=')", "", f"{event} {unit} {slack:.6g}")


def cost(guarantee: Guarantee | None) -> list[str]:
    """Return what a guarantee charges under each of its units."""
    assert guarantee is not None
    return [charge(one.event, one.protected, one.slack) for one in (guarantee, *guarantee.additional)]


@dataclass
class Job:
    """A job in two parts.

    Args:
        prepare: Called with the ledgers and a private folder. Returns what it has charged, and the second
            part: a release that returns what itself is charged.
        resumes: Whether a second call resumes the first, which is charged once.
        releases: Number of entries. Each is written before its own noise, so a failure at the first noise
            leaves the first entry.
        datasets: Number of ledgers that are charged; 0 for all that are known.
    """

    prepare: Callable[[Books, Path], tuple[Charged, Release]]
    resumes: bool = True
    releases: int = 1
    datasets: int = 0


def fitted(name: str) -> Job:
    method, given = FITS[name]

    def prepare(books: Books, folder: Path) -> tuple[Charged, Release]:
        if given["unit"] in TABLE_UNITS:
            graph = books.tables("data")
        else:
            graph = books.graph("data", directed=given["unit"] == "directed-edge")
        if given["unit"] == "edge-subset":
            half = torch.arange(NODES) < NODES // 2
            graph = graph.with_public(graph.adjacency.without_crossing(half), torch.ones(NODES) > 0)

        def release() -> Charged:
            model = METHODS[method](**given)
            planned = cost(model.preview(graph).guarantee)
            model.fit(graph, workspace=folder)
            assert cost(model.guarantee) == planned
            return {"data": planned[::-1]}  # heterorr: records, and then edges

        return {"data": []}, release

    return Job(prepare, releases=2 if method == "heterorr" else 1)


def fast(method: str) -> Any:
    return METHODS[method](**EDGE, **({} if method == "classcode" else SHORT))


def predicted(method: str, *, apart: bool = False, before: int = 0) -> Job:
    """Predict another graph after some others. It may share edges with each of them, unless it is apart."""

    def prepare(books: Books, folder: Path) -> tuple[Charged, Release]:
        data, other = books.graph("data"), books.graph("other", seed=9)
        model = fast(method).fit(data)
        known: Charged = {"data": cost(model.guarantee)}
        for number in range(before):
            earlier = books.graph(f"earlier {number}", seed=10 + number)
            privacy_cost = cost(model.privacy_cost(earlier))
            model.predict_proba(earlier, allow_spend=True)
            known = {name: [*charges, *privacy_cost] for name, charges in known.items()}
            known[f"earlier {number}"] = privacy_cost

        def release() -> Charged:
            charged = cost(model.privacy_cost(other))
            model.predict_proba(other, allow_spend=True, assume_disjoint_edges=apart)
            return dict.fromkeys(("other", *(() if apart else known)), charged)

        return {**known, "other": []}, release

    return Job(prepare, resumes=False, datasets=1 if apart else 0)


def predicted_growth(method: str, *, steps: int = 1) -> Job:
    """Predict a graph that has grown: the new edges have a ledger of their own, which alone is charged."""

    def prepare(books: Books, folder: Path) -> tuple[Charged, Release]:
        data = books.graph("data")
        model, known = fast(method).fit(data), {"data": list[str]()}
        known["data"] = cost(model.guarantee)
        for number in range(steps):
            before = set(data.edge_set.parts)
            size = data.num_nodes
            if number:
                known[f"new {number - 1}"] = cost(model.privacy_cost(data))
                model.predict_proba(data, allow_spend=True)
            data = data.grow(x=data.x[:2], source=[size, size + 1], target=[0, 1], y=data.y[:2])
            (new,) = set(data.edge_set.parts) - before
            books.attach(new, f"new {number}")

        def release() -> Charged:
            charged = cost(model.privacy_cost(data))
            model.predict_proba(data, allow_spend=True)
            return {f"new {steps - 1}": charged}

        return {**known, f"new {steps - 1}": []}, release

    return Job(prepare, resumes=False, datasets=1)


def predicted_parts() -> Job:
    """Predict a graph of two parts, one of which grew from a third graph: each part has a ledger."""

    def prepare(books: Books, folder: Path) -> tuple[Charged, Release]:
        data, other = books.graph("data"), books.graph("other", seed=9)
        model = fast("gap").fit(data)
        grown = other.grow(x=other.x[:2], source=[NODES, NODES + 1], target=[0, 1], y=other.y[:2])
        (new,) = set(grown.edge_set.parts) - set(other.edge_set.parts)
        books.attach(new, "new")

        def release() -> Charged:
            charged = cost(model.privacy_cost(grown))
            model.predict_proba(grown, allow_spend=True)
            return dict.fromkeys(("data", "other", "new"), charged)

        return {"data": cost(model.guarantee), "other": [], "new": []}, release

    return Job(prepare, resumes=False)


def predicted_stranger() -> Job:
    """Predict a graph of two parts: the first is apart from the training data, and the new edges are not."""

    def prepare(books: Books, folder: Path) -> tuple[Charged, Release]:
        data, other = books.graph("data"), books.graph("other", seed=9)
        model = fast("gap").fit(data)
        known = {"data": cost(model.guarantee), "other": cost(model.privacy_cost(other))}
        model.predict_proba(other, allow_spend=True, assume_disjoint_edges=True)
        grown = other.grow(x=other.x[:2], source=[NODES, NODES + 1], target=[0, 1], y=other.y[:2])
        (new,) = set(grown.edge_set.parts) - set(other.edge_set.parts)
        books.attach(new, "new")
        wanted = grown.replace(x=1 - to_dense(grown.x))  # other features, so all edges are queried again

        def release() -> Charged:
            charged = cost(model.privacy_cost(wanted))
            model.predict_proba(wanted, allow_spend=True)
            return dict.fromkeys(("data", "other", "new"), charged)

        return {**known, "new": []}, release

    return Job(prepare, resumes=False)


def linked(**given: Any) -> Job:
    def prepare(books: Books, folder: Path) -> tuple[Charged, Release]:
        graph = books.graph("data", directed=given["unit"] == "directed-edge")

        def release() -> Charged:
            model = LinkPredictor(**given)
            planned = cost(model.preview(graph).guarantee)
            model.fit(graph, workspace=folder)
            model.predict_proba([[0, 1], [2, 3]])  # post-processing, like the lists of nodes
            model.top_k(k=3)
            assert cost(model.guarantee) == planned
            return {"data": planned}

        return {"data": []}, release

    return Job(prepare)


def recommended(**given: Any) -> Job:
    def prepare(books: Books, folder: Path) -> tuple[Charged, Release]:
        lists = torch.rand(80, 9, generator=torch.Generator().manual_seed(0)) < 0.4
        table = Interactions.from_matrix(lists.numpy())
        books.attach(table.graph.edge_set, "data")

        def release() -> Charged:
            model = Recommender(**given)
            planned = cost(model.preview(table).guarantee)
            model.fit(table, workspace=folder)
            model.recommend(table, k=2)  # for the users themselves
            assert cost(model.guarantee) == planned
            return {"data": planned}

        return {"data": []}, release

    return Job(prepare)


def released(mechanism: Callable[..., Any], **given: Any) -> Job:
    def prepare(books: Books, folder: Path) -> tuple[Charged, Release]:
        graph = books.graph("data")
        return {"data": []}, lambda: {
            "data": cost(mechanism(graph, unit="undirected-edge", **given).guarantee)
        }

    return Job(prepare, resumes=False)


LISTS = {name: value for name, value in RECORD.items() if name != "seed"}
JOBS: dict[str, Job] = {
    **{f"fit {name}": fitted(name) for name in FITS},
    "predict a graph": predicted("gap"),
    "predict a third graph": predicted("gap", before=2),
    "predict a graph by counts": predicted("classcode", before=1),
    "predict a graph by a stack": predicted("lpgnet"),
    "predict a separate graph": predicted("gap", apart=True, before=1),
    "predict a grown graph": predicted_growth("gap"),
    "predict a graph that grew twice": predicted_growth("gap", steps=2),
    "predict a grown graph by counts": predicted_growth("classcode"),
    "predict a graph of two parts": predicted_parts(),
    "predict a grown stranger": predicted_stranger(),
    "links": linked(**EDGE),
    "links, directed, no metrics": linked(**{**DIRECTED, "epsilon": 4.0, "held_out": 0.0}),
    "lists": recommended(**LISTS),
    "lists, metrics": recommended(**LISTS, private_metrics=True, replace_one=True),
    "lists, entries": recommended(**{**LISTS, "unit": "directed-edge"}),
    "hops": released(lambda graph, **given: gv.private_hops(graph, **given), epsilon=1.0, delta=1e-6),
    "edge-rand": released(perturb.edge_rand, epsilon=3.0),
    "lap-graph": released(perturb.lap_graph, epsilon=3.0),
}
# In databases: one fit of each way to charge, and all that is not a fit.
DURABLE = [name for name in JOBS if not name.startswith("fit ")]
DURABLE += [
    "fit gap",
    "fit gap, metrics",
    "fit auto, records",
    "fit classcode, nodes",
    "fit relational, rows",
    "fit relational, persons",
    "fit lpgnn",
    "fit heterorr",
    "fit module, records",
]
ON_A_SERVER = [
    "fit gap",
    "fit heterorr",
    "predict a third graph",
    "predict a grown stranger",
    "lists",
    "hops",
]
TABLE = [(name, "memory") for name in JOBS] + [(name, "sqlite") for name in DURABLE]
TABLE += [(name, "postgresql") for name in ON_A_SERVER]


@pytest.fixture
def books(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Books]:
    """Ledgers of a kind, without limits."""
    if kind == "memory":
        yield Books(lambda name: MemoryLedger())
        return
    ledger = Ledger(request.getfixturevalue("place"))

    def make(name: str) -> PrivacyLedger:
        ledger.init(name, "undirected-edge")
        return ledger.data_set(name)

    yield Books(make)
    assert ledger.verify() == []
    ledger.close()


class StoppedError(Exception):
    """In place of a failure at the first word of noise."""


@contextmanager
def watched(books: Books, *, stop: bool) -> Iterator[list[int]]:
    """Yield the number of entries at each word of noise; with ``stop`` the first one fails."""
    counts = list[int]()

    def drawing() -> None:
        counts.append(sum(len(ledger) for ledger in books.ledgers.values()))
        if stop:
            raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        words_of_noise(patch, drawing)
        yield counts


@pytest.mark.parametrize(("name", "kind"), TABLE)
def test_a_job_is_charged_its_plan_before_any_noise_also_if_it_fails(
    name: str, books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_little_training(monkeypatch)
    job = JOBS[name]
    known, release = job.prepare(books, tmp_path / "work")
    assert books.entries() == known
    with watched(books, stop=True) as counts, pytest.raises(StoppedError):
        release()
    at_noise, failed = counts[0], books.entries()
    with watched(books, stop=False) as counts:
        charged = release()
    once = {data: [*before, *charged.get(data, [])] for data, before in known.items()}
    if job.releases == 1:
        assert failed == once
        assert at_noise == sum(map(len, once.values())), "noise was drawn before the charge"
    else:
        assert failed == {data: charges[:1] for data, charges in once.items()} and at_noise == 1
    twice = once if job.resumes else {data: [*one, *charged.get(data, [])] for data, one in once.items()}
    assert books.entries() == twice
    assert max(counts) == sum(map(len, twice.values())) and len(set(counts)) == job.releases


@pytest.mark.parametrize("name", DURABLE)
def test_a_job_above_the_limit_of_any_ledger_draws_nothing_and_records_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ledger that is charged has too small a limit in turn; the others have none."""
    with_little_training(monkeypatch)
    books = Books(lambda data: MemoryLedger())
    known, release = JOBS[name].prepare(books, tmp_path / "work")
    rejected = 0
    for ledger in books.ledgers.values():
        with monkeypatch.context() as patch, watched(books, stop=True) as counts:
            patch.setattr(ledger, "_epsilon", 1e-3)
            patch.setattr(ledger, "_delta", 1e-9)
            try:
                release()
            except BudgetError:
                rejected += 1
                assert not counts and books.entries() == known
            except StoppedError:  # this ledger is not charged
                known = books.entries()
    assert rejected == (JOBS[name].datasets or len(books.ledgers))


# -- commands and the server, which use a database always ----------------------------------------------------

QUICK_GAP = ("gap", *PRIVATE, "--no-baseline", "--set", "epochs=2")
RECORDS = ("--unit", "node-record", "--epsilon", "1", "--delta", "1e-5", "--set", "epochs=2")
COMMANDS: dict[str, tuple[str, ...]] = {
    "two runs": ("train", *QUICK_GAP, "--runs", "2"),
    "metrics and a baseline": (
        "train",
        "gap",
        *RECORDS,
        "--out-degree-bound",
        "5",
        "--private-metrics",
        "--baseline",
    ),
    "reports": ("train", "label-posterior", "--unit", "local-attributes", "--set", "eps_y=2"),
    "links": ("train", "links", *PRIVATE, "--set", "dim=4", "--runs", "2"),
}


@pytest.fixture
def database(invoke: Invoke, place: str, files: Files, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """The ledger of commands in each kind of database."""
    monkeypatch.setenv("GRAPHVEIL_LEDGER", place)
    yield (ledger := Ledger(place))
    assert ledger.verify() == []
    ledger.close()


def rows(ledger: Ledger) -> list[tuple[str, dict[str, Any]]]:
    """Return the entries of each release, by dataset and in order."""
    return [(name, row) for name in ledger.names() for row in ledger.export(name) if row["kind"] == "reserve"]


def planned(total: dict[str, Any]) -> tuple[int, float]:
    return total["releases"], pytest.approx(total["epsilon"], rel=1e-4)


def spent(ledger: Ledger, name: str, delta: float) -> tuple[int, float]:
    (account,) = ledger.accounts(name)
    return account.releases, account.total.epsilon(delta)


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "sqlite") for name in COMMANDS), ("links", "postgresql")]
)
def test_a_command_is_charged_what_it_prints_and_resumes_with_all_receipts(
    name: str, database: Ledger, invoke: Invoke, files: Files
) -> None:
    """Each attempt fails at the first noise of the next release, and the last one finishes."""
    words = [*COMMANDS[name], *files.flags, "--out", "run"]
    attempts, recorded_before = 0, -1
    while recorded_before < len(rows(database)):  # an attempt that charges nothing new is the last
        recorded_before, stopped = len(rows(database)), list[int]()

        def drawing() -> None:
            if len(rows(database)) > recorded_before:  # noqa: B023  # called in this iteration
                stopped.append(1)  # noqa: B023
                raise StoppedError

        with pytest.MonkeyPatch.context() as patch:
            words_of_noise(patch, drawing)
            done = invoke(*words, *(["--resume"] if attempts else []), "--json")
        attempts += 1
        assert (done.code != 0) == bool(stopped), done.err
    metrics = done.json
    assert attempts == metrics["guarantee_all_runs"]["releases"] + 1
    (dataset,) = {one for one, _ in rows(database)}
    delta = metrics["guarantee_all_runs"]["delta"]
    assert spent(database, dataset, delta) == planned(metrics["guarantee_all_runs"])
    receipts = receipts_in(RunFolder(Path("run")).receipts)
    assert {one["release"] for one in receipts} == {row["reference"] for _, row in rows(database)}
    assert metrics["ledger"]["receipts"] == receipts and not database.missing_receipts(receipts)
    again = invoke(*words, "--resume", "--json")
    assert again.json == metrics and len(rows(database)) == attempts - 1


@pytest.mark.parametrize("kind", ["sqlite"])
def test_predictions_that_fail_after_their_charge_are_charged_and_remembered(
    database: Ledger, invoke: Invoke, files: Files
) -> None:
    """A later prediction is charged to all graphs before it, also to one whose prediction failed."""
    assert invoke("train", *QUICK_GAP, *files.flags, "--out", "run").code == 0

    def drawing() -> None:
        raise StoppedError

    for number in range(2):
        with pytest.MonkeyPatch.context() as patch:
            words_of_noise(patch, drawing)
            failed = invoke("predict", "run", *graph_of(files, f"failed {number}", number))
        assert failed.code == 1
        kept = earlier_predictions(Path("run"))
        assert len(kept) == number + 1 and not any(one.disjoint for one in kept)
    assert spent(database, "data-1", 1e-7)[0] == 3
    done = invoke("predict", "run", *graph_of(files, "third", 5), "--json")
    assert done.code == 0, done.err
    releases = {name: spent(database, name, 1e-7)[0] for name in database.names()}
    assert releases == {"data-1": 4, "data-2": 3, "data-3": 2, "data-4": 1}
    found = done.json["guarantee_with_predictions"]
    assert spent(database, "data-1", found["delta"])[1] == pytest.approx(found["epsilon"], rel=1e-4)
    before = len(rows(database))
    for free in (["predict", "run"], ["explain", "run"], ["report", "run"]):  # post-processing
        assert invoke(*free, "--json").code == 0
    assert len(rows(database)) == before


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_server_charges_all_graphs_that_its_run_has_queried(
    database: Ledger, invoke: Invoke, files: Files, place: str
) -> None:
    """Of the callers, of the training, and of each graph that was predicted before it started."""
    from decimal import Decimal

    from fastapi.testclient import TestClient

    from graphveil.serve import Keys, ReleaseBudget, Service

    assert invoke("train", *QUICK_GAP, *files.flags, "--out", "run").code == 0
    for number in range(2):
        assert invoke("predict", "run", *graph_of(files, f"earlier {number}", number)).code == 0
    database.init("callers", "undirected-edge", epsilon="9", delta="1e-6")
    budget = ReleaseBudget(epsilon=Decimal(3), ledger=f"{place}#callers")
    keys = Path("keys.json")
    bearer = {"Authorization": f"Bearer {Keys.add(keys, releases=True)}"}
    service = Service(runs=(Path("run"),), release_budget=budget, keys=keys)
    records = [{"id": name, "x": [0.1 * place, 0.5]} for place, name in enumerate("cab")]
    before = {name: spent(database, name, 1e-7)[0] for name in database.names() if name != "callers"}
    for number, edges in enumerate(([["a", "b"]], [["a", "b"], ["b", "c"]]), start=1):
        answer = TestClient(service.app(), headers=bearer).post(
            "/v1/predict", json={"records": records, "edges": edges}
        )
        assert answer.status_code == 200, answer.text
        after = {name: spent(database, name, 1e-7)[0] for name in database.names()}
        assert after == {"callers": number, **{name: count + number for name, count in before.items()}}
    assert len(earlier_predictions(Path("run"))) == 4  # later predictions count what the server released


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_sweep_is_charged_its_cells_and_an_audit_nothing(
    database: Ledger, invoke: Invoke, files: Files
) -> None:
    words = ("sweep", "gap,mlp", *files.flags, *PRIVATE[:2], "--delta", "1e-7", "--epsilon", "0.5,1")
    swept = invoke(*words, "--set", "epochs=2", "--out", "s", "--json")
    assert swept.code == 0, swept.err
    found = swept.json
    (dataset,) = database.names()
    assert spent(database, dataset, found["total"]["delta"]) == planned(found["total"])
    receipts = [
        one["release"] for cell in found["cells"] for one in cell.get("ledger", {}).get("receipts", ())
    ]
    assert sorted(receipts) == sorted(row["reference"] for _, row in rows(database))
    before = len(rows(database))
    cell = next(path for path in sorted(Path("s/cells").iterdir()) if "gap" in path.name)
    assert invoke("audit", cell, "--json").code == 0
    assert invoke("train", *QUICK_GAP, *files.flags, "--out", "b", "--dry-run").code == 0
    assert len(rows(database)) == before


def graph_of(files: Files, name: str, seed: int) -> list[str]:
    """Write another graph of other people, with the same columns; the flags that name it."""
    folder = files.nodes.parent / name
    folder.mkdir()
    found, first = Files.written(folder, seed + 1), 1000 * (seed + 1)
    for path, columns in ((found.nodes, (0,)), (found.edges, (0, 1))):
        head, *lines = read(path)
        for line in lines:
            for column in columns:
                line[column] = f"u{first + int(line[column][1:])}"
        write(path, [head, *lines])
    return ["--nodes", str(found.nodes), "--edges", str(found.edges)]
