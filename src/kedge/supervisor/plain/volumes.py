"""The volumes of a container without mounts, as descriptors that its links lead to."""

import os
from typing import Final

from kedge.supervisor.files import beneath
from kedge.supervisor.spec import BindMount

ROOT: Final = "copy"
"""The directory of a container with its root."""
OF_EVERY_CONTAINER: Final = frozenset(
    {
        "/dev/termination-log",
        "/etc/hostname",
        "/etc/hosts",
        "/etc/resolv.conf",
        "/var/run/secrets/kubernetes.io/serviceaccount",
    }
)
"""Mounts that no user asks for: without them a container starts all the same."""


class MountRefusal(OSError):
    """A mount that cannot be replaced; the text is for the user."""


def hold(binds: list[BindMount], numbers: dict[str, int]) -> None:
    """Open the volumes with a link under their numbers, for the program and its children."""
    for bind in binds:
        number = numbers.get(bind["target"])
        if number is None:
            continue
        try:
            found = open_source(bind)
            os.dup2(found, number)
            os.close(found)
        except OSError as error:
            raise failed_mount(bind, error) from error


def failed_mount(bind: BindMount, error: OSError) -> OSError:
    """Return the error of a volume, with its paths."""
    what = f'failed to mount "{bind["source"]}" at "{bind["target"]}"'
    number = error.errno or 0
    reason = error.strerror if isinstance(error, MountRefusal) else os.strerror(number).lower()
    return OSError(error.errno, f"{what}: {reason}")


def open_source(bind: BindMount) -> int:
    """Open the source of a mount. Other containers of the pod may replace any directory of a
    subPath by a link; the kernel resolves it inside the volume."""
    if not bind["part"]:
        return os.open(bind["source"], os.O_PATH | os.O_CLOEXEC)
    with beneath.directory(bind["source"]) as top:
        return beneath.locate(top, bind["part"], across_mounts=True)
