"""Findings about a machine: what is there, what a lack costs, and the command that mends it."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from kedge import KUBERNETES
from kedge.cli.doctor.machine_facts import MachineFacts
from kedge.cli.output.printers import size
from kedge.node.network.uplink_program import TUN
from kedge.supervisor.machine_capabilities import (
    ALL_IDS,
    CONFINED,
    KERNEL,
    ONE_ID,
    SUBORDINATE_IDS,
)
from kedge.supervisor.plain import grants
from kedge.supervisor.sandbox.user_namespace import LENGTH

OK: Final = "ok"
LACKS: Final = "lacks"
FAILED: Final = "failed"

_LEAST_KERNEL: Final = (5, 12)
_LEAST_YEAR: Final = 2025
_LEAST_DISK: Final = 1 << 30
_NEEDED_DISK: Final = 64 << 20
_LEAST_FILES: Final = 4096
_HTTP: Final = 80
_FIRST_SUBORDINATE: Final = 100_000
"""Where useradd begins to grant ids."""
_MINORS: Final = 1
"""The versions by which kubectl may differ from the server, as in Kubernetes."""
_PRIVILEGED: Final = 'run the container with "--privileged", or kedge on the machine itself'
_COSTS: Final = {
    "cpu": "a container above its cpu limit is stopped for parts of a second; a program can evade"
    " that",
    "memory": "a container above its memory limit is killed up to a second later, and can take"
    " memory from others until then",
    "pids": "a container above its limit of processes is killed up to a second later",
}


class MachineFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check of a machine."""

    name: str
    status: Literal["ok", "lacks", "failed"]
    """`lacks`: clusters run without it, at some cost. `failed`: no cluster runs."""
    found: str
    cost: str = ""
    mend: str = ""
    """The command, or the change, that mends it."""


def diagnose(machine: MachineFacts) -> list[MachineFinding]:
    """Return all findings, those of the kernel first."""
    return [
        _kernel(machine),
        _namespaces(machine),
        _overlay(machine),
        *(_controller(machine, name) for name in ("cpu", "memory", "pids")),
        _ids(machine),
        _devices(machine),
        *_network(machine),
        *_way_out(machine),
        *_ports(machine),
        _kubectl(machine),
        _clock(machine),
        *_disk(machine),
        _files(machine),
        *_servers(machine),
        *_stores(machine),
    ]


def _kernel(machine: MachineFacts) -> MachineFinding:
    if kernel_version(machine.kernel) >= _LEAST_KERNEL:
        return MachineFinding("kernel", OK, machine.kernel)
    least = ".".join(map(str, _LEAST_KERNEL))
    cost = "containers may not be isolated: mounts need newer system calls"
    return MachineFinding("kernel", LACKS, machine.kernel, cost, f"install Linux {least} or newer")


def kernel_version(release: str) -> tuple[int, ...]:
    """Return the first two numbers of a kernel release; zeros if they cannot be read."""
    numbers = [part for part in release.replace("-", ".").split(".")[:2] if part.isdigit()]
    return tuple(map(int, numbers)) if len(numbers) == 2 else (0, 0)


def _namespaces(machine: MachineFacts) -> MachineFinding:
    capabilities = machine.capabilities
    if capabilities.namespaces:
        found = "in a user namespace" if capabilities.user_namespace else "those of root"
        return MachineFinding("namespaces", OK, found)
    cost = "containers share processes, files and network with the machine"
    return MachineFinding("namespaces", LACKS, "refused", cost, _mend_namespaces(machine))


def _mend_namespaces(machine: MachineFacts) -> str:
    wrong = {
        "kernel/unprivileged_userns_clone": (0, 1),
        "user/max_user_namespaces": (0, 15_000),
        "kernel/apparmor_restrict_unprivileged_userns": (1, 0),
    }
    for name, (refuses, permits) in wrong.items():
        if machine.switches.get(name) == refuses:
            return f"sudo sysctl -w {name.replace('/', '.')}={permits}"
    if machine.is_root:
        return grants.advice("CAP_SYS_ADMIN", "CAP_NET_ADMIN")
    return "run kedge as root"


def _overlay(machine: MachineFacts) -> MachineFinding:
    if machine.capabilities.overlay:
        return MachineFinding("overlay", OK, "mounted in a trial")
    cost = "each container gets a copy of its image, which takes time and disk"
    mend = "sudo modprobe overlay" if machine.capabilities.namespaces else ""
    return MachineFinding("overlay", LACKS, "refused", cost, mend)


