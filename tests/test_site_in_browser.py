"""The documentation site in a browser: it fits a phone and a desk, light or dark, and all of it loads."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser import AXE, DRIVER, window

ROOT = Path(__file__).parents[1]
PAGES = (
    *(
        "",
        "get-started/quickstart/",
        "how-to/choose-unit/",
        "methods/classcode/",
        "privacy/proofs/accounting/",
    ),
    *("reference/cli/train/", "reference/python/estimators/", "results/"),
)
LAYOUT = """const page = document.documentElement;
const scheme = document.body.getAttribute("data-md-color-scheme");
return [innerWidth, page.scrollWidth - page.clientWidth, scheme]"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves the site."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("site") / "copy"  # the output folder must be inside the project
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "site", "tests", "*.so"))
    shutil.copytree(ROOT / "docs" / "site", folder / "docs" / "site")
    site = folder / "site"
    environment = {**os.environ, "PYTHONPATH": str(folder / "docs" / "site")}
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    subprocess.run(build, cwd=folder, env=environment, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.skipif(DRIVER is None, reason="no chromedriver is installed")
@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_nothing_fails(address: str, width: int, scheme: str) -> None:
    found = {}
    with window(width=width, dark=scheme == "slate") as shown:
        for page in PAGES:
            shown.open(address + page)
            found[page] = (shown.evaluate(LAYOUT), shown.errors(), shown.serious() if AXE else [])
    assert found == dict.fromkeys(PAGES, ([width, 0, scheme], [], []))
