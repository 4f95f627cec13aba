"""The networks of GAP, custom modules in their place, and the normalization between hops."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphveil.core.clipping.isolation import ModuleCopies, finite_rows
from graphveil.core.features import plain_unit, safe_unit, shrink_unit
from graphveil.core.view import map_records
from graphveil.errors import ConfigError
from graphveil.estimators.own.code import Factory, build_module, factory_name
from graphveil.estimators.own.module_checks import training_error_message
from graphveil.estimators.private_training import count_parameters
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.nn.hops import Encoder, FixedRows, HopClassifier, scaled_by_norm
from graphveil.nn.layers import Batch, Linear, SparseRows


@dataclass(frozen=True, kw_only=True)
class GapArchitecture:
    """Depths and widths of the encoder and the classifier, for any public sizes.

    Args:
        encoder_layers: Layers of the encoder without its head; 0 aggregates raw features.
        base_layers, head_layers: Layers of the classifier before and after hops are combined.
    """

    hops: int
    hidden: int
    encoder_layers: int
    base_layers: int
    head_layers: int
    layers: dict[str, Any]
    custom_encoder: Factory | str | None = None
    custom_head: Factory | str | None = None

    def width(self, sizes: PublicSizes) -> int:
        return self.hidden if self.encoder_layers else sizes.width

    def encoder(self, sizes: PublicSizes, generator: torch.Generator) -> Encoder:
        if self.custom_encoder is not None:
            sides = sizes.width, self.hidden, sizes.classes
            return CustomEncoder(self.custom_encoder, *sides, generator=generator)
        return Encoder(
            self._encoder_widths(sizes),
            sizes.classes,
            generator=generator,
            **self.layers,
        )

    def classifier(self, sizes: PublicSizes, generator: torch.Generator) -> HopClassifier:
        views, base = self.hops + 1, self._base_widths(sizes)
        if self.custom_head is not None:
            return CustomHead(self.custom_head, views, self.width(sizes), sizes.classes, generator=generator)
        head = [*self._head_widths, sizes.classes]
        return HopClassifier(views, base, head, generator=generator, **self.layers)

    def check_custom_modules(self, sizes: PublicSizes) -> None:
        """Build and run custom modules on a few random records, before anything is charged."""
        generator = torch.Generator()
        if self.custom_encoder is not None:
            encoder = self.encoder(sizes, generator)
            records = partial(random_records, sizes.width)
            check_output(encoder._base, records, self.hidden, self.custom_encoder, frozen=True)
        if self.custom_head is not None:
            head, views, width = self.classifier(sizes, generator), self.hops + 1, self.width(sizes)
            check_output(
                head,
                lambda scale: [FixedRows(random_records(width, scale))] * views,
                sizes.classes,
                self.custom_head,
                frozen=False,
            )

    def encoder_parameters(self, sizes: PublicSizes) -> int:
        return count_parameters(*self._encoder_widths(sizes), sizes.classes)

    def classifier_parameters(self, sizes: PublicSizes) -> int:
        views = self.hops + 1
        head = count_parameters(views * self.hidden, *self._head_widths, sizes.classes)
        return views * count_parameters(*self._base_widths(sizes)) + head

    def _encoder_widths(self, sizes: PublicSizes) -> list[int]:
        return [sizes.width, *[self.hidden] * self.encoder_layers]

    def _base_widths(self, sizes: PublicSizes) -> list[int]:
        return [self.width(sizes), *[self.hidden] * self.base_layers]

    @property
    def _head_widths(self) -> list[int]:
        return [self.hidden] * (self.head_layers - 1)


class HopTransform:
    """Normalization of vectors before a hop and of its aggregates.

    The norm of a vector is at most one in spite of rounding, and a noisy aggregate is shrunk by its estimated
    share of noise.
    """

    def unit(self, rows: Tensor) -> Tensor:
        return safe_unit(rows)

    def next_input(self, encoder: Encoder | None, rows: Any, aggregates: Sequence[Tensor], std: float) -> Any:
        return shrink_unit(aggregates[-1], std)

    def views(self, rows: Any, aggregates: Sequence[Tensor], stds: Sequence[float] | None) -> list[Any]:
        """Return the classifier's inputs: functions of own embeddings and noisy aggregates only."""
        if stds is None:
            views = list(map(plain_unit, aggregates))
        else:
            views = [scaled_by_norm(answer, std) for answer, std in zip(aggregates, stds, strict=True)]
        return [map_records(lambda own: own.float(), view) for view in (rows, *views)]


