"""Public streams depend on seed and name; keyed streams are AES-CTR, addressed by row."""

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from graphveil.core.noise.random import KEY_BYTES, PublicStreams, RowStream

KEY = bytes(range(KEY_BYTES))


def keystream(row: int, words: int) -> np.ndarray:
    """Return a row's words by AES-CTR itself, whose 128-bit big-endian counter starts at row * 2^32."""
    start = (row << 32).to_bytes(16, "big")
    stream = Cipher(algorithms.AES256(KEY), modes.CTR(start)).encryptor().update(bytes(8 * words))
    return np.frombuffer(stream, dtype="<u8")


@pytest.mark.parametrize("row", [0, 1, 7, 2**20 + 3, 2**31 - 1, 2**32 + 5, 2**40])
@pytest.mark.parametrize("words", [1, 2, 3, 8, 17])
def test_words_of_a_row_are_the_aes_ctr_keystream(row: int, words: int) -> None:
    drawn = RowStream(KEY).words(np.array([row]), words_per_row=words)
    assert drawn.tolist() == [keystream(row, words).tolist()]


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(256, 512),  # whose counters are computed together
        np.arange(2**32 - 4, 2**32 + 4),
        np.arange(2**33, 2**33 + 512),
        np.arange(1, 257),
        np.arange(300),
        np.array([5, 3, 3, 99]),
        np.array([8, 9, 9, 11]),  # with the first and last row of such a run
        np.empty(0, dtype=np.int64),
    ],
)
def test_rows_do_not_depend_on_other_rows(rows: np.ndarray) -> None:
    together = RowStream(KEY).words(rows, words_per_row=5)
    assert together.shape == (len(rows), 5)
    for row, words in list(zip(rows.tolist(), together, strict=True))[:: max(1, len(rows) // 16)]:
        assert words.tolist() == keystream(row, 5).tolist()


def test_blocks_are_part_of_the_same_keystream() -> None:
    rows, offsets = np.array([0, 4, 2**33]), np.array([0, 3, 2**32 - 1])
    drawn = RowStream(KEY).blocks(rows, offsets)
    for row, offset, block in zip(rows.tolist(), offsets.tolist(), drawn, strict=True):
        counter = ((row << 32) + offset).to_bytes(16, "big")
        alone = Cipher(algorithms.AES256(KEY), modes.ECB()).encryptor().update(counter)
        assert block.tobytes() == alone
    with pytest.raises(ValueError, match=r"2\^32 blocks"):  # those of the next row
        RowStream(KEY).blocks(np.array([0]), np.array([2**32]))


def test_the_key_determines_the_stream_and_is_not_printed() -> None:
    one, other = (RowStream(key).words(np.arange(4), words_per_row=4) for key in (KEY, KEY[::-1]))
    assert not (one == other).any()
    assert KEY.hex() not in repr(RowStream(KEY)) and str(KEY) not in repr(RowStream(KEY))
    with pytest.raises(ValueError, match="32 bytes, got 16"):
        RowStream(KEY[:16])


def test_public_streams_depend_on_seed_and_name_alone() -> None:
    first, second = PublicStreams(7), PublicStreams(7)
    first.numpy("split").random(100)  # drawing one stream does not move another
    assert torch.equal(
        torch.rand(4, generator=first.torch("weights")), torch.rand(4, generator=second.torch("weights"))
    )
    assert first.derive("split") != first.derive("weights")
    assert first.derive("split") != PublicStreams(8).derive("split")


def test_without_a_seed_every_object_has_its_own_streams() -> None:
    first, second = PublicStreams(), PublicStreams()
    assert first.derive("split") == first.derive("split")
    assert first.derive("split") != second.derive("split")


def test_public_streams_do_not_change_global_generators() -> None:
    state = torch.random.get_rng_state()
    PublicStreams(1).torch("weights")
    PublicStreams(1).numpy("split").random()
    assert torch.equal(torch.random.get_rng_state(), state)
