"""Memory: what was needed for a while goes back to the machine."""

import ctypes
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Let the machine have what is free between things that are still in use.

    The C library keeps it otherwise, however much it is; not every one can be asked for it.
    """
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
