"""The networks of GAP, and how rows pass from one hop to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphveil.estimators.gap.custom_modules import CustomEncoder, CustomHead, check_output, random_records
from graphveil.estimators.own.code import Factory
from graphveil.estimators.sizes import PublicSizes
from graphveil.estimators.training.dpsgd import count_parameters
from graphveil.nn.hops import Encoder, FixedRows, HopClassifier, UnitHopClassifier, scaled_by_norm
from graphveil.propagation import plain_unit, safe_unit, shrink_unit
from graphveil.training.null_records import finite_rows

Classifier = HopClassifier | UnitHopClassifier


@dataclass(frozen=True, kw_only=True)
class GapArchitecture:
    """Depths and widths of the encoder and the classifier, for any public sizes.

    Args:
        hops: K.
        hidden: the width of all hidden rows.
        encoder_layers: of the encoder, its head not counted; 0 aggregates raw features.
        base_layers, head_layers: of the classifier, before and after hops are combined.
        combine: how hops are combined.
        layers: keywords of all layers.
        paper: whether heads are a paper's.
        paper_on_records: whether both networks are those of the paper's reference on records.
        custom_encoder, custom_head: modules of the user's in place of the encoder and of the classifier.
    """

    hops: int
    hidden: int
    encoder_layers: int
    base_layers: int
    head_layers: int
    combine: str
    layers: dict[str, Any]
    paper: bool
    paper_on_records: bool
    custom_encoder: Factory | str | None = None
    custom_head: Factory | str | None = None

    def width(self, sizes: PublicSizes) -> int:
        """Return the width of aggregated rows."""
        return self.hidden if self.encoder_layers else sizes.width

    def encoder(self, sizes: PublicSizes, generator: torch.Generator) -> Encoder:
        """Return an untrained encoder."""
        if self.custom_encoder is not None:
            sides = sizes.width, self.hidden, sizes.classes
            return CustomEncoder(self.custom_encoder, *sides, generator=generator)
        return Encoder(
            self._encoder_widths(sizes),
            sizes.classes,
            plain_head=not self.paper,
            activated=self.paper_on_records,
            generator=generator,
            **self.layers,
        )

    def classifier(self, sizes: PublicSizes, generator: torch.Generator) -> Classifier:
        """Return an untrained classifier of own rows and K hops."""
        views, base = self.hops + 1, self._base_widths(sizes)
        if self.custom_head is not None:
            return CustomHead(self.custom_head, views, self.width(sizes), sizes.classes, generator=generator)
        head = [*self._head_widths, sizes.classes]
        if self.paper_on_records:
            activation = self.layers["activation"]
            return UnitHopClassifier(views, base, head, generator=generator, activation=activation)
        return HopClassifier(views, base, head, self.combine, generator=generator, **self.layers)

    def check_custom_modules(self, sizes: PublicSizes) -> None:
        """Build and run the user's modules on a few random records, before anything is booked."""
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
        """Return how many weights the encoder and its head have."""
        return count_parameters(*self._encoder_widths(sizes), sizes.classes)

    def classifier_parameters(self, sizes: PublicSizes) -> int:
        """Return how many weights the classifier has, where hops are concatenated."""
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


@dataclass(frozen=True)
class HopTransform:
    """How rows are normalized before a hop, and what is made of its answer.

    A paper normalizes plainly. Otherwise a row's norm is at most one whatever the rounding, and a noisy row
    is shrunk by how much of it may be noise. On records rows that overflowed become zero: an error would tell
    of one protected record.
    """

    paper: bool
    on_records: bool

    def unit(self, rows: Tensor) -> Tensor:
        """Return rows of norm at most one."""
        if self.paper:
            return plain_unit(rows)
        return safe_unit(finite_rows(rows) if self.on_records else rows)

    def next_input(
        self, encoder: Encoder | None, rows: Tensor, aggregates: Sequence[Tensor], std: float
    ) -> Tensor:
        """Return the next hop's input from a node's own row and its noisy answers."""
        if self.paper:
            return plain_unit(aggregates[-1])
        if self.on_records and encoder is not None:
            return self.unit(encoder.message(rows, [scaled_by_norm(answer, std) for answer in aggregates]))
        return shrink_unit(aggregates[-1], std)

    def views(self, rows: Tensor, aggregates: Sequence[Tensor], stds: Sequence[float] | None) -> list[Tensor]:
        """Return what the classifier sees of each hop: functions of own and noisy rows only.

        Args:
            rows: own rows.
            aggregates: of the K hops.
            stds: their noise; None for exact answers.
        """
        if stds is None or self.paper:
            views = list(map(plain_unit, aggregates))
        else:
            views = [scaled_by_norm(answer, std) for answer, std in zip(aggregates, stds, strict=True)]
        return [view.float() for view in (rows, *views)]
