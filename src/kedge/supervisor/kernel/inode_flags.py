"""Flags that a file system keeps with a file, as `chattr` shows and sets them."""

import fcntl
import os
import struct
import sys
from typing import Final

IMMUTABLE: Final = 0x0000_0010
APPEND_ONLY: Final = 0x0000_0020
TOP_OF_HIERARCHY: Final = 0x0002_0000
_LONG: Final = struct.calcsize("l")
_GET: Final = 0x8000_6601 | _LONG << 16
_SET: Final = 0x4000_6602 | _LONG << 16


def change(descriptor: int, *, on: int = 0, off: int = 0) -> bool:
    """Set some flags and clear others; whether that changed anything. Raises OSError where the file
    system has no flags, or we may not set them."""
    flags = bytearray(_LONG)
    fcntl.ioctl(descriptor, _GET, flags)
    before = int.from_bytes(flags, sys.byteorder)
    wanted = (before | on) & ~off
    if wanted == before:
        return False
    fcntl.ioctl(descriptor, _SET, wanted.to_bytes(_LONG, sys.byteorder))
    return True


def open_and_change(path: str, at: int | None, *, on: int = 0, off: int = 0) -> bool:
    """The same for a file or directory by its name, which may be anything else by now."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags, dir_fd=at)
    try:
        return change(descriptor, on=on, off=off)
    finally:
        os.close(descriptor)
