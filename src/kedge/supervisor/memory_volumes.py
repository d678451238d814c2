"""Volumes in memory of an ordinary user's pods.

Only the supervisor may mount, in its own mount namespace, which containers start from. Agents do
not see the mount. The kernel removes it when an agent removes the directory below it.
"""

import os
from typing import Final

from kedge.supervisor import subordinate_ids
from kedge.supervisor.kernel import libc
from kedge.supervisor.server import AgentRequest, RequestError

_SAFE: Final = libc.MS_NOSUID | libc.MS_NODEV
_MODES: Final = 0o7777


def mount(call: AgentRequest) -> None:
    """Mount a tmpfs at a directory, unless a file system is mounted there."""
    place = str(call.message["place"])
    size, mode, group = (int(call.message[key]) for key in ("size", "mode", "group"))
    if not os.path.isabs(place) or not os.path.isdir(place):
        raise RequestError(f"{place} is not a directory")
    if not is_mounted(place):
        libc.mount("tmpfs", place, "tmpfs", _SAFE, options(size, mode, group))
    call.answer()


def options(size: int, mode: int, group: int) -> str:
    """Return the mount options; a size of 0 is the kernel's default, a group that the user
    namespace lacks is left out."""
    found = [f"mode={mode & _MODES:o}"]
    if size > 0:
        found.append(f"size={size}")
    if group >= 0 and subordinate_ids.are_present(0, group):
        found.append(f"gid={group}")
    return ",".join(found)


def is_mounted(place: str) -> bool:
    """Return whether a file system is mounted at a directory."""
    return os.stat(place).st_dev != os.stat(os.path.dirname(place)).st_dev
