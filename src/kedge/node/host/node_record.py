"""The record of a node for other processes of the machine, such as `kedge down`: node.json."""

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from kedge.machinery import atomic
from kedge.node.images.host import HostImage

_FILE: Final = "node.json"
_SERVER: Final = "server"


class HierarchyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A hierarchy of control groups (kedge.supervisor.kernel.cgroups.Hierarchy)."""

    place: str
    controllers: list[str]
    unified: bool
    mount: str


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The record of one node."""

    name: str
    cluster: str
    level: str
    """The isolation that the machine permits: full, userns or plain."""
    cgroup: str = ""
    """The cgroup of its pods; empty if there is none."""
    hierarchies: list[HierarchyRecord] = []
    """The hierarchies of control groups that have this cgroup, as they were delegated; empty for
    those of the machine."""
    port: int = 0
    """The port of its agent."""
    pod_cidr: str = ""
    """The network of its pods; empty if they have no addresses of their own."""
    service_proxy: str = ""
    """How the node carries Services: nftables, userspace, or none, and why."""
    network_policy: str = ""
    """How the node enforces NetworkPolicies: nftables, or none and why."""
    machine_address: str = ""
    """Where nodes of other machines reach this one."""
    node_network: str = ""
    """How pods of other machines are reached; empty if there can be none."""
    host_image: HostImage = HostImage()
    """The paths that the image `host` hides and shows."""
    registries: tuple[str, ...] = ()
    """How it reaches registries, as people read it: mirrors, proxies, what is insecure."""
    registry_flags: tuple[str, ...] = ()
    """The flags of its registries."""
    runtime: str = ""
    """The setting `--runtime`: kedge's own, or the socket of a container runtime."""


def write(directory: Path, record: NodeRecord) -> None:
    content = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    atomic.write(directory / _FILE, content)


def read(directory: Path) -> NodeRecord | None:
    """Return the record in a directory; None if there is no readable one."""
    # Imported here because an agent only writes records.
    from kedge.machinery import ownership

    with contextlib.suppress(OSError, msgspec.MsgspecError, ownership.UntrustedPath):
        return msgspec.json.decode(ownership.read(directory / _FILE), type=NodeRecord)
    return None


def write_server(directory: Path, url: str) -> None:
    """Store the address of the server of another machine that the node has joined."""
    atomic.write(directory / _SERVER, f"{url}\n".encode())


def read_server(directory: Path) -> str:
    """Return the server that the node has joined; empty if its cluster is on this machine."""
    try:
        return (directory / _SERVER).read_text().strip()
    except OSError:
        return ""
