"""The heap of the C library: gives free memory between used blocks back to the machine."""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

from kedge.machinery.clock import Clock

TRIM_SECONDS: Final = 10.0
"""How often free memory is returned. Large bodies and documents come and go; what lies between
them and longer-lived blocks stays resident otherwise. It takes 1 to 2 ms of processor time, and
once a minute was too rare under hostile requests (docs/decisions/0053-free-memory.md)."""


async def keep_trimmed(clock: Clock) -> NoReturn:
    """Return free memory to the machine regularly, for ever."""
    trim: Callable[[], object] | None = None
    while True:
        await clock.sleep(TRIM_SECONDS)
        trim = trim or _trimmer()
        # In a thread, and ctypes releases the interpreter's lock: on a large heap it takes a while.
        await asyncio.to_thread(trim)


def _trimmer() -> Callable[[], object]:
    """Return the function of the C library. Only that of GNU has one, and only it needs one."""
    # Imported here: a server that starts has no use for it.
    import ctypes

    try:
        function = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return int
    return lambda: function(ctypes.c_size_t(0))
