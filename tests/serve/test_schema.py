"""The OpenAPI description: valid bodies are never malformed, and invalid ones are rejected."""

import json
from collections import Counter
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings

import graphveil as gv
from graphveil.serve import Keys, create_app, read_runs
from serve.folders import IDS, run_of
from serve.sockets import listening
from serve.test_releases import UNIT, Served

COLUMNS = ("age", "plan", "joined", "active")
TEXTS = [
    "",
    "ann",
    "bob",
    "7",
    "007",
    "7.0",
    "pro",
    "2011-03-17",
    "-",
    "\0",
    "é\u0301\U0001f600",
    " ",
    "null",
]
TEXTS += ["x" * 1000, "\U0001f600" * 1000, "2011-03-17T10:00:00Z", "0000-01-01", "9999-12-31", "1e5", "id"]
TEXTS += COLUMNS
NUMBERS = [0, 1, 7, 7.0, -0.0, 0.1, 5e-324, 1e-300, -1, 41, 1e15, -1e15, 123456789.123456789]
WHOLE = [0, 1, 2, 7, 7.0, 1e15, -1, -0.0, 2**53 + 1, -(2**63), 2**64 - 1, 2**63]
STATUSES = {
    200: {None},
    404: {"NotFound"},
    409: {"NeedsRelease", "NoBudget"},
    422: {"InvalidFeatures", "InvalidGraph"},
}


def drawn(schema: dict[str, Any], parts: dict[str, Any], random: Random) -> Any:
    """Return a value of a JSON schema, or one that is close to it: the caller checks it."""
    if "$ref" in schema:
        return drawn(parts[schema["$ref"].rpartition("/")[2]], parts, random)
    if "anyOf" in schema:
        return drawn(random.choice(schema["anyOf"]), parts, random)
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type", random.choice(["null", "boolean", "number", "string"]))
    if kind == "object":
        needed = schema.get("required", ())
        found = {
            name: drawn(one, parts, random)
            for name, one in schema.get("properties", {}).items()
            if name in needed or random.random() < 0.4
        }
        if isinstance(schema.get("additionalProperties"), dict):
            names = random.choice([COLUMNS, random.sample(TEXTS, 3)])
            found |= {name: drawn(schema["additionalProperties"], parts, random) for name in names}
        return dict(random.sample(list(found.items()), len(found)))
    if kind == "array":
        least = schema.get("minItems", 0)
        count = random.randint(least, schema.get("maxItems", least + 3))
        return [drawn(schema.get("items", {}), parts, random) for _ in range(count)]
    values = {"null": [None], "boolean": [True, False], "string": TEXTS, "integer": WHOLE, "number": NUMBERS}
    return random.choice(values[kind])


def schema_of(client: TestClient) -> tuple[dict[str, Any], Any]:
    """Return the schema of requests for predictions, and a validator of it."""
    jsonschema = pytest.importorskip("jsonschema")
    described = client.get("/openapi.json").json()
    schema = described["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": described["components"]}
    return whole, jsonschema.Draft202012Validator(whole)


def bodies(client: TestClient, count: int, seed: int) -> list[Any]:
    """Return random bodies that are valid by the schema."""
    schema, validator = schema_of(client)
    random, found = Random(seed), list[Any]()
    while len(found) < count:
        body = drawn(schema, schema["components"]["schemas"], random)
        if validator.is_valid(body):
            found.append(body)
    return found


