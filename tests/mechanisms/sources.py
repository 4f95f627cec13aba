"""Where secret keys come from: what every source must show, and sources that have to be noticed."""

import os
import random
import time
import warnings
from collections.abc import Callable

import pytest


def in_child(work: Callable[[], bytes]) -> bytes:
    """Return the result of work in a forked process."""
    receive, send = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of a library that this child never uses
        child = os.fork()
    if child == 0:
        try:
            os.write(send, work())
        finally:
            os._exit(0)
    os.close(send)
    message = os.read(receive, 1 << 12)
    os.close(receive)
    os.waitpid(child, 0)
    return message


def keys_are_fresh(draw: Callable[[], bytes], patch: pytest.MonkeyPatch) -> None:
    """Keys differ in a forked child, in one instant, and among a thousand."""
    first = draw()
    child = in_child(draw)
    assert child not in (b"", first)
    assert child != draw(), "parent and child share a pool of keys"
    now = {"time": 1.7e9, "monotonic": 5e3, "perf_counter": 5e3, "process_time": 1.0}
    for name, value in now.items():
        patch.setattr(time, name, lambda value=value: value)
        patch.setattr(time, f"{name}_ns", lambda value=value: int(value * 1e9))
    random.seed(0)
    several = {draw() for _ in range(5)}
    random.seed(0)
    assert len(several | {draw() for _ in range(5)}) == 10, "keys follow the clock or a seed"
    assert len({draw() for _ in range(1200)}) == 1200, "keys have too little entropy"


def keys_follow_the_system(draw: Callable[[], bytes], patch: pytest.MonkeyPatch, every: int = 1) -> None:
    """Each key is drawn from the operating system when it is made, and 256 bits of that decide what it is."""
    entropy, taken = os.urandom(1 << 10), 0

    def system(size: int) -> bytes:
        nonlocal taken
        taken += size
        return entropy[taken - size : taken]

    patch.setattr(os, "urandom", system)
    patch.setattr(random, "_urandom", system)  # where `secrets` takes it from
    taken = 0
    same = draw()
    wanted, decisive = 8 * taken, 0
    for bit in range(0, wanted, every):
        flipped = bytearray(entropy)
        flipped[bit // 8] ^= 1 << bit % 8
        entropy, kept, taken = bytes(flipped), entropy, 0
        decisive += draw() != same
        entropy = kept
    assert every * decisive >= 256, f"{decisive} bits of the operating system's decide a key of 256"


POOL = [os.urandom(32) for _ in range(6000)]
BAD_KEYS: dict[str, Callable[[int], bytes]] = {
    "a pool that a forked child shares": lambda size: POOL.pop(),
    "the clock": lambda size: time.time_ns().to_bytes(size, "little"),
    "a counter of time": lambda size: time.perf_counter_ns().to_bytes(size, "little"),
    "16 bits": lambda size: os.urandom(2) + bytes(size - 2),
    "a generator with a seed": random.randbytes,
}
SHORT_KEYS = BAD_KEYS | {"48 bits": lambda size: os.urandom(6) + bytes(size - 6)}
