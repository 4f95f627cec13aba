"""New releases: only with a budget, charged once before they are computed, and stored."""

import json
import shutil
from contextlib import chdir
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from command import Invoke
from fastapi.testclient import TestClient

import graphveil as gv
from graphveil.core.events import Gaussian
from graphveil.core.journal import FolderJournal
from graphveil.core.ledger import Entry
from graphveil.core.unit import UndirectedEdge
from graphveil.errors import ConfigError
from graphveil.ledger import Ledger
from graphveil.ledger.reservations import DataSetLedger
from graphveil.runs.charges import RunAccount, add_receipts, earlier_predictions
from graphveil.serve import Keys, Limits, ReleaseBudget, Service, releases
from serve.folders import SECRET, run_of

UNIT = "undirected-edge"
PATH: dict[str, Any] = {
    "records": [{"id": name, "x": [0.1 * place] * 16} for place, name in enumerate("cab")],
    "edges": [["a", "b"], ["b", "c"]],
}
OTHER = PATH | {"edges": [["a", "b"]]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with its internal part, of a release at epsilon 1."""
    return fit_into(tmp_path_factory.mktemp("trained") / "run")


def fit_into(folder: Path) -> Path:
    """Write a run folder, of a release at epsilon 1."""
    graph = gv.load_dataset("synthetic/tiny", recipe="gap", seed=1)
    gv.GAP(unit=UNIT, epsilon=1.0, delta=1e-7, seed=1, epochs=2, encoder_epochs=2).fit(graph).save(
        folder / "release"
    )
    return folder


class Served:
    """A server with a budget of new releases, the ledger of its callers, and a client."""

    def __init__(
        self, run: Path, folder: Path, epsilon: str = "2", limit: str = "9", key: str | None = None
    ) -> None:
        (run / "internal").mkdir(exist_ok=True)
        self.place = f"sqlite:///{folder}/team.sqlite"
        ledger = Ledger(self.place)
        if "callers" not in ledger.names():
            ledger.init("callers", UNIT, epsilon=limit, delta="1e-6")
        self.ledger = ledger.data_set("callers")
        release_budget = ReleaseBudget(epsilon=Decimal(epsilon), ledger=f"{self.place}#callers")
        self.keys = folder / "keys.json"
        self.service = Service(runs=(run,), release_budget=release_budget, keys=self.keys)
        self.client = self.caller(key)

    def caller(self, key: str | None = None) -> TestClient:
        """Return a client with a key that may make releases."""
        self.key = key or Keys.add(self.keys, releases=True)
        return TestClient(self.service.app(), headers={"Authorization": f"Bearer {self.key}"})

    def ask(self, question: object) -> tuple[int, bytes]:
        answer = self.client.post("/v1/predict", json=question)
        return answer.status_code, answer.content

    def budget(self) -> dict[str, Any]:
        answer = self.client.get("/v1/privacy").json()
        assert answer["new_releases"] is True
        return dict(answer["budget"])


@pytest.fixture
def served(trained: Path, tmp_path: Path) -> Served:
    shutil.copytree(trained / "release", tmp_path / "run" / "release")
    return Served(tmp_path / "run", tmp_path)


def with_less(tmp_path: Path, epsilon: str, limit: str = "90") -> Served:
    """Return another server of the run, with a smaller budget and a ledger of its own."""
    (tmp_path / "less").mkdir()
    return Served(tmp_path / "run", tmp_path / "less", epsilon, limit)


def test_a_release_is_charged_once_and_its_answer_stays_identical(served: Served, tmp_path: Path) -> None:
    first = served.ask(PATH)
    assert first[0] == 200
    rows = json.loads(first[1])["predictions"]
    assert [row["node"] for row in rows] == ["c", "a", "b"]
    assert all(abs(sum(v for k, v in row.items() if k.startswith("p_")) - 1) < 1e-5 for row in rows)
    turned = {"records": PATH["records"], "edges": [["c", "b"], ["b", "a"], ["a", "b"]]}  # the same graph
    later = Served(tmp_path / "run", tmp_path, key=served.key)  # another process
    assert {served.ask(PATH), served.ask(turned), later.ask(PATH)} == {first}
    assert len(served.ledger) == 1
    spent = served.budget()
    assert (spent["limit"], spent["releases"], round(spent["spent"], 6)) == (2.0, 1, 1.0)
    assert spent["remaining"] == 2.0 - spent["spent"]
    assert spent["ledger"]["limit"] == 9.0
    assert later.ask(OTHER)[0] == 200
    assert len(served.ledger) == 2
    assert served.client.post("/v1/predict", json={"ids": [0]}).status_code == 200
    assert served.budget()["releases"] == 2


def test_a_release_of_numbers_answers_new_records(tmp_path: Path) -> None:
    graph = gv.load_dataset("synthetic/tiny", recipe="gap", seed=1)
    given: dict[str, Any] = {"unit": UNIT, "epsilon": 1.0, "delta": 1e-7, "seed": 1, "task": "regression"}
    model = gv.GAP(**given, epochs=2, encoder_epochs=2).fit(graph.replace(targets=graph.x[:, 0]))
    model.save(tmp_path / "run" / "release")
    served = Served(tmp_path / "run", tmp_path)
    first = served.ask(PATH)
    assert first[0] == 200, first
    rows = json.loads(first[1])["predictions"]
    assert [(row["node"], row.keys()) for row in rows] == [(one, {"node", "prediction"}) for one in "cab"]
    assert all(isinstance(row["prediction"], float) for row in rows)
    assert served.ask(PATH) == first
    assert served.budget()["releases"] == 1


@pytest.mark.parametrize(("epsilon", "limit"), [("1.4", "9"), ("9", "1.2")])
def test_a_release_above_the_budget_is_rejected_before_anything_is_drawn(
    served: Served, tmp_path: Path, epsilon: str, limit: str
) -> None:
    less, journals = with_less(tmp_path, epsilon, limit), tmp_path / "run" / "internal" / "served"
    assert less.ask(PATH)[0] == 200
    before = {path for path in journals.rglob("*") if "ledger" not in path.name}
    status, body = less.ask(OTHER)
    assert status == 409, body
    assert json.loads(body)["error"]["kind"] == "NoBudget"
    assert {path for path in journals.rglob("*") if "ledger" not in path.name} == before
    assert len(less.ledger) == less.budget()["releases"] == 1
    assert less.ask(PATH)[0] == 200  # the stored answer


def test_the_training_data_are_charged_because_graphs_may_share_edges(served: Served, tmp_path: Path) -> None:
    ledger = Ledger(served.place)
    ledger.init("training", UNIT, epsilon="1.4", delta="1e-6")
    training = ledger.data_set("training")
    training.record(Entry("fit", "gap", Gaussian(0.2), unit=UndirectedEdge()))
    account = RunAccount(training, UNIT, 1e-7)
    add_receipts(tmp_path / "run" / "internal" / "receipts.json", account)
    again = Served(tmp_path / "run", tmp_path)
    assert again.ask(PATH)[0] == 200
    assert (len(served.ledger), len(training)) == (1, 2)
    assert json.loads(again.ask(OTHER)[1])["error"]["kind"] == "NoBudget"  # of the training's account
    assert (len(served.ledger), len(training)) == (1, 2)
    assert again.budget()["releases"] == 1


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (DataSetLedger, "record"),
        (FolderJournal, "begin"),
        (DataSetLedger, "commit"),
        (FolderJournal, "commit"),
        (FolderJournal, "store"),
        (FolderJournal, "close"),
        (releases, "save_checked"),
    ],
)
def test_a_request_that_failed_is_charged_and_drawn_once(
    served: Served, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    """Each step succeeds, and then the process fails; the request is sent again."""
    drawn, store, step = list[bytes](), FolderJournal.store, getattr(place, name)

    def seen(self: FolderJournal, index: int, answer: Any) -> None:
        drawn.append(answer.numpy().tobytes())
        store(self, index, answer)

    def failing(*given: Any, **more: Any) -> None:
        (seen if step is store else step)(*given, **more)
        raise RuntimeError(SECRET)

    monkeypatch.setattr(FolderJournal, "store", seen)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, failing)
        status, body = served.ask(PATH)
        assert (status, SECRET.encode() in body) == (500, False)
    assert served.ask(PATH)[0] == 200
    assert len(served.ledger) == served.budget()["releases"] == 1
    assert len(set(drawn)) == 2  # two hops, drawn by either request, and no other noise
    assert served.ask(PATH) == served.ask(PATH)


@pytest.mark.parametrize(
    "question",
    [
        {"records": []},
        {"records": [{"id": "a"}]},
        {"records": [{"id": "a", "x": []}]},
        {"records": [{"id": "a", "x": [SECRET] * 16}]},
        {"records": [{"id": "a", "x": [0] * 15}]},
        {"records": [{"id": "a", "x": ["0.5"] * 16}]},
        {"records": [{"id": "a", "x": [True] * 16}]},
        {"records": [{"id": "a", "x": [3e38] * 16}]},  # finite, and the output of a network is not
        {"records": [{"id": "a", "x": [-1e300] * 16}]},
        {"records": [{"id": "a", "x": [0] * 16, SECRET: 1}]},
        {"records": [{"id": "a", "x": [0] * 16}] * 2},
        {"records": [{"id": "a", "x": [0] * 16}, {"id": 1, "x": [0] * 16}]},
        {"records": PATH["records"], "edges": [["a", SECRET]]},
        {"records": PATH["records"], "edges": [["a", "b", "c"]]},
        {"records": PATH["records"], "ids": ["a"]},
        {"ids": [0], "edges": [["a", "b"]]},
        {"edges": [["a", "b"]]},
    ],
)
def test_invalid_records_are_rejected(served: Served, question: object) -> None:
    status, body = served.ask(question)
    assert (status, SECRET.encode() in body) == (422, False)
    assert len(served.ledger) == 0


def test_the_number_of_records_is_bounded(served: Served) -> None:
    few = TestClient(replace(served.service, limits=Limits(ids=2)).app(), headers=served.client.headers)
    assert few.post("/v1/predict", json=PATH).status_code == 413
    assert len(served.ledger) == 0


def test_without_a_reachable_ledger_nothing_is_released(served: Served, tmp_path: Path) -> None:
    team, own = tmp_path / "team.sqlite", tmp_path / "run" / "internal" / "served" / "ledger.sqlite"
    team.rename(tmp_path / "away.sqlite")
    status, body = served.ask(PATH)
    assert (status, json.loads(body)["error"]["kind"]) == (503, "NoLedger")
    answer = served.client.get("/v1/privacy")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "NoLedger")
    (tmp_path / "away.sqlite").rename(team)
    assert len(served.ledger) == 0
    own.rename(own.with_name("away.sqlite"))
    assert (served.ask(PATH)[0], len(served.ledger)) == (503, 0)


def test_a_run_that_has_changed_makes_no_release(served: Served, tmp_path: Path) -> None:
    """Rows and costs are those of the run as it was read when the server started."""
    assert served.ask(PATH)[0] == 200
    card = tmp_path / "run" / "release" / "model.json"
    before = card.read_text()
    card.write_text(before.replace("}", "} ", 1))
    status, body = served.ask(OTHER)
    assert (status, json.loads(body)["error"]["kind"]) == (503, "Changed")
    assert (served.ask(PATH)[0], len(served.ledger)) == (200, 1)
    card.write_text(before)
    assert (served.ask(OTHER)[0], len(served.ledger)) == (200, 2)


def test_only_keys_with_that_permission_make_releases(served: Served, tmp_path: Path) -> None:
    reader, spender = Keys.add(served.keys), Keys.add(served.keys, releases=True)
    client = TestClient(served.service.app())
    for key, status in ((reader, 403), (spender, 200)):
        headers = {"Authorization": f"Bearer {key}"}
        assert client.post("/v1/predict", json={"ids": [0]}, headers=headers).status_code == 200
        assert client.post("/v1/predict", json=PATH, headers=headers).status_code == status
    assert client.post("/v1/predict", json=PATH).status_code == 401


def test_rejects_budgets_that_cannot_be_used(served: Served, tmp_path: Path, invoke: Invoke) -> None:
    run, known, file = tmp_path / "run", f"{served.place}#callers", served.keys
    owner = run_of("node-record", tmp_path / "owner")
    Ledger(served.place).init("people", "node-record", epsilon="1", delta="1e-6")
    for folder, ledger, keys, words in (
        (run, known, None, "needs API keys"),
        (run, f"{served.place}#strangers", file, "no data set"),
        (run / "release", known, file, "run folder"),
        (owner, known, file, "need unit 'undirected-edge'"),
        (run, f"{served.place}#people", file, "no budget under unit"),
    ):
        budget = ReleaseBudget(epsilon=Decimal(1), ledger=ledger)
        with pytest.raises(ConfigError, match=words):
            Service(runs=(folder,), release_budget=budget, keys=keys).app()
    for epsilon in ("0", "nan", "-1"):
        with pytest.raises(ConfigError):
            ReleaseBudget(epsilon=Decimal(epsilon), ledger=known)
    for flags in (["--allow-releases", "1"], ["--ledger", known], ["--allow-releases", "x", "--ledger", "a"]):
        answer = invoke("serve", run, *flags)
        assert (answer.code, "--allow-releases" in answer.err) == (2, True)


def test_the_budget_is_shown_to_keys_that_may_spend_it(served: Served) -> None:
    reader = Keys.add(served.keys)
    client = TestClient(served.service.app())
    answers = [
        client.get("/v1/privacy", headers={"Authorization": f"Bearer {key}"} if key else {})
        for key in (None, reader, "unknown", served.key)
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 401, 200]
    assert [answer.json().get("budget") is None for answer in answers] == [True, True, True, False]


# -- attacks -----------------------------------------------------------------------------------------------


def command(words: list[str]) -> None:
    """Call the command line, which succeeds."""
    from graphveil.cli import main

    with pytest.raises(SystemExit) as stop:
        main(words)
    assert not stop.value.code


@pytest.fixture(scope="module")
def run_of_train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as ``graphveil train`` writes it, with everything in ``internal/``."""
    folder = tmp_path_factory.mktemp("train") / "run"
    flags = ["--dataset", "synthetic/tiny", "--unit", UNIT, "--epsilon", "1", "--delta", "1e-6"]
    quick = ["--set", "epochs=2", "--set", "encoder_epochs=2", "--ledger", f"sqlite:///{folder}.db#own"]
    Ledger(f"sqlite:///{folder}.db").init("own", UNIT, epsilon="100", delta="1e-6")
    command(["train", "gap", *flags, *quick, "--out", str(folder)])
    assert (folder / "internal" / "graph_fingerprint.json").exists()
    return folder


def training_graph(run: Path) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Return the records and the edges of the graph that a run was fitted on: what the attacker guesses."""
    graph = gv.load_dataset("synthetic/tiny")
    assert gv.load_model(run).is_fitted_graph(graph)  # the guess is right
    records = [{"id": node, "x": row} for node, row in enumerate(graph.x.tolist())]
    source, target = graph.to_pyg().edge_index.tolist()
    return records, [[a, b] for a, b in zip(source, target, strict=True) if a < b]


@pytest.fixture
def attacked(run_of_train: Path, tmp_path: Path) -> Served:
    run = tmp_path / "run"
    shutil.copytree(run_of_train, run)
    return Served(run, tmp_path, epsilon="90", limit="90")


@pytest.mark.parametrize("question", [PATH, OTHER])
def test_other_callers_are_charged_for_the_same_request(served: Served, question: dict[str, Any]) -> None:
    """An answer without a charge would reveal that another caller has sent exactly this graph."""
    assert served.ask(PATH)[0] == 200
    other = served.caller()
    for _ in range(2):  # the second is its own request, repeated
        assert other.post("/v1/predict", json=question).status_code == 200
    assert len(served.ledger) == 2


@pytest.mark.parametrize("question", [PATH, OTHER])
def test_other_callers_are_rejected_alike_without_budget(
    served: Served, tmp_path: Path, question: dict[str, Any]
) -> None:
    less = with_less(tmp_path, "1.4")
    assert less.ask(PATH)[0] == 200
    assert less.caller().post("/v1/predict", json=question).status_code == 409


def test_later_predictions_of_the_run_count_what_the_server_released(
    attacked: Served, tmp_path: Path
) -> None:
    """Otherwise the total of the run would omit what the server released from the same edges."""
    records, edges = training_graph(tmp_path / "run")
    assert attacked.ask({"records": records, "edges": edges[1:]})[0] == 200
    (earlier,) = earlier_predictions(tmp_path / "run")
    assert earlier.privacy_cost.epsilon == pytest.approx(1.0, rel=1e-3)
    assert not earlier.disjoint


@pytest.mark.parametrize(
    ("x", "status"),
    [
        ({}, 200),
        ({"x": []}, 200),
        ({"x": [1]}, 200),
        ({"x": None}, 200),
        ({"x": [0.5]}, 422),
        ({"x": [1, 1]}, 422),
    ],
)
def test_a_run_without_feature_columns_takes_records_without_features(
    tmp_path: Path, x: dict[str, Any], status: int
) -> None:
    tiny = gv.load_dataset("synthetic/tiny", recipe="gap", seed=1)
    graph = gv.Graph.from_edges(None, tiny.y, *tiny.adjacency.edge_index(), directed=False, **tiny.masks)
    model = gv.GAP(unit=UNIT, epsilon=1.0, delta=1e-7, seed=1, epochs=1, encoder_epochs=1).fit(graph)
    model.save(tmp_path / "run" / "release")
    served = Served(tmp_path / "run", tmp_path)
    request_body = PATH | {"records": [{"id": name} | x for name in "cab"]}
    answer = served.ask(request_body)
    assert answer[0] == status, answer
    if status == 200:
        assert served.ask(PATH | {"records": [{"id": name} for name in "cab"]}) == answer
        assert len(served.ledger) == 1  # the same graph, however its constant feature was sent


# Graphs of an attacker who guesses the training graph, or who looks for a request without a charge.
def unchanged(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    return {"records": records, "edges": edges}


def permuted(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    return {"records": records[::-1], "edges": [[b, a] for a, b in reversed(edges)]}


def renumbered(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    """The nodes have other ids, so they stand in another order."""
    last = len(records) - 1
    moved = [{"id": last - record["id"], "x": record["x"]} for record in records]
    return {"records": moved, "edges": [[last - a, last - b] for a, b in edges]}


def rounded(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    """The features are equal in 32 bits, and not as they are written."""
    near = [{"id": record["id"], "x": [value * (1 + 1e-12) for value in record["x"]]} for record in records]
    return {"records": near, "edges": edges}


def duplicated(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    return {"records": records, "edges": [*edges, *edges, *([b, a] for a, b in edges)]}


def with_loops(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    return {"records": records, "edges": [*edges, *([one["id"]] * 2 for one in records)]}


def as_text(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    texts = [{"id": f"{record['id']:05}", "x": record["x"]} for record in records]
    return {"records": texts, "edges": [[f"{a:05}", f"{b:05}"] for a, b in edges]}


def with_a_stranger(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    """The training graph is a part of it that nothing else touches."""
    return {"records": [*records, {"id": len(records), "x": [0.0] * 16}], "edges": edges}


def a_part(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    kept = {record["id"] for record in records[: len(records) // 2]}
    return {
        "records": records[: len(records) // 2],
        "edges": [pair for pair in edges if kept.issuperset(pair)],
    }


def one_pair(records: list[dict[str, Any]], edges: list[list[int]]) -> dict[str, Any]:
    return {"records": [records[node] for node in edges[0]], "edges": edges[:1]}


GUESSES = [
    unchanged,
    permuted,
    renumbered,
    rounded,
    duplicated,
    with_loops,
    as_text,
    with_a_stranger,
    a_part,
    one_pair,
]


def guesses_of(run: Path, guess: Any) -> list[dict[str, Any]]:
    """Return a right guess of the training graph, and one with another edge in place of one."""
    records, edges = training_graph(run)
    pairs = combinations(range(len(records)), 2)
    absent = next(list(pair) for pair in pairs if list(pair) not in edges)
    return [guess(records, edges), guess(records, [absent, *edges[1:]])]


@pytest.mark.parametrize("guess", GUESSES)
def test_right_and_wrong_guesses_of_the_training_graph_are_charged_alike(
    attacked: Served, tmp_path: Path, guess: Any
) -> None:
    """An answer without a charge would be an exact test of a guess of all private edges."""
    seen = []
    for count, graph in enumerate(guesses_of(tmp_path / "run", guess), 1):
        status, body = attacked.ask(graph)
        rows = json.loads(body)["predictions"]
        seen.append((status, len(rows), sorted(rows[0])))
        assert len(attacked.ledger) == attacked.budget()["releases"] == count
    assert seen[0] == seen[1] and seen[0][0] == 200


@pytest.mark.parametrize("guess", GUESSES)
def test_right_and_wrong_guesses_of_the_training_graph_are_rejected_alike(
    attacked: Served, tmp_path: Path, guess: Any
) -> None:
    less = with_less(tmp_path, "0.5")
    answers = {less.ask(graph) for graph in guesses_of(tmp_path / "run", guess)}
    assert len(answers) == 1 and answers.pop()[0] == 409
    assert len(less.ledger) == 0


def test_a_graph_without_edges_is_charged(attacked: Served, tmp_path: Path) -> None:
    """Otherwise the charge would reveal whether a graph has edges at all."""
    records, _ = training_graph(tmp_path / "run")
    for count, some in enumerate((records, records[:1]), 1):
        assert attacked.ask({"records": some})[0] == 200
        assert len(attacked.ledger) == count


@pytest.mark.parametrize("guess", [permuted, rounded, duplicated])
def test_a_caller_is_charged_once_for_a_graph_in_any_order_and_spelling(
    attacked: Served, tmp_path: Path, guess: Any
) -> None:
    """Each caller is charged for a graph once, whatever others have sent."""
    records, edges = training_graph(tmp_path / "run")
    assert attacked.ask({"records": records, "edges": edges})[0] == 200
    assert attacked.ask(guess(records, edges))[0] == 200
    assert len(attacked.ledger) == 1  # the same graph of the same caller
    other = attacked.caller()
    for _ in range(2):
        assert other.post("/v1/predict", json=guess(records, edges)).status_code == 200
        assert len(attacked.ledger) == 2


# -- features by column name --------------------------------------------------------------------------------

PEOPLE = 120
NAMED = {"age": 41, "plan": "pro", "joined": "2011-03-17", "active": True, "score": 0.25, "level": 2}
JOINED = (date(2011, 3, 17) - date(2000, 1, 1)).days / 365.25
LISTED = [41, 0, 0, 1, JOINED, 0, 1, 0, 0.25, 0, 0, 1, 0]  # with 0 for what is not missing
EMPTY = NAMED | {"age": None, "plan": None, "joined": None, "active": None, "score": None}
EMPTY_LISTED = [0, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0]
NAMES = "'age', 'plan', 'joined', 'active', 'score', 'level'"


@pytest.fixture(scope="module", params=["csv", "parquet"])
def run_of_tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two tables with named columns: numbers, categories of text and of numbers, a date, a bool."""
    place, kind = tmp_path_factory.mktemp("tables"), request.param
    people = pa.table(
        {
            "id": [f"{number:03}" for number in range(PEOPLE)],
            "team": [f"t{number % 2}" for number in range(PEOPLE)],
            "age": [20 + number % 50 for number in range(PEOPLE)],
            "plan": [("free", "pro")[number % 2] for number in range(PEOPLE)],
            "joined": [date(2010 + number % 9, 3, 1 + number % 28) for number in range(PEOPLE)],
            "active": [number % 3 == 0 for number in range(PEOPLE)],
            "score": [None if number % 7 == 0 else number / PEOPLE for number in range(PEOPLE)],
            "level": [1 + number % 3 for number in range(PEOPLE)],
        }
    )
    ids = people["id"].to_pylist()
    links = pa.table({"a": ids[:-2], "b": ids[2:]})
    write = pq.write_table if kind == "parquet" else pa_csv.write_csv
    write(people, place / f"people.{kind}")
    write(links, place / f"knows.{kind}")
    Ledger(f"sqlite:///{place}/own.db").init("own", UNIT, epsilon="100", delta="1e-6")
    tables = f"--nodes people.{kind} --edges knows.{kind} --id id --label team --source a --target b"
    columns = "--categories plan=free|pro,level=1|2|3 --missing indicator"
    budget = f"--unit {UNIT} --epsilon 1 --delta 1e-6 --ledger sqlite:///{place}/own.db#own"
    quick = "--set epochs=2 --set encoder_epochs=2 --out run"
    words = " ".join(("train gap", tables, columns, budget, quick)).split()
    with chdir(place):
        command(words)
    return place / "run"


@pytest.fixture
def of_tables(run_of_tables: Path, tmp_path: Path) -> Served:
    shutil.copytree(run_of_tables, tmp_path / "run")
    return Served(tmp_path / "run", tmp_path, epsilon="90", limit="90")


def graph_of(*xs: object) -> dict[str, Any]:
    """Return two records, of the same features if only one is given, and an edge."""
    return {"records": [{"id": "n1", "x": xs[0]}, {"id": "n2", "x": xs[-1]}], "edges": [["n1", "n2"]]}


@pytest.mark.parametrize(
    ("named", "listed"),
    [
        (NAMED, LISTED),
        (EMPTY, EMPTY_LISTED),
        (NAMED | {"plan": "another"}, [*LISTED[:2], 0, 0, *LISTED[4:]]),
        (NAMED | {"level": "2", "age": 41.0}, LISTED),
    ],
    ids=["all", "missing values", "an unknown category", "other spellings"],
)
def test_features_by_column_name_and_as_a_list_are_one_request(
    of_tables: Served, named: dict[str, Any], listed: list[float]
) -> None:
    first = of_tables.ask(graph_of(named))
    assert first[0] == 200, first
    turned = dict(reversed(named.items()))
    assert of_tables.ask(graph_of(named, turned)) == of_tables.ask(graph_of(turned)) == first
    assert of_tables.ask(graph_of(listed)) == first
    assert len(of_tables.ledger) == of_tables.budget()["releases"] == 1
    assert of_tables.ask(graph_of(named, named | {"age": 42}))[0] == 200  # which is another graph
    assert len(of_tables.ledger) == 2


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in NAMED.items() if name not in names}


