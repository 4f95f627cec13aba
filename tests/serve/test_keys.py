"""Keys: who may send requests, and whose row may be read."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from graphveil.errors import ConfigError
from graphveil.serve import Keys, create_app, read_runs
from serve.folders import IDS, SECRET, run_of

personal = pytest.mark.parametrize("unit", ["node-record", "node-bounded-degree"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def ask(client: TestClient, key: str, *ids: str) -> tuple[int, bytes]:
    answer = client.post("/v1/predict", json={"ids": ids}, headers=bearer(key))
    return answer.status_code, answer.content


@personal
def test_a_row_is_returned_to_its_subject_only(tmp_path: Path, file: Path, unit: str) -> None:
    ann, bob = Keys.add(file, ["ann"]), Keys.add(file, ["bob", "nobody"])
    client = TestClient(create_app(read_runs([run_of(unit, tmp_path / "run")]), Keys.read(file)))
    assert ask(client, ann, "ann")[0] == 200
    assert ask(client, bob, "bob")[0] == 200
    assert ask(client, ann, "bob")[0] == 403
    assert ask(client, ann, "bob") == ask(client, ann, "nobody")  # does not reveal which nodes exist
    assert ask(client, ann, "ann", "bob")[0] == 403
    assert ask(client, bob, "nobody")[0] == 409  # an id of its own
    for headers in ({}, bearer("wrong"), {"Authorization": f"Basic {ann}"}, bearer(ann + "x")):
        assert client.post("/v1/predict", json={"ids": ["ann"]}, headers=headers).status_code == 401


@personal
def test_runs_of_records_need_keys(tmp_path: Path, unit: str) -> None:
    with pytest.raises(ConfigError, match="needs API keys"):
        create_app(read_runs([run_of(unit, tmp_path / "run")]))


@personal
def test_each_run_of_records_needs_its_own_server(tmp_path: Path, unit: str) -> None:
    runs = read_runs([run_of(unit, tmp_path / name) for name in "ab"])
    with pytest.raises(ConfigError, match="the same id"):
        create_app(runs, Keys())


def test_under_an_edge_unit_a_key_reads_all_rows(folder: Path, file: Path) -> None:
    key = Keys.add(file)
    client = TestClient(create_app(read_runs([folder]), Keys.read(file)))
    assert ask(client, key, *IDS)[0] == 200
    assert ask(client, "wrong", *IDS)[0] == 401
    assert client.post("/v1/predict", content=b"{").status_code == 401  # before the body is read
    twice = [("Authorization", "Bearer x"), ("Authorization", f"Bearer {key}")]
    assert client.post("/v1/predict", json={"ids": ["ann"]}, headers=twice).status_code == 401
    for page in ("/v1/privacy", "/healthz", "/metrics", "/docs"):
        assert client.get(page).status_code == 200


def test_a_removed_key_is_valid_until_the_server_restarts(folder: Path, file: Path) -> None:
    key, runs = Keys.add(file), read_runs([folder])
    client = TestClient(create_app(runs, Keys.read(file)))
    file.write_text(json.dumps({"keys": []}))
    assert ask(client, key, "ann")[0] == 200
    assert ask(TestClient(create_app(runs, Keys.read(file))), key, "ann")[0] == 401


def test_the_file_contains_hashes_and_is_private(file: Path) -> None:
    keys = [Keys.add(file, [17]), Keys.add(file, ["ann"])]
    assert not any(key in file.read_text() for key in keys)
    assert file.stat().st_mode & 0o077 == 0
    first = Keys.read(file).find(keys[0])
    assert first is not None and first.authorizes([17])
    assert not first.authorizes([17, 18]) and not first.authorizes(["ann"])


def test_keys_that_are_added_concurrently_are_all_stored(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "keys.json"
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: Keys.add(file), range(40)))
    known = Keys.read(file)
    assert (len(known), all(known.find(key) for key in keys)) == (40, True)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{" * 9999, json.dumps({"keys": [{"sha256": SECRET}]}).encode(), b'{"version":2}', b"\xff"],
)
def test_rejects_other_files_without_repeating_their_values(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    for use in (Keys.read, Keys.add):
        with pytest.raises(ConfigError) as error:
            use(file)
        assert SECRET not in str(error.value)
    assert file.read_bytes() == content
    with pytest.raises(ConfigError, match="does not exist"):
        Keys.read(file.with_name("missing.json"))
