"""The commands `serve` and `keys`, over a real socket."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from command import Invoke

from graphveil._util import memory
from graphveil.errors import ConfigError, MissingDependencyError
from graphveil.serve import Keys, create_app, read_runs
from graphveil.serve.server import bind_socket
from serve.folders import SECRET, run_of


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command, and yield it with its address."""
    command = [sys.executable, "-m", "graphveil", "serve", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            first = next(line for line in process.stderr if line.startswith("{"))
            yield process, f"http://127.0.0.1:{json.loads(first)['port']}"
        finally:
            process.kill()


def test_a_server_answers_over_a_socket_and_stops_in_order(tmp_path: Path) -> None:
    run, file = run_of("node-record", tmp_path / "run"), tmp_path / "keys.json"
    headers = {"Authorization": f"Bearer {Keys.add(file, ['ann'])}"}
    with serving(run, "--keys", file) as (process, address), httpx.Client(base_url=address) as client:
        first, again = (client.post("/v1/predict", json={"ids": ["ann"]}, headers=headers) for _ in range(2))
        assert (first.status_code, first.content) == (200, again.content)
        assert client.post("/v1/predict", json={"ids": ["bob"]}, headers=headers).status_code == 403
        assert client.post(f"/v1/predict?{SECRET}", json={"ids": [SECRET]}).status_code == 401
        assert client.get("/healthz").status_code == 200
        large = client.post("/v1/predict", content=b" " * (2 << 20), headers=headers)
        assert large.status_code == 413
        assert "server" not in first.headers
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) in (0, -signal.SIGTERM)
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    assert [json.loads(line)["status"] for line in lines] == [200, 200, 403, 401, 200, 413]
    assert not any(text in "".join(lines) for text in (SECRET, "ann", "bob"))


def test_a_run_of_records_without_keys_is_misuse(invoke: Invoke, tmp_path: Path) -> None:
    answer = invoke("serve", run_of("node-record", tmp_path / "run"))
    assert answer.code == 2
    assert "graphveil keys FILE" in answer.err


@pytest.mark.parametrize(
    ("place", "subject", "words"),
    [
        ("folder", "ann", "is a folder. Name a file of keys"),
        ("run.json", "ann", "The file of keys: the file: invalid json"),
        ("run.json/keys", "ann", "cannot be created"),
        ("k" * 250, "ann", "cannot be created"),
        ("new", "x" * 1001, "more than 1,000 characters"),
        ("new", "gr\udcc3\udcb6\udcc3\udc9fe", "set a locale of UTF-8"),  # größe where the locale is C
    ],
)
def test_no_key_is_made_for_what_cannot_hold_it(
    invoke: Invoke, tmp_path: Path, place: str, subject: str, words: str
) -> None:
    here = tmp_path / "keys"
    (here / "folder").mkdir(parents=True)
    (here / "run.json").write_text("no keys")
    refused = invoke("keys", here / place, "--subject", subject)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert words in refused.err
    made = {path.name for path in here.iterdir()} - {".graphveil-keys.lock"}
    assert made == {"folder", "run.json"}


def test_a_key_is_shown_once(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    first = invoke("keys", file, "--subject", "ann", "--subject", "bob").out.strip()
    second = invoke("keys", file, "--json").json["key"]
    keys = Keys.read(file)
    found = keys.find(first)
    assert found is not None
    assert found.authorizes(["ann", "bob"])
    assert keys.find(second) is not None


def test_an_address_that_is_taken_is_misuse_with_one_object(invoke: Invoke, tmp_path: Path) -> None:
    run = run_of("undirected-edge", tmp_path / "run")
    with serving(run) as (_, address):
        answer = invoke("serve", run, "--port", address.rpartition(":")[2], "--json")
    assert answer.code == 2
    assert "in use" in answer.json["error"]["message"].lower()


@pytest.mark.parametrize("host", ["", "nobody.invalid", "a..b", "::g"])
def test_an_address_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="--host"):
        bind_socket(host, 0).close()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_never_began_prints_one_object(invoke: Invoke, tmp_path: Path, workers: int) -> None:
    run = run_of("undirected-edge", tmp_path / "run")
    answer = invoke("serve", run, "--host", "nobody.invalid", "--workers", workers, "--json")
    assert (answer.code, answer.json["error"]["kind"]) == (2, "ConfigError")
    assert invoke("serve", run, "--workers", 257, "--json").json["error"]["kind"] == "UsageError"


def test_workers_that_memory_has_no_room_for_are_refused(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("undirected-edge", tmp_path / "run")
    monkeypatch.setattr(memory, "free", lambda: 1 << 33)
    for workers, words in ((38, "--workers"), (37, "--host")):
        answer = invoke("serve", run, "--host", "nobody.invalid", "--workers", workers)
        assert (answer.code, words in answer.err) == (2, True)


def test_without_the_extra_it_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "graphveil.serve.app", raising=False)
    with pytest.raises(MissingDependencyError, match=r"graphveil\[serve\]"):
        create_app(read_runs([folder]))


def test_the_command_line_does_without_the_web_until_it_serves() -> None:
    probe = "import sys, graphveil.cli, graphveil.serve; print(*({'fastapi', 'uvicorn'} & {*sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.split() == []
