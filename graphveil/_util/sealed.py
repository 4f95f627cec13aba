"""Encrypted messages for channels that may store or log their contents.

A ``SecretBox`` encrypts with a shared key (AES-256-GCM). A recipient without a key creates a
``RecipientKey`` and publishes its public half, to which ``seal_to`` encrypts (X25519, HKDF-SHA256, and
a ``SecretBox``).
"""

import secrets

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from graphveil.errors import ReleaseError

Bytes = npt.NDArray[np.uint8]

SLACK = 16  # bytes that must follow where something is opened into: the cipher may touch them
DAMAGED = "a message between processes is damaged, or was sealed by another"
_KEY, _NONCE, _TAG, _PUBLIC = 32, 12, 16, 32


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

    def __repr__(self) -> str:
        """Omit the key."""
        return "Box()"

    def seal(self, name: str, *message: bytes | Bytes) -> Bytes:
        """Return nonce, ciphertext and tag; decryption needs the name, which is not included.

        A message in several pieces is encrypted as one, without concatenating them first.
        """
        nonce, place = secrets.token_bytes(_NONCE), _NONCE
        sealed = np.empty(_NONCE + sum(map(len, message)) + _TAG, dtype=np.uint8)
        cipher = Cipher(algorithms.AES(self.key), modes.GCM(nonce)).encryptor()
        cipher.authenticate_additional_data(name.encode())
        for piece in message:
            plain = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece
            place += cipher.update_into(plain.data, sealed[place:].data)
        cipher.finalize()
        sealed[:_NONCE] = np.frombuffer(nonce, np.uint8)
        sealed[place:] = np.frombuffer(cipher.tag, np.uint8)
        return sealed

    def open(self, name: str, sealed: Bytes) -> bytes:
        """Return the decrypted message; raises the errors of ``open_into``."""
        out = np.empty(len(sealed) + SLACK, dtype=np.uint8)
        return out[: self.open_into(out, name, sealed)].tobytes()

    def open_into(self, out: Bytes, name: str, sealed: Bytes) -> int:
        """Decrypt the message into a buffer that is longer by ``SLACK``; return its length.

        Raises:
            ReleaseError: Message that was not encrypted under this key and name, or has changed.
        """
        sealed = np.ascontiguousarray(sealed)
        nonce, tag = sealed[:_NONCE].tobytes(), sealed[-_TAG:].tobytes()
        body = sealed[_NONCE:-_TAG]
        try:
            cipher = Cipher(algorithms.AES(self.key), modes.GCM(nonce, tag)).decryptor()
            cipher.authenticate_additional_data(name.encode())
            cipher.update_into(body.data, out.data)
            cipher.finalize()
        except (InvalidTag, ValueError):
            raise ReleaseError(DAMAGED) from None
        return len(body)


class RecipientKey:
    """The key pair of one exchange: only this object can decrypt messages to its public half.

    >>> lock = RecipientKey()
    >>> lock.open(seal_to(lock.public, b"a key"))
    b'a key'
    """

    def __init__(self) -> None:
        """Draw both halves; the private one never leaves this object."""
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def open(self, sealed: bytes) -> bytes:
        """Return the decrypted message.

        Raises:
            ReleaseError: Message that was encrypted to another public key, or has changed.
        """
        theirs, body = sealed[:_PUBLIC], np.frombuffer(sealed[_PUBLIC:], np.uint8)
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(theirs))
        except ValueError:  # no public half at all
            raise ReleaseError(DAMAGED) from None
        return _box_of(shared, theirs, self.public).open(_LOCK, body)


def seal_to(public: bytes, message: bytes) -> bytes:
    """Encrypt a message to the public half of a key pair."""
    own = X25519PrivateKey.generate()
    ours = own.public_key().public_bytes_raw()
    shared = own.exchange(X25519PublicKey.from_public_bytes(public))
    return ours + _box_of(shared, ours, public).seal(_LOCK, message).tobytes()


_LOCK = "graphveil/lock"


def _box_of(shared: bytes, ours: bytes, theirs: bytes) -> SecretBox:
    """Return the ``SecretBox`` of one exchange: its key also depends on both public halves."""
    derive = HKDF(SHA256(), _KEY, salt=None, info=_LOCK.encode() + ours + theirs)
    return SecretBox(derive.derive(shared))
