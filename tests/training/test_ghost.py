"""Closed-form norms and manual gradients: equal to autograd's, record by record."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from graphveil.core.clipping import clipped_sums
from graphveil.core.clipping.clipped_sums import MARGIN, GhostClippedSum, PerSampleClippedSum, clip_factors
from graphveil.core.clipping.ghost_modules import (
    Activation,
    Affine,
    GhostBranches,
    GhostModule,
    GhostSequential,
    UnitRows,
)
from graphveil.errors import ConfigError, GraphError

COUNT, WIDTH, CLASSES = 23, 7, 3
DRAW = torch.Generator().manual_seed(0)
X = torch.randn(COUNT, WIDTH, generator=DRAW) * torch.logspace(-2, 2, COUNT)[:, None]
Y = torch.randint(0, CLASSES, (COUNT,), generator=DRAW)
BLOCKS = [torch.randn(COUNT, width, generator=DRAW) for width in (4, 2, 5)]
ALL = torch.arange(COUNT)


def affine(layer: nn.Linear) -> Affine:
    return Affine(layer.weight.t(), layer.bias)


class Stack(nn.Module):
    """Affine maps with an activation between them, once as a module and once as a ghost."""

    def __init__(self, activation: str, widths: Sequence[int] = (WIDTH, 6, 5, CLASSES)) -> None:
        super().__init__()
        self.activation = activation
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = getattr(torch, self.activation)(layer(x))
        return self.layers[-1](x)

    def ghost(self) -> GhostModule:
        parts: list[GhostModule] = []
        for layer in self.layers[:-1]:
            parts += [affine(layer), Activation(self.activation)]
        return GhostSequential(*parts, affine(self.layers[-1]))


class Encoder(nn.Module):
    """A stack, unit rows, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.head = Stack("selu", (WIDTH, 6, 5)), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(normalize(self.base(x)))

    def ghost(self) -> GhostModule:
        return GhostSequential(self.base.ghost(), UnitRows(), affine(self.head))


class Classifier(nn.Module):
    """Branches with an activation each, concatenated, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(block.shape[1], 4) for block in BLOCKS)
        self.head = Stack("selu", (12, 5, CLASSES))

    def forward(self, *blocks: Tensor) -> Tensor:
        parts = [torch.selu(branch(block)) for branch, block in zip(self.branches, blocks, strict=True)]
        return self.head(torch.cat(parts, dim=1))

    def ghost(self) -> GhostModule:
        branches = [GhostSequential(affine(branch), Activation("selu")) for branch in self.branches]
        return GhostSequential(GhostBranches(*branches), self.head.ghost())


@dataclass
class Case:
    build: Callable[[], Any]
    inputs: Any
    dense: Any  # the same for a module


CASES = {
    "selu": Case(lambda: Stack("selu"), X, X),
    "relu": Case(lambda: Stack("relu"), X, X),
    "tanh": Case(lambda: Stack("tanh"), X, X),
    "one layer": Case(lambda: Stack("relu", (WIDTH, CLASSES)), X, X),
    "float64": Case(lambda: Stack("selu"), X.double(), X.double()),
    "sparse": Case(lambda: Stack("selu"), sparse.csr_array((X * (X > 0)).numpy()), X * (X > 0)),
    "unit rows": Case(Encoder, X, X),
    "branches": Case(Classifier, BLOCKS, BLOCKS),
}


def built(name: str) -> tuple[Any, Case]:
    module, generator = CASES[name].build(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)
    return module, CASES[name]


def gradients(module: nn.Module, inputs: Any, labels: Tensor = Y) -> Tensor:
    """Return each record's gradient by autograd, float64 (N, p), in the order of the parameters."""
    module = module.double()
    blocks = [block.double() for block in (inputs if isinstance(inputs, list) else [inputs])]
    rows = []
    for i in range(COUNT):
        loss = cross_entropy(module(*(block[i : i + 1] for block in blocks)), labels[i : i + 1])
        rows.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))]))
    return torch.stack(rows)


def clipped_sum(each: Tensor, clip: float) -> Tensor:
    return (each / (each.norm(dim=1, keepdim=True) * (1 + MARGIN) / clip).clamp(min=1)).sum(dim=0)


