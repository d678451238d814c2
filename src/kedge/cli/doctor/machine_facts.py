"""Facts about this machine, found by trying; nothing on it changes."""

import asyncio
import contextlib
import ctypes
import json
import os
import pwd
import resource
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from kedge.cli.cluster import registry, server_parts
from kedge.cli.cluster.state import read_server
from kedge.machinery.clock import SystemClock
from kedge.settings.parse import POSTGRESQL, etcd_endpoints
from kedge.supervisor import level, uplink_namespace
from kedge.supervisor.machine_capabilities import MachineCapabilities

SWITCHES: Final = (
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
    "user/max_user_namespaces",
    "net/ipv4/ip_unprivileged_port_start",
)
"""Kernel settings below /proc/sys that restrict ordinary users; a machine has some of them."""
_KUBECTL_SECONDS: Final = 10
_STORE_SECONDS: Final = 1.0
_TIME_ERROR: Final = 5
"""The state of a clock that nothing synchronizes, as adjtimex(2) returns it."""


class NetworkAttempt(NamedTuple):
    """The errors of attempts in a new network namespace; empty if they worked."""

    links: str
    tables: str


class WayOutAttempt(NamedTuple):
    """The attempt of pods of an ordinary user to reach the outside by a program."""

    program: str
    """The first one that works; empty if none does."""
    problems: dict[str, str]
    """Why others do not, by name."""


class ServerCount(NamedTuple):
    """The servers of a cluster that runs with several."""

    cluster: str
    running: int
    stopped: tuple[str, ...]


class StoreReach(NamedTuple):
    """The attempt to reach the members of the etcd of a cluster, or the servers of its
    PostgreSQL."""

    kind: str
    cluster: str
    members: int
    problems: dict[str, str]
    """Why members cannot be reached, by address."""


class MachineFacts(NamedTuple):
    """Facts about one machine and this user of it."""

    kernel: str
    user: str
    is_root: bool
    has_systemd: bool
    is_container: bool
    switches: dict[str, int]
    capabilities: MachineCapabilities
    network: NetworkAttempt
    way_out: WayOutAttempt | None
    """None if the kernel routes packets of pods, or if they have no network of their own."""
    lowest_port: int
    """The lowest port that this user may listen on."""
    loopback: str
    """Why nothing can listen on 127.0.0.1; empty if it can."""
    kubectl: str
    """The path of kubectl; empty if there is none."""
    kubectl_version: str
    now: datetime
    is_synchronized: bool
    state: str
    """The directory of clusters."""
    is_state_writable: bool
    disk_free: int
    disk_size: int
    open_files: int
    servers: tuple[ServerCount, ...] = ()
    """The clusters of this machine that run with several servers."""
    stores: tuple[StoreReach, ...] = ()
    """The stores elsewhere of clusters on this machine."""


def collect(state: Path) -> MachineFacts:
    """Return the facts about this machine. `state` is the directory of clusters."""
    capabilities, _ = level.probe()
    network = _network(capabilities)
    is_user_network = capabilities.user_namespace and not network.links
    switches = dict(_switches())
    place = _existing(state)
    disk = os.statvfs(place)
    kubectl = shutil.which("kubectl") or ""
    return MachineFacts(
        kernel=os.uname().release,
        user=_user(),
        is_root=os.geteuid() == 0,
        has_systemd=os.path.isdir("/run/systemd/system"),
        is_container=_is_container(),
        switches=switches,
        capabilities=capabilities,
        network=network,
        way_out=_way_out() if is_user_network else None,
        lowest_port=1 if os.geteuid() == 0 else switches.get(SWITCHES[3], 1024),
        loopback=_loopback(),
        kubectl=kubectl,
        kubectl_version=_kubectl_version(kubectl) if kubectl else "",
        now=SystemClock().now(),
        is_synchronized=_is_synchronized(),
        state=str(state),
        is_state_writable=os.access(place, os.W_OK | os.X_OK),
        disk_free=disk.f_bavail * disk.f_frsize,
        disk_size=disk.f_blocks * disk.f_frsize,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        servers=tuple(_servers(state)),
        stores=tuple(_stores(state)),
    )


def _servers(state: Path) -> Iterator[ServerCount]:
    for found in registry.every(state):
        running = server_parts.running(found.directory)
        record = read_server(found.directory)
        if running and record is not None and server_parts.is_shared(record):
            gone = set(server_parts.parts(found.directory)) - running.keys()
            yield ServerCount(found.cluster.name, len(running), tuple(sorted(gone)))


