"""What a node writes down of itself, for those who look at it or clean up after it: node.json."""

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from kedge.machinery import atomic
from kedge.node.images.host import HostImage

_FILE: Final = "node.json"
_SERVER: Final = "server"


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node of this machine."""

    name: str
    cluster: str
    level: str
    """How much of a container the machine allows: full, userns or plain."""
    cgroup: str = ""
    """Where the control groups of its pods are; empty if there are none."""
    port: int = 0
    """Where its agent listens."""
    pod_cidr: str = ""
    """The addresses of its pods; empty if they have none of their own."""
    host_image: HostImage = HostImage()
    """What the image `host` shows of the machine."""


def write(directory: Path, record: NodeRecord) -> None:
    content = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    atomic.write(directory / _FILE, content)


def read(directory: Path) -> NodeRecord | None:
    """What the node in this directory wrote; None if nothing that can be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=NodeRecord)
    return None


def write_server(directory: Path, url: str) -> None:
    """Remember which server elsewhere the node has joined."""
    atomic.write(directory / _SERVER, f"{url}\n".encode())


def read_server(directory: Path) -> str:
    """The server that the node has joined; empty if it belongs to a cluster of this machine."""
    try:
        return (directory / _SERVER).read_text().strip()
    except OSError:
        return ""
