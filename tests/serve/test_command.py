"""The commands `serve` and `keys`."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import Invoke

from graphveil._util import process
from graphveil.errors import ConfigError
from graphveil.serve import Keys
from graphveil.serve.server import bind_socket
from serve.folders import SECRET, run_of
from serve.sockets import ANN, Client, get, request, started


def test_a_server_answers_over_a_socket_and_logs_no_value(tmp_path: Path) -> None:
    run, file = run_of("node-record", tmp_path / "run"), tmp_path / "keys.json"
    key = f"Authorization: Bearer {Keys.add(file, ['ann'])}"
    with started(run, "--keys", file) as server:
        with Client(server.port) as client:
            first, again = (client.send(request(ANN, key)).response() for _ in range(2))
            assert first[0] == 200 and first[2] == again[2]
            assert "server" not in first[1]
            assert client.send(request({"ids": ["bob"]}, key)).status() == 403
            page = f"/v1/predict?{SECRET}"
            assert client.send(request({"ids": [SECRET]}, page=page)).status() == 401
            assert client.send(request(" " * (2 << 20), key)).status() == 413
        assert get(server.port, "/healthz")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=20) == 0
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    assert lines[0]["page"] == f"http://127.0.0.1:{server.port}/docs"
    assert [line["status"] for line in lines[1:]] == [200, 200, 403, 401, 413, 200]
    assert not any(text in "".join(server.lines) for text in (SECRET, "ann", "bob"))


def test_runs_of_records_need_a_file_of_keys(invoke: Invoke, tmp_path: Path) -> None:
    answer = invoke("serve", run_of("node-record", tmp_path / "run"))
    assert answer.code == 2
    assert "graphveil keys FILE" in answer.err


@pytest.mark.parametrize(
    ("place", "subject", "words"),
    [
        ("folder", "ann", "is a folder. Pass a file of API keys"),
        ("run.json", "ann", "The file of API keys is not valid: the file: invalid json"),
        ("run.json/keys", "ann", "Cannot create"),
        ("k" * 250, "ann", "Cannot create"),
        ("new", "x" * 1001, "longer than 1,000 characters"),
        ("new", "gr\udcc3\udcb6\udcc3\udc9fe", "Set a UTF-8 locale"),  # größe where the locale is C
    ],
)
def test_keys_rejects_places_and_subjects_that_it_cannot_store(
    invoke: Invoke, tmp_path: Path, place: str, subject: str, words: str
) -> None:
    here = tmp_path / "keys"
    (here / "folder").mkdir(parents=True)
    (here / "run.json").write_text("no keys")
    answer = invoke("keys", here / place, "--subject", subject)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert words in answer.err
    assert {path.name for path in here.iterdir()} - {".graphveil-keys.lock"} == {"folder", "run.json"}


def test_keys_prints_each_key_once(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    first = invoke("keys", file, "--subject", "ann", "--subject", "bob").out.strip()
    second = invoke("keys", file, "--json").json["key"]
    found = Keys.read(file).find(first)
    assert found is not None and found.authorizes(["ann", "bob"])
    assert Keys.read(file).find(second) is not None


def test_rejects_addresses_that_cannot_be_used(invoke: Invoke, tmp_path: Path) -> None:
    run = run_of("undirected-edge", tmp_path / "run")
    with bind_socket("127.0.0.1", 0) as line:
        answer = invoke("serve", run, "--port", line.getsockname()[1], "--json")
        assert (answer.code, "in use" in answer.json["error"]["message"].lower()) == (2, True)
    for workers in (1, 2):
        answer = invoke("serve", run, "--host", "nobody.invalid", "--workers", workers, "--json")
        assert (answer.code, answer.json["error"]["kind"]) == (2, "ConfigError")
    assert invoke("serve", run, "--workers", 257, "--json").json["error"]["kind"] == "UsageError"
    for host in ("", "a..b", "::g"):
        with pytest.raises(ConfigError, match="--host"):
            bind_socket(host, 0).close()


@pytest.mark.parametrize(("workers", "words"), [(256, "--workers"), (2, "--host")])
def test_rejects_more_workers_than_memory_has_room_for(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, words: str
) -> None:
    run = run_of("undirected-edge", tmp_path / "run")
    monkeypatch.setattr(process, "free", lambda: 16 << 30)  # bytes: at most about 70 workers
    answer = invoke("serve", run, "--host", "nobody.invalid", "--workers", workers)
    assert (answer.code, words in answer.err) == (2, True), answer.err


def test_the_extra_is_imported_when_it_is_used_and_named_when_it_is_missing(folder: Path) -> None:
    code = (
        "import sys, graphveil.cli\n"
        "from graphveil.errors import MissingDependencyError\n"
        "from graphveil.serve import create_app, read_runs\n"
        "assert not {'fastapi', 'uvicorn'} & {*sys.modules}\n"
        "sys.modules['fastapi'] = None\n"
        "try: create_app(read_runs(sys.argv[1:]))\n"
        "except MissingDependencyError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert "pip install 'graphveil[serve]'" in done.stdout
