"""User errors are typed errors also under ``python -O``, which removes assertions."""

import subprocess
import sys

CALLS = (
    "model.predict()",
    "model.predict_proba(graph)",
    "model.score(graph)",
    "model.guarantee",
    "model.privacy_cost(graph)",
    "model.is_fitted_graph(graph)",
    "model.guarantee_with_predictions",
    "model.graph_fingerprint",
    "model.save('folder')",
)
PROGRAM = """
import graphveil as gv
graph = gv.load_dataset("synthetic/tiny")
model = gv.ClassCode(unit="undirected-edge", epsilon=1.0)
for call in {calls}:
    try:
        eval(call)
    except gv.errors.GraphveilError as error:
        print(call, type(error).__name__, error, sep="|")
"""


def test_unfitted_models_raise_typed_errors() -> None:
    program = PROGRAM.format(calls=CALLS)
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, timeout=300)
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == list(CALLS), done.stderr
    assert all(
        line[1:] == ["ConfigError", "The model is not fitted. Call fit(graph) first."] for line in lines
    )
