"""The documentation site in a browser: it fits a phone and a desk, light or dark, and all of it loads."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser import BROWSER, said_by

ROOT = Path(__file__).parents[1]
PAGES = ("", "start/engineer/", "methods/", "reproduce/", "results/graphveil-frontier.strict/", "audit/")
# Posts what a test asks: width, overflow, colours, what failed.
PROBE = """<script>
const failed = [];
addEventListener("error", e => failed.push(e.message || e.target.src || e.target.href), true);
console.error = (...words) => failed.push(words.join(" "));
addEventListener("load", () => {
  const page = document.documentElement, wide = page.scrollWidth - page.clientWidth;
  const colours = document.body.getAttribute("data-md-color-scheme");
  top.postMessage(`${innerWidth} wide, ${wide} beyond, ${colours}: ${failed}`, "*");
});
</script>"""


class Probed(SimpleHTTPRequestHandler):
    """Serves pages with the probe in them."""

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path)) / "index.html"
        if not path.is_file():
            super().do_GET()
            return
        page = path.read_text("utf-8").replace("<head>", f"<head>{PROBE}", 1).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("mkdocs")
    site = tmp_path_factory.mktemp("site")
    build = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([sys.executable, "-m", *build], cwd=ROOT, env=quiet, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Probed, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_nothing_fails(address: str, width: int, scheme: str, tmp_path: Path) -> None:
    dark = scheme == "slate"
    found = {page: said_by(address + page, width=width, folder=tmp_path, dark=dark) for page in PAGES}
    assert found == dict.fromkeys(PAGES, f"{width} wide, 0 beyond, {scheme}: ")
