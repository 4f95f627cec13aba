"""The contract of mechanisms for one number in [-1, 1]: a law, its variance, and draws from it."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from graphveil.mechanisms._channel import Channel, Sampler
from graphveil.mechanisms._draws import ExtraWords, Floats, Words, halves, round_up_or_down
from graphveil.mechanisms.claim import LocalDPClaim, check_budget
from graphveil.mechanisms.distributions import Distribution, StepDistribution


@dataclass(frozen=True)
class ScalarMechanism(ABC):
    """A randomizer of x in [-1, 1] with output y, E[y] = x, that is epsilon-LDP: p(y|x) <= e^epsilon p(y|x').

    With ``epsilon`` inf the output is x itself.
    """

    name: ClassVar[str]

    epsilon: float

    def __post_init__(self) -> None:
        """Refuse budgets that are not above zero."""
        check_budget(epsilon=self.epsilon)

    @property
    def claim(self) -> LocalDPClaim:
        """The guarantee of the output for one number."""
        return LocalDPClaim(self.epsilon)

    @property
    @abstractmethod
    def words(self) -> int:
        """How many words of 64 bits per value takes."""

    def distribution(self, x: float) -> Distribution:
        """Return the law of y for an x in [-1, 1]."""
        return (
            StepDistribution.discrete(np.array([x]), np.ones(1))
            if math.isinf(self.epsilon)
            else self._distribution(x)
        )

    def variance(self, x: Floats) -> Floats:
        """Return Var(y|x), in closed form."""
        return np.zeros_like(x) if math.isinf(self.epsilon) else self._variance(x)

    @property
    def worst_variance(self) -> float:
        """The largest variance of any x."""
        return float(self.variance(np.array([self._worst])).max())

    def draw(self, x: Floats, words: Words, place: ExtraWords) -> Floats:
        """Return one y for each x.

        Args:
            x: values in [-1, 1], shape (rows, width).
            words: their random words, shape (rows, width, self.words).
            place: where the few values that need more find it.
        """
        return x if math.isinf(self.epsilon) else self._draw(x, words, place)

    @property
    def _worst(self) -> float:
        """An x of the largest variance."""
        return 0.0

    @abstractmethod
    def _distribution(self, x: float) -> Distribution: ...

    @abstractmethod
    def _variance(self, x: Floats) -> Floats: ...

    @abstractmethod
    def _draw(self, x: Floats, words: Words, place: ExtraWords) -> Floats: ...


class KnotMechanism(ScalarMechanism):
    """A mechanism of few outputs, whose probabilities are linear in x between knots.

    So it is two steps: round x to one of the two knots around it, with x as expectation, then send the knot
    through a channel. Only the channel has to be private, and it is a table of whole numbers.
    """

    @property
    def words(self) -> int:
        """One: its low half rounds, its high half crosses the channel."""
        return 1

    @property
    @abstractmethod
    def outputs(self) -> Floats:
        """The values of the outputs, ascending."""

    @property
    @abstractmethod
    def table(self) -> Floats:
        """Probabilities of the outputs at each knot, shape (knots, outputs); knots are even in [-1, 1]."""

    @cached_property
    def channel(self) -> Channel:
        """The channel that samples are drawn from."""
        return Channel.from_probabilities(self.table, self.epsilon)

    @cached_property
    def sampler(self) -> Sampler:
        """The channel's tables."""
        return Sampler((self.channel,))

    def _distribution(self, x: float) -> StepDistribution:
        position = (x + 1) / 2 * (len(self.table) - 1)
        below = min(int(position), len(self.table) - 2)
        share = position - below
        return StepDistribution.discrete(
            self.outputs, (1 - share) * self.table[below] + share * self.table[below + 1]
        )

    def _draw(self, x: Floats, words: Words, place: ExtraWords) -> Floats:
        low, high = halves(words[..., 0])
        knots = round_up_or_down((x + 1) * ((len(self.table) - 1) / 2), low)
        return self.outputs[self.sampler.sample_outputs(knots, high, place)]
