"""Warnings for the client that writes a valid but unwise pod."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kedge.api.core_v1.deprecated_labels import DEPRECATED
from kedge.api.core_v1.pod.container import Container, ContainerPort
from kedge.api.core_v1.pod.spec import PodSpec, PodTemplateSpec, all_containers
from kedge.api.model import ObjectMeta
from kedge.machinery import names
from kedge.machinery.errors import shown

if TYPE_CHECKING:
    from kedge.api.core_v1.pod.pod import Pod

_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
    "security.alpha.kubernetes.io/unsafe-sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
    "seccomp.security.alpha.kubernetes.io/pod": (
        'non-functional in v1.27+; use the "seccompProfile" field instead'
    ),
}
_DEPRECATED_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_MATCHES_NOTHING = "a null labelSelector results in matching no pod"


def warn(pod: "Pod") -> Iterator[str]:
    """Warnings about a pod."""
    if found := names.dns_label(pod.metadata.name):
        yield (
            "metadata.name: this is used in the Pod's hostname, which can result in surprising "
            f"behavior; a DNS label is recommended: [{' '.join(found)}]"
        )
    yield from _warnings(pod.metadata, pod.spec, "")


def warn_template(template: PodTemplateSpec, path: str) -> Iterator[str]:
    """Warnings about what a workload makes pods from, say `spec.template`."""
    yield from _warnings(template.metadata, template.spec, f"{path}.")


def _warnings(metadata: ObjectMeta, spec: PodSpec, before: str) -> Iterator[str]:
    if spec.nodeSelector or spec.topologySpreadConstraints:
        yield from _labels(spec, f"{before}spec")
    for key, message in _DEPRECATED_ANNOTATIONS.items():
        if key in metadata.annotations:
            yield f"{before}metadata.annotations[{key}]: {message}"
    if spec.volumes:
        yield from _volumes(spec, f"{before}spec.volumes")
    if spec.hostAliases or spec.imagePullSecrets:
        yield from _duplicates(spec, f"{before}spec")
    ports = False
    for path, container in all_containers(spec):
        yield from _container(container, f"{before}spec.{path}")
        ports = ports or bool(container.ports)
    if ports:
        yield from _ports(spec, f"{before}spec")
    if (spec.terminationGracePeriodSeconds or 0) < 0:
        yield (
            f"{before}spec.terminationGracePeriodSeconds: must be >= 0; "
            "negative values are invalid and will be treated as 1"
        )
    if spec.affinity is not None:
        yield from _affinity(spec, f"{before}spec.affinity")


def _labels(spec: PodSpec, path: str) -> Iterator[str]:
    for key in spec.nodeSelector:
        if key in DEPRECATED:
            yield f"{path}.nodeSelector[{key}]: {DEPRECATED[key]}"
    for i, constraint in enumerate(spec.topologySpreadConstraints):
        at, key = f"{path}.topologySpreadConstraints[{i}]", constraint.topologyKey
        if key in DEPRECATED:
            yield f"{at}.topologyKey: {key} is {DEPRECATED[key]}"
        if constraint.labelSelector is None:
            yield f"{at}.labelSelector: {_MATCHES_NOTHING}"


def _volumes(spec: PodSpec, path: str) -> Iterator[str]:
    for i, volume in enumerate(spec.volumes):
        for source, message in _DEPRECATED_VOLUMES.items():
            if getattr(volume, source) is not None:
                # Upstream spells this one source's path in its own way.
                field = "storageOS" if source == "storageos" else source
                yield f"{path}[{i}].{field}: {message}"


def _duplicates(spec: PodSpec, path: str) -> Iterator[str]:
    addresses: set[str] = set()
    for i, alias in enumerate(spec.hostAliases):
        if alias.ip in addresses:
            yield f"{path}.hostAliases[{i}].ip: duplicate ip {shown(alias.ip)}"
        addresses.add(alias.ip)
    secrets: set[str] = set()
    for i, secret in enumerate(spec.imagePullSecrets):
        at = f"{path}.imagePullSecrets[{i}].name"
        if secret.name in secrets:
            yield f"{at}: duplicate name {shown(secret.name)}"
        if not secret.name:
            yield f'{at}: invalid empty name ""'
        secrets.add(secret.name)


def _container(container: Container, path: str) -> Iterator[str]:
    resources = container.resources
    for name in ("memory", "ephemeral-storage"):
        for bound, amounts in (("limits", resources.limits), ("requests", resources.requests)):
            amount = amounts.get(name)
            if amount is not None and amount.milli() % 1000:
                at = f"{path}.resources.{bound}[{name}]"
                yield f'{at}: fractional byte value "{amount}" is invalid, must be an integer'
    if len(container.env) > 1:
        yield from _hidden_variables(container, path)


def _hidden_variables(container: Container, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for i, variable in enumerate(container.env):
        if variable.name in seen:
            reference = f"$({variable.name})"
            extends = reference in variable.value and variable.value != reference
            if variable.valueFrom is not None or not extends:
                yield (
                    f"{path}.env[{i}]: hides previous definition of {shown(variable.name)}, "
                    "which may be dropped when using apply"
                )
        seen.add(variable.name)


_COMPARED: Final = 8
"""How many entries of one port each entry is compared with. A pod has one or two of them, and
clients see only the first few kilobytes of warnings."""


def _ports(spec: PodSpec, path: str) -> Iterator[str]:
    known: dict[tuple[int, str], list[tuple[str, ContainerPort]]] = {}
    named: dict[str, str] = {}
    for at, container in all_containers(spec):
        for i, port in enumerate(container.ports):
            here = f"{path}.{at}.ports[{i}]"
            if port.hostIP and not port.hostPort:
                yield f"{here}: hostIP set without hostPort: {_printed(port)}"
            others = known.setdefault((port.containerPort, port.protocol), [])
            for there, other in others[:_COMPARED]:
                if overlap := _overlap(port, other):
                    yield f"{here}: {overlap} port definition with {there}"
            others.append((here, port))
    for at, container in all_containers(spec):
        for i, port in enumerate(container.ports):
            here = f"{path}.{at}.ports[{i}]"
            first = named.setdefault(port.name, here) if port.name else here
            if first != here:
                yield (
                    f"{here}: duplicate port name {shown(port.name)} with {first}, "
                    f"services and probes that select ports by name will use {first}"
                )


def _printed(port: ContainerPort) -> str:
    return (
        f"{{Name:{port.name} HostPort:{port.hostPort} ContainerPort:{port.containerPort} "
        f"Protocol:{port.protocol} HostIP:{port.hostIP}}}"
    )


def _overlap(port: ContainerPort, other: ContainerPort) -> str:
    """How two entries for one port get in each other's way, if they do."""
    if (port.hostIP, port.hostPort) == (other.hostIP, other.hostPort):
        return "duplicate"
    if not port.hostPort or not other.hostPort:
        return "overlapping"
    if port.hostPort == other.hostPort and bool(port.hostIP) != bool(other.hostIP):
        return "dangerously ambiguous"
    return ""


def _affinity(spec: PodSpec, path: str) -> Iterator[str]:
    assert spec.affinity is not None
    for name in ("podAffinity", "podAntiAffinity"):
        affinity = getattr(spec.affinity, name)
        if affinity is None:
            continue
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        for i, term in enumerate(getattr(affinity, required)):
            if term.labelSelector is None:
                yield f"{path}.{name}.{required}[{i}].labelSelector: {_MATCHES_NOTHING}"
        preferred = "preferredDuringSchedulingIgnoredDuringExecution"
        for i, wish in enumerate(getattr(affinity, preferred)):
            if wish.podAffinityTerm.labelSelector is None:
                at = f"{path}.{name}.{preferred}[{i}].podAffinityTerm.labelSelector"
                yield f"{at}: {_MATCHES_NOTHING}"
