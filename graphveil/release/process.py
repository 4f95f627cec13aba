"""One process for a key of noise: a fork copies memory, and two sums with equal noise tell everything."""

import os

from graphveil.errors import ReleaseError


def check_process(opened: int) -> None:
    """Refuse to go on in another process than the one that opened a release.

    Raises:
        ReleaseError: this is a forked copy.
    """
    if os.getpid() != opened:
        raise ReleaseError(
            "this release was opened in another process, and a forked copy would draw the same noise for "
            "other data, whose difference tells the exact answer; open a new release in this process, which "
            "is recorded as a new one"
        )
