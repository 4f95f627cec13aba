"""Keys of the noise of local mechanisms: fresh from the operating system, one stream a purpose, each once."""

import hashlib
import hmac
import secrets

from graphveil._random import KEY_BYTES, RowStream
from graphveil.errors import ReleaseError

REPRODUCIBLE = "the noise is reproducible from a seed"


class LocalNoise:
    """The randomness of one release of perturbed records, for experiments that hold the raw data.

    Each purpose (features, training labels, ...) has a stream of its own, handed out once: records that are
    perturbed again need a new object, whose key is new, since equal noise on two sets of records cancels.

    Args:
        unsafe_noise_seed: makes the noise reproducible, for tests and paper mode, and voids the guarantee.

    >>> noise = LocalNoise(unsafe_noise_seed=3)
    >>> noise.deviations
    ('the noise is reproducible from a seed',)
    >>> stream = noise.stream("features")
    >>> noise.stream("features")
    Traceback (most recent call last):
    graphveil.errors.ReleaseError: the noise for 'features' was handed out before, and records perturbed \
twice with the same noise are not private; make a new LocalNoise
    """

    def __init__(self, unsafe_noise_seed: int | None = None) -> None:
        """Draw a key, or derive one from the seed."""
        self._reproducible = unsafe_noise_seed is not None
        self._key = (
            hashlib.sha256(f"graphveil/unsafe/{unsafe_noise_seed}/local".encode()).digest()
            if self._reproducible
            else secrets.token_bytes(KEY_BYTES)
        )
        self._used: set[str] = set()

    @property
    def deviations(self) -> tuple[str, ...]:
        """Why claims on what this noise perturbs do not hold, if they do not."""
        return (REPRODUCIBLE,) if self._reproducible else ()

    def stream(self, purpose: str) -> RowStream:
        """Return the stream of a purpose.

        Raises:
            ReleaseError: it was handed out before.
        """
        if purpose in self._used:
            raise ReleaseError(
                f"the noise for {purpose!r} was handed out before, and records perturbed twice with the same "
                "noise are not private; make a new LocalNoise"
            )
        self._used.add(purpose)
        return RowStream(hmac.new(self._key, purpose.encode(), "sha256").digest())
