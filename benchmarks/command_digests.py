"""Digest the outputs of every command, with a fixed clock and fixed randomness of the operating system.

``digests.py`` covers fits. This module covers the JSON output of each command on ``synthetic/tiny``, run
folders, ledger entries with their hash chain, and the OpenAPI document. Each command runs in a separate
process, in which ``sitecustomize`` replaces the clock and the entropy of the operating system. So ids, keys
and noise are the same in every run, also without a noise seed.

Each output has three digests: its *numbers* in the order of the document, its *keys*, and its *text*. A
change of names or wording changes the last two and not the first.
"""

import hashlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from safetensors.numpy import load_file

import graphveil as gv

Parts = dict[str, str]
# Measured times, and sizes of files, which depend on the lengths of texts.
VOLATILE = re.compile(
    r"seconds|rss|mtime|^time$|_at$|bytes|elapsed|^made$|^date$|version|^pid$|^port$|^url$|^address$"
)
FIXED_CLOCK = '''
"""Fix the clock and the entropy of this process. Never import this where privacy matters."""
import builtins, datetime, hashlib, itertools, os, random, secrets, time, types, uuid

_NOW, _count = 1_790_000_000, itertools.count()
_seed = os.environ["FIXED_SEED"].encode()

def _bytes(size=32):
    size, key = 32 if size is None else size, b"%s/%d" % (_seed, next(_count))
    return hashlib.shake_256(key).digest(size)

class FixedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(_NOW, tz)

class FixedDate(datetime.date):
    @classmethod
    def today(cls):
        return datetime.datetime.fromtimestamp(_NOW, datetime.UTC).date()

# Only the package sees the fixed classes: compiled modules rely on the size of the original ones.
_fixed = types.SimpleNamespace(**{**vars(datetime), "datetime": FixedDatetime, "date": FixedDate})
_import = builtins.__import__

def _fixed_import(name, globals=None, locals=None, fromlist=(), level=0):
    if name == "datetime" and str((globals or {}).get("__name__")).startswith("graphveil"):
        return _fixed
    return _import(name, globals, locals, fromlist, level)

builtins.__import__ = _fixed_import
os.urandom = random._urandom = _bytes
secrets.token_bytes = _bytes
secrets.token_hex = lambda size=32: _bytes(size).hex()
secrets.token_urlsafe = lambda size=32: _bytes(size).hex()
secrets.randbits = lambda bits: int.from_bytes(_bytes((bits + 7) // 8), "little") >> (-bits % 8)
secrets.randbelow = lambda bound: int.from_bytes(_bytes(32), "little") % bound
uuid.uuid4 = lambda: uuid.UUID(bytes=_bytes(16), version=4)
time.time, time.time_ns = (lambda: float(_NOW)), (lambda: _NOW * 10**9)
_strftime = time.strftime
time.strftime = lambda form, when=None: _strftime(form, time.gmtime(_NOW) if when is None else when)
'''

