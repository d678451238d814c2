"""Corrections of the inherited environment of a command, made before it opens anything."""

import contextlib
import os
from typing import Final

_STANDARD: Final = (0, 1, 2)
_OWNER: Final = 0o700


def put_right() -> None:
    """Have the three standard descriptors, and files that their owner may use."""
    _open_standard()
    _spare_owner()


def _open_standard() -> None:
    # A daemon or `kedge up >&-` may leave one of them closed. The next file or pipe that is opened
    # would get its number, and be closed or written to as if it were the standard one.
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                # The lowest free number is this one: those below it are open.
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _spare_owner() -> None:
    # All that is kept is for its owner. With a mask that takes the owner's rights away too, not
    # even a later command could stop the cluster.
    os.umask(os.umask(0o077) & ~_OWNER)
