"""Bodies at the edges of JSON: each is answered, or rejected with the name of the field, and none crashes."""

import json

import pytest
from starlette.testclient import TestClient

from graphveil.serve import create_app, read_runs
from serve.folders import run_of

BODIES = {  # endpoint, body as text, status, and the field that the error names
    "edges null": ('{"ids": ["ann"], "edges": null}', 200, ""),
    "records null": ('{"ids": ["ann"], "records": null}', 200, ""),
    "all null": ('{"ids": null, "records": null}', 422, "`ids`"),
    "ids and edges": ('{"ids": ["ann"], "edges": []}', 422, "`edges`"),
    "a lone surrogate": ('{"ids": ["\\ud800"]}', 422, "`ids`"),
    "a lone surrogate of a run": ('{"ids": ["ann"], "run": "\\udfff"}', 404, ""),
    "a lone surrogate as a key": ('{"ids": ["ann"], "\\ud800": 1}', 422, ""),
    "a lone surrogate in a record": ('{"records": [{"id": "\\ud800"}]}', 409, ""),
    "a whole float": ('{"ids": [1.0]}', 409, ""),
    "a fraction": ('{"ids": [1.5]}', 422, "`ids`"),
    "a huge number": ('{"ids": [1e300]}', 422, "`ids`"),
    "infinity": ('{"ids": [1e999]}', 422, "`ids`"),
    "a text for a list": ('{"ids": "secret"}', 422, "`ids`"),
    "an unknown field": ('{"ids": ["ann"], "secret": 1}', 422, ""),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    run = run_of("undirected-edge", tmp_path_factory.mktemp("bodies") / "friends")
    return TestClient(create_app(read_runs([run])))


@pytest.mark.parametrize("case", BODIES)
def test_a_body_is_answered_or_its_field_is_named(client: TestClient, case: str) -> None:
    body, status, field = BODIES[case]
    found = client.post("/v1/predict", content=body, headers={"Content-Type": "application/json"})
    assert found.status_code == status, found.text
    assert "secret" not in found.text and "ud800" not in found.text
    if status == 422:
        assert field in json.loads(found.content)["error"]["message"]
