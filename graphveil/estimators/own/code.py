"""Names and factories of custom modules, and the built-in architectures of ``gnn``.

A factory is called with public sizes only. A saved model holds the name of a factory and never code. To run a
loaded module, register the code under this name first (``graphveil.register``). A file cannot do this.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from graphveil.data.conversion import load_pyg
from graphveil.errors import ArtifactError, ConfigError

Factory = Callable[[int, int], nn.Module]

_REGISTERED: dict[str, Factory] = {}


# -- built-in architectures --------------------------------------------------------------------------------

HIDDEN = 16


class _OneRound(nn.Module):
    """Logits from ReLU(own(x) + conv(x, edges)): one convolution of torch_geometric, then a linear layer.

    ``own`` is a linear map of the root's own inputs, for convolutions that ignore them. Self-loops and degree
    normalization are off: an ego graph has no edge from the root to itself, and its leaves have no in-edges.
    """

    def __init__(self, conv: nn.Module, inputs: int, classes: int, *, own: bool) -> None:
        super().__init__()
        self.conv = conv
        self.own = nn.Linear(inputs, HIDDEN) if own else None
        self.out = nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden: Tensor = self.conv(x, edge_index)
        if self.own is not None:
            hidden = hidden + self.own(x)
        logits: Tensor = self.out(hidden.relu())
        return logits


def sage(inputs: int, classes: int) -> nn.Module:
    """GraphSAGE with mean aggregation (Hamilton et al., 2017)."""
    return _OneRound(load_pyg("nn").SAGEConv(inputs, HIDDEN), inputs, classes, own=False)


def gcn(inputs: int, classes: int) -> nn.Module:
    """Graph convolution (Kipf and Welling, 2017), as a sum over neighbors without degree normalization."""
    conv = load_pyg("nn").GCNConv(inputs, HIDDEN, add_self_loops=False, normalize=False)
    return _OneRound(conv, inputs, classes, own=True)


def gat(inputs: int, classes: int) -> nn.Module:
    """Attention over neighbors (GATv2; Brody et al., 2022)."""
    return _OneRound(
        load_pyg("nn").GATv2Conv(inputs, HIDDEN, add_self_loops=False), inputs, classes, own=True
    )


def gin(inputs: int, classes: int) -> nn.Module:
    """Graph isomorphism network (Xu et al., 2019)."""
    mlp = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
    return _OneRound(load_pyg("nn").GINConv(mlp), inputs, classes, own=False)


ARCHITECTURES: dict[str, Factory] = {"sage": sage, "gcn": gcn, "gat": gat, "gin": gin}


# -- names and factories -------------------------------------------------------------------------------------


def register_factory(factory: Factory, name: str | None = None) -> str:
    check_factory(factory)
    known = name or factory_name(factory)
    if known in ARCHITECTURES:
        raise ConfigError(
            f"{known!r} is a built-in architecture. Register your module under another name: "
            f'graphveil.register({factory_name(factory)}, name="my_{known}")'
        )
    _REGISTERED[known] = factory
    return known


def check_factory(module: object, keyword: str = "module") -> None:
    """Reject everything except a class or function that builds modules, or the name of one.

    >>> check_factory(nn.Linear(2, 2))
    Traceback (most recent call last):
    graphveil.errors.ConfigError: module=Linear(...) is a module instance, which could carry private sizes ...
    """
    if isinstance(module, nn.Module):
        raise ConfigError(
            f"{keyword}={type(module).__name__}(...) is a module instance, which could carry private "
            "sizes or values of the graph. Pass the class, or a function of two public sizes: "
            f"{keyword}={type(module).__name__}"
        )
    if not callable(module) and not (isinstance(module, str) and module):
        raise ConfigError(
            f"{keyword}={module!r} must be a module class, a function that builds a module, or a "
            f"registered name. Pass the class itself, such as {keyword}=MyModule."
        )


def factory_name(module: Factory | str) -> str:
    return module if isinstance(module, str) else str(getattr(module, "__name__", type(module).__name__))


def is_registered(module: Factory | str) -> bool:
    return not isinstance(module, str) or module in _REGISTERED or module in ARCHITECTURES


def check_registered(*modules: Factory | str | None) -> None:
    for module in modules:
        if module is not None and not is_registered(module):
            raise ArtifactError(_unknown(factory_name(module)))


def _unknown(name: str) -> str:
    return (
        f"the model names a module of your own, {name!r}, and files contain no code: import it and call "
        f"graphveil.register({name}) (on the command line, --module FILE.py:NAME). Built-in "
        f"architectures: {', '.join(ARCHITECTURES)}"
    )


def build_module(module: Factory | str, inputs: int, outputs: int, generator: torch.Generator) -> nn.Module:
    """Return a new module for public sizes, with initial parameters drawn from a public generator."""
    name = factory_name(module)
    if isinstance(module, str):
        if not is_registered(module):
            raise ConfigError(_unknown(module))
        module = ARCHITECTURES.get(module) or _REGISTERED[module]
    try:
        # Modules draw initial parameters from torch's global generator, which is restored afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(generator.get_state())
            found = module(inputs, outputs)
    except Exception as error:
        raise ConfigError(
            f"{name}({inputs}, {outputs}) failed: {type(error).__name__}: {error}. A module class or "
            "function takes two arguments: the number of inputs and the number of outputs."
        ) from error
    if isinstance(found, nn.Module) and _contains_itself(found, ()):
        raise ConfigError(
            f"{name}({inputs}, {outputs}) contains itself as a submodule, so its parameters cannot be "
            'listed. Store the reference where torch does not register it: self.__dict__["parent"] = '
            "parent."
        )
    if not isinstance(found, nn.Module):
        raise ConfigError(
            f"{name}({inputs}, {outputs}) returns a {type(found).__name__}, not a torch.nn.Module. "
            "Return a module."
        )
    return found


def _contains_itself(module: nn.Module, above: tuple[nn.Module, ...]) -> bool:
    return any(part is module for part in above) or any(
        _contains_itself(part, (*above, module)) for part in module.children()
    )
