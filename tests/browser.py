"""A page in Chromium, as wide as a test wants it: narrower than the least window is a frame in one."""

import re
import shutil
import subprocess
from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# A page says what a test asks by top.postMessage(text, "*"); it becomes the title of the window around it.
FRAME = """<meta name="color-scheme" content="light dark"><title>nothing</title>
<script>addEventListener("message", said => {{ document.title = said.data }})</script>
<body style="margin:0"><iframe src="{address}" style="border:0;width:{width}px;height:900px"></iframe>"""


def said_by(address: str, *, width: int, folder: Path, dark: bool = False) -> str:
    """Open a page in a frame of some width, and return what it posts; ``folder`` is for the profile."""
    assert BROWSER is not None
    outer = folder / "frame.html"
    outer.write_text(FRAME.format(address=address, width=width), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom"]
    flags += [f"--user-data-dir={folder / 'profile'}", f"--window-size={max(width, 500)},900"]
    flags += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=120000"]
    # In one process, or the clock would run while the frame waits for its page.
    flags += ["--disable-features=IsolateOrigins,site-per-process", "--disable-site-isolation-trials"]
    done = subprocess.run(
        [BROWSER, *flags, outer.as_uri()], capture_output=True, text=True, timeout=180, check=True
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None
    return title[1]
