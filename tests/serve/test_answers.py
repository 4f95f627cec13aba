"""What the server answers: released rows, byte for byte, and nothing that needs another release."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from graphveil.artifacts.release_folder import PREDICTIONS, read_guarantee
from graphveil.errors import ArtifactError, ConfigError
from graphveil.serve import Keys, create_app, read_runs
from serve.conftest import Ask
from serve.folders import IDS, PROBA, SECRET, run_of


def test_rows_are_those_of_the_release(client: TestClient) -> None:
    answer = client.post("/v1/predict", json={"ids": ["cem", "ann", "cem"]}).json()
    assert answer["run"] == "friends"
    assert [row["node"] for row in answer["predictions"]] == ["cem", "ann", "cem"]
    assert [row["prediction"] for row in answer["predictions"]] == ["no", "yes", "no"]
    told = torch.tensor([[row["p_no"], row["p_yes"]] for row in answer["predictions"]])
    assert torch.equal(told, PROBA[[2, 0, 2]])


def test_the_same_question_has_the_same_bytes_in_every_process(client: TestClient, folder: Path) -> None:
    question = {"ids": list(IDS)}
    again = TestClient(create_app(read_runs([folder / "release"])))
    answers = [one.post("/v1/predict", json=question).content for one in (client, client, again)]
    assert len(set(answers)) == 1


@pytest.mark.parametrize(
    "table",
    [
        {"dataframe_split": {"columns": ["id"], "data": [["bob"], ["ann"]]}},
        {"dataframe_split": {"columns": ["id"], "data": [["bob"], ["ann"]], "index": [0, 1]}},
        {"dataframe_records": [{"id": "bob"}, {"id": "ann"}]},
    ],
)
def test_tables_in_mlflows_shapes_have_the_same_rows(client: TestClient, table: dict[str, Any]) -> None:
    plain = client.post("/v1/predict", json={"ids": ["bob", "ann"]}).json()["predictions"]
    assert client.post("/invocations", json=table).json() == {"predictions": plain}


def test_nodes_without_ids_are_called_by_number(ask: Ask, tmp_path: Path) -> None:
    client = ask(run_of("undirected-edge", tmp_path / "run", ids=None))
    assert client.post("/v1/predict", json={"ids": [1]}).json()["predictions"][0]["prediction"] == "no"
    assert client.post("/v1/predict", json={"ids": ["1"]}).status_code == 409
    assert client.post("/v1/predict", json={"ids": [-1]}).status_code == 409


@pytest.mark.parametrize(
    ("page", "question"),
    [
        ("/v1/predict", {"ids": ["ann", SECRET]}),
        ("/v1/predict", {"records": [{"age": SECRET}]}),
        ("/invocations", {"dataframe_records": [{"id": "ann", "age": SECRET}]}),
        ("/invocations", {"dataframe_split": {"columns": ["age"], "data": [[SECRET]]}}),
        ("/invocations", {"dataframe_records": [{"id": SECRET}]}),
    ],
)
def test_what_needs_a_fresh_release_is_refused_in_words(
    client: TestClient, page: str, question: dict[str, Any]
) -> None:
    answer = client.post(page, json=question)
    assert answer.status_code == 409
    assert answer.json()["error"]["kind"] == "NeedsRelease"
    assert "new release" in answer.text
    assert SECRET not in answer.text


def test_the_privacy_page_says_what_the_release_says(client: TestClient, folder: Path) -> None:
    told = client.get("/v1/privacy").json()
    guarantee = read_guarantee(folder).guarantee
    assert told["fresh_releases"] is False
    assert told["runs"] == [{"run": "friends", "guarantee": guarantee.as_dict()}]
    assert told["runs"][0]["guarantee"]["statement"] == guarantee.formal_statement()


def test_a_page_runs_no_script_and_an_answer_is_kept_nowhere(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert not re.search(r"<script|\bon\w+=|src=|@import|<link", page.text)
    answer = client.post("/v1/predict", json={"ids": ["ann"]})
    assert answer.headers["cache-control"] == "no-store"  # a row may be for its subject alone


@pytest.mark.parametrize("page", ["/v1/predict", "/invocations"])
@pytest.mark.parametrize(
    ("ids", "asked", "found"),
    [
        (None, 1, 1),
        (None, "1", None),
        (("0", "1", "2"), "1", "1"),
        (("0", "1", "2"), 1, "1"),
        (("7", "007", "07"), 7, "7"),
        (("7", "007", "07"), "007", "007"),
        (("007", "07", "x"), 7, None),
        (("7.0", " 7", "+7"), 7, None),
        (("-7", "a", "b"), -7, "-7"),
        ((f"{2**64 - 1}", "a", "b"), 2**64 - 1, f"{2**64 - 1}"),
        (("1", "a", "b"), True, None),
    ],
)
def test_a_number_means_the_id_that_is_spelled_like_it(
    ask: Ask, tmp_path: Path, page: str, ids: tuple[str, ...] | None, asked: object, found: object
) -> None:
    """CSV files have only text, so whoever sends the number 7 means "7"; no other text is meant."""
    client = ask(run_of("undirected-edge", tmp_path / "run", ids=ids))
    body = {"ids": [asked]} if page == "/v1/predict" else {"dataframe_records": [{"id": asked}]}
    answer = client.post(page, json=body)
    if found is None:
        assert answer.status_code == (422 if asked is True else 409)
        assert ("The ids of this run are numbers" in answer.text) == (ids is None)
    else:
        assert answer.json()["predictions"][0]["node"] == found


def test_of_several_runs_one_is_named(ask: Ask, folder: Path, tmp_path: Path) -> None:
    client = ask(folder, run_of("undirected-edge", tmp_path / "others", ids=("dan", "eve", "fay")))
    assert client.post("/v1/predict", json={"ids": ["dan"]}).status_code == 404
    assert client.post("/v1/predict", json={"ids": ["dan"], "run": "others"}).status_code == 200
    table = {"dataframe_records": [{"id": "dan"}]}
    assert client.post("/invocations?run=others", json=table).status_code == 200
    unknown = client.post(f"/invocations?run={SECRET}", json=table)
    assert (unknown.status_code, SECRET in unknown.text) == (404, False)


def test_health_figures_and_the_description(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    client.post("/v1/predict", json={"ids": ["ann"]})
    client.get(f"/{SECRET}")
    figures = client.get("/metrics").text
    assert 'graphveil_requests_total{page="/v1/predict",status="200"} 1' in figures
    assert 'graphveil_requests_total{page="other",status="404"} 1' in figures
    assert "graphveil_requests_under_way 0" in figures
    assert not any(text in figures for text in (SECRET, *IDS))
    described = client.get("/openapi.json").json()["paths"]
    assert {"/v1/predict", "/invocations", "/v1/privacy", "/healthz", "/metrics"} == described.keys()
    page = client.get("/docs").text
    assert all(path in page for path in described)
    assert "http:" not in page.replace("http://json", "")
    assert "<script" not in page


def test_runs_that_cannot_be_served_are_refused_before_anything_is_answered(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="one name"):
        read_runs([folder, run_of("undirected-edge", tmp_path / "other" / "friends")])
    with pytest.raises(ArtifactError, match="twice"):
        read_runs([run_of("undirected-edge", tmp_path / "twice", ids=("ann", "ann", "bob"))])
    withheld_files = run_of("node-record", tmp_path / "owner")
    (withheld_files / "per_node" / PREDICTIONS).rename(tmp_path / "kept.parquet")
    with pytest.raises(ArtifactError):
        read_runs([withheld_files])
    with pytest.raises(ArtifactError, match="no predictions"):
        read_runs([withheld_files / "release"])
    with pytest.raises(ConfigError, match="no run"):
        create_app([], Keys())
