"""How many functions of the package run before the first noise is drawn, and how many modules are loaded.

A reader who follows one fit has to read these. Usage: ``python benchmarks/first_draw.py [--list]``.
"""

import contextlib
import inspect
import io
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

CASES = ("gap", "classcode", "train")
_PACKAGE = str(Path(__file__).parents[1] / "graphveil") + "/"


class _Drawn(BaseException):
    """Ends a run at the first draw; the package must not catch it."""


def calls_before_draw(run: Callable[[], object]) -> set[tuple[str, str]]:
    """Return file and name of each function of the package that runs before the first draw of noise."""
    found = set[tuple[str, str]]()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_PACKAGE):
            return
        file = code.co_filename.removeprefix(_PACKAGE)
        if file.startswith("core/noise/") and code.co_name == "draw":
            sys.setprofile(None)
            raise _Drawn
        # Bodies of modules and classes, and nameless parts of functions, are no functions.
        if code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
            found.add((file, code.co_qualname))

    sys.setprofile(profile)
    try:
        run()
    except _Drawn:
        return found
    finally:
        sys.setprofile(None)
    raise AssertionError("the run draws no noise")


def _run(case: str) -> Callable[[], object]:
    if case == "train":
        from graphveil.cli import main

        folder = tempfile.mkdtemp()
        options = f"--dataset synthetic/tiny --epsilon 1 --unit undirected-edge --out {folder}/run"
        return lambda: main(["train", "classcode", *options.split()])
    import graphveil as gv

    graph = gv.load_dataset("synthetic/tiny")
    kind = gv.GAP if case == "gap" else gv.ClassCode
    model = kind(unit="undirected-edge", epsilon=1.0, seed=0)
    return lambda: model.fit(graph)


def main() -> None:
    """Print one line for each case, each measured in a process of its own."""
    listed = "--list" in sys.argv
    cases = [case for case in CASES if case in sys.argv[1:]]
    if len(cases) != 1:
        for case in cases or CASES:
            subprocess.run([sys.executable, __file__, case, *(["--list"] if listed else [])], check=True)
        return
    run = _run(cases[0])
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = calls_before_draw(run)
    modules = sum(name.partition(".")[0] == "graphveil" for name in sys.modules)
    files = Counter(file for file, _ in found)
    print(f"{cases[0]}: {len(found)} functions in {len(files)} files; {modules} modules imported")
    if listed:
        for file, count in sorted(files.items()):
            names = ", ".join(sorted(name for other, name in found if other == file))
            print(f"  {file} ({count}): {names}")


if __name__ == "__main__":
    main()
