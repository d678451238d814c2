"""Translates sandbox and container specs to the requests of the supervisor."""

import base64
import contextlib
import os
import posixpath
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from kedge.node.images import passwd
from kedge.node.images.host import HostImage
from kedge.node.images.image import LocalImage
from kedge.node.runtime import capabilities, seccomp
from kedge.node.runtime.runtime import (
    UNLIMITED,
    ContainerConfig,
    ContainerLimits,
    ContainerMount,
    ContainerSecurity,
    DnsConfig,
    RuntimeFailure,
    SandboxConfig,
)
from kedge.supervisor.machine_capabilities import (
    ADVISORY,
    CONFINED,
    ONE_ID,
    MachineCapabilities,
)
from kedge.supervisor.sandbox.user_namespace import LENGTH
from kedge.supervisor.spec import BindMount, ContainerSpec, SandboxSpec

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RESOLV_CONF: Final = "resolv.conf"
HOSTNAME: Final = "hostname"
_ETC: Final = {RESOLV_CONF: "/etc/resolv.conf", HOSTNAME: "/etc/hostname"}


class ContainerImages(Protocol):
    """The images of the machine (kedge.node.images.images)."""

    def get(self, id_: str) -> LocalImage | None: ...

    def hold(self, id_: str, container: str) -> None: ...

    def release(self, container: str) -> None: ...

    def release_others(self, containers: Collection[str]) -> None: ...


class ContainerPlace(NamedTuple):
    """The surroundings of a container: its sandbox and the settings of the node."""

    capabilities: MachineCapabilities
    log_directory: str
    files: Path
    """The directory with the sandbox's small files."""
    hostname: str
    hidden: Sequence[Path]
    host_image: HostImage
    first_id: int = 0
    """The machine's id of the pod's id 0; 0 for a pod without a user namespace."""


def shared(spec: SandboxConfig) -> SandboxSpec:
    """Return the request for a sandbox."""
    files = {RESOLV_CONF: resolv_conf(spec.dns)}
    if spec.hostname:
        files[HOSTNAME] = f"{spec.hostname}\n"
    return SandboxSpec(
        hostname=spec.hostname,
        host_network=spec.host_network,
        host_pid=spec.host_pid,
        host_ipc=spec.host_ipc,
        shared_pid=spec.shared_pid and not spec.host_pid,
        cgroup_parent=spec.cgroup_parent,
        sysctls=dict(spec.sysctls),
        first_id=spec.first_id,
        files=files,
    )


def resolv_conf(dns: DnsConfig) -> str:
    """Return the content of resolv.conf; empty to keep the image's own."""
    lines = [f"search {' '.join(dns.searches)}"] if dns.searches else []
    lines += [f"nameserver {each}" for each in dns.servers]
    lines += [f"options {' '.join(dns.options)}"] if dns.options else []
    return "".join(f"{line}\n" for line in lines)


def linked(directories: Sequence[Path]) -> list[Path]:
    """Return the targets of the links in directories."""
    found = []
    for directory in directories:
        with contextlib.suppress(OSError):
            found += [each.resolve() for each in directory.iterdir() if each.is_symlink()]
    return found


def plan(spec: ContainerConfig, image: LocalImage, place: ContainerPlace) -> ContainerSpec:
    """Return the request for a container."""
    security = spec.security
    user = _user(security, image)
    held = _capabilities(security)
    if place.first_id:
        _fits_user_namespace(spec, user)
    argv = command(spec, image)
    return ContainerSpec(
        lowers=[str(layer) for layer in image.layers],
        hidden=[str(path) for path in place.hidden] if image.is_host else [],
        concealed=_concealed(place) if image.is_host else [],
        shown=list(place.host_image.shown) if image.is_host else [],
        binds=binds(spec.mounts, place),
        devices=[
            {
                "source": each.host_path,
                "target": each.container_path,
                "permissions": each.permissions,
            }
            for each in spec.devices
        ],
        argv=argv,
        env=environment(spec, image, hostname=place.hostname, home=user.home),
        directory=_absolute(spec.working_dir or image.config.working_dir),
        user=user.uid,
        group=user.gid,
        groups=groups(security, user),
        capabilities=capabilities.mask(held),
        seccomp=_filter(security, held),
        no_new_privileges=security.no_new_privileges,
        privileged=security.privileged,
        read_only=security.read_only_root,
        masked=not security.unmasked_proc,
        pid=security.pid.value,
        pid_target=security.pid_target,
        terminal=spec.tty,
        stdin=spec.stdin,
        stdin_once=spec.stdin_once,
        log=log_path(place.log_directory, spec.log_path),
        stop_signal=signal_number(spec.stop_signal or image.config.stop_signal),
        resources=resources(spec.resources),
        oom_score_adj=spec.resources.oom_score_adj,
        shortfalls=shortfalls(spec, place.capabilities, user.uid),
    )


