"""What a chunk frees is there for the next chunk."""

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import resource, torch
import graphveil.estimators.gnn.multi_hop  # as in a fit: what is loaded decides where the heap ends
from graphveil.core.clipping.ego_graphs import keep_freed_memory
torch.set_num_threads(1)
keep_freed_memory()

def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def chunk():
    tables = [torch.ones(18 << 18) for _ in range(3)]  # 18 MiB each
    return sum(float(table[0]) for table in tables)

chunk()
before = faults()
for _ in range(4): chunk()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory by other rules")
def test_memory_of_a_chunk_is_not_new_for_the_next() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 55_296 / 4  # pages that four chunks would request
