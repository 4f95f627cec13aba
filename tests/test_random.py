import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from graphveil._util.random import KEY_BYTES, PublicStreams, RowStream

KEY = bytes(range(KEY_BYTES))


def keystream(row: int, words: int) -> np.ndarray:
    """Row's words straight from AES-CTR: the 128-bit big-endian counter starts at row * 2^32."""
    start = (row << 32).to_bytes(16, "big")
    stream = Cipher(algorithms.AES256(KEY), modes.CTR(start)).encryptor().update(bytes(8 * words))
    return np.frombuffer(stream, dtype="<u8")


@pytest.mark.parametrize("row", [0, 1, 7, 2**20 + 3, 2**31 - 1, 2**32 + 5, 2**40])
@pytest.mark.parametrize("words", [1, 2, 3, 8, 17])
def test_a_rows_words_are_its_part_of_the_aes_ctr_keystream(row: int, words: int) -> None:
    drawn = RowStream(KEY).words(np.array([row]), words_per_row=words)
    assert drawn.tolist() == [keystream(row, words).tolist()]


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(256, 512),  # a run whose counters are set together
        np.arange(2**32 - 4, 2**32 + 4),
        np.arange(2**33, 2**33 + 512),
        np.arange(1, 257),
        np.arange(300),
        np.array([5, 3, 3, 99]),
        np.array([8, 9, 9, 11]),  # like a run at both ends
        np.empty(0, dtype=np.int64),
    ],
)
def test_many_rows_draw_what_each_draws_alone(rows: np.ndarray) -> None:
    together = RowStream(KEY).words(rows, words_per_row=5)
    assert together.shape == (len(rows), 5)
    for row, words in list(zip(rows.tolist(), together, strict=True))[:: max(1, len(rows) // 16)]:
        assert words.tolist() == keystream(row, 5).tolist()


def test_single_blocks_are_the_same_keystream() -> None:
    rows, offsets = np.array([0, 4, 2**33]), np.array([0, 3, 2**32 - 1])
    drawn = RowStream(KEY).blocks(rows, offsets)
    for row, offset, block in zip(rows.tolist(), offsets.tolist(), drawn, strict=True):
        counter = ((row << 32) + offset).to_bytes(16, "big")
        alone = Cipher(algorithms.AES256(KEY), modes.ECB()).encryptor().update(counter)
        assert block.tobytes() == alone


def test_no_row_reaches_into_the_next_ones_blocks() -> None:
    with pytest.raises(ValueError, match=r"2\^32 blocks"):
        RowStream(KEY).blocks(np.array([0]), np.array([2**32]))


def test_another_key_is_another_stream() -> None:
    mine = RowStream(KEY).words(np.arange(4), words_per_row=4)
    yours = RowStream(KEY[::-1]).words(np.arange(4), words_per_row=4)
    assert not (mine == yours).any()


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes, got 16"):
        RowStream(KEY[:16])


def test_a_key_stays_out_of_the_repr() -> None:
    assert KEY.hex() not in repr(RowStream(KEY))
    assert str(KEY) not in repr(RowStream(KEY))


def test_public_streams_depend_on_seed_and_name_alone() -> None:
    first, second = PublicStreams(7), PublicStreams(7)
    first.numpy("split").random(100)  # drawing one stream does not move another
    assert torch.equal(
        torch.rand(4, generator=first.torch("weights")), torch.rand(4, generator=second.torch("weights"))
    )
    assert first.derive("split") != first.derive("weights")
    assert first.derive("split") != PublicStreams(8).derive("split")


def test_without_a_seed_every_object_has_its_own_streams_and_repeats_them() -> None:
    first, second = PublicStreams(), PublicStreams()
    assert first.derive("split") == first.derive("split")
    assert first.derive("split") != second.derive("split")


def test_public_draws_leave_the_global_generators_alone() -> None:
    state = torch.random.get_rng_state()
    PublicStreams(1).torch("weights")
    PublicStreams(1).numpy("split").random()
    assert torch.equal(torch.random.get_rng_state(), state)
