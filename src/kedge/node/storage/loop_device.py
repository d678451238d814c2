"""Loop devices: files of the machine as block devices."""

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

_CONTROL: Final = "/dev/loop-control"
_GET_FREE: Final = 0x4C82
_CONFIGURE: Final = 0x4C0A
_CLEAR: Final = 0x4C01
_SET_CAPACITY: Final = 0x4C07
_AUTOCLEAR: Final = 4
_CONFIG_BYTES: Final = 304
_FLAGS_AT: Final = 4 + 4 + 40 + 12
"""Where `lo_flags` is in struct loop_config."""
_ATTEMPTS: Final = 16


def attached(file: Path) -> str:
    """Return the device of a file; empty if it has none.

    A file must not have two devices: two file systems would write to the same blocks.
    """
    wanted = str(file.resolve())
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if entry.read_text().rstrip("\n") == wanted:
                return f"/dev/{entry.parts[3]}"
    return ""


def attach(file: Path, *, is_kept: bool) -> tuple[str, int]:
    """Attach a file; return the device and a descriptor of it, which the caller closes. Unless it
    is kept, the device goes with its last user."""
    if found := _opened(file):
        return found
    backing = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for _ in range(_ATTEMPTS):
            device = f"/dev/loop{_free()}"
            opened = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(opened, _CONFIGURE, _config(backing, 0 if is_kept else _AUTOCLEAR))
                return device, opened
            except OSError as error:
                os.close(opened)
                # Another process has taken it.
                if error.errno != errno.EBUSY:
                    raise
    finally:
        os.close(backing)
    raise OSError(errno.EBUSY, "no loop device is free")


def detach(file: Path) -> None:
    """Detach the device of a file, if it has one."""
    if found := _opened(file):
        _, opened = found
        try:
            with contextlib.suppress(FileNotFoundError):
                fcntl.ioctl(opened, _CLEAR)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        finally:
            os.close(opened)


def _opened(file: Path) -> tuple[str, int] | None:
    """Return the device of a file and a descriptor of it; None if the file has no device."""
    if not (device := attached(file)):
        return None
    opened = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    # The kernel gives an open device to no other file; it may have done so just before.
    if attached(file) == device:
        return device, opened
    os.close(opened)
    return None


def grow(device: str) -> None:
    """Have a device take the new size of its file."""
    opened = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(opened, _SET_CAPACITY)
    finally:
        os.close(opened)


def refusal() -> str:
    """Return why this process cannot use loop devices; empty if it can."""
    try:
        os.close(os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{_CONTROL}: {os.strerror(error.errno or 0).lower()}"
    return ""


def _free() -> int:
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _GET_FREE)
    finally:
        os.close(control)


def _config(backing: int, flags: int) -> bytes:
    config = bytearray(_CONFIG_BYTES)
    struct.pack_into("=I", config, 0, backing)
    struct.pack_into("=I", config, _FLAGS_AT, flags)
    return bytes(config)