def total(route: Any, index: Tensor, clip: float) -> Tensor:
    route.sums.zero_()
    route.add(index, clip)
    return route.sums.clone()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("clip", [0.1, 1.0, 1e9])
def test_clipped_sums_are_those_of_autograd(name: str, clip: float) -> None:
    module, case = built(name)
    expected = clipped_sum(gradients(module, case.dense), clip)
    ghost = total(GhostClippedSum(module.ghost(), case.inputs, Y), ALL, clip)
    per_sample = total(PerSampleClippedSum(module, case.dense, Y), ALL, clip)
    torch.testing.assert_close(ghost, expected, rtol=1e-9, atol=1e-9 * float(expected.norm()))
    torch.testing.assert_close(per_sample, expected, rtol=1e-9, atol=1e-9 * float(expected.norm()))


@pytest.mark.parametrize("name", CASES)
def test_norms_are_those_of_autograd(name: str) -> None:
    # Clipped far below its norm, a record's contribution has norm C / (1 + margin) if its norm was right.
    module, case = built(name)
    route = GhostClippedSum(module.ghost(), case.inputs, Y)
    for i, norm in enumerate(gradients(module, case.dense).norm(dim=1).tolist()):
        record = torch.tensor([i])
        kept = float(total(route, record, 1e9).norm())
        assert kept == pytest.approx(norm, rel=1e-9)
        assert float(total(route, record, norm / 2).norm()) == pytest.approx(
            norm / 2 / (1 + MARGIN), rel=1e-9
        )


def test_norms_and_sums_are_those_of_opacus() -> None:
    from opacus import GradSampleModule

    module, _ = built("selu")
    expected = gradients(module, X)
    observed = GradSampleModule(deepcopy(module), loss_reduction="sum")
    x = X.double().requires_grad_()  # without it a hook of torch's warns that no input needs a gradient
    cross_entropy(observed(x), Y, reduction="sum").backward()
    each = torch.cat([p.grad_sample.reshape(COUNT, -1) for p in observed.parameters()], dim=1)
    torch.testing.assert_close(each.norm(dim=1), expected.norm(dim=1), rtol=1e-5, atol=0)
    for clip in (0.1, 1.0):
        theirs = clipped_sum(each, clip)
        for route in (GhostClippedSum(module.ghost(), X, Y), PerSampleClippedSum(module, X, Y)):
            torch.testing.assert_close(
                total(route, ALL, clip), theirs, rtol=1e-5, atol=1e-5 * float(theirs.norm())
            )


def test_a_place_that_is_stored_twice_counts_with_its_sum() -> None:
    module, _ = built("selu")
    once = sparse.csr_array(X.numpy())
    halves = (np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), once.indptr * 2)
    twice = sparse.csr_array(halves, shape=once.shape)
    expected = total(GhostClippedSum(module.ghost(), once, Y), ALL, 1.0)
    torch.testing.assert_close(total(GhostClippedSum(module.ghost(), twice, Y), ALL, 1.0), expected)
    assert twice.nnz == 2 * once.nnz  # the caller's matrix stays


