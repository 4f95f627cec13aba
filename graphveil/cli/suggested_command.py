"""The command that would pass: the one that was given, with other choices about columns."""

import shlex
from collections.abc import Sequence

CHOICE_FLAGS = (
    *("--features", "--drop", "--categories", "--missing", "--unknown-ids", "--null-values"),
    *("--delimiter", "--decimal"),
)


def suggested_command(arguments: Sequence[str], flags: Sequence[str]) -> str:
    """Return a command line with the given choices in place of its own.

    >>> suggested_command(["train", "gap", "--drop", "a", "--json"], ["--drop", "a,b"])
    'graphveil train gap --json --drop a,b'
    """
    return shlex.join(["graphveil", *_without_choices(arguments), *flags])


def _without_choices(arguments: Sequence[str]) -> list[str]:
    kept, skip = list[str](), False
    for word in arguments:
        if skip:
            skip = False
        elif word in CHOICE_FLAGS:
            skip = True
        elif word.partition("=")[0] not in CHOICE_FLAGS:
            kept.append(word)
    return kept
