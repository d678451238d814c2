"""Names of the cluster for pods without files of their own: a line in the container's resolv.conf.

Where the kernel allows no mounts, containers of the image `host` have the resolv.conf of the
machine. If the machine is itself a container, its engine has made that file for it alone, and
mounted it. There the cluster's DNS server becomes the first name server, before those of the
engine. It answers all names. While no program listens at its address, resolvers take the next one
at once, so a line that is left behind does no harm. The next node, or `kedge down`, removes it.

The domains that are searched differ between namespaces. Variables tell them to the C library.
"""

import contextlib
import os
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from kedge.api.builtin.service_networks import is_cluster_server
from kedge.api.core_v1.pod.pod import Pod
from kedge.node.network.dns import dns_of, resolv_conf, uses_cluster_dns

RESOLV_CONF: Final = Path("/etc/resolv.conf")
_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOUNT_POINT: Final = 4
"""The field of a line of mountinfo."""
_COMMENT: Final = "# The next line is of kedge, until its cluster stops."


class MachineNames:
    """The claim of a node to the machine's resolv.conf, for its DNS server."""

    def __init__(
        self, *, is_wanted: bool = True, file: Path = RESOLV_CONF, mounts: Path = _MOUNTS
    ) -> None:
        self._file = file
        self._claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._is_written = False
        self.refusal = self._refusal(mounts) if is_wanted else "the node has no DNS server"
        """Why the file is left alone; empty if it is used."""

    def _refusal(self, mounts: Path) -> str:
        if not _is_mounted(self._file, mounts):
            return f"{self._file} belongs to the machine"
        if not os.access(self._file, os.W_OK):
            return f"{self._file} cannot be written to"
        try:
            # The name has no file, and ends with this process.
            self._claim.bind(f"\0kedge-names-{self._file}")
        except OSError:
            return f"another node of this machine has {self._file}"
        return ""

    def begin(self, server: IPv4Address) -> None:
        """Make the cluster's DNS server the first one. Raises OSError."""
        if not self.refusal:
            _write(self._file, with_server(self._file.read_text(errors="surrogateescape"), server))
            self._is_written = True

    def close(self) -> None:
        """Remove the cluster's DNS server, and give up the claim."""
        if self._is_written:
            with contextlib.suppress(OSError):
                _write(self._file, without_server(self._file.read_text(errors="surrogateescape")))
        self._is_written = False
        self._claim.close()

    def clear(self) -> None:
        """Remove what a node has left whose process was killed, and give up the claim."""
        self._is_written = not self.refusal and _COMMENT in _text(self._file)
        self.close()

    def variables(self, pod: Pod, server: IPv4Address) -> Mapping[str, str]:
        """Return the variables by which the C library searches the domains of a pod."""
        if self.refusal or not uses_cluster_dns(pod):
            return {}
        found = dns_of(pod, resolv_conf(_text(self._file)), str(server))
        values = {"LOCALDOMAIN": found.searches, "RES_OPTIONS": found.options}
        return {name: " ".join(value) for name, value in values.items() if value}


def with_server(text: str, server: IPv4Address) -> str:
    """Return a resolv.conf with the cluster's DNS server before others."""
    return f"{_COMMENT}\nnameserver {server}\n{without_server(text)}"


def without_server(text: str) -> str:
    """Return a resolv.conf without DNS servers of clusters."""
    kept = [line for line in text.splitlines(keepends=True) if not _is_ours(line)]
    return "".join(kept)


def _is_ours(line: str) -> bool:
    words = line.split()
    if words[:1] == ["nameserver"]:
        return len(words) > 1 and is_cluster_server(words[1])
    return line.strip() == _COMMENT


def _is_mounted(file: Path, mounts: Path) -> bool:
    lines = [line.split(" ") for line in _text(mounts).split("\n")]
    return any(str(file) in line[_MOUNT_POINT : _MOUNT_POINT + 1] for line in lines)


def _write(file: Path, text: str) -> None:
    """Replace the content in place: a mounted file cannot be renamed over. The new content is
    written before the rest of a longer old one is cut off, so no reader finds the file empty."""
    data = text.encode(errors="surrogateescape")
    opened = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(opened, data, 0)
        os.ftruncate(opened, len(data))
    finally:
        os.close(opened)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
