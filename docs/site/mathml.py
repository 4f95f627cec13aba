"""Markdown extension: LaTeX between dollar signs becomes MathML, which browsers show without a script."""

import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

INLINE = r"(?<![\\$\w])\$(?![\s$])((?:\\.|[^$\\\n])+?(?:\n(?:\\.|[^$\\\n])+?)?)(?<!\s)\$(?!\w)"
BLOCK = re.compile(r"^\$\$(.+?)\$\$$", re.DOTALL)


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # type: ignore[override]  # noqa: N802
        return self.md.htmlStash.store(convert(" ".join(m[1].split()))), m.start(0), m.end(0)


class _Block(BlockProcessor):
    def test(self, parent: ElementTree.Element, block: str) -> bool:
        return BLOCK.match(block.rstrip()) is not None  # an indented one is dedented by its list first

    def run(self, parent: ElementTree.Element, blocks: list[str]) -> None:
        found = BLOCK.match(blocks.pop(0).strip())
        assert found is not None
        formula = ElementTree.SubElement(parent, "div", {"class": "formula"})
        formula.text = self.parser.md.htmlStash.store(convert(" ".join(found[1].split()), display="block"))


class MathML(Extension):
    """Formulas in lines and in blocks of their own."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (of Markdown)
        """Register both kinds, before emphasis is looked for."""
        md.inlinePatterns.register(_Inline(INLINE, md), "mathml", 185)
        md.parser.blockprocessors.register(_Block(md.parser), "mathml", 105)


def makeExtension(**options: Any) -> MathML:  # noqa: N802 (of Markdown)
    """Return the extension."""
    return MathML(**options)
