"""Settings of the C library's memory allocator."""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Names of the parameters in glibc's malloc.h."""

_LARGE_BYTES: Final = 256 << 10
_FREE_BYTES: Final = 1 << 20


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
