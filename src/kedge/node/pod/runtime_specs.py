"""The specs of sandboxes and containers for the runtime, from a pod."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container, EphemeralContainer
from kedge.api.core_v1.pod.pod import Pod
from kedge.node.network.dns import kernel_hostname
from kedge.node.pod import labels
from kedge.node.pod.dependencies import ConfigFailure, DeviceGrant, ResolvedImage
from kedge.node.pod.environment.expansion import expand_all
from kedge.node.runtime.runtime import (
    ContainerConfig,
    ContainerLimits,
    ContainerMount,
    ContainerSecurity,
    DnsConfig,
    PortMapping,
    SandboxConfig,
)


def sandbox_spec(
    pod: Pod, attempt: int, *, logs: Path, cgroup: str, dns: DnsConfig, first_id: int = 0
) -> SandboxConfig:
    """Return the spec of a pod's sandbox; `first_id` is the machine's id of the pod's id 0 if the
    pod has a user namespace."""
    spec, meta = pod.spec, pod.metadata
    context = spec.securityContext
    return SandboxConfig(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        attempt=attempt,
        hostname=kernel_hostname(pod),
        log_directory=str(logs),
        cgroup_parent=cgroup,
        first_id=first_id,
        host_network=spec.hostNetwork,
        host_pid=spec.hostPID,
        host_ipc=spec.hostIPC,
        shared_pid=bool(spec.shareProcessNamespace),
        privileged=_has_privileged(pod),
        dns=dns,
        ports=() if spec.hostNetwork else list(_ports(pod)),
        sysctls={sysctl_name(s.name): s.value for s in context.sysctls} if context else {},
        labels=labels.pod_labels(pod),
        annotations=meta.annotations,
    )


def _has_privileged(pod: Pod) -> bool:
    contexts = (each.securityContext for each in (*pod.spec.initContainers, *pod.spec.containers))
    return any(context is not None and context.privileged for context in contexts)


def sysctl_name(name: str) -> str:
    """Return the name of a sysctl with dots as separators; manifests may use slashes."""
    first = next((letter for letter in name if letter in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def _ports(pod: Pod) -> Iterator[PortMapping]:
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        for port in container.ports:
            yield PortMapping(
                container_port=port.containerPort,
                host_port=port.hostPort,
                protocol=port.protocol or "TCP",
                host_ip=port.hostIP,
            )


def container_spec(
    pod: Pod,
    container: Container,
    attempt: int,
    *,
    image: ResolvedImage,
    env: Sequence[tuple[str, str]],
    mounts: Sequence[ContainerMount],
    limits: ContainerLimits,
    security: ContainerSecurity,
    grant: DeviceGrant,
) -> ContainerConfig:
    """Return the spec of a container; variables and mounts of `grant` are in `env` and `mounts`."""
    values = dict(env)
    lifecycle = container.lifecycle
    own_annotations = labels.container_annotations(pod, container, image.name, image.reference)
    if grant.groups:
        security = replace(security, groups=[*security.groups, *grant.groups])
    return ContainerConfig(
        name=container.name,
        attempt=attempt,
        image=image.id,
        image_name=container.image,
        image_reference=image.name,
        command=expand_all(container.command, values),
        args=expand_all(container.args, values),
        working_dir=container.workingDir,
        env=env,
        mounts=mounts,
        devices=grant.devices,
        log_path=f"{container.name}/{attempt}.log",
        stdin=container.stdin,
        stdin_once=container.stdinOnce,
        tty=container.tty,
        resources=limits,
        security=security,
        stop_signal=(lifecycle.stopSignal or "") if lifecycle is not None else "",
        labels=labels.container_labels(pod, container),
        annotations={**grant.annotations, **own_annotations},
    )


def target_of(container: Container, ids: Mapping[str, str]) -> str:
    """Return the id of the target container of an ephemeral container; empty without a target.
    `ids` are the running containers by name. Raises ConfigFailure if the target does not run."""
    if not isinstance(container, EphemeralContainer) or not container.targetContainerName:
        return ""
    target = ids.get(container.targetContainerName)
    if target is None:
        raise ConfigFailure(f"unable to find target container {container.targetContainerName}")
    return target
