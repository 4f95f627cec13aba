"""Names of registered methods and modules."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import graphveil as gv
from graphveil import estimators
from graphveil.core.noise.random import PublicStreams
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.own import code

pytestmark = pytest.mark.usefixtures("own_names")


@dataclass(kw_only=True, eq=False)
class Mine(gv.GAP):
    """GAP with a keyword of its own."""

    method: ClassVar[str] = "mine"

    temper: float = 1.0


@pytest.fixture
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


def test_a_registered_method_is_saved_loaded_and_calibrated_by_its_name(graph: Graph, tmp_path: Path) -> None:
    assert gv.register(Mine) is Mine and gv.METHODS["mine"] is Mine
    model = Mine(unit="undirected-edge", epsilon=2.0, seed=0, epochs=2, temper=0.5).fit(graph)
    model.save(tmp_path / "release")
    loaded = gv.load_model(tmp_path / "release")
    assert isinstance(loaded, Mine) and loaded.temper == 0.5
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    assert gv.calibrate("mine", unit="undirected-edge", epsilon=2.0, delta=1e-5, hops=1).epsilon <= 2.0
    estimators._REGISTERED.clear()
    with pytest.raises(
        ArtifactError, match="does not support"
    ):  # a file names no code that this process lacks
        gv.load_model(tmp_path / "release")


class Head(torch.nn.Linear):
    """A module of two sizes."""


@pytest.mark.parametrize(
    ("given", "name", "why"),
    [
        (type("Named", (Mine,), {"method": "gap"}), None, "reserved by the library or is not a valid name"),
        (
            type("Named", (Mine,), {"method": "os.system"}),
            None,
            "reserved by the library or is not a valid name",
        ),
        (Mine, "other", "cannot be registered as 'other'"),
        (Head, "sage", 'name="my_sage"'),
    ],
    ids=["taken", "no name", "another name", "built in"],
)
def test_rejects_names_that_are_taken_or_invalid(given: type, name: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        gv.register(given, name)
    assert list(gv.METHODS) == list(estimators._CLASSES)


def test_a_registered_name_builds_a_module_with_parameters_of_the_given_generator() -> None:
    streams = PublicStreams(0)
    with pytest.raises(ConfigError, match=r"graphveil.register\(Head\)"):
        code.build_module("Head", 2, 3, streams.torch("module"))
    gv.register(Head)
    state = torch.get_rng_state()
    first = code.build_module("Head", 2, 3, streams.torch("module"))
    assert torch.equal(state, torch.get_rng_state())  # the global generator is not affected
    assert torch.equal(first.weight, code.build_module(Head, 2, 3, streams.torch("module")).weight)
    other = code.build_module(Head, 2, 3, PublicStreams(1).torch("module"))
    assert not torch.equal(first.weight, other.weight)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (torch.nn.Linear(2, 2), "is a module instance"),
        (3, "must be a module class"),
        ("", "must be a module class"),
        (lambda inputs, classes: None, "not a torch.nn.Module"),
        (lambda inputs: torch.nn.Linear(inputs, 2), "failed: TypeError"),
    ],
)
def test_rejects_factories_that_build_no_module(given: object, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        code.check_factory(given)
        code.build_module(given, 2, 3, torch.Generator())  # type: ignore[arg-type]
