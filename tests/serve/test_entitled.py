"""Keys: who is let in, and whose row may be read."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fastapi.testclient import TestClient

from graphveil.errors import ConfigError
from graphveil.serve import Keys, create_app, read_runs
from serve.folders import IDS, SECRET, run_of

PERSONAL = ("node-record", "node-bounded-degree")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def asked(client: TestClient, key: str, *ids: str) -> tuple[int, bytes]:
    answer = client.post("/v1/predict", json={"ids": ids}, headers=bearer(key))
    table = {"dataframe_records": [{"id": one} for one in ids]}
    assert client.post("/invocations", json=table, headers=bearer(key)).status_code == answer.status_code
    return answer.status_code, answer.content


def a_row_goes_to_its_subject_alone(unit: str) -> None:
    with TemporaryDirectory() as name:
        run, file = run_of(unit, Path(name) / "run"), Path(name) / "keys.json"
        ann, bob = Keys.add(file, ["ann"]), Keys.add(file, ["bob", "nobody"])
        client = TestClient(create_app(read_runs([run]), Keys.read(file)))
    assert asked(client, ann, "ann")[0] == 200
    assert asked(client, bob, "bob")[0] == 200
    others, strangers = asked(client, ann, "bob"), asked(client, ann, "nobody")
    assert others[0] == 403
    assert others == strangers  # whether there is such a node is not told either
    assert asked(client, ann, "ann", "bob")[0] == 403
    assert asked(client, bob, "nobody")[0] == 409  # its own question
    for headers in ({}, bearer("wrong"), {"Authorization": f"Basic {ann}"}, bearer(ann + "x")):
        assert client.post("/v1/predict", json={"ids": ["ann"]}, headers=headers).status_code == 401


def a_run_of_records_is_not_served_without_keys(unit: str) -> None:
    with TemporaryDirectory() as name:
        runs = read_runs([run_of(unit, Path(name) / "run")])
        with pytest.raises(ConfigError, match="needs keys"):
            create_app(runs)


def people_of_two_runs_are_not_confused(unit: str) -> None:
    with TemporaryDirectory() as name:
        runs = read_runs([run_of(unit, Path(name) / run) for run in "ab"])
        with pytest.raises(ConfigError, match="one id"):
            create_app(runs, Keys())


CHECKS = (
    a_row_goes_to_its_subject_alone,
    a_run_of_records_is_not_served_without_keys,
    people_of_two_runs_are_not_confused,
)


@pytest.mark.parametrize("unit", PERSONAL)
@pytest.mark.parametrize("check", CHECKS)
def test_rows_of_records(check: Callable[[str], None], unit: str) -> None:
    check(unit)


def test_under_an_edge_unit_a_key_is_for_all_rows(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = Keys.add(file)
    client = TestClient(create_app(read_runs([folder]), Keys.read(file)))
    assert asked(client, key, *IDS)[0] == 200
    assert asked(client, "wrong", *IDS)[0] == 401
    assert client.post("/v1/predict", content=b"{").status_code == 401  # before the body is looked at
    for page in ("/v1/privacy", "/healthz", "/metrics", "/docs"):
        assert client.get(page).status_code == 200


def test_a_key_that_is_taken_out_works_until_the_server_starts_anew(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key, runs = Keys.add(file), read_runs([folder])
    client = TestClient(create_app(runs, Keys.read(file)))
    file.write_text(json.dumps({"keys": []}))
    assert asked(client, key, "ann")[0] == 200
    assert asked(TestClient(create_app(runs, Keys.read(file))), key, "ann")[0] == 401


def test_two_headers_are_no_key(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = Keys.add(file)
    client = TestClient(create_app(read_runs([folder]), Keys.read(file)))
    twice = [("Authorization", "Bearer x"), ("Authorization", f"Bearer {key}")]
    assert client.post("/v1/predict", json={"ids": ["ann"]}, headers=twice).status_code == 401


def test_the_file_holds_hashes_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    keys = [Keys.add(file, [17]), Keys.add(file, ["ann"])]
    text = file.read_text()
    assert not any(key in text for key in keys)
    assert file.stat().st_mode & 0o077 == 0
    first = Keys.read(file).find(keys[0])
    assert first is not None
    assert (first.authorizes([17]), first.authorizes([17, 18]), first.authorizes(["ann"])) == (
        True,
        False,
        False,
    )


def test_keys_that_are_made_at_once_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "keys.json"
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: Keys.add(file), range(40)))
    known = Keys.read(file)
    assert (len(known), all(known.find(key) for key in keys)) == (40, True)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{" * 9999, json.dumps({"keys": [{"sha256": SECRET}]}).encode(), b'{"version":2}', b"\xff"],
)
def test_another_file_is_refused_without_its_values(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(content)
    for use in (Keys.read, Keys.add):
        with pytest.raises(ConfigError) as refused:
            use(file)
        assert SECRET not in str(refused.value)
    assert file.read_bytes() == content
    with pytest.raises(ConfigError, match="no such file"):
        Keys.read(tmp_path / "missing.json")
