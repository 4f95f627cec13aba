"""The shape of every product is public: what one record holds changes no bit of the others' results.

The records here are hostile: huge features that cancel, so that a logit is nothing but rounding, and a kernel
that is chosen by the number of rows would turn the gradient of everybody around.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

from graphveil.core.clipping import clipped_sums
from graphveil.core.clipping.clipped_sums import GhostClippedSum, clip_factors
from graphveil.core.clipping.dpsgd import clipped_sum
from graphveil.core.clipping.ghost_modules import Affine, GhostModule, GhostSequential, Inputs

Matrix = npt.NDArray[np.float64]

COUNT, WIDTH, HIDDEN, CLASSES, HUGE, ONE = 300, 30, 24, 5, 1e16, 7
STORED = WIDTH // 2  # values of a record
LABELS = torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, COUNT))
OTHERS = torch.arange(COUNT) != ONE


def cancelling(columns: Matrix, count: int) -> Matrix:
    """Return huge rows that are orthogonal to some columns."""
    basis, _ = np.linalg.qr(columns)
    rows = np.random.default_rng(0).normal(size=(count, len(columns)))
    return HUGE * (rows - rows @ basis @ basis.T)


def layers() -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, CLASSES)]


def hostile_rows() -> Matrix:
    first, second = (layer.weight.detach().double().numpy() for layer in layers())
    rows = np.zeros((COUNT, WIDTH))
    rows[:, :STORED] = cancelling((second @ first).T[:STORED], COUNT)
    return rows


def summed(records: Inputs, labels: Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor]:
    """Return the clipped sum, and every record's squared norm."""
    norms: list[Tensor] = []

    def keep(squares: Tensor, clip: float) -> tuple[Tensor, Tensor | None]:
        norms.append(squares)
        return clip_factors(squares, clip)

    monkeypatch.setattr(clipped_sums, "clip_factors", keep)
    gradients = GhostClippedSum(
        GhostSequential(*(Affine(one.weight.t(), one.bias) for one in layers())), records, labels
    )
    gradients.add(torch.arange(COUNT), 1.0)
    return gradients.sums, torch.cat(norms)


@pytest.mark.parametrize("together", [4400, 8800, 13_200, 1 << 19])
def test_what_one_record_stores_changes_no_bit_of_the_others(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clipped_sums, "_PIECE_NUMBERS", together)
    rows = hostile_rows()
    null, more = LABELS.masked_fill(~OTHERS, -1), rows.copy()
    more[ONE] = HUGE
    before, each = summed(sparse.csr_array(rows), null, monkeypatch)
    after, every = summed(sparse.csr_array(more), LABELS, monkeypatch)
    assert torch.equal(each[OTHERS], every[OTHERS])
    assert float((after - before).norm()) <= 1 + 1e-9


class Weighed(nn.Module):
    """Sums logits with trained weights."""

    def __init__(self, weights: Matrix) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.from_numpy(weights))

    def forward(self, *logits: Tensor) -> Tensor:
        return (torch.stack(logits) * self.weights[:, None, None]).sum(dim=0)


def totals(of: str, count: int) -> Callable[[npt.NDArray[np.int64]], Tensor]:
    """Return the clipped sum of a linear model on hostile records as a function of the labels."""
    rng = np.random.default_rng(2)
    if of == "experts":
        weights = rng.normal(size=16)
        experts = cancelling(weights[:, None], count * CLASSES).reshape(count, CLASSES, 16)
        inputs: Inputs = [torch.from_numpy(experts[..., k].copy()) for k in range(16)]
        model: GhostModule | nn.Module = Weighed(weights)
    else:
        weights = rng.normal(size=(WIDTH, CLASSES))
        inputs = torch.from_numpy(cancelling(weights, count))
        model = Affine(torch.from_numpy(weights), torch.zeros(CLASSES, dtype=torch.float64))

    def total(labels: npt.NDArray[np.int64]) -> Tensor:
        gradients = clipped_sum(model, inputs, torch.from_numpy(labels))
        gradients.add(torch.arange(count), 1.0)
        return gradients.sums

    return total


@pytest.mark.parametrize("of", ["features", "experts"])
@pytest.mark.parametrize("count", [9, 21, 50])
def test_no_product_of_a_descent_has_another_shape_where_a_record_is_null(of: str, count: int) -> None:
    total, labels = totals(of, count), np.random.default_rng(3).integers(0, CLASSES, count)
    whole = total(labels)
    for record in range(count):
        null = np.where(np.arange(count) == record, -1, labels)
        assert float((whole - total(null)).norm()) <= 1 + 1e-9
