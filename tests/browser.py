"""A page in Chromium, as wide as a test wants it: narrower than the least window is a frame in one."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
AXE = os.environ.get("AXE")  # axe.min.js of the npm package axe-core
# Calls back with the rules that a page breaks: how badly, which, and where first.
RUN_AXE = """const done = arguments[0];
const said = rule => `${rule.impact} ${rule.id} at ${rule.nodes[0].target.join(" ")}`;
axe.run({resultTypes: ["violations"]}).then(
  found => done([found.passes.length, found.violations.map(said)]),
  failed => done([0, [`critical ${failed}`]])
);"""
# A page sends what a test reads by top.postMessage(text, "*"); it becomes the title of the window around it.
FRAME = """<meta name="color-scheme" content="light dark"><title>nothing</title>
<script>addEventListener("message", said => {{ document.title = said.data }})</script>
<body style="margin:0"><iframe src="{address}" style="border:0;width:{width}px;height:900px"></iframe>"""


def printed_by(address: str, *, width: int, folder: Path, dark: bool = False) -> str:
    """Open a page in a frame of some width, and return what it posts; ``folder`` is for the profile."""
    assert BROWSER is not None
    outer = folder / "frame.html"
    outer.write_text(FRAME.format(address=address, width=width), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom"]
    flags += [f"--user-data-dir={folder / 'profile'}", f"--window-size={max(width, 500)},900"]
    flags += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=120000"]
    # In one process, or the clock would run while the frame waits for its page.
    flags += ["--disable-features=IsolateOrigins,site-per-process", "--disable-site-isolation-trials"]
    stated = "nothing"
    for _ in range(3):  # on a busy machine the clock may run out before the page is there
        done = subprocess.run(
            [BROWSER, *flags, outer.as_uri()], capture_output=True, text=True, timeout=180, check=True
        )
        title = re.search(r"<title>(.*?)</title>", done.stdout)
        assert title is not None
        stated = title[1]
        if stated != "nothing":
            break
    return stated


@dataclass(frozen=True)
class Window:
    """A window of a browser that is driven: no virtual time, so that long scripts end.

    Args:
        address: of its session at the driver.
    """

    address: str

    def open(self, page: str) -> None:
        """Load a page."""
        _called("POST", f"{self.address}/url", url=page)

    def evaluate(self, script: str) -> Any:
        """Return what a script returns."""
        return _called("POST", f"{self.address}/execute/sync", script=script, args=[])

    def serious(self) -> list[str]:
        """Return the rules of axe-core that the page breaks badly."""
        assert AXE is not None
        self.evaluate(f"{Path(AXE).read_text(encoding='utf-8')}; window.axe = axe;")
        passed, broken = _called("POST", f"{self.address}/execute/async", script=RUN_AXE, args=[])
        assert passed > 20  # it looked
        return [words for words in broken if words.startswith(("serious", "critical"))]

    def errors(self) -> list[str]:
        """Return what the console calls severe since the last call."""
        stated = _called("POST", f"{self.address}/se/log", type="browser")
        return [entry["message"] for entry in stated if entry["level"] == "SEVERE"]


@contextmanager
def window(*, width: int, dark: bool) -> Iterator[Window]:
    """Open a window of some width."""
    assert DRIVER is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen([DRIVER, f"--port={port}", "--silent"], stdout=subprocess.DEVNULL)
    try:
        root = f"http://127.0.0.1:{port}"
        _until_ready(root)
        yield Window(
            f"{root}/session/{_called('POST', f'{root}/session', **_capabilities(width, dark))['sessionId']}"
        )
    finally:
        driver.terminate()  # and its browser with it
        driver.wait()


def _capabilities(width: int, dark: bool) -> dict[str, Any]:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    flags += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    metrics = {"width": width, "height": 900, "pixelRatio": 1.0, "mobile": False, "touch": False}
    options = {"args": flags, "mobileEmulation": {"deviceMetrics": metrics}}
    wanted = {
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"browser": "ALL"},
        "timeouts": {"script": 240_000, "pageLoad": 240_000},
    }
    return {"capabilities": {"alwaysMatch": wanted}}


def _until_ready(root: str) -> None:
    """Wait until the driver answers."""
    for _ in range(300):
        try:
            _called("GET", f"{root}/status")
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(root)


def _called(method: str, address: str, **body: object) -> Any:
    data = json.dumps(body).encode() if method == "POST" else None
    arguments = urllib.request.Request(
        address, data=data, method=method, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(arguments, timeout=300) as answer:
        return json.loads(answer.read())["value"]
