"""For all tests, before anything imports torch: no thread spins while it waits, and no draw has a deadline.

Both matter on a busy machine: small models crawl where threads spin, and a deadline fails whoever waits.
"""

import os

from hypothesis import settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
settings.register_profile("graphveil", deadline=None)
settings.load_profile("graphveil")