def test_soft_targets_are_those_of_autograd() -> None:
    module, _ = built("selu")
    targets = torch.rand(COUNT, CLASSES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets /= targets.sum(dim=1, keepdim=True)
    expected = clipped_sum(gradients(module, X, targets), 1.0)
    for route in (GhostClippedSum(module.ghost(), X, targets), PerSampleClippedSum(module, X, targets)):
        torch.testing.assert_close(total(route, ALL, 1.0), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_chunks_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, case = built(name)
    for route in (
        GhostClippedSum(module.ghost(), case.inputs, Y),
        PerSampleClippedSum(module, case.dense, Y),
    ):
        whole = total(route, ALL, 1.0)
        with monkeypatch.context() as patch:
            patch.setattr(clipped_sums, "_PIECE_NUMBERS", 60)
            torch.testing.assert_close(total(route, ALL, 1.0), whole, rtol=1e-12, atol=1e-12)


def test_a_chunk_is_a_fair_share_and_nothing_of_no_records() -> None:
    parts = list(clipped_sums.chunks(torch.arange(1000), 2000))
    assert [len(part) for part in parts] == [250] * 4
    assert list(clipped_sums.chunks(torch.arange(0), 2000)) == []


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_a_record_that_is_not_finite_contributes_nothing(name: str, poison: float) -> None:
    module, case = built(name)
    others = torch.cat([ALL[:5], ALL[6:]])
    for build, inputs in (
        (lambda i: GhostClippedSum(module.ghost(), i, Y), case.inputs),
        (lambda i: PerSampleClippedSum(module, i, Y), case.dense),
    ):
        expected = total(build(inputs), others, 1.0)
        torch.testing.assert_close(
            total(build(poisoned(inputs, poison)), ALL, 1.0), expected, rtol=1e-12, atol=1e-12
        )


def poisoned(inputs: Any, value: float) -> Any:
    """Return the inputs with one entry of record 5 overwritten."""
    if isinstance(inputs, list):
        return [poisoned(inputs[0], value), *inputs[1:]]
    changed = inputs.copy() if sparse.issparse(inputs) else inputs.clone()
    if sparse.issparse(inputs):
        changed.data[changed.indptr[5]] = value
    else:
        changed[5, 1] = value
    return changed


@pytest.mark.parametrize("label", [-1, CLASSES, -(2**40)])
def test_a_label_that_is_no_class_keeps_a_record_out(label: int) -> None:
    module, _ = built("selu")
    labels = Y.clone()
    labels[5] = label
    others = torch.cat([ALL[:5], ALL[6:]])
    for route, inputs in ((GhostClippedSum, module.ghost()), (PerSampleClippedSum, module)):
        expected = total(route(inputs, X, Y), others, 1.0)
        torch.testing.assert_close(
            total(route(inputs, X, labels), ALL, 1.0), expected, rtol=1e-12, atol=1e-12
        )


def test_factors_clip_below_the_norm_and_drop_what_is_not_finite() -> None:
    squares = torch.tensor([0.0, 0.25, 4.0, float("nan"), float("inf")], dtype=torch.float64)
    factors, bad = clip_factors(squares, 1.0)
    assert factors.tolist() == pytest.approx([1, 1, 0.5 / (1 + MARGIN), 0, 0], rel=1e-15)
    assert bad is not None
    assert bad.tolist() == [False, False, False, True, True]
    assert clip_factors(squares[:3], 1.0)[1] is None


def test_maps_that_share_a_parameter_are_rejected() -> None:
    layer = nn.Linear(4, 4)
    with pytest.raises(ConfigError, match="share a parameter"):
        GhostClippedSum(
            GhostSequential(affine(layer), affine(layer)), torch.ones(2, 4), torch.zeros(2).long()
        )


def test_weights_go_back_to_the_model_in_its_own_precision() -> None:
    module, _ = built("branches")
    before = [p.clone() for p in module.parameters()]
    route = GhostClippedSum(module.ghost(), BLOCKS, Y)
    route.store()
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    route.weights += 1
    route.store()
    assert all(
        torch.equal((a.double() + 1).float(), b) for a, b in zip(before, module.parameters(), strict=True)
    )


def test_an_unknown_activation_is_rejected() -> None:
    with pytest.raises(ConfigError, match="did you mean 'selu'"):
        Activation("sleu")


@pytest.mark.parametrize(
    ("inputs", "labels", "error", "words"),
    [
        (X, Y[:-1], GraphError, "one label per record"),
        (X.long(), Y, GraphError, "a floating-point matrix"),
        (X[:, 0], Y, GraphError, "a floating-point matrix"),
        ([], Y, ConfigError, "no columns"),
        ([X, X[:-1]], Y, GraphError, "different numbers of rows"),
    ],
)
def test_records_of_the_wrong_shape_are_rejected(
    inputs: Any, labels: Tensor, error: type, words: str
) -> None:
    module, _ = built("selu")
    with pytest.raises(error, match=words):
        GhostClippedSum(module.ghost(), inputs, labels)


def test_a_network_without_parameters_is_rejected() -> None:
    with pytest.raises(ConfigError, match="no parameters"):
        GhostClippedSum(GhostSequential(UnitRows()), X, Y)
