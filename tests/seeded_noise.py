"""Noise keys that each test draws from a seed of its own, so that no test passes or fails by chance.

Tests with the marker ``system_noise`` take their keys from the operating system, as users do.
"""

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

MODULES = ("graphveil.core.keys", "graphveil.mechanisms.local_noise", "graphveil.core.noise.random")


class SeededSecrets:
    """Takes the place of the module ``secrets`` where keys and seeds are drawn."""

    token_hex = staticmethod(secrets.token_hex)  # ids of releases: always new

    def __init__(self) -> None:
        """Start with the operating system's numbers."""
        self._generator: random.Random | None = None

    def token_bytes(self, size: int) -> bytes:
        """Return the bytes of a key."""
        return self._generator.randbytes(size) if self._generator else secrets.token_bytes(size)

    def randbits(self, bits: int) -> int:
        """Return the seed of public randomness."""
        return self._generator.getrandbits(bits) if self._generator else secrets.randbits(bits)

    @contextmanager
    def seeded(self, name: str | None) -> Iterator[None]:
        """Draw from a generator that the name seeds, or from the operating system."""
        before = self._generator
        self._generator = None if name is None else random.Random(name)
        try:
            yield
        finally:
            self._generator = before

    def install(self) -> None:
        """Replace ``secrets`` in the modules that draw keys and seeds."""
        for module in MODULES:
            import_module(module).secrets = self  # type: ignore[attr-defined]  # its import
