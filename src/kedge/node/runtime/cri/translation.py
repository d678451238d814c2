"""Translates the specs of sandboxes and containers to messages of CRI, and its answers back. Pure.

A runtime keeps labels and annotations of sandboxes and containers. One annotation holds the whole
spec, so that a restarted agent knows all that it needs; the labels select those of one node.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from kedge.node.runtime.cri import messages as m
from kedge.node.runtime.runtime import (
    NO_FEATURES,
    ContainerConfig,
    ContainerLimits,
    ContainerMount,
    ContainerSecurity,
    PidMode,
    PodSandbox,
    RunState,
    RuntimeContainer,
    RuntimeFailure,
    RuntimeFeatures,
    RuntimeMessage,
    SandboxConfig,
)
from kedge.supervisor.rootfs.proc_sys import MASKED, READ_ONLY
from kedge.supervisor.sandbox.user_namespace import LENGTH

T = TypeVar("T")

NODE_LABEL: Final = "dev.kedge.node"
"""The node of a sandbox or container: several nodes may share a runtime."""
POD_LABELS: Final = {
    "io.kubernetes.pod.name": "name",
    "io.kubernetes.pod.namespace": "namespace",
    "io.kubernetes.pod.uid": "uid",
}
CONTAINER_NAME: Final = "io.kubernetes.container.name"
SPEC: Final = "dev.kedge.spec"
"""The annotation with the spec."""
_PID_MODES: Final = {
    PidMode.CONTAINER: m.CONTAINER,
    PidMode.POD: m.POD,
    PidMode.HOST: m.NODE,
    PidMode.TARGET: m.TARGET,
}
_TIMED_OUT: Final = b"command timed out"
"""The answer of CRI-O in place of an error."""
_STATES: Final = {
    m.CREATED: RunState.CREATED,
    m.RUNNING: RunState.RUNNING,
}


class UnreadableSpec(RuntimeFailure):
    """A sandbox or container has the label of this node, but no spec that this release reads."""


class ContainerRecord(RuntimeMessage):
    """Facts about a container that the runtime does not give back."""

    sandbox: str
    pod_uid: str
    image: str
    image_name: str
    log_path: str
    """Absolute."""
    cgroup_parent: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    user: int = 0
    group: int = 0
    groups: Sequence[int] = ()
    shortfalls: Sequence[str] = ()
    tty: bool = False
    stdin: bool = False


# Sandboxes.


def sandbox_config(spec: SandboxConfig, node: str) -> m.CriSandboxConfig:
    """Return the request for a sandbox of a node."""
    return m.CriSandboxConfig(
        metadata=m.CriSandboxMetadata(
            name=spec.name, uid=spec.uid, namespace=spec.namespace, attempt=spec.attempt
        ),
        hostname="" if spec.host_network else spec.hostname,
        log_directory=spec.log_directory,
        dns_config=m.CriDns(
            servers=spec.dns.servers, searches=spec.dns.searches, options=spec.dns.options
        ),
        labels={
            NODE_LABEL: node,
            **{label: getattr(spec, field) for label, field in POD_LABELS.items()},
        },
        annotations={SPEC: msgspec.json.encode(spec).decode()},
        linux=m.CriSandboxLinux(
            cgroup_parent=spec.cgroup_parent,
            sysctls=spec.sysctls,
            security_context=m.CriSandboxSecurity(
                privileged=spec.privileged,
                namespace_options=_sandbox_namespaces(spec),
                seccomp=m.CriSeccomp(
                    profile_type=m.UNCONFINED if spec.privileged else m.RUNTIME_DEFAULT
                ),
            ),
        ),
    )


def _sandbox_namespaces(spec: SandboxConfig) -> m.CriNamespaces:
    pid = m.NODE if spec.host_pid else m.POD if spec.shared_pid else m.CONTAINER
    return m.CriNamespaces(
        network=m.NODE if spec.host_network else m.POD,
        pid=pid,
        ipc=m.NODE if spec.host_ipc else m.POD,
        userns_options=_user_namespace(spec),
    )


def _user_namespace(spec: SandboxConfig) -> m.CriUserNamespace | None:
    """Return the user namespace of a sandbox; None for the machine's."""
    if not spec.first_id:
        return None
    ids = _id_mappings(spec)
    return m.CriUserNamespace(mode=m.POD, uids=ids, gids=ids)