def _controller(machine: MachineFacts, name: str) -> MachineFinding:
    capabilities = machine.capabilities
    enforcement = str(getattr(capabilities, name))
    title = f"{name} limits"
    if enforcement == KERNEL:
        return MachineFinding(title, OK, "by the kernel")
    found = f"{enforcement}: the controller {name} is not available"
    cost = _COSTS[name] if enforcement != "advisory" else f"{name} limits have no effect"
    return MachineFinding(title, LACKS, found, cost, _mend_groups(machine))


def _mend_groups(machine: MachineFacts) -> str:
    if machine.is_root:
        return _PRIVILEGED if machine.is_container else "mount -t cgroup2 none /sys/fs/cgroup"
    if machine.has_systemd:
        return "systemd-run --user --scope -p Delegate=yes kedge up"
    return "run kedge as root, or in a control group that root has given to this user"


def _ids(machine: MachineFacts) -> MachineFinding:
    ids = machine.capabilities.ids
    if ids in (ALL_IDS, SUBORDINATE_IDS):
        return MachineFinding("users", OK, ids)
    cost = "a container has one user and group, so images with several users may fail"
    mend = _mend_ids(machine) if ids == ONE_ID else "run kedge as root"
    return MachineFinding("users", LACKS, ids, cost, mend)


def _mend_ids(machine: MachineFacts) -> str:
    ids = f"{_FIRST_SUBORDINATE}-{_FIRST_SUBORDINATE + LENGTH - 1}"
    return (
        "sudo apt install uidmap && sudo usermod"
        f" --add-subuids {ids} --add-subgids {ids} {machine.user}"
    )


def _devices(machine: MachineFacts) -> MachineFinding:
    devices = machine.capabilities.devices
    if devices == CONFINED:
        return MachineFinding("devices", OK, devices)
    cost = "permissions of a device that a container gets (r, w, m) are not enforced"
    return MachineFinding("devices", LACKS, devices, cost, "run kedge as root")


def _network(machine: MachineFacts) -> Iterator[MachineFinding]:
    links, tables = machine.network
    if links:
        cost = "pods have no addresses of their own"
        yield MachineFinding(
            "pod network", LACKS, links, cost, _mend_network(machine, "veth bridge")
        )
    else:
        yield MachineFinding("pod network", OK, "links can be made")
    if tables:
        cost = "Services are forwarded in user space, and network policies have no effect"
        yield MachineFinding(
            "packet rules", LACKS, tables, cost, _mend_network(machine, "nf_tables")
        )
    else:
        yield MachineFinding("packet rules", OK, "nf_tables")


def _way_out(machine: MachineFacts) -> Iterator[MachineFinding]:
    """How pods of an ordinary user reach other machines."""
    if machine.way_out is None:
        return
    program, problems = machine.way_out
    if program:
        yield MachineFinding("way out", OK, f"{program}, which worked in a trial")
        return
    found = "forwarder; " + "; ".join(f"{name}: {why}" for name, why in problems.items())
    cost = "a connection that is refused seems to be accepted, then reset; pods cannot ping"
    is_closed = any(why.startswith(TUN) for why in problems.values())
    mend = f"sudo chmod 666 {TUN}" if is_closed else "sudo apt install slirp4netns"
    yield MachineFinding("way out", LACKS, found, cost, mend)


def _mend_network(machine: MachineFacts, modules: str) -> str:
    if not machine.capabilities.namespaces:
        return _mend_namespaces(machine)
    return f"sudo modprobe -a {modules}"


def _ports(machine: MachineFacts) -> Iterator[MachineFinding]:
    if machine.loopback:
        cost = "the API server cannot listen"
        yield MachineFinding("loopback", FAILED, machine.loopback, cost, "sudo ip link set lo up")
    if machine.lowest_port <= _HTTP:
        yield MachineFinding("ports", OK, f"from {machine.lowest_port}")
        return
    cost = "the gateway and load balancers do not get ports such as 80 and 443"
    mend = f"sudo sysctl -w net.ipv4.ip_unprivileged_port_start={_HTTP}"
    yield MachineFinding("ports", LACKS, f"from {machine.lowest_port}", cost, mend)


