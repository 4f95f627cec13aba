"""Write the outputs of the notebooks: `python docs/site/notebooks.py`. A test runs them and compares."""

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "tutorials"


def main() -> None:
    """Run every notebook, and store what its cells print."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell, printed in zip(_code(notebook), run(notebook), strict=True):
            stream = {"name": "stdout", "output_type": "stream", "text": printed.splitlines(True)}
            cell["outputs"] = [stream] if printed else []
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def run(notebook: dict[str, Any]) -> list[str]:
    """Run a notebook's code in order in an empty folder; return what each cell prints."""
    names: dict[str, object] = {"__name__": "__notebook__"}
    printed, here = [], Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(_code(notebook)):
                with contextlib.redirect_stdout(io.StringIO()) as told:
                    exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)  # our own pages
                printed.append(told.getvalue())
        finally:
            os.chdir(here)
    return printed


def stored(notebook: dict[str, Any]) -> list[str]:
    """Return what each code cell of a notebook is said to print."""
    return [
        "".join(line for output in cell["outputs"] for line in output["text"]) for cell in _code(notebook)
    ]


def _code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


if __name__ == "__main__":
    main()
