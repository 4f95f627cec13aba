"""Run the Python blocks of the pages, and compare their output with the text block that follows.

    python docs/site/blocks.py [PAGE ...]     # write the outputs into the pages

A test runs :func:`differences` on every page.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(?P<marker><!-- run: \w+ -->\n)?^(?P<indent> *)```python\n(?P<code>.*?)^ *```\n"
    r"(?:\n^ *```text\n(?P<output>.*?)^ *```\n)?",
    re.MULTILINE | re.DOTALL,
)


def run(text: str, marker: str = "") -> Iterator[tuple[re.Match[str], str]]:
    """Run a page's blocks in order, in an empty folder; yield each with what it prints.

    Blocks with a marker ``<!-- run: NAME -->`` only run if it is asked for.
    """
    names: dict[str, object] = {"__name__": "__page__"}
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in BLOCK.finditer(text):
                if (block["marker"] or "") != (f"<!-- run: {marker} -->\n" if marker else ""):
                    continue
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(compile(textwrap.dedent(block["code"]), "page", "exec"), names)  # our own pages
                yield block, printed.getvalue()
        finally:
            os.chdir(start)


def differences(text: str, marker: str = "") -> list[tuple[str, str]]:
    """Return pairs of shown and printed output that differ, long lines wrapped as on the page."""
    return [
        (textwrap.dedent(block["output"]), wrapped(printed))
        for block, printed in run(text, marker)
        if block["output"] is not None and textwrap.dedent(block["output"]) != wrapped(printed)
    ]


def wrapped(printed: str, width: int = 80) -> str:
    """Return output with lines that fit on a page."""
    return "".join(
        f"{part}\n" for line in printed.splitlines() for part in textwrap.wrap(line, width) or [""]
    )


def with_outputs(text: str) -> str:
    """Return a page with the output of each Python block in the text block that follows."""
    changed, longer = text, 0
    for block, printed in run(text):
        if block["output"] is not None:
            start, end = (place + longer for place in block.span("output"))
            shown = textwrap.indent(wrapped(printed), block["indent"])
            changed = changed[:start] + shown + changed[end:]
            longer += len(shown) - (end - start)
    return changed


def main() -> None:
    """Write outputs into pages that have a text block after a Python block."""
    pages = [Path(name) for name in sys.argv[1:]] or sorted(DOCS.rglob("*.md"))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        changed = with_outputs(text)
        if changed != text:
            page.write_text(changed, encoding="utf-8")
            sys.stdout.write(f"{page}\n")


if __name__ == "__main__":
    main()
