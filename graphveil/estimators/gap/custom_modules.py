"""A user's modules in the places of GAP's networks, at edge level, where both are trained in the clear."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from graphveil.errors import ConfigError
from graphveil.estimators.own.code import Factory, build_module, factory_name
from graphveil.estimators.own.module_checks import training_error_message
from graphveil.nn.hops import Encoder, FixedRows, HopClassifier
from graphveil.nn.layers import Batch, Linear, SparseRows
from graphveil.training.module_copies import ModuleCopies

_CLOSE, _LOUD = 1e-5, 10.0
_NUM_RANDOM_RECORDS = 4  # random records that a module is run on before anything is booked


class _DenseInput(nn.Module):
    """Runs a module on dense rows, whatever the features are stored as."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Batch) -> Tensor:
        return cast(Tensor, self.module(_dense(x)))


class CustomEncoder(Encoder):
    """A module of the user's and the linear head that it is trained with, on rows of norm one.

    Shapes: (B, inputs) -> (B, classes); ``rows`` stops at (B, hidden).
    """

    def __init__(
        self, factory: Factory | str, inputs: int, hidden: int, classes: int, *, generator: torch.Generator
    ) -> None:
        """Build the module, and draw the head."""
        nn.Module.__init__(self)
        self._base = _DenseInput(build_module(factory, inputs, hidden, generator))  # type: ignore[assignment]
        self._norm = nn.Identity()
        self._head = Linear(hidden, classes, generator=generator)
        self._activation = None


class CustomHead(HopClassifier):
    """A module of the user's that reads all hops' rows side by side.

    Shapes: ``views`` times (B, width) -> (B, classes).
    """

    def __init__(
        self, factory: Factory | str, views: int, width: int, classes: int, *, generator: torch.Generator
    ) -> None:
        """Build the module."""
        nn.Module.__init__(self)
        self.module = build_module(factory, views * width, classes, generator)

    def forward(self, views: Sequence[FixedRows]) -> Tensor:
        """Return logits."""
        return cast(Tensor, self.module(torch.cat([view.values for view in views], dim=1)))


def check_output(
    network: nn.Module,
    records: Callable[[float], object],
    outputs: int,
    factory: Factory | str,
    *,
    frozen: bool,
) -> None:
    """Train a network for one step on a few random records, and predict; nothing is charged yet.

    Args:
        network: a new one; it is not changed.
        records: returns what it is called with, random numbers of this scale.
        outputs: the numbers that it has to return for each record.
        factory: the user's.
        frozen: whether it may be without weights to train.

    Raises:
        ConfigError: it fails forward or backward, returns something else, or has no weights to train; or it
            keeps what it saw outside of its weights and buffers, which a saved model would lose.
    """
    name, copies = factory_name(factory), ModuleCopies(network)
    trains = any(weight.requires_grad for weight in network.parameters())
    if not (trains or frozen):
        raise ConfigError(f"{name} has no weights to train; set requires_grad on some of its parameters")
    inputs = records(1.0)
    with copies.run() as fresh, torch.no_grad():
        found = _run(name, fresh.eval(), inputs)
        if not isinstance(found, Tensor) or tuple(found.shape) != (_NUM_RANDOM_RECORDS, outputs):
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ConfigError(
                f"{name} returns {what} for {_NUM_RANDOM_RECORDS} records; {outputs} numbers each are needed"
            )
    with copies.run() as trained:
        if trains:
            _step(name, trained.train(), records(_LOUD))
        with torch.no_grad():
            after = _run(name, trained.eval(), inputs)
        state = {key: value.clone() for key, value in trained.state_dict().items()}
    with copies.run() as loaded, torch.no_grad():
        loaded.load_state_dict(state)
        again = _run(name, loaded.eval(), inputs)
    if not torch.allclose(after, again, rtol=_CLOSE, atol=_CLOSE, equal_nan=True):
        raise ConfigError(
            f"{name} keeps what it saw outside of its weights and buffers, and a saved model would predict "
            "otherwise. Keep it in a buffer: self.register_buffer(...)."
        )


def _run(name: str, network: nn.Module, inputs: object) -> Tensor:
    try:
        return cast(Tensor, network(inputs))
    except Exception as error:
        raise ConfigError(
            f"{name} fails on {_NUM_RANDOM_RECORDS} random records: {type(error).__name__}: {error}; it "
            "takes rows "
            "(B, inputs) and returns rows (B, outputs)"
        ) from error


def _step(name: str, network: nn.Module, inputs: object) -> None:
    """Form a gradient, as a training step does."""
    found = _run(name, network, inputs)
    if not found.requires_grad:
        raise ConfigError(f"{name}: its output does not depend on its weights; use them")
    try:
        torch.autograd.backward(found.square().sum())
    except Exception as error:
        raise ConfigError(training_error_message(network, error, name)) from error


def random_records(width: int, scale: float) -> Tensor:
    """Return a few random records."""
    return scale * torch.randn(_NUM_RANDOM_RECORDS, width, generator=torch.Generator().manual_seed(0))


def _dense(x: Batch) -> Tensor:
    if isinstance(x, Tensor):
        return x
    rows = cast(SparseRows, x)
    count = len(rows.offsets) - 1
    owner = torch.arange(count, device=rows.values.device).repeat_interleave(rows.offsets.diff())
    dense = torch.zeros(count, rows.width, device=rows.values.device)
    return dense.index_put_((owner, rows.columns.long()), rows.values, accumulate=True)
