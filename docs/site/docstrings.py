"""Docstrings as Markdown: examples become code blocks, and roles become plain names."""

import re

import griffe

EXAMPLE = re.compile(r"(?:^[ ]*>>>.*\n?(?:^[ ]*\S.*\n?)*)+", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([\w.]+)`")


class Markdown(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite an object's docstring."""
        if obj.docstring is not None:
            text = ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(_fenced, text)


def _fenced(found: re.Match[str]) -> str:
    return f"\n```pycon\n{found[0].rstrip()}\n```\n"
