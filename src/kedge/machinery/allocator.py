"""Settings of the C library's memory allocator."""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Names of the parameters in glibc's malloc.h."""

_LARGE_BYTES: Final = 640 << 10
"""Larger blocks are mapped one by one. The kernel clears such a block page by page when it is used,
which for a piece of a list (`object_lists.PIECE`) takes longer than everything else. So pieces must
be smaller, with some space for the last object in them."""
_FREE_BYTES: Final = 4 << 20
"""Free memory at the end of the heap that stays: a few pieces, which the next list needs again."""


def return_free_memory() -> None:
    """Make the allocator return memory to the kernel when it is freed; for long-lived processes.

    By default glibc raises the size from which it maps blocks one by one to 32 MiB as soon as a
    block of that size is freed. Later bodies of a megabyte then lie between small objects, and
    their space stays with the process. It also keeps one arena for each thread. Fixed values and
    one arena keep a server that answers hostile requests about a fifth smaller.
    """
    # Other C libraries lack the function and the problem.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _FREE_BYTES)
