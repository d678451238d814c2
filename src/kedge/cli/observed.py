"""What can be said of a cluster from outside: from its directory, and by asking its server."""

import http.client
import ssl
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from kedge.cli import process, state
from kedge.cli.registry import Found
from kedge.cli.up import context
from kedge.machinery.durations import human_age

_PATIENCE: Final = 2.0


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What can be said of one node of this machine."""

    name: str
    status: str
    """Running or Stopped."""
    level: str = ""
    """How much of a container the machine allows it: full, userns or plain."""
    pid: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What can be said of one cluster."""

    name: str
    status: str
    """Ready, NotReady, Running (when nobody asked whether it is ready) or Stopped."""
    state: str
    context: str
    pid: int = 0
    address: str = ""
    version: str = ""
    uptime: str = ""
    store: str = ""
    store_bytes: int = 0
    admission: tuple[str, ...] = ()
    upstream_only: bool = False
    nodes: tuple[NodeSeen, ...] = ()


def look(found: Found, now: datetime) -> Status:
    """What the cluster's directory tells, without asking its server."""
    known = Status(
        name=found.cluster.name,
        status="Stopped",
        state=str(found.directory),
        context=context(found.cluster.name),
        store_bytes=store_bytes(found.directory),
        nodes=tuple(_nodes(found.directory / "nodes")),
    )
    running = process.running(found.directory)
    if running is None:
        return known
    server = state.read_server(found.directory)
    if server is None or server.pid != running.pid:
        return msgspec.structs.replace(known, status="Starting", pid=running.pid)
    return msgspec.structs.replace(
        known,
        status="Running",
        pid=server.pid,
        address=server.url,
        version=server.version,
        uptime=human_age(int((now - server.started).total_seconds())),
        store=server.store,
        admission=server.admission,
        upstream_only=server.upstream_only,
    )


def _nodes(directory: Path) -> Iterator[NodeSeen]:
    from kedge.node import record

    for place in sorted(directory.iterdir()) if directory.exists() else ():
        known = record.read(place)
        agent = process.running(place, "node")
        yield NodeSeen(
            name=place.name,
            status="Running" if agent else "Stopped",
            level=known.level if known else "",
            pid=agent.pid if agent else 0,
        )


def store_bytes(directory: Path) -> int:
    """What the store takes on disk, its journal included."""
    return sum(file.stat().st_size for file in directory.glob("store.db*"))


def answers(directory: Path, url: str) -> bool:
    """Whether the server says that it is ready."""
    where = urlsplit(url)
    try:
        trusting = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))
        token = (directory / "token").read_text().strip()
        connection = http.client.HTTPSConnection(
            where.hostname or "", where.port, timeout=_PATIENCE, context=trusting
        )
        try:
            connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status == 200
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False
