"""No record reaches another's gradient or prediction, whatever a module keeps, and wherever it keeps it."""

import logging
import random
from collections import namedtuple
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphveil.core.clipping.clipped_sums import PerSampleClippedSum, per_record_logits
from graphveil.core.clipping.ego_graphs import EgoGraphClippedSum, StoredEgoGraphs, ego_graph_logits
from graphveil.core.clipping.isolation import ModuleCopies, run_masking_failures
from graphveil.errors import ConfigError
from graphveil.estimators.own.module_checks import reject_mixing
from tests.training.stateful import KINDS, QUIET, DrawsWhenLoud, Stateful, sly

INPUTS, CLASSES, LEAVES, COUNT, CLIP = 4, 3, 3, 8, 1.0
FIRST = 0  # the record that changes comes before all others


def stars(loud: float) -> Any:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(COUNT, LEAVES + 2, INPUTS, generator=generator, dtype=torch.float64)
    edges = torch.tensor([[1, 2, 3], [0, 0, 0]]).expand(COUNT, 2, LEAVES)
    x[FIRST] *= loud
    return StoredEgoGraphs(x, edges)


def built(kind: Callable[[int, int], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind(INPUTS, CLASSES).double().eval()


def total(kind: Callable[[int, int], nn.Module], loud: float) -> tuple[Tensor, Tensor]:
    """The clipped sums of two steps and all logits."""
    module, made = built(kind), stars(loud)
    labels = torch.arange(COUNT) % CLASSES
    if not loud:
        labels[FIRST] = -1
    gradients = EgoGraphClippedSum(module, made, labels, route="loop")
    sums = []
    for step in range(2):
        gradients.begin(step)
        gradients.sums.zero_()
        gradients.add(torch.arange(COUNT), CLIP)
        sums.append(gradients.sums.clone())
    return torch.stack(sums), ego_graph_logits(module, made, COUNT, CLASSES, route="loop")


@pytest.mark.parametrize("hidden", [False, True], ids=["plain", "sly"])
@pytest.mark.parametrize("kind", [*KINDS, DrawsWhenLoud], ids=lambda kind: kind.__name__)
def test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction(
    kind: type[Stateful], hidden: bool
) -> None:
    kind = sly(kind) if hidden else kind
    (null, quiet), (there, logits) = total(kind, 0.0), total(kind, 1000.0)
    own = EgoGraphClippedSum(built(kind), stars(1000.0), torch.arange(COUNT) % CLASSES, route="loop")
    own.add(torch.tensor([FIRST]), CLIP)
    assert float(own.sums.norm()) <= CLIP
    assert own.sums.any() or "InATensor" in kind.__name__  # which torch.func.grad lets no module write into
    torch.testing.assert_close(there, null + own.sums, rtol=1e-12, atol=1e-12)
    assert torch.equal(logits[1:], quiet[1:])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("edges", [True, False])
def test_state_is_rejected_before_anything_is_charged(kind: type[Stateful], edges: bool) -> None:
    with pytest.raises(ConfigError, match="one record would affect the next"):
        reject_mixing(built(kind), INPUTS, CLASSES, edges=edges)


# -- records on which a module raises ----------------------------------------------------------------------


class Singular(nn.Module):
    """Inverts a matrix that is singular for a loud root: an exception of torch, under ``vmap`` too."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, classes)

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        quiet = (x[0].abs().amax() < QUIET).to(x.dtype)
        return self.own(x) @ torch.linalg.inv(quiet * torch.eye(self.own.out_features, dtype=x.dtype))


class Raises(Singular):
    """Raises by itself, where ``vmap`` cannot run it."""

    error: type[BaseException] = ValueError

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        if float(x.abs().max()) > QUIET:
            raise self.error("loud")
        return self.own(x)


class Exits(Raises):
    error = SystemExit


class OddShape(Singular):
    """Returns fewer logits for a loud root."""

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        found = self.own(x)
        return found[:, :1] if float(x.abs().max()) > QUIET else found


class NotFinite(Singular):
    """Has infinite logits for a loud root."""

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        return self.own(x) + torch.where(x.abs().amax() < QUIET, 0.0, torch.inf)


class InTheBackward(Singular):
    """Raises in the backward pass alone."""

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        found, loud = self.own(x), float(x.abs().max()) > QUIET

        def fail(gradient: Tensor) -> Tensor:
            raise ValueError("loud")

        if loud and found.requires_grad:
            found.register_hook(fail)
        return found


FAILING: list[tuple[type[Singular], Any]] = [
    (Singular, "vmap"),
    (Singular, "ghost"),
    (Singular, "loop"),
    (Raises, "loop"),
    (Exits, "loop"),
    (NotFinite, "ghost"),
    (NotFinite, "loop"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kind", "route"), [*FAILING, (InTheBackward, "loop")])
def test_a_record_on_which_a_module_raises_is_null(
    kind: type[Singular], route: Any, dtype: torch.dtype
) -> None:
    sums = []
    for loud, label in ((1000.0, 0), (1000.0, -1), (1.0, -1)):
        labels = torch.arange(COUNT) % CLASSES
        labels[FIRST] = label
        gradients = EgoGraphClippedSum(built(kind), stars(loud), labels, route=route, dtype=dtype)
        gradients.add(torch.arange(COUNT), CLIP)
        sums.append(gradients.sums)
    assert sums[0].any() and torch.equal(sums[0], sums[1]) and torch.equal(sums[0], sums[2])


@pytest.mark.parametrize(("kind", "route"), [*FAILING, (OddShape, "loop")])
def test_a_node_on_which_a_module_raises_has_equal_probabilities(kind: type[Singular], route: Any) -> None:
    loud, quiet = (
        ego_graph_logits(built(kind), stars(scale), COUNT, CLASSES, route=route) for scale in (1e3, 1.0)
    )
    assert torch.equal(loud[1:], quiet[1:]) and quiet[FIRST].any()
    assert not loud[FIRST].any()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_all_records_may_fail(count: int) -> None:
    x = torch.full((count, LEAVES + 2, INPUTS), 1e3, dtype=torch.float64)
    edges = torch.zeros(count, 2, LEAVES, dtype=torch.int64)
    gradients = EgoGraphClippedSum(
        built(Singular), StoredEgoGraphs(x, edges), torch.zeros(count), route="vmap"
    )
    gradients.add(torch.arange(count), CLIP)
    assert not gradients.sums.any()


@pytest.mark.parametrize("failing", [[], [0], [3], [0, 1, 6], [2, 3, 4, 5, 6]])
def test_failing_records_are_found_and_no_others(failing: list[int]) -> None:
    matrices = torch.eye(2).repeat(7, 1, 1)
    matrices[failing] = 0
    found, failed = run_masking_failures(torch.linalg.inv, (matrices,))
    assert found is not None
    if not failing:
        assert failed is None
    else:
        assert failed is not None and failed.nonzero()[:, 0].tolist() == failing
    kept = [number for number in range(7) if number not in failing]
    assert torch.equal(found[kept], matrices[kept])


class Doubles(Singular):
    """Changes its input in place, then raises for a loud root."""

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        return super().forward(x.mul_(2), edge_index)


def test_what_a_failed_run_changed_in_place_reaches_no_other_record() -> None:
    sums = []
    for loud in (1000.0, 1.0):
        labels = torch.arange(COUNT) % CLASSES
        labels[FIRST] = -1
        made = stars(loud)
        gradients = EgoGraphClippedSum(built(Doubles), made, labels, route="vmap")
        gradients.add(torch.arange(COUNT), CLIP)
        sums.append(gradients.sums)
    assert torch.equal(*sums)


def test_an_interrupt_by_the_user_passes() -> None:
    kind = type("Interrupts", (Raises,), {"error": KeyboardInterrupt})
    with pytest.raises(KeyboardInterrupt):
        total(kind, 1000.0)


# -- records without edges ---------------------------------------------------------------------------------


class Kept(nn.Module):
    """Adds the largest number of the first batch, which ``vmap`` keeps apart within a batch."""

    first: Tensor | None = None

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        if self.first is None:
            self.first = x.detach().abs().amax()
        return self.own(x) * (1 + self.first)


@pytest.mark.parametrize("kind", [Kept, Singular])
def test_records_of_one_step_reach_no_later_step(kind: type[nn.Module]) -> None:
    def sums(loud: float) -> Tensor:
        x = torch.randn(COUNT, INPUTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        x[FIRST] *= loud
        labels = torch.arange(COUNT) % CLASSES
        labels[FIRST] = -1
        torch.manual_seed(0)
        module = kind(INPUTS, CLASSES)
        gradients = PerSampleClippedSum(module, x, labels)
        for _ in range(2):
            gradients.sums.zero_()
            gradients.add(torch.arange(COUNT), CLIP)
        return torch.cat([gradients.sums, per_record_logits(module, x, CLASSES)[1:].flatten()])

    assert torch.equal(sums(1000.0), sums(1.0))


# -- objects that copies share -----------------------------------------------------------------------------


class Singleton:
    """Survives copies."""

    def __init__(self) -> None:
        self.most = 0.0

    def __deepcopy__(self, memo: object) -> "Singleton":
        return self

    def louder(self, loud: float) -> float:
        self.most = max(self.most, loud)
        return self.most


class SharesItsState:
    """A copy has the state of the original."""

    def __init__(self) -> None:
        self.state = {"most": [0.0]}

    def __deepcopy__(self, memo: object) -> "SharesItsState":
        new = SharesItsState()
        new.state = self.state
        return new

    def louder(self, loud: float) -> float:
        self.state["most"].append(loud)
        return max(self.state["most"])


class Reduced(Singleton):
    """Is unpickled as the one object."""

    __deepcopy__ = None  # type: ignore[assignment]  # copy uses __reduce__

    def __reduce__(self) -> Any:
        return "REDUCED"


REDUCED = Reduced()
GLOBAL = Singleton()


def remembering(place: str, make: Callable[[], Any]) -> type[Stateful]:
    """Return a module that reaches such an object in a place."""
    shared = make()

    class Remembers(Stateful):
        def __init__(self, inputs: int, classes: int) -> None:
            super().__init__(inputs, classes)
            if place == "attribute":
                self.held = shared
            elif place == "container":
                self.held = [{"deep": (shared,)}]
            elif place == "method":
                self.held = shared.louder

        def recorded_in_folder(self, loud: float) -> float:
            if place == "attribute":
                found: float = self.held.louder(loud)
            elif place == "container":
                found = self.held[0]["deep"][0].louder(loud)
            elif place == "method":
                found = self.held(loud)
            elif place == "class":
                found = self.on_class.louder(loud)
            elif place == "global":
                found = GLOBAL.louder(loud)
            else:
                found = shared.louder(loud)
            return found

    if place == "class":
        Remembers.on_class = shared
    return Remembers


@pytest.mark.parametrize("place", ["attribute", "container", "method", "class", "global", "closure"])
@pytest.mark.parametrize("make", [Singleton, SharesItsState, lambda: REDUCED], ids=["self", "part", "reduce"])
def test_an_object_that_copies_share_is_rejected(place: str, make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match="that its copies share"):
        ModuleCopies(built(remembering(place, make)))


def test_objects_that_hold_no_state_may_be_shared() -> None:
    class Level(Enum):
        LOW = 1

    Point = namedtuple("Point", "x y")
    module = built(Stateful)
    module.kept = (Level.LOW, Point(1, "a"), (1, 2), frozenset({1}), torch.float64, int, len, None)
    module.logger = logging.getLogger("a library's object")
    ModuleCopies(module)


def test_the_generator_of_python_is_restored() -> None:
    random.seed(0)
    before = random.getstate()
    with ModuleCopies(built(Stateful)).run():
        random.random()
    assert random.getstate() == before