def _id_mappings(spec: SandboxConfig) -> Sequence[m.CriIdMapping]:
    if not spec.first_id:
        return ()
    return [m.CriIdMapping(host_id=spec.first_id, container_id=0, length=LENGTH)]


def sandbox_spec(sandbox: m.CriSandbox) -> SandboxConfig:
    """Return the spec with which a sandbox was created. Raises UnreadableSpec."""
    return _decoded(sandbox.annotations, SandboxConfig)


def pod_sandbox(sandbox: m.CriSandbox, address: str) -> PodSandbox:
    """Return the state of a sandbox; its address is kedge's own."""
    spec = sandbox_spec(sandbox)
    return PodSandbox(
        id=sandbox.id,
        namespace=spec.namespace,
        name=spec.name,
        uid=spec.uid,
        attempt=spec.attempt,
        ready=sandbox.state == m.SANDBOX_READY,
        created_at=sandbox.created_at,
        ips=(address,) if address else (),
        labels=spec.labels,
        annotations=spec.annotations,
    )


# Containers.


def container_config(
    spec: ContainerConfig,
    sandbox: SandboxConfig,
    mounts: Sequence[ContainerMount],
    record: ContainerRecord,
    node: str,
    features: RuntimeFeatures = NO_FEATURES,
) -> m.CriContainerConfig:
    """Return the request for a container, whose subPaths are resolved in `mounts`."""
    labels = {label: getattr(sandbox, field) for label, field in POD_LABELS.items()}
    return m.CriContainerConfig(
        metadata=m.CriContainerMetadata(name=spec.name, attempt=spec.attempt),
        image=m.CriImageSpec(
            image=spec.image, user_specified_image=spec.image_reference or spec.image_name
        ),
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_dir,
        envs=[
            m.CriVariable(key=key, value=value.encode(errors="surrogateescape"))
            for key, value in spec.env
        ],
        mounts=[_mount(each, sandbox, features) for each in mounts],
        devices=[
            m.CriDevice(
                container_path=each.container_path,
                host_path=each.host_path,
                permissions=each.permissions,
            )
            for each in spec.devices
        ],
        labels={NODE_LABEL: node, CONTAINER_NAME: spec.name, **labels},
        annotations={**spec.annotations, SPEC: msgspec.json.encode(record).decode()},
        log_path=spec.log_path,
        stdin=spec.stdin,
        stdin_once=spec.stdin_once,
        tty=spec.tty,
        linux=m.CriContainerLinux(
            resources=resources(spec.resources),
            security_context=_security(spec.security, sandbox),
        ),
        stop_signal=_stop_signal(spec.stop_signal),
    )


def container_record(
    spec: ContainerConfig,
    sandbox_id: str,
    sandbox: SandboxConfig,
    *,
    unmet: Sequence[str] = (),
    features: RuntimeFeatures = NO_FEATURES,
) -> ContainerRecord:
    """Return the record of a new container; `unmet` are shortfalls of the machine."""
    security = spec.security
    return ContainerRecord(
        sandbox=sandbox_id,
        pod_uid=sandbox.uid,
        image=spec.image,
        image_name=spec.image_name,
        log_path=f"{sandbox.log_directory}/{spec.log_path}" if spec.log_path else "",
        cgroup_parent=sandbox.cgroup_parent,
        labels=spec.labels,
        annotations=spec.annotations,
        user=security.user or 0,
        group=security.group or 0,
        groups=security.groups,
        shortfalls=[*unmet, *shortfalls(spec, features)],
        tty=spec.tty,
        stdin=spec.stdin,
    )