# What a record sends, and the columns that are missing or of a wrong type; None for values that no column
# can have, which are malformed.
WRONG: list[tuple[object, str | None]] = [
    (without("joined"), "'joined'"),
    (without("age", "level"), "'age', 'level'"),
    ({}, NAMES),
    (NAMED | {SECRET: 1}, ""),
    (NAMED | {"id": "n1"}, ""),
    (NAMED | {"team": "t1"}, ""),
    (NAMED | {"(constant)": 1}, ""),
    (without("plan") | {"Plan": "pro"}, "'plan'"),
    (without("plan") | {"plan ": "pro"}, "'plan'"),
    (without("plan") | {SECRET: "pro"}, "'plan'"),
    (NAMED | {"age": SECRET}, "'age'"),
    (NAMED | {"age": "41"}, "'age'"),
    (NAMED | {"age": True}, "'age'"),
    (NAMED | {"age": [41]}, "'age'"),
    (NAMED | {"active": 1}, "'active'"),
    (NAMED | {"active": "true"}, "'active'"),
    (NAMED | {"joined": SECRET, "score": SECRET}, "'joined', 'score'"),
    (NAMED | {"joined": "2011-02-30"}, "'joined'"),
    (NAMED | {"joined": "17.3.2011"}, "'joined'"),
    (NAMED | {"joined": 2011}, "'joined'"),
    (NAMED | {"joined": ["2011-03-17"]}, None),
    (NAMED | {"plan": ["pro"]}, None),
    (NAMED | {"plan": [1]}, "'plan'"),
    (NAMED | {"plan": {"pro": 1}}, None),
    (LISTED[:-1], ""),
    ([*LISTED, 0], ""),
    (LISTED[:6], ""),
    ([], ""),
    (None, ""),
    ([SECRET] * 13, None),
]


