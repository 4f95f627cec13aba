"""Channels: whole numbers that are at most e^epsilon apart, and samplers that meet them word for word."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from graphveil.core.noise.sampling import TOTAL, Channel, ExtraWords, Sampler
from graphveil.errors import ConfigError
from graphveil.mechanisms import Bins, Duchi, ThreeOutputs

from .fits import fits, stream

EPSILONS = [1e-6, 0.01, 0.5, 1.0, 2.0, 4.0, 8.0, 30.0, 44.9, 60.0, 1000.0]
TABLES = {
    "two": lambda epsilon: Duchi(epsilon),
    "three": lambda epsilon: ThreeOutputs(epsilon),
    "five": lambda epsilon: Bins(epsilon, 5),
    "fifty": lambda epsilon: Bins(epsilon, 50),
    "all": lambda epsilon: Bins(epsilon, 256),
}


class Fixed:
    """A stream that gives the same word everywhere."""

    def __init__(self, word: int) -> None:
        self.word = word

    def blocks(self, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return np.full((len(rows), 2), self.word, dtype=np.uint64)


@pytest.mark.parametrize("name", TABLES)
def test_no_two_counts_of_a_column_are_further_apart_than_the_budget(name: str) -> None:
    for epsilon in (1e-6, 8.0, 60.0) if name == "all" else EPSILONS:
        counts = TABLES[name](epsilon).channel.counts
        assert all(sum(row) == TOTAL for row in counts)
        with localcontext(prec=60):
            most = Decimal(epsilon).exp()
            for column in zip(*counts, strict=True):
                assert min(column) > 0
                assert Decimal(max(column)) <= most * Decimal(min(column))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_the_counts_are_those_of_the_law(name: str, epsilon: float) -> None:
    law = TABLES[name](epsilon)
    realized = np.array(law.channel.counts, dtype=np.float64) / TOTAL
    assert np.abs(realized - law.table).max() < 1e-12 / min(1.0, epsilon)
    assert law.channel.loss == pytest.approx(epsilon, abs=1e-9)


def test_rejects_budgets_below_64_bit_resolution() -> None:
    with pytest.raises(ConfigError, match="small for 64-bit"):
        Channel.from_probabilities(Duchi(1e-9).table, 1e-12)


@pytest.mark.parametrize("law", [Duchi(1.0), ThreeOutputs(2.0), Bins(3.0, 5), Bins(1.0, 200)], ids=str)
def test_the_tables_give_each_output_its_count_of_words(law: Duchi | ThreeOutputs | Bins) -> None:
    sampler = Sampler((law.channel,))
    limit, rest, other = sampler._tables
    slots, size = 1 << sampler.bits, TOTAL >> sampler.bits
    for t, row in enumerate(law.channel.counts):
        words = dict.fromkeys(range(slots), 0)
        for slot in range(slots):
            at = t * slots + slot
            own = ((int(limit[at]) - slot) >> sampler.bits << 32) + int(rest[at])
            own = size if other[at] == slot else own
            words[slot] += own
            words[int(other[at])] += size - own
        assert [words[u] for u in range(slots)] == [*row, *[0] * (slots - len(row))]


def test_a_word_at_its_threshold_reads_on() -> None:
    sampler = Sampler((Duchi(1.0).channel,))
    limit, rest, other = sampler._tables
    at = next(at for at in range(4) if other[at] != at % 2)  # an index that two outputs share
    t, slot = divmod(at, 2)
    words = np.array([[limit[at] - 2, limit[at], limit[at] + 2]], dtype=np.uint32)
    inputs = np.full((1, 3), t)
    for more, tie in ((int(rest[at]) - 1, slot), (int(rest[at]), int(other[at]))):
        place = ExtraWords(Fixed(more << 32), np.zeros(1, dtype=np.int64), 3)
        assert sampler.sample_outputs(inputs, words, place).tolist() == [[slot, tie, int(other[at])]]


@pytest.mark.parametrize("law", [Duchi(1.0), ThreeOutputs(2.0), Bins(1.0, 5)], ids=str)
def test_samples_follow_the_table(law: Duchi | ThreeOutputs | Bins) -> None:
    rows, width = np.arange(1000), 1000
    for t, probabilities in enumerate(law.table):
        draws = stream(t)
        words = draws.words(rows, words_per_row=width // 2).view("<u4")
        out = Sampler((law.channel,)).sample_outputs(
            np.full((1000, width), t), words, ExtraWords(draws, rows, width)
        )
        fits(np.bincount(out.reshape(-1), minlength=len(probabilities)), probabilities, seen=0.1)


def test_several_channels_keep_to_themselves() -> None:
    laws = [Bins(1.0, 3), Bins(4.0, 5), Bins(2.0, 2)]
    sampler = Sampler(tuple(law.channel for law in laws))
    rows, draws = np.arange(300_000), stream()
    words = draws.words(rows, words_per_row=2).view("<u4")[:, :3]
    out = sampler.sample_outputs(
        np.ones((len(rows), 3), dtype=np.int64), words, ExtraWords(draws, rows, 3), sampler.starts
    )
    for column, law in enumerate(laws):
        fits(np.bincount(out[:, column], minlength=law.k), law.table[1], seen=0.3)


def test_a_uniform_channel_has_loss_zero() -> None:
    channel = Bins(0.0, 5, "ceil", "naive").channel
    assert channel.loss == 0
    assert Channel(channel.counts[:1]).counts[0] == pytest.approx([TOTAL / 5] * 5, rel=1e-15)
