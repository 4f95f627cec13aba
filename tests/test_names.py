"""Identifiers are made of the words of the field: none of these metaphors is part of a name."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Folders of tests that keep the rule, too; add what is renamed.
TESTS = (
    "",
    "attacks",
    "audit",
    "cli",
    "cluster",
    "collect",
    "contracts",
    "data",
    "data/published",
    "data/stored",
    "dendrogram",
    "estimators/classcode",
    "estimators/classcode/node",
    "estimators/features",
    "estimators/own",
    "estimators/sage",
    "estimators/spectral",
    "estimators/training",
    "fidelity",
    "ledger",
    "mechanisms",
    "nn",
    "papers",
    "perturb",
    "privacy",
    "propagation",
    "publish",
    "release",
    "reproduce",
    "structure",
    "tables",
    "training",
    "weights",
)
BANNED = set(
    re.findall(
        r"\w+",
        "anew ask asked asking asks beside book booked booking bookings crew crowd desk everybody "
        "foretell foretold gave hear heard hearing hears honest lends liar listen listened listens "
        "manners nobody office parcel parcels plainly promise promised promises said say saying says "
        "silenced somebody speak speaks spoke spoken surroundings taught teach teacher teachers teaches "
        "teaching tell teller telling tells told unheard unsaid vouch vouches whoever whose withdrawn",
    )
)
FOREIGN = {"listen", "listens_for"}  # of SQLAlchemy
BRITISH = re.compile(
    r"neighbour|labell(?=ed|ing|er)|behaviour|colour|favour|centre|randomis|normalis|recognis|factoris|minimis|optimis(?!t)|"
    r"initialis|serialis|summaris|standardis|catalogue"
)


def words_of(name: str) -> list[str]:
    """Return the words of an identifier in lower case.

    >>> words_of("_NoisyCounts_of")
    ['noisy', 'counts', 'of']
    """
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def names_in(text: str) -> Iterator[tuple[str, int]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.string, token.start[0]


def banned_names(text: str) -> list[str]:
    words = set(re.findall(r"[^\W\d]\w*", text)) - FOREIGN
    banned = {word for word in words if BANNED & set(words_of(word)) or BRITISH.search(word.lower())}
    # To find the tokens takes long, and in most files no word is banned, of texts and comments either.
    return [f"{line}: {name}" for name, line in names_in(text) if name in banned] if banned else []


def test_no_name_holds_a_banned_word() -> None:
    files = [*(ROOT / "graphveil").rglob("*.py")]
    files += [path for folder in TESTS for path in (ROOT / "tests" / folder).glob("*.py")]
    found = {
        str(path.relative_to(ROOT)): banned
        for path in sorted(files)
        if (banned := banned_names(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_a_banned_word_is_found() -> None:
    assert banned_names("x.what_was_told = 1\nclass FrontDesk: pass\nneighbours = 2\n") == [
        "1: what_was_told",
        "2: FrontDesk",
        "3: neighbours",
    ]
    assert not banned_names("bookkeeping = teleport = 1\n")
