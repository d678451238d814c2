"""Devices that a container may open, as rules for cgroup v1 and as a BPF program for cgroup v2."""

import errno
import os
import stat
import struct
from typing import Final

from kedge.supervisor.kernel import libc
from kedge.supervisor.spec import DeviceNode

NODES: Final = (
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
)
"""Devices that every container has: name, major and minor number."""

ALWAYS: Final = (
    "c *:* m",
    "b *:* m",
    *(f"c {major}:{minor} rwm" for _, major, minor in NODES),
    "c 136:* rwm",
    "c 5:2 rwm",
)
"""Rules for every container: it may make any node (which opens nothing), and open the devices above
and terminals."""

EVERYTHING: Final = ("a *:* rwm",)

_LOAD: Final = 5
_ATTACH: Final = 8
_TYPE_CGROUP_DEVICE: Final = 15
_ATTACH_CGROUP_DEVICE: Final = 6
_ACCESS: Final = {"m": 1, "r": 2, "w": 4}


MKNOD: Final = 1 << 27
"""The capability to make device nodes."""


def rule(device: DeviceNode) -> str:
    """Return the rule for a device of a container."""
    status = os.stat(device["source"])
    kind = "b" if stat.S_ISBLK(status.st_mode) else "c"
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    return f"{kind} {major}:{minor} {device['permissions'] or 'rwm'}"


def null() -> int:
    """Return an O_PATH descriptor of the machine's null device, for bind mounts.

    It is opened before any volume of the pod is mounted, and checked by descriptor: a volume
    with its own /dev/null could otherwise replace the masks (CVE-2025-31133).
    """
    found = os.open("/dev/null", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(found)
    if not stat.S_ISCHR(status.st_mode) or status.st_rdev != os.makedev(1, 3):
        os.close(found)
        raise OSError(errno.ENODEV, "/dev/null of the machine is not the null device")
    return found


def open_null() -> int:
    """Return a descriptor of the null device for a container to read and write.

    With a descriptor root can change mode and owner of the file (fchmod), which is the machine's.
    So the descriptor is opened on a detached read-only mount. runc opens the container's own null
    device instead, but a volume may have replaced that one.
    """
    try:
        tree = libc.open_tree("/dev/null", recursive=False)
    except OSError:
        # Without the right to mount, either no process here is root or containers are not isolated.
        return os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    try:
        libc.set_mount(tree, on=libc.ATTR_RDONLY)
        return os.open(f"/proc/self/fd/{tree}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(tree)


def program(rules: list[str]) -> bytes:
    """Return a BPF program that allows an access if one of the rules does.

    Its context is type and access in one word, then major and minor number; it returns 0 or 1.
    """
    code = [
        _op(0x61, 2, 1, 0),  # r2 = *(u32 *)(r1 + 0)
        _op(0xBC, 3, 2),  # w3 = w2
        _op(0x54, 2, immediate=0xFFFF),  # w2 &= 0xffff: block 1, char 2
        _op(0x74, 3, immediate=16),  # w3 >>= 16: the access that is wanted
        _op(0x61, 4, 1, 4),  # r4 = major
        _op(0x61, 5, 1, 8),  # r5 = minor
    ]
    for each in rules:
        code += _allow(each)
    code += [_op(0xB4, 0, immediate=0), _op(0x95)]
    return b"".join(code)


def _allow(text: str) -> list[bytes]:
    kind, numbers, access = text.split()
    major, minor = numbers.split(":")
    mask = sum(_ACCESS[letter] for letter in access)
    # Each check jumps behind the rule when it does not fit.
    checks: list[tuple[int, int, int]] = []
    if kind != "a":
        checks.append((0x56, 2, 1 if kind == "b" else 2))
    if major != "*":
        checks.append((0x56, 4, int(major)))
    if minor != "*":
        checks.append((0x56, 5, int(minor)))
    body = [_op(0xBC, 1, 3), _op(0x54, 1, immediate=~mask & 7)]  # w1 = w3 & what is not allowed
    tail = [_op(0xB4, 0, immediate=1), _op(0x95)]
    length = len(checks) + len(body) + 1 + len(tail)
    code = [
        _op(operation, register, 0, length - place - 1, value)
        for place, (operation, register, value) in enumerate(checks)
    ]
    return [*code, *body, _op(0x56, 1, 0, len(tail), 0), *tail]


def _op(code: int, target: int = 0, source: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    return struct.pack("<BBhi", code, target | source << 4, offset, immediate)


def attach(directory: str, rules: list[str]) -> None:
    """Enforce the rules for a group of cgroup v2."""
    loaded = _load(program(rules))
    group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc.bpf(_ATTACH, struct.pack("=IIII", group, loaded, _ATTACH_CGROUP_DEVICE, 0))
    finally:
        os.close(group)
        os.close(loaded)


def _load(code: bytes) -> int:
    held, licence = libc.buffer(code), libc.buffer(b"Apache-2.0\0")
    attributes = struct.pack(
        "=IIQQIIQII16s",
        _TYPE_CGROUP_DEVICE,
        len(code) // 8,
        libc.address(held),
        libc.address(licence),
        0,
        0,
        0,
        0,
        0,
        b"",
    )
    return libc.bpf(_LOAD, attributes)