def _kubectl(machine: MachineFacts) -> MachineFinding:
    wanted = KUBERNETES.rpartition(".")[0]
    mend = f"install kubectl {wanted}: https://kubernetes.io/docs/tasks/tools/"
    if not machine.kubectl:
        cost = "only the small client of kedge is there: kedge get, apply, logs, exec"
        return MachineFinding("kubectl", LACKS, "not in PATH", cost, mend)
    found = f"{machine.kubectl_version or 'unknown version'} at {machine.kubectl}"
    if is_supported(machine.kubectl_version, KUBERNETES):
        return MachineFinding("kubectl", OK, found)
    cost = f"Kubernetes supports kubectl of at most one minor version beside {wanted}"
    return MachineFinding("kubectl", LACKS, found, cost, mend)


def is_supported(client: str, server: str) -> bool:
    """Return whether the minor versions of two releases differ by at most one."""
    try:
        ours, theirs = (
            [int(part) for part in each.lstrip("v").split(".")[:2]] for each in (server, client)
        )
    except ValueError:
        return False
    return ours[0] == theirs[0] and abs(ours[1] - theirs[1]) <= _MINORS


def _clock(machine: MachineFacts) -> MachineFinding:
    found = machine.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if machine.now.year < _LEAST_YEAR:
        cost = "certificates and tokens are not valid yet"
        return MachineFinding("clock", FAILED, found, cost, "sudo date -s @SECONDS")
    if machine.is_synchronized or machine.is_container:
        return MachineFinding("clock", OK, found)
    cost = "certificates of machines that join may seem invalid; one machine alone needs nothing"
    mend = "sudo timedatectl set-ntp true" if machine.has_systemd else "run a time service"
    return MachineFinding("clock", LACKS, f"{found}, not synchronized", cost, mend)


def _disk(machine: MachineFacts) -> Iterator[MachineFinding]:
    free = f"{size(machine.disk_free)} of {size(machine.disk_size)} free at {machine.state}"
    if not machine.is_state_writable:
        mend = "set XDG_STATE_HOME to a directory that this user may write"
        found = f"{machine.state} cannot be written"
        yield MachineFinding("state", FAILED, found, "nothing can be stored", mend)
    mend = f"free space at {machine.state}, or set XDG_STATE_HOME to another file system"
    if machine.disk_free < _NEEDED_DISK:
        yield MachineFinding("disk", FAILED, free, "objects cannot be stored", mend)
    elif machine.disk_free < _LEAST_DISK:
        yield MachineFinding("disk", LACKS, free, "images and volumes may not fit", mend)
    else:
        yield MachineFinding("disk", OK, free)


def _files(machine: MachineFacts) -> MachineFinding:
    if machine.open_files >= _LEAST_FILES:
        return MachineFinding("open files", OK, str(machine.open_files))
    cost = "a cluster with many pods or clients refuses some of them"
    return MachineFinding("open files", LACKS, str(machine.open_files), cost, "ulimit -Hn 65536")


def _servers(machine: MachineFacts) -> Iterator[MachineFinding]:
    for each in machine.servers:
        found = f'{each.running} of {each.running + len(each.stopped)} servers of "{each.cluster}"'
        if not each.stopped:
            yield MachineFinding("servers", OK, f"{found} run")
            continue
        cost = "the loss of further servers may stop the cluster"
        mend = f"kedge up --name {each.cluster} (starts {', '.join(each.stopped)})"
        yield MachineFinding("servers", LACKS, f"{found} run", cost, mend)


def _stores(machine: MachineFacts) -> Iterator[MachineFinding]:
    for store in machine.stores:
        noun = "members" if store.kind == "etcd" else "servers"
        answering = store.members - len(store.problems)
        found = f'{answering} of {store.members} {noun} of "{store.cluster}"'
        if not store.problems:
            yield MachineFinding(store.kind, OK, f"{found} answer")
            continue
        # etcd needs most of its members, PostgreSQL the one that is the primary server.
        enough = store.members // 2 + 1 if store.kind == "etcd" else 1
        cost = (
            f"the loss of another {noun[:-1]} may stop writes"
            if answering >= enough
            else f'cluster "{store.cluster}" cannot be written, nor started'
        )
        reasons = "; ".join(f"{member}: {why}" for member, why in store.problems.items())
        mend = f"start {store.kind} ({reasons})"
        yield MachineFinding(store.kind, LACKS, f"{found} answer", cost, mend)