def _fits_user_namespace(spec: ContainerConfig, user: passwd.ImageUser) -> None:
    """Refuse settings that do not work in a user namespace, with a better error than the
    kernel's."""
    for what, number in (
        ("user", user.uid),
        *(("group", each) for each in _all_groups(spec, user)),
    ):
        if number >= LENGTH:
            raise RuntimeFailure(
                f"{what} {number} does not exist in the pod's user namespace: "
                f"it has the ids 0 to {LENGTH - 1}"
            )
    for mount in spec.mounts:
        if mount.propagation == "Bidirectional":
            # The kernel lets mounts in a user namespace receive events, but not send them.
            raise RuntimeFailure(
                f'"{mount.container_path}" cannot be mounted with Bidirectional propagation: '
                "mounts made in a user namespace do not propagate to the machine"
            )


def _all_groups(spec: ContainerConfig, user: passwd.ImageUser) -> list[int]:
    return [user.gid, *groups(spec.security, user)]


def _concealed(place: ContainerPlace) -> list[str]:
    """Return the paths that a container of the image `host` must not find even if it may unmount:
    also the directories of other clusters, which are known only now."""
    listed = [*(each.path for each in place.host_image.hidden), *map(str, place.hidden)]
    return list(dict.fromkeys(listed))


def _absolute(path: str) -> str:
    # Leading double slashes have a special meaning and would be kept.
    return posixpath.normpath("/" + path.lstrip("/"))


def log_path(directory: str, path: str) -> str:
    return posixpath.join(directory, path) if directory and path else ""


def command(spec: ContainerConfig, image: LocalImage) -> list[str]:
    """Return the command line: a command of the pod replaces command and arguments of the image."""
    if spec.command:
        argv = [*spec.command, *spec.args]
    else:
        argv = [*image.config.entrypoint, *(spec.args or image.config.cmd)]
    if not argv:
        raise RuntimeFailure("no command specified")
    return argv


def environment(spec: ContainerConfig, image: LocalImage, *, hostname: str, home: str) -> list[str]:
    """Return the variables; those of the pod override those of the image."""
    values = {"PATH": PATH, "HOSTNAME": hostname}
    if spec.tty:
        values["TERM"] = "xterm"
    for each in image.config.env:
        name, _, value = each.partition("=")
        values[name] = value
    values.update(spec.env)
    values.setdefault("HOME", home)
    return [f"{name}={value}" for name, value in values.items() if value or name != "HOSTNAME"]


def make_source(mount: ContainerMount) -> None:
    """Make the directory of a mount that asks for it; if it cannot be made, the start of the
    container fails with the reason."""
    if mount.makes_directory and not os.path.exists(mount.host_path):
        with contextlib.suppress(OSError):
            os.makedirs(mount.host_path, mode=0o755, exist_ok=True)


def binds(mounts: Sequence[ContainerMount], place: ContainerPlace) -> list[BindMount]:
    """Return the mounts of the pod, and the files of every container that no mount replaces."""
    found = [
        BindMount(
            source=mount.host_path,
            part=mount.part,
            target=_absolute(mount.container_path),
            read_only=mount.read_only,
            recursive=mount.recursive_read_only,
            propagation=mount.propagation or "None",
        )
        for mount in mounts
    ]
    for name, target in _ETC.items():
        path = place.files / name
        taken = any(mount.takes(target) for mount in mounts)
        if not taken and path.exists() and path.stat().st_size:
            found.append(
                BindMount(
                    source=str(path),
                    part="",
                    target=target,
                    read_only=False,
                    recursive=False,
                    propagation="None",
                )
            )
    return found


