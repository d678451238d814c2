"""The calls of mount(2) for an NFS export, as values, and the words for their failures."""

import errno
from typing import Final, NamedTuple

from kedge.node.storage.volume_image import mount_flags
from kedge.supervisor.kernel import libc

NFS_DRIVER: Final = "kubernetes.io/nfs"
"""The name of the plugin in Kubernetes."""
_VERSIONS: Final = ("4.2", "4.1", "4.0", "3")
_VERSION_OPTIONS: Final = ("vers", "nfsvers", "v2", "v3", "v4", "v4.0", "v4.1", "v4.2")
_NEXT_VERSION: Final = (errno.EPROTONOSUPPORT, errno.EINVAL)
"""The server, or the kernel, does not know a version."""
_WORDS: Final = {
    errno.ENODEV: "the kernel of the node has no NFS client (module nfs)",
    errno.EPERM: "the agent has no right to mount",
    errno.EACCES: "the server does not export it to this node",
    errno.ENOENT: "the server has no such export",
    errno.ETIMEDOUT: "the server does not answer",
    errno.ECONNREFUSED: "the server refuses connections",
    errno.EPROTONOSUPPORT: "server and kernel have no version of NFS in common",
}


class NfsMount(NamedTuple):
    """The arguments of one call."""

    source: str
    flags: int
    options: str


def export(server: str, path: str) -> str:
    """Return the name of an export, as mount(8) shows it."""
    return f"[{server}]:{path}" if ":" in server else f"{server}:{path}"


def attempts(
    source: str, address: str, options: tuple[str, ...], *, is_read_only: bool
) -> list[NfsMount]:
    """Return the calls to try in turn. mount(2) does not negotiate the version, as mount.nfs(8)
    does, and takes the address of the server as an option."""
    flags, data = mount_flags(options)
    flags |= libc.MS_NODEV | (libc.MS_RDONLY if is_read_only else 0)
    has_version = any(each.partition("=")[0] in _VERSION_OPTIONS for each in data)
    versions = [""] if has_version else [f"vers={each}," for each in _VERSIONS]
    rest = ",".join((*data, f"addr={address}"))
    return [NfsMount(source, flags, f"{version}{rest}") for version in versions]


def is_version_refused(error: OSError) -> bool:
    """Return whether another version may succeed."""
    return error.errno in _NEXT_VERSION


def words(error: OSError) -> str:
    """Return why a mount failed."""
    known = _WORDS.get(error.errno or 0)
    return known or error.strerror or str(error)
