"""Pages use the terms of the field, in sentences and lines that fit."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "decisions" not in page.parts]
GENERATED = {"cli", "python"}  # of help texts and docstrings, which have a test of their own
NOT_OURS = re.compile(  # left of the dictionary: metaphors, archaisms, and words with a better term
    r"\b(?:told|tells?|telling|heard|hears?|hearing|listens?|listening|speaks?|spoke|spoken|says?|said|saying|"
    r"asks?|asked|asking|whoever|whatever|anybody|somebody|nobody|everybody|beside|anew|book|books|booked|"
    r"booking|bookings|vouch(?:es)?|foretells?|the floor|a floor|floors|honest(?:ly)?|by heart|in words|"
    r"in plain words|as ever|at hand|of one's own|the house|the door|what leaves|it is had|can be had|"
    r"one a node|a node a row|a row a node|the price|paid by|pays for|promises?|promised|friendships?)\b",
    re.IGNORECASE,
)
LONGEST_SENTENCE, LONGEST_CODE, LONGEST_PAGE = 35, 80, 1500


def prose(text: str) -> str:
    """Return a page without code, tables, quotations of statements, and targets of links."""
    text = re.sub(r"(?ms)^( *)(```|~~~).*?^\1\2", " ", text)
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("|", "<")))
    text = re.sub(r'"[^"]*"', "x", text)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "x", text))


def sentences(text: str) -> Iterator[str]:
    text = re.sub(r"\$[^$]*\$", "x", text)
    for part in re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*[-*#\d]+\.?\s", text):
        if len(part.split()) > 2:
            yield " ".join(part.split())


def code_lines(text: str) -> Iterator[str]:
    for block in re.findall(r"(?ms)^ *```\w*\n(.*?)^ *```", text):
        yield from block.splitlines()


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if not GENERATED & set(page.parts)], ids=named)
def test_a_page_is_in_the_terms_of_the_field(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    plain = prose(text)
    assert [found[0] for found in NOT_OURS.finditer(plain)] == []
    if "proofs" not in page.parts:
        assert [one for one in sentences(plain) if len(one.split()) > LONGEST_SENTENCE] == []
        assert len(re.findall(r"[A-Za-z']+", plain)) <= LONGEST_PAGE
    assert [line for line in code_lines(text) if len(line) > LONGEST_CODE and "pip install" not in line] == []
    assert not re.search(r":(?:class|func|meth|mod|attr):`", text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The ledger says no.", ["says"]),
        ("An honest floor.", ["honest"]),
        ("`ask` is code", []),
        ("a privacy budget", []),
    ],
)
def test_the_search_finds_words(text: str, found: list[str]) -> None:
    assert [one[0] for one in NOT_OURS.finditer(prose(text))] == found


def test_a_long_sentence_is_found() -> None:
    assert [len(one.split()) for one in sentences("word " * 40 + "end. Short one here.")] == [41, 3]


@pytest.mark.parametrize(
    "term",
    [
        "privacy budget",
        "privacy loss",
        "neighboring datasets",
        "sensitivity",
        "post-processing",
        "differential privacy",
    ],
)
def test_the_pages_use_the_names_of_the_field(term: str) -> None:
    assert sum(page.read_text(encoding="utf-8").lower().count(term) for page in PAGES) >= 5