class RecordTransform(HopTransform):
    """The same under node-level units, where a node sends a message that the encoder's head computes.

    Vectors that overflow become zero, since an error would reveal information about one protected record.
    """

    def unit(self, rows: Tensor) -> Tensor:
        return super().unit(finite_rows(rows))

    def next_input(self, encoder: Encoder | None, rows: Any, aggregates: Sequence[Tensor], std: float) -> Any:
        if encoder is None:
            return super().next_input(encoder, rows, aggregates, std)

        def of(own: Tensor, *noisy: Tensor) -> Tensor:
            if encoder.outputs == 1:
                value, direction = encoder.number_message(own, noisy)
                return self.unit(direction[None]) * value  # a factor of at most one does not increase a norm
            return self.unit(encoder.message(own, noisy))

        return map_records(of, rows, *(scaled_by_norm(answer, std) for answer in aggregates))


_CLOSE, _LOUD = 1e-5, 10.0
_NUM_RANDOM_RECORDS = 4  # random records that a module is run on before anything is charged


class _DenseInput(nn.Module):
    """Runs a module on dense inputs, for features in any format."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Batch) -> Tensor:
        if not isinstance(x, Tensor):
            rows = cast(SparseRows, x)
            count = len(rows.offsets) - 1
            owner = torch.arange(count).repeat_interleave(rows.offsets.diff())
            x = torch.zeros(count, rows.width)
            x.index_put_((owner, rows.columns.long()), rows.values, accumulate=True)
        return cast(Tensor, self.module(x))


class CustomEncoder(Encoder):
    """A custom module and the linear head that it is trained with, on L2-normalized embeddings."""

    def __init__(
        self, factory: Factory | str, inputs: int, hidden: int, classes: int, *, generator: torch.Generator
    ) -> None:
        nn.Module.__init__(self)
        self._base = _DenseInput(build_module(factory, inputs, hidden, generator))  # type: ignore[assignment]
        self._head = Linear(hidden, classes, generator=generator)


class CustomHead(HopClassifier):
    """A custom module that reads the concatenated aggregates of all hops."""

    def __init__(
        self, factory: Factory | str, views: int, width: int, classes: int, *, generator: torch.Generator
    ) -> None:
        nn.Module.__init__(self)
        self.module = build_module(factory, views * width, classes, generator)

    def forward(self, views: Sequence[FixedRows]) -> Tensor:
        return cast(Tensor, self.module(torch.cat([view.values for view in views], dim=1)))


def check_output(
    network: nn.Module,
    records: Callable[[float], object],
    outputs: int,
    factory: Factory | str,
    *,
    frozen: bool,
) -> None:
    """Train a network for one step on a few random records, and predict, before anything is charged.

    Args:
        network: A new network; it is not changed.
        records: Returns its inputs, random numbers of this scale.
        frozen: Whether it may have no trainable parameters.

    Raises:
        ConfigError: If it fails forward or backward, has the wrong output or no trainable parameters. Also if
            it keeps state outside of its parameters and buffers, which a saved model would lose.
    """
    name, copies = factory_name(factory), ModuleCopies(network)
    trains = any(weight.requires_grad for weight in network.parameters())
    if not (trains or frozen):
        raise ConfigError(f"{name} has no trainable parameters. Set requires_grad=True on at least one.")
    inputs = records(1.0)
    with copies.run() as fresh, torch.no_grad():
        found = _run(name, fresh.eval(), inputs)
        if not isinstance(found, Tensor) or tuple(found.shape) != (_NUM_RANDOM_RECORDS, outputs):
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ConfigError(
                f"{name} returns {what} for {_NUM_RANDOM_RECORDS} records. It must return one row of "
                f"{outputs} numbers per record."
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
            f"{name} stores state outside of its parameters and buffers, so a saved model would "
            "predict differently. Store the state with self.register_buffer(...)."
        )


def _run(name: str, network: nn.Module, inputs: object) -> Tensor:
    try:
        return cast(Tensor, network(inputs))
    except Exception as error:
        raise ConfigError(
            f"{name} fails on {_NUM_RANDOM_RECORDS} random records: {type(error).__name__}: {error}. "
            "It must map a tensor of shape (B, inputs) to a tensor of shape (B, outputs)."
        ) from error


def _step(name: str, network: nn.Module, inputs: object) -> None:
    found = _run(name, network, inputs)
    if not found.requires_grad:
        raise ConfigError(
            f"The output of {name} does not depend on its parameters. Use the parameters in forward()."
        )
    try:
        torch.autograd.backward(found.square().sum())
    except Exception as error:
        raise ConfigError(training_error_message(network, error, name)) from error


def random_records(width: int, scale: float) -> Tensor:
    return scale * torch.randn(_NUM_RANDOM_RECORDS, width, generator=torch.Generator().manual_seed(0))
