"""Encrypted values for Ray, which may store, log or spill what it transports.

A value is sealed in parts of at most 64 MiB under a shared key (AES-256-GCM). A worker process receives that
key sealed to its public key (HPKE, RFC 9180). A process that transports or stores parts sees only
their lengths. The length of a block would reveal its number of edges, so a value is padded with zeros to the
next quarter step between powers of two.

Arrays and tensors follow the pickle, so that the receiver holds no second copy of a large table. Every part
is authenticated under the key, its name, its position and the number of parts before anything is unpickled:
what is damaged, or was sealed by another process, raises ``InvalidTag``.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

PART = 1 << 26  # bytes
MIN_BYTES = 1 << 16  # minimum size of a value: up to about ten thousand edges look like none
_KEY, _NONCE = 32, 12
_ALIGN = 64  # arrays begin at multiples: rows of a table then span the fewest cache lines
_LENGTH = np.dtype("<i8")
_EXCHANGE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class SecretBox:
    """Encrypts and decrypts with one key, random by default; each message has its own nonce and a name.

    >>> box = SecretBox()
    >>> sealed = box.seal("greeting", b"hello")
    >>> box.open("greeting", sealed), SecretBox(box.key).open("greeting", sealed)
    (b'hello', b'hello')
    """

    def __init__(self, key: bytes | None = None) -> None:
        """Store a key of 32 bytes, or draw one from the operating system."""
        self.key = secrets.token_bytes(_KEY) if key is None else key

    def seal(self, name: str, message: bytes | memoryview) -> bytes:
        """Return nonce, ciphertext and tag; decryption needs the name, which is not included."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + AESGCM(self.key).encrypt(nonce, message, name.encode())

    def open(self, name: str, sealed: bytes | memoryview) -> bytes:
        return AESGCM(self.key).decrypt(bytes(sealed[:_NONCE]), sealed[_NONCE:], name.encode())


class RecipientKey:
    """The key pair of a process: only this object can decrypt messages to its public half.

    >>> recipient = RecipientKey()
    >>> recipient.open(seal_to(recipient.public, b"a key"))
    b'a key'
    """

    def __init__(self) -> None:
        """Draw both halves; the private one never leaves this object."""
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def open(self, sealed: bytes) -> bytes:
        return _EXCHANGE.decrypt(sealed, self._private)


def seal_to(public: bytes, message: bytes) -> bytes:
    return _EXCHANGE.encrypt(message, X25519PublicKey.from_public_bytes(public))


# -- values in parts ---------------------------------------------------------------------------------------


def seal_value(name: str, value: object, box: SecretBox) -> Iterator[bytes]:
    pieces = _pieces(value)
    pieces.insert(0, np.array([len(pieces), *map(len, pieces)], _LENGTH).view(np.uint8))
    *places, end = _places(map(len, pieces))
    memory = np.zeros(_coarse(end), np.uint8)
    for place, piece in zip(places, pieces, strict=True):
        memory[place : place + len(piece)] = piece
    starts = range(0, len(memory), PART)
    for number, start in enumerate(starts):
        yield box.seal(f"{name}/{number}/{len(starts)}", memory[start : start + PART].data)


def open_value(name: str, parts: Sequence[Any], box: SecretBox, fetch: Callable[[Any], bytes]) -> Any:
    """Return a value, whose arrays are adjacent in memory. Its parts are fetched one at a time."""
    from ray import cloudpickle

    memory = torch.empty(len(parts) * PART, dtype=torch.uint8).numpy()  # unused pages need no memory
    for number, part in enumerate(parts):
        opened = np.frombuffer(box.open(f"{name}/{number}/{len(parts)}", fetch(part)), np.uint8)
        memory[number * PART :][: len(opened)] = opened
    # The pieces follow their lengths, which follow the number of pieces.
    numbers = memory.view(_LENGTH)
    lengths = numbers[1 : 1 + numbers[0]].tolist()
    places = _places([_LENGTH.itemsize * (1 + len(lengths)), *lengths])[1:]
    pieces = [memory[place : place + length] for place, length in zip(places, lengths, strict=False)]
    return cloudpickle.loads(pieces[0], buffers=pieces[1:])


def _pieces(value: object) -> list[npt.NDArray[np.uint8]]:
    from ray import cloudpickle

    class Apart(cloudpickle.Pickler):  # type: ignore[misc]
        """Pickler that leaves the memory of tensors out of band, like that of arrays."""

        def reducer_override(self, one: Any) -> Any:
            if type(one) is torch.Tensor:
                return torch.from_numpy, (np.ascontiguousarray(one.numpy()),)
            return super().reducer_override(one)

    written, arrays = BytesIO(), list[Any]()
    Apart(written, protocol=5, buffer_callback=arrays.append).dump(value)
    return [np.frombuffer(each, np.uint8) for each in (written.getbuffer(), *(one.raw() for one in arrays))]


def _places(lengths: Iterable[int]) -> list[int]:
    """Return where pieces of these lengths begin, and where the last one ends."""
    return list(accumulate((-(-length // _ALIGN) * _ALIGN for length in lengths), initial=0))


def _coarse(size: int) -> int:
    """Return the next size that is 1, 5/4, 6/4 or 7/4 of a power of two, and at least ``MIN_BYTES``."""
    step = max(MIN_BYTES, 1 << (size - 1).bit_length()) >> 3
    return max(MIN_BYTES, -(-size // step) * step)