def _stores(state: Path) -> Iterator[StoreReach]:
    for found in registry.every(state):
        store = found.cluster.elsewhere
        members = _members(store)
        attempts = {each: _reach(each) for each in members}
        if members:
            problems = {each: why for each, why in attempts.items() if why}
            kind = store.partition(":")[0]
            yield StoreReach(kind, found.cluster.name, len(members), problems)


def _members(store: str) -> Sequence[str]:
    """Return HOST:PORT, or the path of a socket, of each server of a store."""
    if store.startswith(POSTGRESQL):
        from kedge.settings.postgresql import postgresql_address

        return [str(host) for host in postgresql_address(store).hosts]
    return etcd_endpoints(store)


def _reach(endpoint: str) -> str:
    """Return why nothing answers at an address; empty if something does."""
    host, _, port = endpoint.rpartition(":")
    try:
        if endpoint.startswith("/"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(endpoint)
            return ""
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_STORE_SECONDS):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _switches() -> Sequence[tuple[str, int]]:
    found = []
    for name in SWITCHES:
        with contextlib.suppress(OSError, ValueError):
            found.append((name, int(Path("/proc/sys", name).read_text())))
    return found


def _is_container() -> bool:
    marks = ("/.dockerenv", "/run/.containerenv")
    return "container" in os.environ or any(map(os.path.exists, marks))


def _existing(path: Path) -> Path:
    """Return the path, or the nearest directory above it that exists."""
    return next(each for each in (path, *path.parents) if each.is_dir())


def _network(machine: MachineCapabilities) -> NetworkAttempt:
    """Try links and packet rules in a network namespace of a child, which ends with it."""
    if not machine.namespaces:
        return NetworkAttempt("there are no network namespaces", "there are no network namespaces")
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            level.isolate_network(is_mapped=machine.user_namespace)
            os.write(writer, json.dumps(_attempts()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        said = file.read()
    os.waitpid(pid, 0)
    refused = "the kernel refuses network namespaces"
    return NetworkAttempt(*json.loads(said)) if said else NetworkAttempt(refused, refused)


def _attempts() -> tuple[str, str]:
    from kedge.node.network.network_detection import links_refusal
    from kedge.node.network.network_place import MACHINE
    from kedge.node.network.nftables.channel import NftablesSocket

    tables = ""
    try:
        with contextlib.closing(NftablesSocket(MACHINE)) as channel:
            channel.tables()
    except OSError as error:
        tables = f"the kernel refuses nf_tables: {error.strerror or error}"
    return links_refusal(MACHINE), tables


def _way_out() -> WayOutAttempt:
    """Try the programs that nodes would try, each in a network namespace of a child."""
    from kedge.node.network import uplink, uplink_check, uplink_program

    problems: dict[str, str] = {}
    kinds = [kind for kind, _ in uplink.TRIALS]
    for name in uplink.ORDER:
        if uplink_program.find(name) is None:
            problems[name] = uplink.NOT_INSTALLED
        elif lack := uplink_program.lack_of_device():
            problems[name] = lack
        else:
            inside = uplink_check.EmptyNamespace(*_new_namespace(kinds))
            if problem := asyncio.run(uplink_check.problem(name, inside, SystemClock())):
                problems[name] = problem
            else:
                return WayOutAttempt(name, problems)
    return WayOutAttempt("", problems)


def _new_namespace(kinds: Sequence[int]) -> tuple[int, int, list[int]]:
    """Return descriptors of a new network namespace: itself, of rtnetlink, and of sockets of some
    kinds."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            level.isolate_network(is_mapped=True)
            made = [socket.socket(socket.AF_INET, kind).detach() for kind in kinds]
            socket.send_fds(theirs, [b"1"], [*uplink_namespace.handles(), *made])
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        _, (itself, channel, *sockets), _, _ = socket.recv_fds(ours, 1, 2 + len(kinds))
    os.waitpid(pid, 0)
    return itself, channel, sockets


def _loopback() -> str:
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _kubectl_version(path: str) -> str:
    command = [path, "version", "--client", "-o", "json"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        done = subprocess.run(
            command, capture_output=True, timeout=_KUBECTL_SECONDS, check=True, text=True
        )
        return str(json.loads(done.stdout)["clientVersion"]["gitVersion"])
    return ""


def _is_synchronized() -> bool:
    """Whether the kernel's clock follows a time server."""
    # An empty struct timex asks only; it is smaller than this on every architecture.
    return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))) != _TIME_ERROR
