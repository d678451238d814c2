"""Memory of large blocks goes back to the kernel although small ones lie behind them."""

import subprocess
import sys

from kedge.apiserver.object_lists import PIECE

PROGRAM = """
import sys
from kedge.machinery.allocator import return_free_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) >> 8

if sys.argv[1] == "yes":
    return_free_memory()
del_later = bytearray(20 << 20)
del del_later                       # raises the threshold of an allocator that may move it
before = resident()
blocks, small = [], []
for _ in range(60):
    blocks.append(b"x" * (1 << 20))
    small.append(b"y" * 2_000)      # larger than what Python's own allocator takes
blocks.clear()
print(resident() - before)
"""


def left_over(returns: str) -> int:
    """Return the megabytes that stay with a process after it freed sixty."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, returns], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_freed_blocks_go_back_to_the_kernel() -> None:
    assert left_over("yes") < 5


def test_without_the_settings_they_do_not() -> None:
    assert left_over("no") > 10


FAULTS = """
import resource, sys
from kedge.machinery.allocator import return_free_memory

return_free_memory()
small = b"s" * 1000
for round_ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        b"".join([small] * (int(sys.argv[1]) // 1000 + 20))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_pieces_of_lists_use_memory_that_is_mapped_already() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, str(PIECE)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 100
