"""Directories whose subdirectories have nothing to do with each other, which the disk is told."""

import contextlib
import fcntl
import os
import struct
import sys
from typing import Final

_TOP: Final = 0x0002_0000
_LONG: Final = struct.calcsize("l")
_GET: Final = 0x8000_6601 | _LONG << 16
_SET: Final = 0x4000_6602 | _LONG << 16


def spread(directory: str) -> None:
    """Let the file system put each subdirectory somewhere else, as `chattr +T` does for ext4.

    It would put all of them in one place, where those that were just deleted are in the way of
    new ones: without a journal, ext4 looks at each of them before it makes another, which is dear
    where pods come and go. Other file systems have no such flag, and no such trouble.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = bytearray(_LONG)
            fcntl.ioctl(descriptor, _GET, flags)
            wanted = int.from_bytes(flags, sys.byteorder) | _TOP
            fcntl.ioctl(descriptor, _SET, wanted.to_bytes(_LONG, sys.byteorder))
        finally:
            os.close(descriptor)
