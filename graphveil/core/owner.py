"""What the data owner reads exactly: the labels that predictions are compared with.

Whatever is computed from them is internal under units that protect labels. No method may import this module.
"""

from typing import Any

from torch import Tensor

from graphveil.core.view import unwrapped


def exact_labels(graph: Any) -> Tensor:
    """Return the labels of all nodes, int64 (N), -1 for missing.

    Privacy:
        Reads: labels, exactly. Charges: nothing. Do not publish what is computed from them under units that
        protect labels.
    """
    labels: Tensor = unwrapped(graph.y)
    return labels