def shortfalls(spec: ContainerConfig, features: RuntimeFeatures = NO_FEATURES) -> list[str]:
    """Return, in words, what was requested and a runtime cannot do."""
    found = []
    if spec.stop_signal and not features.stop_signals:
        found.append(f"the container runtime ignores the stop signal {spec.stop_signal}")
    if not spec.security.merge_image_groups and not features.strict_groups:
        found.append("the container runtime adds the groups of the image: policy Strict is ignored")
    found += [
        f"the container runtime mounts {mount.container_path} read-only, but not what is below"
        for mount in spec.mounts
        if mount.recursive_read_only and not features.recursive_read_only
    ]
    return found


def with_oom_score(spec: ContainerConfig, lowest: int) -> tuple[ContainerConfig, list[str]]:
    """Return a container's spec with a score that the machine allows, and the shortfall."""
    score = spec.resources.oom_score_adj
    if score >= lowest:
        return spec, []
    limits = replace(spec.resources, oom_score_adj=lowest)
    text = f"oom_score_adj stays {lowest}: this machine does not let it be {score}"
    return replace(spec, resources=limits), [text]


def _mount(mount: ContainerMount, sandbox: SandboxConfig, features: RuntimeFeatures) -> m.CriMount:
    ids = _id_mappings(sandbox)
    return m.CriMount(
        container_path=mount.container_path,
        host_path=mount.host_path,
        readonly=mount.read_only,
        propagation=m.PROPAGATIONS.get(mount.propagation, 0),
        uid_mappings=ids,
        gid_mappings=ids,
        recursive_read_only=mount.recursive_read_only and features.recursive_read_only,
    )


def resources(limits: ContainerLimits) -> m.CriResources:
    """Return the limits that are set; 0 keeps the runtime's default."""
    return m.CriResources(
        cpu_period=limits.cpu_period if limits.cpu_quota else 0,
        cpu_quota=limits.cpu_quota or 0,
        cpu_shares=limits.cpu_shares or 0,
        # No limit is -1 in kedge, which CRI-O refuses. A pod's limit is never removed later.
        memory_limit_in_bytes=max(limits.memory_limit or 0, 0),
        oom_score_adj=limits.oom_score_adj,
        hugepage_limits=[
            m.CriHugePages(page_size=size, limit=amount)
            for size, amount in limits.hugepages.items()
        ],
    )


def _security(security: ContainerSecurity, sandbox: SandboxConfig) -> m.CriContainerSecurity:
    is_masked = not (security.privileged or security.unmasked_proc)
    user, username = _user(security)
    return m.CriContainerSecurity(
        capabilities=m.CriCapabilities(
            add_capabilities=security.add_capabilities,
            drop_capabilities=security.drop_capabilities,
        ),
        privileged=security.privileged,
        namespace_options=m.CriNamespaces(
            network=m.NODE if sandbox.host_network else m.POD,
            pid=_PID_MODES[security.pid],
            ipc=m.NODE if sandbox.host_ipc else m.POD,
            target_id=security.pid_target,
            userns_options=_user_namespace(sandbox),
        ),
        run_as_user=user,
        run_as_username=username,
        run_as_group=None if security.group is None else m.CriInt64(value=security.group),
        supplemental_groups=security.groups,
        readonly_rootfs=security.read_only_root,
        no_new_privs=security.no_new_privileges,
        masked_paths=MASKED if is_masked else (),
        readonly_paths=READ_ONLY if is_masked else (),
        seccomp=_seccomp(security.seccomp),
        supplemental_groups_policy=m.MERGE if security.merge_image_groups else m.STRICT,
    )


def _user(security: ContainerSecurity) -> tuple[m.CriInt64 | None, str]:
    """Return the number or the name of the user. A runtime refuses a group without either; the
    user of the image is then named."""
    if security.user is not None:
        return m.CriInt64(value=security.user), ""
    if security.group is None:
        return None, ""
    name = security.username.partition(":")[0]
    if name and not name.isdigit():
        return None, name
    return m.CriInt64(value=int(name or 0)), ""


def _stop_signal(name: str) -> int:
    """Return the number that CRI gives to a signal; 0 for none."""
    return m.SIGNALS.index(name) + 1 if name in m.SIGNALS else 0