TABLES = "--nodes nodes.parquet --edges edges.parquet --id id --label team --source a --target b"
TINY = "--dataset synthetic/tiny"
BUDGET = "--epsilon 4 --delta 1e-5"
EDGE = "--unit undirected-edge"
OTHERS = TABLES.replace("nodes.parquet", "others.parquet").replace("edges.parquet", "other_edges.parquet")
MESSAGES = "--protocol survey.json --reports messages.parquet --id id"
# Names and arguments of commands.
COMMANDS: dict[str, str] = {
    "datasets": "datasets",
    "datasets tiny": "datasets synthetic/tiny",
    "check": f"check {TABLES}",
    "prepare": f"prepare {TABLES} --out prepared",
    "calibrate gap": f"calibrate gap --unit undirected-edge {BUDGET}",
    "calibrate gap owner": f"calibrate gap --unit node-record {BUDGET} --nodes-count 400"
    " --out-degree-bound 5",
    "calibrate lpgnn": "calibrate lpgnn --unit local-attributes --set eps_x=1 --set eps_y=1"
    " --features-count 8 --classes-count 4",
    "ledger init": f"ledger init tiny --ledger ledger.db {TINY} {EDGE} --epsilon 40 --delta 1e-5",
    "train classcode": f"train classcode {TINY} {EDGE} {BUDGET} --ledger LEDGER --out classcode",
    "train gap": f"train gap {TINY} --unit undirected-edge {BUDGET} --ledger LEDGER --runs 2 --out gap",
    "train mlp": f"train mlp {TINY} --unit undirected-edge {BUDGET} --out mlp",
    "train owner": f"train classcode {TINY} --unit node-record {BUDGET} --private-metrics --out owner",
    "train gap owner": f"train gap {TINY} --unit node-record {BUDGET} --out-degree-bound 5 --out gapowner",
    "train lpgnn": f"train lpgnn {TINY} --unit local-attributes --set eps_x=2 --set eps_y=2 --out lpgnn",
    "train gcn": f"train gcn {TINY} --unit none --out gcn",
    "train tables": f"train gap {TABLES} --unit undirected-edge {BUDGET} --out tables",
    "train paper": f"train gap-paper {TINY} --unit undirected-edge {BUDGET} --out paper",
    "explain": "explain classcode",
    "explain owner": "explain owner",
    "predict": "predict tables",
    "predict file": "predict classcode --out predictions.parquet",
    "predict other": f"predict tables/release {OTHERS} --allow-spend --out others_predicted.parquet",
    "report": "report classcode gap mlp --out page.html",
    "audit": "audit gap --pairs 5",
    "attack linkteller": "attack linkteller gap",
    "attack membership": "attack membership owner --per-class 20",
    "attack reconstruction": "attack reconstruction lpgnn",
    "sweep": f"sweep gap,mlp {TINY} --unit undirected-edge --epsilon 1,4 --delta 1e-5 --out sweep",
    **{
        f"perturb {name}": f"perturb {name} {TINY} --unit undirected-edge --epsilon 8 --out {name}"
        for name in ("edge-rand", "lap-graph", "arr")
    },
    "compare": "compare synthetic/tiny edge-rand",
    "ledger list": "ledger list --ledger ledger.db",
    "ledger show": "ledger show tiny --ledger ledger.db",
    "ledger raise": "ledger raise tiny --ledger ledger.db --unit undirected-edge --epsilon 50 --delta 1e-5"
    " --reason more",
    "ledger verify": "ledger verify --ledger ledger.db",
    "ledger export": "ledger export tiny --ledger ledger.db --out entries.jsonl",
    "collect protocol": "collect protocol --eps-x 2 --eps-y 2 --classes 4 --columns f0,f1,f2"
    " --out survey.json",
    "collect randomize": "collect randomize --protocol survey.json --nodes answers.parquet"
    " --id id --label team --secret secret --out messages.parquet",
    "collect decode": f"collect decode {MESSAGES} --out decoded.parquet",
    "collect learn": f"collect learn {MESSAGES} --edges edges.parquet --source a --target b --out learned",
    "keys": "keys keys.json --releases",
    "reproduce list": "reproduce list",
}
FAILS = {
    "rejected unit": f"train gap {TINY} --unit undirected-edge --epsilon -1",
    "rejected budget": f"train gap {TINY} --unit undirected-edge --epsilon 100 --ledger LEDGER --out over",
    "rejected file": "check --nodes missing.parquet --edges edges.parquet",
}
FOLDERS = (
    *("classcode", "gap", "mlp", "owner", "gapowner", "lpgnn", "gcn", "tables", "paper"),
    *("sweep", "edge-rand", "lap-graph", "arr", "learned"),
)
FILES = (
    "predictions.parquet",
    "others_predicted.parquet",
    "entries.jsonl",
    "messages.parquet",
    "decoded.parquet",
)


def command_digests(wanted: str, *, times: bool) -> dict[str, Parts]:
    """Run the commands in order and return the digests of all outputs whose names contain ``wanted``.

    All commands run, because later ones read what earlier ones wrote, unless ``wanted`` excludes them all.
    """
    names = [*COMMANDS, *FAILS, *FOLDERS, *FILES, "OpenAPI", "ledger chain"]
    if not any(wanted in f"command {name}" for name in names):
        return {}
    found = dict[str, Parts]()
    with tempfile.TemporaryDirectory() as place:
        session = _Session(Path(place))
        for name, line in (*COMMANDS.items(), *FAILS.items()):
            start = time.perf_counter()
            code, output, error = session.run(name, line)
            found[f"command {name}"] = {
                "exit code": str(code),
                **session.text(output if output.strip() else error),
            }
            if times:
                print(f"{time.perf_counter() - start:6.2f} s  command {name}", file=sys.stderr)
        found |= {f"command folder {name}": session.folder(name) for name in FOLDERS}
        found |= {f"command file {name}": session.file(Path(place) / name) for name in FILES}
        found["command ledger chain"] = session.ledger("ledger.db")
        found["command OpenAPI"] = session.openapi()
    return {name: parts for name, parts in found.items() if wanted in name}