def test_errors_about_features_list_the_columns_of_the_run(of_tables: Served) -> None:
    for x, wrong in WRONG:
        for question in (graph_of(x), graph_of(NAMED, x)):
            status, body = of_tables.ask(question)
            error = json.loads(body)["error"]
            assert (status, SECRET in error["message"]) == (422, False), x
            if wrong is None:
                assert error["kind"] == "Malformed", x
                continue
            assert error["kind"] == "InvalidFeatures", x
            assert f"each of the 6 columns {NAMES}" in error["message"]
            assert "a list of 13 numbers" in error["message"]
            assert error["message"].partition("Missing or of a wrong type: ")[2] == (wrong and f"{wrong}."), x
    assert len(of_tables.ledger) == 0
    assert of_tables.budget()["spent"] == 0.0


def test_records_that_form_no_graph_are_rejected(of_tables: Served) -> None:
    twice = {"records": [{"id": "n1", "x": LISTED}] * 2}
    mixed = {"records": [{"id": "n1", "x": LISTED}, {"id": 1, "x": LISTED}]}
    for question in (twice, mixed, graph_of(LISTED) | {"edges": [["n1", "n3"]]}):
        status, body = of_tables.ask(question)
        assert (status, json.loads(body)["error"]["kind"]) == (422, "InvalidGraph")
    for other in (LISTED, None):  # next to features by column name
        mixed_features = {"records": [{"id": "n1", "x": NAMED}, {"id": "n2", "x": other}]}
        assert of_tables.ask(mixed_features)[0] == 422
    assert len(of_tables.ledger) == 0