def _seccomp(profile: str) -> m.CriSeccomp:
    match profile:
        case "RuntimeDefault":
            return m.CriSeccomp(profile_type=m.RUNTIME_DEFAULT)
        case "Unconfined":
            return m.CriSeccomp(profile_type=m.UNCONFINED)
        case _:
            return m.CriSeccomp(profile_type=m.LOCALHOST, localhost_ref=profile)


def record_of(annotations: Mapping[str, str]) -> ContainerRecord:
    """Return the record of a container from its annotations. Raises UnreadableSpec."""
    return _decoded(annotations, ContainerRecord)


def _decoded(annotations: Mapping[str, str], type_: type[T]) -> T:
    try:
        return msgspec.json.decode(annotations[SPEC], type=type_)
    except KeyError:
        raise UnreadableSpec(f"the annotation {SPEC} is missing") from None
    except msgspec.DecodeError as error:
        raise UnreadableSpec(f"the annotation {SPEC} cannot be read: {error}") from error


def runtime_container(
    status: m.CriContainerStatus,
    record: ContainerRecord,
    *,
    pid: int,
    cgroup: str,
    runtime: str,
) -> RuntimeContainer:
    """Return the state of a container of a runtime with that name."""
    metadata = status.metadata or m.CriContainerMetadata()
    return RuntimeContainer(
        id=status.id,
        sandbox=record.sandbox,
        name=metadata.name,
        state=run_state(status.state),
        attempt=metadata.attempt,
        created_at=status.created_at,
        started_at=status.started_at,
        finished_at=status.finished_at,
        exit_code=status.exit_code,
        reason=reason_of(status),
        message=status.message,
        image=record.image,
        image_name=record.image_name,
        log_path=record.log_path,
        pid=pid if status.state == m.RUNNING else 0,
        cgroup=cgroup if record.cgroup_parent else "",
        labels=record.labels,
        annotations=record.annotations,
        user=record.user,
        group=record.group,
        groups=record.groups,
        shortfalls=record.shortfalls,
        runtime=runtime,
    )


def run_state(state: int) -> RunState:
    """Return the state of a container; one that the runtime has lost track of has ended."""
    return _STATES.get(state, RunState.EXITED)


def reason_of(status: m.CriContainerStatus) -> str:
    """Return why a container ended, in the words of the kubelet. A runtime that has lost the exit
    code says so by its state or by a code of its own."""
    if status.state in _STATES:
        return ""
    if status.state != m.EXITED:
        return "ContainerStatusUnknown"
    if status.reason == "Unknown":
        return "ContainerStatusUnknown"
    return status.reason or ("Error" if status.exit_code else "Completed")


def whole_seconds(seconds: float) -> int:
    """Return a time for CRI, which knows whole seconds only; never less than asked for."""
    return math.ceil(seconds)


def has_timed_out(done: m.CriExecSyncResponse) -> bool:
    """Return whether a command took too long, where the runtime says so by an outcome."""
    return done.exit_code == -1 and done.stderr == _TIMED_OUT


def process_id(info: Mapping[str, str]) -> int:
    """Return the pid in the verbose information about a container; 0 if there is none."""
    return int(_verbose(info).get("pid") or 0)


def control_group(info: Mapping[str, str]) -> str:
    """Return the control group in the verbose information about a container; empty if it has no
    path in the hierarchies."""
    path = ((_verbose(info).get("runtimeSpec") or {}).get("linux") or {}).get("cgroupsPath") or ""
    return str(path) if str(path).startswith("/") else ""


def network_namespace(info: Mapping[str, str]) -> str:
    """Return the path of the network namespace in the verbose information about a sandbox; empty
    if the sandbox has that of the machine."""
    linux = (_verbose(info).get("runtimeSpec") or {}).get("linux") or {}
    for namespace in linux.get("namespaces") or ():
        if namespace.get("type") == "network":
            return str(namespace.get("path") or "")
    return ""


def _verbose(info: Mapping[str, str]) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(info.get("info", "{}"))
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
