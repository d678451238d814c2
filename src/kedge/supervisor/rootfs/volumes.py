"""Volumes: bind mounts of files and directories of the machine.

A volume is opened as a detached mount while the machine's files are still reachable, and attached
later, when the root is complete. Both ends are descriptors. Containers that share the volume or
the image can replace any path by a link at any time, so neither end is looked up twice.
"""

import errno
import os
from typing import Final

from kedge.supervisor.files import beneath
from kedge.supervisor.kernel import libc
from kedge.supervisor.rootfs import idmapped, inside, mounts
from kedge.supervisor.spec import BindMount

_REPLACEABLE: Final = (
    "cpuinfo",
    "diskstats",
    "loadavg",
    "meminfo",
    "slabinfo",
    "stat",
    "swaps",
    "uptime",
    "sys/crypto/fips_enabled",
    "sys/kernel/ns_last_pid",
)
"""Files below /proc over which a pod may mount its own, as with runc; lxcfs needs this."""
_PROPAGATION: Final = {
    "None": libc.MS_PRIVATE,
    "HostToContainer": libc.MS_SLAVE,
    "Bidirectional": libc.MS_SHARED,
}


class UnsafeMount(OSError):
    """A mount that would break the container's confinement."""


def open_tree(bind: BindMount, userns: int, *, no_devices: bool) -> int:
    """Return a volume as a detached mount with the requested attributes."""
    source = bind["source"]
    if bind["propagation"] == "Bidirectional":
        _need_shared(source)
    try:
        tree = _source_tree(bind)
        if userns >= 0:
            idmapped.show(tree, source, userns)
        # Before `build` makes all mounts private: a private copy of a shared mount cannot become
        # its slave any more.
        libc.set_mount(tree, propagation=_PROPAGATION[bind["propagation"]], recursive=True)
        if no_devices:
            libc.set_mount(tree, on=libc.ATTR_NODEV, recursive=True)
        if bind["read_only"]:
            libc.set_mount(tree, on=libc.ATTR_RDONLY, recursive=bind["recursive"])
    except OSError as error:
        raise _unmountable(bind, error) from error
    return tree


def _source_tree(bind: BindMount) -> int:
    """Return the source of a bind mount as a detached tree. Other containers of the pod may
    write to the volume, and replace any directory of a subPath by a link; the kernel resolves it
    inside the volume, and the result is mounted (CVE-2017-1002101, CVE-2021-25741)."""
    if not bind["part"]:
        return libc.open_tree(bind["source"])
    with beneath.directory(bind["source"]) as top:
        found = beneath.locate(top, bind["part"], across_mounts=True)
    try:
        return libc.open_tree("", at=found)
    finally:
        os.close(found)


def _need_shared(source: str) -> None:
    """Raise unless the source is on a shared mount; otherwise mounts that the container makes
    below it would not appear on the machine."""
    path, best, shared = os.path.realpath(source), "", False
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        for line in file:
            fields = line.partition(" - ")[0].split(" ")
            place = fields[4].replace("\\040", " ")
            inside_it = f"{path}/".startswith(place.rstrip("/") + "/")
            if inside_it and len(place) >= len(best):
                best, shared = place, any(each.startswith("shared:") for each in fields[6:])
    if not shared:
        raise OSError(22, f'path "{source}" is mounted on "{best}" but it is not a shared mount')


def attach(root: int, bind: BindMount, tree: int, proc: int) -> None:
    """Mount a volume. Its target is a descriptor, so that it cannot be replaced between the
    check and the mount (CVE-2021-30465)."""
    try:
        target = inside.like(root, bind["target"], tree)
        _refuse_proc(target, bind, proc)
        libc.move_mount(tree, target)
        os.close(target)
        os.close(tree)
    except OSError as error:
        raise _unmountable(bind, error) from error


def _refuse_proc(target: int, bind: BindMount, proc: int) -> None:
    """Refuse to mount over /proc or below it, except over some files that describe the machine.

    A volume there would replace files that security depends on (CVE-2019-16884,
    CVE-2023-28642). runc has the same rule and the same exceptions.
    """
    below = f"{os.readlink(mounts.path_of(proc))}/"
    where = f"{os.readlink(mounts.path_of(target))}/"
    if where.startswith(below) and where.removeprefix(below).rstrip("/") not in _REPLACEABLE:
        what = f'"{bind["source"]}" at "{bind["target"]}"'
        raise UnsafeMount(errno.EPERM, f"failed to mount {what}: it is inside /proc")


def _unmountable(bind: BindMount, error: OSError) -> OSError:
    if isinstance(error, UnsafeMount):
        return error
    number = error.errno or 0
    unmappable = isinstance(error, idmapped.Unmappable)
    reason = str(error.strerror) if unmappable else os.strerror(number).lower()
    return OSError(number, f'failed to mount "{bind["source"]}" at "{bind["target"]}": {reason}')
