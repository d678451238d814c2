"""Facts about the machine: capacity, operating system, identity."""

import os
import platform
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}

PRESSURE_BYTES: Final = 1 << 30
PRESSURE_SHARE: Final = 0.1
"""A disk with less free space than both is nearly full. The share is that of the kubelet's default
(nodefs.available<10%); of a large disk it would be more than most machines of developers have."""
PRESSURE_FILES: Final = 10_000
PRESSURE_FILES_SHARE: Final = 0.05
"""The same for the files that can still be created."""


class MachineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a machine."""

    hostname: str
    cpus: int
    memory: int
    """Bytes, like swap and disk."""
    swap: int = 0
    disk: int = 0
    """The size of the file system with the node's state."""
    hugepages: dict[str, int] = {}
    """Bytes by page size as in resource names: 2Mi, 1Gi."""
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel: str = ""
    os_image: str = ""
    architecture: str = ""


def read(state: Path, root: Path = Path("/")) -> MachineInfo:
    """Return the facts about this machine from its files."""
    memory = meminfo((root / "proc/meminfo").read_text())
    disk = os.statvfs(state)
    return MachineInfo(
        hostname=platform.node().lower(),
        cpus=len(os.sched_getaffinity(0)),
        memory=memory["MemTotal"],
        swap=memory.get("SwapTotal", 0),
        disk=disk.f_blocks * disk.f_frsize,
        hugepages=_hugepages(root / "sys/kernel/mm/hugepages"),
        machine_id=_text(root / "etc/machine-id"),
        system_uuid=_text(root / "sys/class/dmi/id/product_uuid"),
        boot_id=_text(root / "proc/sys/kernel/random/boot_id"),
        kernel=platform.release(),
        os_image=os_name(_text(root / "etc/os-release")),
        architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
    )


class FileSystemSpace(NamedTuple):
    """How full a file system is."""

    size: int
    available: int
    """Bytes for users other than root, like the size."""
    files: int
    """How many there can be; 0 if the file system has no such limit."""
    available_files: int

    @property
    def is_short(self) -> bool:
        """Whether little more can be written."""
        if self.available < min(PRESSURE_BYTES, self.size * PRESSURE_SHARE):
            return True
        least = min(PRESSURE_FILES, self.files * PRESSURE_FILES_SHARE)
        return self.files > 0 and self.available_files < least


def disk_space(directory: Path) -> FileSystemSpace:
    """Return the space on the file system of a directory. Raises OSError."""
    found = os.statvfs(directory)
    unit = found.f_frsize
    return FileSystemSpace(
        found.f_blocks * unit, found.f_bavail * unit, found.f_files, found.f_favail
    )


def is_disk_short(directory: Path) -> bool:
    """Return whether little more can be written to the file system of a directory."""
    try:
        return disk_space(directory).is_short
    except OSError:
        return False  # a directory that is gone has other consequences


def meminfo(text: str) -> dict[str, int]:
    """Return the values of /proc/meminfo in bytes."""
    amounts = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number, _, unit = rest.strip().partition(" ")
        amounts[name] = int(number) * (1024 if unit == "kB" else 1)
    return amounts


def os_name(text: str) -> str:
    """Return PRETTY_NAME of an os-release file."""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip("\"'")
    return "Linux"


def _hugepages(directory: Path) -> dict[str, int]:
    found = {}
    for entry in sorted(directory.glob("hugepages-*kB")):
        size = int(entry.name.removeprefix("hugepages-").removesuffix("kB")) * 1024
        number = _text(entry / "nr_hugepages")
        unit = f"{size >> 30}Gi" if size >= 2**30 else f"{size >> 20}Mi"
        if size >= 2**20 and number.isdigit():
            found[unit] = int(number) * size
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        # Not every machine has all of these files, and not every user may read them.
        return ""
