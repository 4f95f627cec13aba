"""Names that stand for code of a user's own, and what is said about those that stand for none."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import graphveil as gv
from graphveil import estimators
from graphveil._util.random import PublicStreams
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.own import code


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """Leave the tables of names as they were."""
    kept, known = dict(estimators._REGISTERED), dict(code._REGISTERED)
    yield
    for table, before in ((estimators._REGISTERED, kept), (code._REGISTERED, known)):
        table.clear()
        table.update(before)


@dataclass(kw_only=True, eq=False)
class Mine(gv.GAP):
    """GAP with a keyword of its own."""

    method: ClassVar[str] = "mine"

    temper: float = 1.0


@pytest.fixture
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


def test_a_method_of_ones_own_is_saved_loaded_and_priced_by_its_name(graph: Graph, tmp_path: Path) -> None:
    assert gv.register(Mine) is Mine and gv.METHODS["mine"] is Mine
    model = Mine(unit="undirected-edge", epsilon=2.0, seed=0, epochs=2, temper=0.5).fit(graph)
    model.save(tmp_path / "release")
    loaded = gv.load_model(tmp_path / "release")
    assert isinstance(loaded, Mine) and loaded.temper == 0.5
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    priced = gv.calibrate("mine", unit="undirected-edge", epsilon=2.0, delta=1e-5, hops=1)
    assert priced.epsilon <= 2.0
    estimators._REGISTERED.clear()
    with pytest.raises(ArtifactError, match="does not have"):  # a file names no code that this process lacks
        gv.load_model(tmp_path / "release")


def test_names_that_are_taken_or_are_none_are_refused() -> None:
    for taken in ("gap", "os.system"):
        named = type("Named", (Mine,), {"method": taken})
        with pytest.raises(ConfigError, match="taken by the library, or is no name"):
            gv.register(named)
    with pytest.raises(ConfigError, match="cannot be called 'other'"):
        gv.register(Mine, "other")
    assert list(gv.METHODS) == list(estimators._CLASSES)


class Head(torch.nn.Linear):
    """A module of two sizes."""


def test_a_name_stands_for_a_module_once_it_is_registered() -> None:
    streams = PublicStreams(0)
    with pytest.raises(ConfigError, match=r"graphveil.register\(Head\)"):
        code.build_module("Head", 2, 3, streams.torch("module"))
    gv.register(Head)
    drawn = torch.rand(1)
    torch.set_rng_state(torch.Generator().manual_seed(1).get_state())
    first = code.build_module("Head", 2, 3, streams.torch("module"))
    after = torch.rand(1)
    torch.set_rng_state(torch.Generator().manual_seed(1).get_state())
    assert torch.equal(after, torch.rand(1)) and drawn.shape == (1,)  # the user's own draws are not touched
    assert torch.equal(first.weight, code.build_module(Head, 2, 3, streams.torch("module")).weight)
    assert not torch.equal(
        first.weight, code.build_module(Head, 2, 3, PublicStreams(1).torch("module")).weight
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (torch.nn.Linear(2, 2), "is built already"),
        (3, "is no class"),
        ("", "is no class"),
        (lambda inputs, classes: None, "no torch module"),
        (lambda inputs: torch.nn.Linear(inputs, 2), "failed: TypeError"),
    ],
)
def test_what_builds_no_module_is_refused(given: object, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        code.check_factory(given)
        code.build_module(given, 2, 3, torch.Generator())  # type: ignore[arg-type]
