"""Specs: what the runtime is told to make, from what the pod says."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container, EphemeralContainer
from kedge.api.core_v1.pod.pod import Pod
from kedge.node import marks
from kedge.node.expansion import expand_all
from kedge.node.hosts import kernel_hostname
from kedge.node.parts import ConfigFailure, Given, Image
from kedge.node.runtime.runtime import (
    ContainerSpec,
    Dns,
    Mount,
    PortMapping,
    Resources,
    SandboxSpec,
    Security,
)


def sandbox_spec(
    pod: Pod, attempt: int, *, logs: Path, cgroup: str, dns: Dns, first_id: int = 0
) -> SandboxSpec:
    """`first_id` is the machine's id of the pod's id 0, if it has a user namespace."""
    spec, meta = pod.spec, pod.metadata
    context = spec.securityContext
    return SandboxSpec(
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
        dns=dns,
        ports=() if spec.hostNetwork else list(_ports(pod)),
        sysctls={sysctl_name(s.name): s.value for s in context.sysctls} if context else {},
        labels=marks.pod_labels(pod),
        annotations=meta.annotations,
    )


def sysctl_name(name: str) -> str:
    """A setting of the kernel with dots between its parts; it may also be written with slashes."""
    first = next((letter for letter in name if letter in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def _ports(pod: Pod) -> Iterator[PortMapping]:
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        for port in container.ports:
            if port.hostPort:
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
    image: Image,
    env: Sequence[tuple[str, str]],
    mounts: Sequence[Mount],
    resources: Resources,
    security: Security,
    given: Given,
) -> ContainerSpec:
    """`given` is what the container's devices bring, besides variables and mounts."""
    values = dict(env)
    lifecycle = container.lifecycle
    marked = marks.container_annotations(pod, container, image.name, image.reference)
    if given.groups:
        security = replace(security, groups=[*security.groups, *given.groups])
    return ContainerSpec(
        name=container.name,
        attempt=attempt,
        image=image.id,
        image_name=container.image,
        command=expand_all(container.command, values),
        args=expand_all(container.args, values),
        working_dir=container.workingDir,
        env=env,
        mounts=mounts,
        devices=given.devices,
        log_path=f"{container.name}/{attempt}.log",
        stdin=container.stdin,
        stdin_once=container.stdinOnce,
        tty=container.tty,
        resources=resources,
        security=security,
        stop_signal=(lifecycle.stopSignal or "") if lifecycle is not None else "",
        labels=marks.container_labels(pod, container),
        annotations={**given.annotations, **marked},
    )


def target_of(container: Container, ids: Mapping[str, str]) -> str:
    """The id of the container whose processes an ephemeral one wants to see; `ids` by name."""
    if not isinstance(container, EphemeralContainer) or not container.targetContainerName:
        return ""
    target = ids.get(container.targetContainerName)
    if target is None:
        raise ConfigFailure(f"unable to find target container {container.targetContainerName}")
    return target
