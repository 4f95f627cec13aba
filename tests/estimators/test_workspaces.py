"""A workspace changes nothing: every method has equal results with it, and after an interruption anywhere."""

from pathlib import Path
from typing import Any

import pytest
import torch
from contracts.test_charges import FITS, NODES
from torch import Tensor

from graphveil import METHODS
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from tests.estimators.conftest import grouped, with_little_training

SEEDED = {name: (method, {**given, "unsafe_noise_seed": 5}) for name, (method, given) in FITS.items()}
# With a private loss or a released graph, seeds do not reach the noise of every draw.
SEVERAL = ["auto, records", "gap, directed, three hops", "gap, metrics", "classcode, records"]
SEVERAL += ["lpgnet", "lpgnet, directed, three", "simgat", "spectral", "mlp, metrics"]


def data(given: dict[str, Any]) -> Graph:
    graph = grouped(directed=given["unit"] == "directed-edge", nodes=NODES)
    if given["unit"] == "edge-subset":
        half = torch.arange(NODES) < NODES // 2
        graph = graph.with_public(graph.adjacency.without_crossing(half), torch.ones(NODES) > 0)
    return graph


def everything(model: Estimator) -> dict[str, Any]:
    """Return all that a fit computed and printed."""
    found: dict[str, Any] = {
        **model.aggregates_,
        **{f"state {name}": value for name, value in model.fitted.trained.state().items()},
        "guarantee": model.guarantee,
        "metrics": getattr(model, "private_metrics_", None),
        "proba": model.proba_,
    }
    return found


def equal(one: Estimator, other: Estimator) -> bool:
    left, right = everything(one), everything(other)
    return left.keys() == right.keys() and all(
        torch.equal(value, right[name]) if isinstance(value, Tensor) else repr(value) == repr(right[name])
        for name, value in left.items()
    )


@pytest.mark.parametrize("name", SEVERAL)
def test_a_fit_is_the_same_with_a_workspace_and_after_each_interruption(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process fails after each answer in turn, and goes on."""
    with_little_training(monkeypatch)
    method, given = SEEDED[name]
    graph, answers, answer = data(given), list[object](), Release.answer
    limit = [10**9]

    def counted(self: Release, queried: Any) -> Any:
        found = answer(self, queried)
        answers.append(queried)
        if len(answers) == limit[0]:
            raise InterruptedError
        return found

    monkeypatch.setattr(Release, "answer", counted)
    plain = METHODS[method](**given).fit(graph)
    total = len(answers)
    for stop in range(1, total + 1):
        limit[0] = stop
        answers.clear()
        with pytest.raises(InterruptedError):
            METHODS[method](**given).fit(data(given), workspace=tmp_path / "run")
    limit[0] = 10**9
    assert equal(METHODS[method](**given).fit(data(given), workspace=tmp_path / "run"), plain)
    assert equal(METHODS[method](**given).fit(data(given), workspace=tmp_path / "run"), plain)
