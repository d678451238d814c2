"""The heap of the C library."""

import ctypes
from collections.abc import Callable
from functools import cache


def trim() -> None:
    """Return free memory between live objects to the system, if the C library can.

    glibc keeps it otherwise, however much it is; musl has no such function.
    """
    if (function := _malloc_trim()) is not None:
        function(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
