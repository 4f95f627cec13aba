"""Before anything imports torch: threads wait without spinning, or small models crawl on a busy machine."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
