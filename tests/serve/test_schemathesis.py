"""The server against its own OpenAPI description, asked by schemathesis over a real socket."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from graphveil.serve import Keys, create_app, read_runs
from serve.folders import run_of
from serve.sockets import listening

PAGES = {"/v1/predict", "/invocations", "/v1/privacy", "/healthz", "/metrics"}
EXAMPLES = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_it_does_what_it_says(tmp_path: Path, keyed: bool) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import CHECKS, load_all_checks
    from schemathesis.generation import GenerationMode

    # What is a question may still be refused: of an id that the run does not know, or of another's row.
    load_all_checks()
    unmeant = [one for one in CHECKS.get_all() if one.__name__ == "positive_data_acceptance"]
    assert unmeant
    file = tmp_path / "keys.json"
    headers = {"Authorization": f"Bearer {Keys.add(file)}"} if keyed else {}
    runs = read_runs([run_of("undirected-edge", tmp_path / "friends")])
    with listening(create_app(runs, Keys.read(file) if keyed else None)) as port:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        asked = set[str]()
        for one in schema.get_all_operations():
            operation = one.ok()
            modes = [GenerationMode.POSITIVE]
            modes += [GenerationMode.NEGATIVE] if operation.body else []
            for mode in modes:

                @EXAMPLES
                @given(case=operation.as_strategy(generation_mode=mode))
                def ask(case: Any) -> None:
                    case.call_and_validate(headers=headers, excluded_checks=unmeant)

                ask()
            asked.add(operation.path)
    assert asked == PAGES
