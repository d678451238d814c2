"""Images of local volumes: sparse files with an ext4 file system, whose size is a real limit."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from kedge.node.storage import loop_device
from kedge.node.storage.volume_driver import DriverError
from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc

SMALLEST_BYTES: Final = 2 << 20
"""mkfs.ext4 makes no smaller file system with a journal that is worth its name."""
_TOOL_SECONDS: Final = 120.0
_CAP_SYS_RESOURCE: Final = 1 << 24
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_MAKE: Final = (
    "-q",
    "-F",
    "-m0",
    "-E",
    "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0",
)


def lack() -> str:
    """Return why this machine cannot enforce sizes by images; empty if it can."""
    if os.geteuid() != 0:
        return "the agent is not root"
    for tool in ("mkfs.ext4", "resize2fs", "e2fsck"):
        if shutil.which(tool, path=_PATH) is None:
            return f"{tool} is not installed"
    return loop_device.refusal()


def grows_online() -> bool:
    """Return whether the kernel lets this process grow a mounted ext4."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) & _CAP_SYS_RESOURCE)
    return False


def make(file: Path, size: int, *, formatted: bool) -> None:
    """Create an image; for a volume of mode Block without a file system."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, max(size, SMALLEST_BYTES))
    finally:
        os.close(descriptor)
    if formatted:
        _run("mkfs.ext4", *_MAKE, str(file))


def mount(file: Path, place: Path, options: tuple[str, ...] = ()) -> None:
    """Mount an image, unless it is mounted."""
    if mounts.mounted(place):
        return
    flags, data = mount_flags(options)
    device, opened = loop_device.attach(file, is_kept=False)
    try:
        libc.mount(device, str(place), "ext4", flags | libc.MS_NODEV, ",".join(data))
    finally:
        os.close(opened)


def open_new(place: Path) -> None:
    """Let any user write to the top of a volume that is as mkfs made it, and remove the directory
    of mkfs. A mode that a container chose later stays."""
    made = place / "lost+found"
    if not made.is_dir():
        return
    status = os.stat(place)
    with contextlib.suppress(OSError):
        if status.st_uid == 0 and status.st_mode & 0o7777 == 0o755:
            os.chmod(place, 0o777)
        os.rmdir(made)


def unmount(place: Path) -> None:
    """Unmount an image, if it is mounted."""
    while mounts.mounted(place):
        libc.unmount(str(place), 0)


def grow(file: Path, size: int, place: Path | None) -> bool:
    """Grow an image, mounted at `place` or not at all; return False if the kernel permits that
    only while it is not mounted. The file system is checked before it grows offline."""
    if os.stat(file).st_size < size:
        os.truncate(file, size)
    if place is None:
        _run("e2fsck", "-f", "-p", str(file), accepted=(0, 1))
        _run("resize2fs", str(file))
        return True
    device = loop_device.attached(file)
    loop_device.grow(device)
    if not grows_online():
        return False
    _run("resize2fs", device)
    return True


_FLAGS: Final = {
    "ro": libc.MS_RDONLY,
    "rw": 0,
    "nosuid": libc.MS_NOSUID,
    "nodev": libc.MS_NODEV,
    "noexec": libc.MS_NOEXEC,
    "sync": 0x10,
    "dirsync": 0x80,
    "noatime": 0x400,
    "nodiratime": 0x800,
    "relatime": 0x20_0000,
    "strictatime": libc.MS_STRICTATIME,
    "lazytime": 0x200_0000,
}


def mount_flags(options: tuple[str, ...]) -> tuple[int, list[str]]:
    """Return the flags of mount(2) for some options, and the options for the file system."""
    flags, data = 0, []
    for option in options:
        for each in option.split(","):
            if each in _FLAGS:
                flags |= _FLAGS[each]
            elif each not in ("", "defaults"):
                data.append(each)
    return flags, data


def _run(tool: str, *arguments: str, accepted: tuple[int, ...] = (0,)) -> None:
    try:
        done = subprocess.run(
            [shutil.which(tool, path=_PATH) or tool, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TOOL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DriverError(f"{tool} did not end within {_TOOL_SECONDS:g} s") from error
    if done.returncode not in accepted:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise DriverError(f"{tool} failed: {said[-1] if said else done.returncode}")