def check(client: TestClient, body: object) -> int:
    answer = client.post(
        "/v1/predict", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    kind = answer.json().get("error", {}).get("kind")
    assert kind in STATUSES.get(answer.status_code, ()), (body, answer.status_code, answer.text)
    return answer.status_code


@pytest.mark.parametrize("ids", [IDS, ("7", "007", "ann"), None], ids=["text", "digits", "numbers"])
def test_valid_bodies_are_never_malformed(tmp_path: Path, ids: tuple[str, ...] | None) -> None:
    client = TestClient(create_app(read_runs([run_of("undirected-edge", tmp_path / "run", ids=ids)])))
    seen = Counter(check(client, body) for body in bodies(client, 400, seed=1))
    assert seen[200] and seen[409]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """A server that makes releases, of a run with named columns."""
    count = 100
    people = {
        "id": [f"u{number}" for number in range(count)],
        "team": [f"t{number % 2}" for number in range(count)],
        "age": list(range(count)),
        "plan": [("free", "pro")[number % 2] for number in range(count)],
        "joined": [date(2010, 3, 1 + number % 28) for number in range(count)],
        "active": [number % 3 == 0 for number in range(count)],
    }
    tables = tmp_path / "people.parquet", tmp_path / "links.parquet"
    pq.write_table(pa.table(people), tables[0])
    pq.write_table(pa.table({"a": people["id"][1:], "b": people["id"][:-1]}), tables[1])
    roles = {"id": "id", "label": "team", "source": "a", "target": "b"}
    graph = gv.read_graph(*tables, **roles, categories=["plan=free|pro"], missing="indicator")
    part = torch.arange(count) % 5
    graph = graph.with_split(part < 3, part == 3, part == 4)
    model = gv.GAP(unit=UNIT, epsilon=1.0, delta=1e-7, seed=1, epochs=1, encoder_epochs=1)
    model.fit(graph).save(tmp_path / "run" / "release")
    return Served(tmp_path / "run", tmp_path, epsilon="500", limit="500")


def test_valid_records_are_never_malformed_where_releases_are_allowed(served: Served) -> None:
    records = [body for body in bodies(served.client, 1000, seed=2) if "records" in body]
    seen = Counter(check(served.client, body) for body in records)
    assert seen[422]
    random = Random(3)
    for _ in range(40):  # graphs that are valid, but for the values of their columns
        x = {"age": random.choice(NUMBERS), "plan": random.choice([*TEXTS, 7, True, None])}
        x |= {"joined": random.choice([*TEXTS, None]), "active": random.choice([True, False, None])}
        seen[check(served.client, {"records": [{"id": 7.0, "x": x}]})] += 1
    assert seen[200] == served.budget()["releases"] > 0
    x = {"age": 7, "plan": "pro", "joined": None, "active": True}
    answer = served.client.post("/v1/predict", json={"records": [{"id": 7.0, "x": x}]})
    assert json.dumps(answer.json()["predictions"][0]["node"]) == "7"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"run": "friends"}, 422),
        ({"ids": ["ann"], "records": [{"id": "a", "x": [0.5]}]}, 422),
        ({"ids": ["ann"], "edges": [["a", "b"]]}, 422),
        ({"edges": [["a", "b"]]}, 422),
        ({"records": [1]}, 409),
        ({"records": [{"id": "a", "x": [0.5]}], "edges": [["a"]]}, 409),
    ],
)
def test_invalid_bodies_are_rejected(client: TestClient, body: object, status: int) -> None:
    validator = schema_of(client)[1]
    assert client.post("/v1/predict", json=body).status_code == status
    assert not validator.is_valid(body)
    assert validator.is_valid({"ids": ["ann"]})


EXAMPLES = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_schemathesis_finds_no_difference_from_the_description(tmp_path: Path, keyed: bool) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import CHECKS, load_all_checks
    from schemathesis.generation import GenerationMode

    # A valid body may be rejected: for an id that the run does not have, or the row of another subject.
    load_all_checks()
    excluded = [one for one in CHECKS.get_all() if one.__name__ == "positive_data_acceptance"]
    assert excluded
    file = tmp_path / "keys.json"
    headers = {"Authorization": f"Bearer {Keys.add(file)}"} if keyed else {}
    runs = read_runs([run_of("undirected-edge", tmp_path / "friends")])
    with listening(create_app(runs, Keys.read(file) if keyed else None)) as port:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        paths = set[str]()
        for one in schema.get_all_operations():
            operation = one.ok()
            modes = [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if operation.body else [])]
            for mode in modes:

                @EXAMPLES
                @given(case=operation.as_strategy(generation_mode=mode))
                def call(case: Any) -> None:
                    case.call_and_validate(headers=headers, excluded_checks=excluded)

                call()
            paths.add(operation.path)
    assert paths == {"/v1/predict", "/v1/privacy", "/healthz", "/metrics"}
