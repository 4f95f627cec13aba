"""Bodies that fit the OpenAPI schema: none is malformed, and other errors are those of the documentation."""

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

import graphveil as gv
from graphveil.serve import create_app, read_runs
from serve.folders import IDS, run_of
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
TEXTS += [
    "x" * 1000,
    "\U0001f600" * 1000,
    "2011-03-17T10:00:00Z",
    "0000-01-01",
    "9999-12-31",
    "1e5",
    "id",
    *COLUMNS,
]
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
        known = schema.get("properties", {})
        needed = schema.get("required", ())
        found = {
            name: drawn(one, parts, random)
            for name, one in known.items()
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


def bodies(client: TestClient, page: str, count: int, seed: int) -> list[Any]:
    """Return so many bodies that fit the schema of a page."""
    jsonschema = pytest.importorskip("jsonschema")
    described = client.get("/openapi.json").json()
    schema = described["paths"][page]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fits = jsonschema.Draft202012Validator({**schema, "components": described["components"]}).is_valid
    random, found = Random(seed), list[Any]()
    while len(found) < count:
        body = drawn(schema, described["components"]["schemas"], random)
        if fits(body):
            found.append(body)
    return found


def check(client: TestClient, page: str, body: object) -> int:
    answer = client.post(page, content=json.dumps(body), headers={"Content-Type": "application/json"})
    kind = answer.json().get("error", {}).get("kind")
    assert kind in STATUSES.get(answer.status_code, ()), (body, answer.status_code, answer.text)
    return answer.status_code


@pytest.mark.parametrize("page", ["/v1/predict", "/invocations"])
@pytest.mark.parametrize("ids", [IDS, ("7", "007", "ann"), None], ids=["text", "digits", "numbers"])
def test_no_body_of_the_schema_is_malformed(tmp_path: Path, page: str, ids: tuple[str, ...] | None) -> None:
    client = TestClient(create_app(read_runs([run_of("undirected-edge", tmp_path / "run", ids=ids)])))
    seen = Counter(check(client, page, body) for body in bodies(client, page, 400, seed=1))
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
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    pq.write_table(pa.table({"a": people["id"][1:], "b": people["id"][:-1]}), tmp_path / "knows.parquet")
    tables = (tmp_path / "people.parquet", tmp_path / "knows.parquet")
    roles = {"id": "id", "label": "team", "source": "a", "target": "b"}
    graph = gv.read_graph(*tables, **roles, categories=["plan=free|pro"], missing="indicator")
    part = torch.arange(count) % 5
    graph = graph.with_split(part < 3, part == 3, part == 4)
    model = gv.GAP(unit=UNIT, epsilon=1.0, delta=1e-7, seed=1, epochs=1, encoder_epochs=1)
    model.fit(graph).save(tmp_path / "run" / "release")
    return Served(tmp_path / "run", tmp_path, epsilon="500", limit="500")


def test_no_body_of_the_schema_is_malformed_where_releases_are_allowed(served: Served) -> None:
    asked = [body for body in bodies(served.client, "/v1/predict", 1000, seed=2) if "records" in body]
    seen = Counter(check(served.client, "/v1/predict", body) for body in asked)
    assert seen[422]
    random = Random(3)
    for _ in range(40):  # graphs that are valid, but for the values of their columns
        x = {"age": random.choice(NUMBERS), "plan": random.choice([*TEXTS, 7, True, None])}
        x |= {"joined": random.choice([*TEXTS, None]), "active": random.choice([True, False, None])}
        seen[check(served.client, "/v1/predict", {"records": [{"id": 7.0, "x": x}]})] += 1
    assert seen[200] == served.budget()["releases"] > 0
    x = {"age": 7, "plan": "pro", "joined": None, "active": True}
    whole = {"records": [{"id": 7.0, "x": x}]}
    answer = served.client.post("/v1/predict", json=whole)
    assert json.dumps(answer.json()["predictions"][0]["node"]) == "7"
