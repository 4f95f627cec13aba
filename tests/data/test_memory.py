"""A graph of the size of Reddit (117 thousand nodes, 46 million edges) needs at most 3 GB of memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_MB = 3_000

COMMON = """
import resource, sys
import numpy as np
nodes, edges, width = 116_713, 23_116_690, 602
rng = np.random.default_rng(0)
"""

GENERATE = """
from graphveil.data import synthetic
graph = synthetic("reddit")
"""

ARRAYS = """
from graphveil.data import Graph
x = np.ones((nodes, width), dtype=np.float32)
both = rng.integers(nodes, size=(2, 2 * edges))  # int64 and both directions, as in torch_geometric
graph = Graph.from_edges(x, np.arange(nodes) % 8, *both, directed=False)
"""

WRITE = """
import pyarrow as pa, pyarrow.parquet
columns = {f"x{i}": rng.standard_normal(nodes, dtype=np.float32) for i in range(width)}
table = pa.table({"id": np.arange(nodes) * 7, "label": np.arange(nodes) % 8} | columns)
pa.parquet.write_table(table, sys.argv[1] + "/nodes.parquet")
ends = {name: rng.integers(nodes, size=edges) * 7 for name in "ab"}
pa.parquet.write_table(pa.table(ends), sys.argv[1] + "/edges.parquet")
"""

READ = """
from graphveil.data import read_graph
paths = (sys.argv[1] + "/nodes.parquet", sys.argv[1] + "/edges.parquet")
graph = read_graph(*paths, id="id", label="label", source="a", target="b", directed=False)
"""

REPORT = """
assert graph.num_nodes == nodes and graph.num_features == width
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def run(script, folder):
    """Run a script in another process and return its output."""
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, "-c", COMMON + script, str(folder)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", [GENERATE, ARRAYS], ids=["generated", "arrays"])
def test_memory_of_building_a_graph(script, tmp_path):
    assert float(run(script + REPORT, tmp_path)) < LIMIT_MB


@pytest.mark.slow
def test_memory_of_reading_files(tmp_path):
    run(WRITE, tmp_path)
    assert float(run(READ + REPORT, tmp_path)) < LIMIT_MB