def resources(asked: ContainerLimits) -> dict[str, Any]:
    """Return the limits that are set."""
    values: Mapping[str, Any] = {
        "cpu_shares": asked.cpu_shares,
        "cpu_quota": asked.cpu_quota,
        "cpu_period": asked.cpu_period,
        "memory_limit": asked.memory_limit,
        "pids_limit": asked.pids_limit,
        "hugepages": dict(asked.hugepages) or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def groups(security: ContainerSecurity, user: passwd.ImageUser) -> list[int]:
    from_image = user.groups if security.merge_image_groups else ()
    return sorted({user.gid, *security.groups, *from_image})


def signal_number(name: str) -> int:
    """Return the number of the stop signal, by default SIGTERM; SIGRTMIN+3 and numbers are valid
    names."""
    if not name:
        return signal.SIGTERM
    if name.isdigit():
        return int(name)
    base, sign, offset = name.upper().partition("+")
    if not sign:
        base, sign, offset = name.upper().partition("-")
    base = base if base.startswith("SIG") else f"SIG{base}"
    found = signal.__dict__.get(base)
    if not isinstance(found, signal.Signals) or (offset and not offset.isdigit()):
        raise RuntimeFailure(f'unknown stop signal "{name}"')
    return int(found) + (int(offset) if sign == "+" else -int(offset or 0))


def shortfalls(spec: ContainerConfig, machine: MachineCapabilities, uid: int) -> list[str]:
    """Return the requested properties that the machine cannot enforce, as text."""
    found = []
    if label := spec.security.selinux_label:
        found.append(f'its SELinux label "{label}" has no effect: this machine has no SELinux')
    return [*found, *_no_limits(spec.resources, machine), *_no_powers(spec, machine, uid)]


def _no_limits(asked: ContainerLimits, machine: MachineCapabilities) -> list[str]:
    """Return the limits that nothing enforces. A controller that exists and lacks a file is noted
    by the supervisor."""
    limits = {
        f"{name} limit": value
        for name, value, enforcement in (
            ("cpu", asked.cpu_quota, machine.cpu),
            ("memory", asked.memory_limit, machine.memory),
            ("process", asked.pids_limit, machine.pids),
        )
        if enforcement == ADVISORY
    }
    if not machine.has_cgroups:
        limits["limit on huge pages"] = max(asked.hugepages.values(), default=None)
    return [
        f"the {name} is not enforced: no control groups are available"
        for name, value in limits.items()
        if value is not None and value != UNLIMITED
    ]


def _no_powers(spec: ContainerConfig, machine: MachineCapabilities, uid: int) -> list[str]:
    found = []
    if not machine.namespaces:
        found.append("it shares processes, files and network with the machine: no namespaces")
        if spec.security.read_only_root:
            found.append("its root file system is not read-only: this machine allows no mounts")
    elif machine.ids == ONE_ID and uid and spec.security.groups:
        found.append("it has no supplementary groups: only one user and group can be mapped")
    if spec.devices and machine.devices != CONFINED:
        found.append("access to devices is not limited: no control groups are available")
    return found


def _user(security: ContainerSecurity, image: LocalImage) -> passwd.ImageUser:
    text = passwd.requested_user(
        security.user, security.username, security.group, image.config.user
    )
    try:
        return passwd.lookup(image.layers or [Path("/")], text)
    except passwd.NoSuchUser as error:
        raise RuntimeFailure(str(error)) from error


def _capabilities(security: ContainerSecurity) -> frozenset[str]:
    try:
        return capabilities.effective_capabilities(
            security.add_capabilities,
            security.drop_capabilities,
            privileged=security.privileged,
        )
    except capabilities.UnknownCapability as error:
        raise RuntimeFailure(str(error)) from error


def _filter(security: ContainerSecurity, held: frozenset[str]) -> str:
    if security.seccomp == "Unconfined" or security.privileged:
        return ""
    try:
        if security.seccomp == "RuntimeDefault":
            program = seccomp.default(held)
        else:
            program = seccomp.load(security.seccomp, held)
    except seccomp.InvalidSeccompProfile as error:
        raise RuntimeFailure(str(error)) from error
    return base64.b64encode(program).decode()


def sandbox_document(spec: SandboxConfig) -> dict[str, Any]:
    """Return a spec as a document for the supervisor to store."""
    document: dict[str, Any] = msgspec.to_builtins(spec)
    return document


def about_container(spec: ContainerConfig) -> dict[str, Any]:
    """Return the part of a container's spec that the supervisor keeps on disk. It has no
    variables and no arguments: both may hold secrets."""
    return {
        "name": spec.name,
        "attempt": spec.attempt,
        "image": spec.image,
        "image_name": spec.image_name,
        "labels": dict(spec.labels),
        "annotations": dict(spec.annotations),
    }