class _Session:
    """A folder in which commands run one after the other with a fixed clock and fixed entropy."""

    def __init__(self, place: Path) -> None:
        self._place, self._root = place, Path(str(gv.__file__)).parents[1]
        (place / "fixed").mkdir()
        (place / "fixed" / "sitecustomize.py").write_text(FIXED_CLOCK)
        _write_tables(place)

    def environment(self, name: str) -> dict[str, str]:
        home = str(self._place / "home")
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(("GRAPHVEIL", "XDG"))},
            "PYTHONPATH": os.pathsep.join([str(self._place / "fixed"), str(self._root)]),
            "PYTHONHASHSEED": "0",
            "FIXED_SEED": name,
            "HOME": home,
            "COLUMNS": "100",
            "OMP_NUM_THREADS": "1",
        }

    def command(self, line: str) -> list[str]:
        words = line.replace("LEDGER", f"sqlite:///{self._place}/ledger.db#tiny").split()
        return [sys.executable, "-m", "graphveil", *words, "--json"]

    def run(self, name: str, line: str) -> tuple[int, str, str]:
        done = subprocess.run(
            self.command(line),
            cwd=self._place,
            env=self.environment(name),
            capture_output=True,
            text=True,
            timeout=600,
        )
        return done.returncode, done.stdout, done.stderr

    def text(self, text: str) -> Parts:
        """Return digests of a JSON document, of lines of JSON, or of plain text."""
        plain = text.replace(str(self._place), "PLACE").replace(str(self._root), "ROOT")
        try:
            value = json.loads(plain)
        except ValueError:
            return {"text": _digest([re.sub(r"\d+(\.\d+)? ?(ms|s|MB|kB)\b", "TIME", plain)])}
        leaves = list(_leaves(value))
        numbers = [repr(leaf) for _, leaf in leaves if not isinstance(leaf, str)]
        words = [leaf for _, leaf in leaves if isinstance(leaf, str)]
        return {
            "numbers": _digest(numbers),
            "keys": _digest([key for key, _ in leaves]),
            "text": _digest(words),
        }

    def file(self, path: Path) -> Parts:
        """Return digests of the contents of one file."""
        if not path.exists():
            return {"missing": "missing"}
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            return {"rows": _digest([repr(table.to_pydict())])}
        if path.suffix == ".safetensors":
            tensors = load_file(path)
            return {
                "rows": _digest(
                    [f"{k}{v.dtype}{v.shape}{v.tobytes().hex()}" for k, v in sorted(tensors.items())]
                )
            }
        if path.suffix == ".jsonl":
            return self.text(json.dumps([json.loads(line) for line in path.read_text().splitlines()]))
        if path.suffix == ".json":
            return self.text(path.read_text())
        return {"names only": ""}  # HTML and Markdown pages

    def folder(self, name: str) -> Parts:
        """Return digests of the names, permissions and contents of a folder."""
        root = self._place / name
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        parts = {"names": _digest([str(path.relative_to(root)) for path in paths])}
        parts["private modes"] = _digest(
            [f"{p.relative_to(root)} {p.stat().st_mode & 0o777:o}" for p in paths if "internal" in p.parts]
        )
        for kind in ("numbers", "keys", "text", "rows"):
            digests = [
                f"{p.relative_to(root)} {parts_[kind]}" for p in paths if kind in (parts_ := self.file(p))
            ]
            parts[kind] = _digest(digests)
        return parts

    def ledger(self, name: str) -> Parts:
        """Return digests of all tables of a ledger, including the hash chain."""
        parts = dict[str, str]()
        with closing(sqlite3.connect(self._place / name)) as database, database:
            tables = database.execute(
                "select name from sqlite_master where type = 'table' order by name"
            ).fetchall()
            for (table,) in tables:
                rows = database.execute(f'select * from "{table}"').fetchall()
                parts[table] = _digest([repr(row).replace(str(self._place), "PLACE") for row in rows])
        return parts

    def openapi(self) -> Parts:
        """Start the server on one run and return the digests of its OpenAPI document."""
        server = subprocess.Popen(
            self.command("serve classcode --port 0"),
            cwd=self._place,
            env=self.environment("serve"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stderr is not None
            port = next(
                (found[1] for line in server.stderr if (found := re.search(r'"port": (\d+)', line))), None
            )
            assert port is not None, "the server printed no port"
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json", timeout=30) as answer:
                return self.text(answer.read().decode())
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield key and value of each leaf of a JSON document in its order, without measured times."""
    if isinstance(value, dict):
        for name, entry in value.items():
            if not VOLATILE.search(name):
                yield from _leaves(entry, f"{key}.{name}")
    elif isinstance(value, list):
        for entry in value:
            yield from _leaves(entry, key)
    else:
        yield key, value


def _digest(pieces: list[str]) -> str:
    hashed = hashlib.blake2b(digest_size=10)
    for piece in pieces:
        hashed.update(len(piece).to_bytes(8, "little") + piece.encode())
    return hashed.hexdigest()


def _write_tables(place: Path) -> None:
    """Write ``synthetic/tiny`` as two tables, half of it as two others, and a table for a collection."""
    graph = gv.load_dataset("synthetic/tiny")
    ids = np.array([f"n{node:04d}" for node in range(graph.num_nodes)])
    features = np.asarray(graph.x)
    columns = {f"f{j}": features[:, j] for j in range(features.shape[1])}
    team = np.array([f"team {label}" for label in np.asarray(graph.y)])
    source, target = np.asarray(graph.to_pyg().edge_index)
    once = source < target
    source, target = source[once], target[once]
    nodes = pa.table({"id": ids, "team": team, **columns})
    pq.write_table(nodes, place / "nodes.parquet")
    pq.write_table(pa.table({"a": ids[source], "b": ids[target]}), place / "edges.parquet")
    half = graph.num_nodes // 2
    inside = (source < half) & (target < half)
    pq.write_table(nodes.slice(0, half), place / "others.parquet")
    pq.write_table(
        pa.table({"a": ids[source[inside]], "b": ids[target[inside]]}), place / "other_edges.parquet"
    )
    answers = {"id": ids, "team": np.asarray(graph.y) % 4, **{f"f{j}": features[:, j] for j in range(3)}}
    pq.write_table(pa.table(answers), place / "answers.parquet")
    pa_csv.write_csv(nodes, place / "nodes.csv")
