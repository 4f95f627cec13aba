"""Attackers as clients over a real socket: LinkTeller, and one that measures time and size of answers."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fastapi import FastAPI
from scipy.stats import spearmanr

import graphveil as gv
from graphveil.attacks.influence import influences, link_scores
from graphveil.attacks.pairs import draw_pairs
from graphveil.attacks.roc import RocCurve
from graphveil.audit.secret_edges import SecretEdges
from graphveil.serve import create_app, read_runs
from serve.sockets import Client, listening, request

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """A server of a run on a graph that the attacker is after."""

    graph: gv.Graph
    app: FastAPI
    run: Path


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    graph = gv.load_dataset("synthetic/tiny", recipe="gap", seed=1)
    run = tmp_path_factory.mktemp("attacked") / "run"
    gv.GAP(unit="undirected-edge", epsilon=1.0, delta=1e-7, seed=1, epochs=2, encoder_epochs=2).fit(
        graph
    ).save(run / "release")
    return Target(graph, create_app(read_runs([run / "release"])), run)


def rows(client: Client, ids: Sequence[int]) -> Floats:
    status, _, body = client.send(request({"ids": list(ids)})).response()
    assert status == 200
    found = json.loads(body)["predictions"]
    return np.array([[value for name, value in row.items() if name.startswith("p_")] for row in found])


def test_linkteller_does_not_change_predictions(target: Target) -> None:
    graph, sent = target.graph, list[int]()
    features = np.asarray(graph.x, dtype=np.float64)

    with listening(target.app) as port, Client(port) as client:

        def predict(x: Any) -> Floats:
            """Send features, as LinkTeller does, and read the served rows when they are rejected."""
            records = [{"id": node, "x": row.tolist()} for node, row in enumerate(np.asarray(x))]
            sent.append(client.send(request({"records": records})).status())
            return rows(client, range(graph.num_nodes))

        pairs = draw_pairs(SecretEdges.from_adjacency(graph.adjacency), count=40, seed=0)
        found = influences(predict, features, pairs.nodes)
    assert set(sent) == {409}
    assert not found.any()

    assert RocCurve.from_scores(link_scores(found, pairs), pairs.joined).auc == 0.5


def timed(target: Target, rounds: int) -> tuple[Floats, list[int]]:
    """Return each node's median time over the socket, in random order, and the length of its answer."""
    count, rng = target.graph.num_nodes, np.random.default_rng(0)
    times, sizes = np.zeros((rounds, count)), [0] * count
    with listening(target.app) as port, Client(port) as client:
        rows(client, range(count))
        for turn in range(rounds):
            for node in rng.permutation(count).tolist():
                message = request({"ids": [node]})
                began = time.perf_counter()
                status, _, body = client.send(message).response()
                times[turn, node], sizes[node] = time.perf_counter() - began, len(body)
                assert status == 200
    return np.median(times, axis=0), sizes


class SlowPlaces(dict[Any, int]):
    """Places of nodes that are found more slowly the more edges a node has."""

    def __init__(self, places: Mapping[Any, int], degrees: Floats) -> None:
        super().__init__(places)
        self._degrees = degrees

    def __getitem__(self, node: Any) -> int:
        time.sleep(2e-5 * float(self._degrees[node]))
        return super().__getitem__(node)


@pytest.mark.slow
def test_time_and_size_of_answers_do_not_depend_on_degrees(target: Target) -> None:
    arrays = target.graph.adjacency.arrays
    degrees = np.diff(arrays[0].numpy()).astype(np.float64)
    assert len(degrees) == target.graph.num_nodes and degrees.max() > 3 * max(1.0, np.median(degrees)) / 2
    bound = 3.9 / np.sqrt(len(degrees))  # a two-sided test at 1 in 10,000
    times, sizes = timed(target, 25)
    assert abs(spearmanr(times, degrees).statistic) < bound
    table = gv.load_model(target.run / "release").predict_proba()
    names = [f"p_{number}" for number in range(table.shape[1])]
    for node, row in enumerate(table.tolist()):  # a length follows from what is released, and nothing else
        said = {
            "node": node,
            "prediction": names[int(table[node].argmax())][2:],
            **dict(zip(names, row, strict=True)),
        }
        whole = json.dumps({"run": "run", "predictions": [said]}, separators=(",", ":"))
        assert sizes[node] == len(whole)
    (run,) = read_runs([target.run / "release"])
    slow = create_app([replace(run, places=SlowPlaces(run.places, degrees))])
    assert spearmanr(timed(replace(target, app=slow), 5)[0], degrees).statistic > bound
