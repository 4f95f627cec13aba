"""Per-record gradients of the affine maps inside a module, without forming them: inputs and output gradients.

The gradient of a map y = W h + b on one record is the sum over its rows j of delta_j h_j^T, delta_j that of
the loss by y_j. Its norm follows from both (Goodfellow: Efficient per-example gradient computations, 2015),
and so does a weighted sum over records. Here both are found while every record is run on its own
(``vmap``), so records stay apart by construction.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_OF_PYG = ("torch_geometric.nn.dense.linear", "Linear")


def affine_parts(module: nn.Module, rows: int) -> dict[str, nn.Module]:
    """Return the affine maps of a module, by name, whose gradients take more than products of so many rows.

    Their weights are trained, and are nobody else's.

    >>> list(affine_parts(nn.Sequential(nn.Linear(90, 30), nn.ReLU(), nn.Linear(30, 1)), 4))
    ['0']
    """
    owners: dict[int, int] = {}
    for part in module.modules():
        for weight in part.parameters(recurse=False):
            owners[id(weight)] = owners.get(id(weight), 0) + 1
    return {
        name: part
        for name, part in module.named_modules()
        if _is_affine(part)
        and _is_large(part, rows)
        and all(w.requires_grad and owners[id(w)] == 1 for w in part.parameters(recurse=False))
    }


def _is_affine(part: nn.Module) -> bool:
    kind = type(part)
    return kind is nn.Linear or (kind.__module__, kind.__name__) == _OF_PYG


def inputs_of(part: nn.Module) -> int:
    """Return the numbers that an affine map takes."""
    return int(_weight_of(part).shape[1])


def _is_large(part: nn.Module, rows: int) -> bool:
    outputs, inputs = _weight_of(part).shape
    return inputs * outputs > rows * (inputs + outputs)


def _weight_of(part: nn.Module) -> Tensor:
    weight = part.weight
    assert isinstance(weight, Tensor)
    return weight


@contextmanager
def moved(parts: Sequence[nn.Module], moves: Sequence[Tensor] | None, noted: list[Any]) -> Iterator[None]:
    """Note the input of each call of a part, and add a move to its output, whose gradient is then that of y.

    Without moves the number of the part and the shape of its output are noted instead.
    """

    def hook(number: int) -> Any:
        def after(part: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> Tensor:
            if moves is None:
                noted.append((number, tuple(found.shape)))
                return found
            noted.append(given[0])
            return found + moves[len(noted) - 1]

        return after

    handles = [part.register_forward_hook(hook(number)) for number, part in enumerate(parts)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, eq=False)
class AffineGradients:
    """The gradients of one affine map for a chunk of records.

    Args:
        inputs: h, (B, n, d).
        deltas: the gradients by outputs, (B, n, e).
    """

    inputs: Tensor
    deltas: Tensor

    @classmethod
    def of(cls, inputs: Sequence[Tensor], deltas: Sequence[Tensor]) -> "AffineGradients":
        """Return those of a map that was called so often, each time on rows (B, n_k, ..)."""
        return cls(*(torch.cat([_rows(part) for part in parts], dim=1) for parts in (inputs, deltas)))

    def square_norms(self, *, bias: bool) -> Tensor:
        """Return each record's squared norm, (B): the sum over rows of <h_j, h_k> <delta_j, delta_k>."""
        one, other = (part @ part.transpose(1, 2) for part in (self.inputs, self.deltas))
        found = one.mul_(other).sum(dim=(1, 2)).clamp_(min=0)
        return found + self.deltas.sum(dim=1).square().sum(dim=1) if bias else found

    def sums(self, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums over records of factor times gradient: of W (e, d), and of b (e)."""
        scaled = self.deltas * factors[:, None, None]
        weight = scaled.flatten(end_dim=1).t() @ self.inputs.flatten(end_dim=1)
        return weight, scaled.sum(dim=(0, 1))

    def drop(self, bad: Tensor) -> None:
        """Forget the records of a mask, whose factors are zero but whose numbers are not finite."""
        self.inputs[bad] = 0
        self.deltas[bad] = 0


def _rows(part: Tensor) -> Tensor:
    """Return (B, n, d) of any (B, .., d)."""
    return part.reshape(len(part), -1, part.shape[-1])
