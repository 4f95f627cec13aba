"""What MkDocs does not do by itself: pages from the root of the repository, decisions, notebooks, and links.

Pages link to files as they lie in the repository, so that they can be read there, too. On the site a file
that has a page is linked to that page, and any other file (a test, a module) is named without a link.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "README.md": "index.md",
}
NOTEBOOKS = "tutorials"
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of the folder, and a page for each notebook."""
    for source, page in OUTSIDE.items():
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for notebook in sorted((ROOT / "docs" / NOTEBOOKS).glob("*.ipynb")):
        page = f"{NOTEBOOKS}/{notebook.stem}.md"
        files.append(
            File.generated(config, page, content=as_markdown(json.loads(notebook.read_text("utf-8"))))
        )
    files.append(File.generated(config, "decisions/index.md", content=_decisions()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead every link to a page of the site, or to nothing."""
    home = {there: here for here, there in OUTSIDE.items()}
    lies = Path(home.get(page.file.src_uri, f"docs/{page.file.src_uri}")).parent

    def lead(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = Path(os.path.normpath(lies / target)).as_posix()
        there = OUTSIDE.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(there) is not None:
            return f"[{text}]({os.path.relpath(there, Path(page.file.src_uri).parent)}{anchor})"
        if not (ROOT / path).exists():
            return link[0]  # which the strict build refuses
        return text if "`" in text else f"{text} (`{path}`)"

    return LINK.sub(lead, markdown)


def _decisions() -> str:
    """Return the list of decisions, each by its first line."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = [(page.name, page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")) for page in pages]
    lines = [f"* [{title}]({name})" for name, title in titles]
    return "\n".join(
        ["# Decisions", "", "What was chosen, against what, and by which measurement.", "", *lines, ""]
    )


def as_markdown(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page: its text, its code, and what the code printed."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    printed = "".join(line for output in cell["outputs"] for line in output.get("text", ()))
    return [f"```python\n{source}\n```", *([f"```text\n{printed.rstrip()}\n```"] if printed else [])]
