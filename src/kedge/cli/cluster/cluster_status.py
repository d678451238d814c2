"""The status of a cluster as seen from outside: from its directory, and by asking its server."""

import http.client
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from kedge.cli.cluster import node_pool, process, restarts, server_parts, state
from kedge.cli.cluster.registry import RegisteredCluster, node_directories
from kedge.cli.cluster.up.command import context
from kedge.gateway import listening
from kedge.machinery.clock import Clock
from kedge.machinery.durations import human_age
from kedge.restarter.restarter import SERVER

_PATIENCE: Final = 2.0
START_SECONDS: Final = 10.0
"""How long after its start a server may need to become ready: `kedge up` returns as soon as it
answers, while its controllers still read the store."""
_PAUSE: Final = 0.05


class NodeProcess(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of one node of this machine."""

    name: str
    status: str
    """Running or Stopped."""
    level: str = ""
    """How much of a container the machine allows it: full, userns or plain."""
    service_proxy: str = ""
    """How it carries Services: nftables, userspace, or none, and why."""
    network_policy: str = ""
    """How it enforces NetworkPolicies: nftables, or none and why."""
    node_network: str = ""
    """How it reaches the pods of other machines; empty if there can be none."""
    registries: tuple[str, ...] = ()
    """How it reaches registries: mirrors, proxies, what is insecure; empty for the usual way."""
    runtime: str = ""
    """The socket of the container runtime, as cri:///PATH; empty for kedge's own."""
    pid: int = 0


class ServerProcess(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One of several servers of this machine."""

    name: str
    """server, server-2 and so on."""
    status: str
    """Running or Stopped."""
    pid: int = 0


class RestartStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The restarts of one process that died or is missing."""

    name: str
    """server, or the name of a node."""
    state: str
    """running, starting, waiting (for its next start) or stopped (given up)."""
    restarts: int
    """How often it was restarted."""
    reason: str
    """How it last ended."""
    ended: str
    """How long ago."""
    next_start: str = ""
    """Time until the next start."""
    given_up: str = ""
    """Why it is not restarted."""
    log: str = ""
    last_lines: tuple[str, ...] = ()
    """The end of the log when it ended."""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of one cluster."""

    name: str
    status: str
    """Ready, NotReady, Running (readiness was not checked), Starting, Restarting (it died and
    will be restarted), Stopped, or Layout N (of another version of kedge)."""
    state: str
    context: str
    """Empty if it is not known."""
    pid: int = 0
    address: str = ""
    version: str = ""
    uptime: str = ""
    store: str = ""
    store_bytes: int = 0
    admission: tuple[str, ...] = ()
    upstream_only: bool = False
    disabled_controllers: tuple[str, ...] = ()
    gateway: tuple[str, ...] = ()
    """The addresses of the gateway; empty without one."""
    servers: tuple[ServerProcess, ...] = ()
    """The servers, if there are several."""
    nodes: tuple[NodeProcess, ...] = ()
    least_nodes: int = 0
    most_nodes: int = 0
    """The range of nodes; both 0 if their number is fixed."""
    autoscaler: int = 0
    """The pid of the node autoscaler; 0 if it does not run."""
    restart: str = ""
    """The restart policy, always or never; empty if nothing runs."""
    parent: int = 0
    """The pid of the parent; 0 if it is gone ('kedge up' starts another one)."""
    restarts: tuple[RestartStatus, ...] = ()
    """The processes that have died."""


def unknown(found: RegisteredCluster, status: str) -> ClusterStatus:
    """Return what there is to say about a cluster whose record cannot be read."""
    return ClusterStatus(
        name=found.cluster.name,
        status=status,
        state=str(found.directory),
        context="",
    )


def look(found: RegisteredCluster, now: datetime) -> ClusterStatus:
    """Return the status of a cluster from its directory, without asking its server."""
    known = ClusterStatus(
        name=found.cluster.name,
        status="Stopped",
        state=str(found.directory),
        context=context(found.cluster.name),
        store_bytes=store_bytes(found.directory),
        nodes=tuple(_nodes(found.directory)),
    )
    known = _with_range(_with_restarts(known, found.directory, now), found.directory)
    servers = server_parts.running(found.directory)
    if not servers:
        back = known.parent and any(
            each.name == SERVER and each.state in ("waiting", "starting") for each in known.restarts
        )
        return msgspec.structs.replace(known, status="Restarting") if back else known
    server, running = state.read_server(found.directory), next(iter(servers.values()))
    is_shared = server is not None and server_parts.is_shared(server)
    if server is None or (server.pid != running.pid and not is_shared):
        return msgspec.structs.replace(known, status="Starting", pid=running.pid)
    return msgspec.structs.replace(
        known,
        status="Running",
        pid=running.pid,
        servers=tuple(_servers(found.directory, servers)) if is_shared else (),
        address=server.url,
        version=server.version,
        uptime=human_age(int((now - server.started).total_seconds())),
        store=server.store,
        admission=server.admission,
        upstream_only=server.upstream_only,
        disabled_controllers=server.disabled_controllers,
        gateway=_gateway(found.directory),
    )


def _servers(directory: Path, running: Mapping[str, process.Process]) -> Iterator[ServerProcess]:
    for part in server_parts.parts(directory):
        found = running.get(part)
        yield ServerProcess(
            name=part,
            status="Running" if found else "Stopped",
            pid=found.pid if found else 0,
        )


def _gateway(directory: Path) -> tuple[str, ...]:
    record = listening.read(directory)
    return tuple(each.url for each in record.ports) if record else ()


def _with_restarts(status: ClusterStatus, directory: Path, now: datetime) -> ClusterStatus:
    recorded = restarts.read(directory)
    if recorded is None:
        return status
    parent = restarts.running(directory)
    return msgspec.structs.replace(
        status,
        restart=recorded.policy,
        parent=parent.pid if parent else 0,
        restarts=tuple(_seen(each, now) for each in recorded.parts if each.reason),
    )


def _with_range(status: ClusterStatus, directory: Path) -> ClusterStatus:
    """Add the range of nodes; nodes that were not added or were removed are left out."""
    pool = node_pool.read(directory)
    if pool is None:
        return status
    spare = {each.name for each in pool.nodes}
    running = process.running(directory, node_pool.PART)
    return msgspec.structs.replace(
        status,
        nodes=tuple(each for each in status.nodes if each.pid or each.name not in spare),
        least_nodes=pool.least,
        most_nodes=pool.least + len(spare),
        autoscaler=running.pid if running else 0,
    )


def _seen(part: restarts.ProgramStatus, now: datetime) -> RestartStatus:
    waits = max(0, round(part.next - now.timestamp())) if part.state == "waiting" else None
    return RestartStatus(
        name=part.name,
        state=part.state,
        restarts=part.restarts,
        reason=part.reason,
        ended=human_age(max(0, int(now.timestamp() - part.ended))),
        next_start="" if waits is None else human_age(waits),
        given_up=part.why,
        log=part.log,
        last_lines=part.last_lines,
    )


def _nodes(directory: Path) -> Iterator[NodeProcess]:
    from kedge.node.config import OWN_RUNTIME
    from kedge.node.host import node_record

    for place in node_directories(directory):
        known = node_record.read(place)
        agent = process.running(place, "node")
        yield NodeProcess(
            name=place.name,
            status="Running" if agent else "Stopped",
            level=known.level if known else "",
            service_proxy=known.service_proxy if known else "",
            network_policy=known.network_policy if known else "",
            node_network=known.node_network if known else "",
            registries=known.registries if known else (),
            runtime=known.runtime if known and known.runtime != OWN_RUNTIME else "",
            pid=agent.pid if agent else 0,
        )


def store_bytes(directory: Path) -> int:
    """Return the size of the store on disk, its journal included."""
    return sum(file.stat().st_size for file in directory.glob("store.db*"))


def is_ready(directory: Path, url: str, clock: Clock) -> bool:
    """Return whether the server is ready; wait for one that has just started."""
    server = state.read_server(directory)
    deadline = clock.monotonic() + (
        start_seconds_left(server.started, clock.now()) if server else 0
    )
    while not answers(directory, url):
        if clock.monotonic() >= deadline or server_parts.any_running(directory) is None:
            return False
        time.sleep(_PAUSE)  # noqa: TID251 - no event loop runs here
    return True


def start_seconds_left(started: datetime, now: datetime) -> float:
    """Return how long a server that started then may still take to become ready."""
    age = (now - started).total_seconds()
    return min(START_SECONDS, max(0.0, START_SECONDS - age))


def answers(directory: Path, url: str) -> bool:
    """Return whether the server says that it is ready."""
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
