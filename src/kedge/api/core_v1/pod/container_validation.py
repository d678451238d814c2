"""Validation of containers, and of init and ephemeral containers."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

import msgspec

from kedge.api import rules
from kedge.api.core_v1 import path_rules
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.pod.container import (
    Container,
    ContainerPort,
    ContainerResizePolicy,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    EphemeralContainer,
    VolumeDevice,
    VolumeMount,
)
from kedge.api.core_v1.pod.probe_validation import (
    validate_lifecycle,
    validate_liveness,
    validate_readiness,
)
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.security_validation import validate_security_context
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.reference_validation import (
    VARIABLE_FIELDS,
    is_variable_name,
    named_container,
    validate_container_field_ref,
    validate_field_ref,
    validate_file_ref,
    validate_key_ref,
    validate_resource_ref,
)
from kedge.api.core_v1.references import ObjectFieldSelector
from kedge.api.core_v1.resource_validation import validate_container_resources
from kedge.api.core_v1.volume.volume import Volume
from kedge.machinery import names
from kedge.machinery.errors import ErrorScope, FieldError

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_SOURCES: Final = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` "
    "or `fileKeyRef`"
)
_ONE_AT_A_TIME: Final = "may not have more than one field specified at a time"
_NOT_EPHEMERAL: Final = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
_NEEDS_SIDECAR: Final = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


class ContainerContext(msgspec.Struct, frozen=True):
    """The parts of the pod that the validation of a container needs."""

    spec: PodSpec
    volumes: Mapping[str, Volume]
    """The valid volumes."""
    claims: Set[str]
    """Names of the pod's resource claims."""
    unportable: Set[str] = frozenset()
    """Names of the volumes that only kedge accepts."""


def validate_containers(pod: ContainerContext) -> Iterator[FieldError]:
    """Everything wrong with a pod's containers proper."""
    containers = pod.spec.containers
    if not containers:
        yield FieldError.required("")
        return
    seen: set[str] = set()
    for i, container in enumerate(containers):
        for error in _regular(container, pod, seen):
            yield error.under(f"[{i}]")
    yield from _host_ports(containers)


def _regular(container: Container, pod: ContainerContext, seen: set[str]) -> Iterator[FieldError]:
    yield from validate_container(container, pod)
    if container.name in seen:
        yield FieldError.duplicate("name", container.name)
    seen.add(container.name)
    yield from _hooks(container, pod)
    if container.restartPolicy is not None or container.restartPolicyRules:
        yield from _restarts(container)


def validate_init_containers(pod: ContainerContext) -> Iterator[FieldError]:
    """Everything wrong with the init containers."""
    seen = {container.name for container in pod.spec.containers}
    for i, container in enumerate(pod.spec.initContainers):
        for error in _init(container, pod, seen):
            yield error.under(f"[{i}]")
        # They run one by one, so each has the ports to itself. Upstream blames the first one.
        yield from _host_ports([container])


def _init(container: Container, pod: ContainerContext, seen: set[str]) -> Iterator[FieldError]:
    yield from validate_container(container, pod)
    if container.restartPolicy is not None or container.restartPolicyRules:
        yield from _restarts(container)
    if container.name in seen:
        yield FieldError.duplicate("name", container.name)
    elif container.name:
        seen.add(container.name)
    if is_sidecar(container):
        yield from _hooks(container, pod)
        return
    for name in _NEEDS_SIDECAR:
        if getattr(container, name) is not None:
            why = "may not be set for init containers without restartPolicy=Always"
            yield FieldError.forbidden(name, why)
    for i, policy in enumerate(container.resizePolicy):
        if policy.restartPolicy == "RestartContainer":
            why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            at = f"resizePolicy[{i}].restartPolicy"
            yield FieldError.invalid(at, policy.restartPolicy, why)


def validate_ephemeral_containers(pod: ContainerContext) -> Iterator[FieldError]:
    """Everything wrong with the ephemeral containers."""
    others = {c.name for c in (*pod.spec.containers, *pod.spec.initContainers)}
    seen = set(others)
    for i, container in enumerate(pod.spec.ephemeralContainers):
        for error in _ephemeral(container, pod, others, seen):
            yield error.under(f"[{i}]")


def _ephemeral(
    container: EphemeralContainer, pod: ContainerContext, others: set[str], seen: set[str]
) -> Iterator[FieldError]:
    yield from validate_container(container, pod)
    yield from validate_image_spelling(container)
    if container.name in seen:
        yield FieldError.duplicate("name", container.name)
    seen.add(container.name)
    target, why = container.targetContainerName, "cannot be set for an Ephemeral Container"
    if target and target not in others:
        yield FieldError.not_found("targetContainerName", target)
    unset = Container()
    for name in _NOT_EPHEMERAL:
        value = getattr(container, name)
        if value != [] and value != getattr(unset, name):
            yield FieldError.forbidden(name, why)
    for i, mount in enumerate(container.volumeMounts):
        if mount.subPath:
            yield FieldError.forbidden(f"volumeMounts[{i}].subPath", why)
        if mount.subPathExpr:
            yield FieldError.forbidden(f"volumeMounts[{i}].subPathExpr", why)


def validate_image_spelling(container: Container) -> Iterator[FieldError]:
    """Yield the error that only pods have: blanks around the image's name."""
    if container.image != container.image.strip():
        why = "must not have leading or trailing whitespace"
        yield FieldError.invalid("image", container.image, why)


def validate_container(container: Container, pod: ContainerContext) -> Iterator[FieldError]:
    """The errors that containers of every kind can have."""
    if not container.name:
        yield FieldError.required("name")
    elif found := names.dns_label(container.name):
        yield from rules.problems("name", container.name, found)
    if not container.image:
        yield FieldError.required("image")
    if container.terminationMessagePolicy not in _MESSAGE_POLICIES:
        policy = container.terminationMessagePolicy
        yield from rules.one_of("terminationMessagePolicy", policy, _MESSAGE_POLICIES)
    if container.ports:
        yield from within("ports", _ports(container.ports))
    if container.env:
        yield from _variables(container, pod.spec)
    if container.envFrom:
        yield from _env_from(container.envFrom)
    if container.volumeMounts:
        yield from within("volumeMounts", _mounts(container, pod))
    if container.volumeDevices:
        yield from within("volumeDevices", _devices(container, pod))
    if container.imagePullPolicy not in PULL_POLICIES:
        yield from rules.one_of("imagePullPolicy", container.imagePullPolicy, PULL_POLICIES)
    resources = container.resources
    if resources.limits or resources.requests or resources.claims:
        yield from within("resources", validate_container_resources(resources, pod.claims))
    if container.resizePolicy:
        errors = _resize_policies(container.resizePolicy, pod.spec.restartPolicy)
        yield from within("resizePolicy", errors)
    if container.securityContext is not None:
        host_users = pod.spec.hostUsers is not False
        errors = validate_security_context(container.securityContext, host_users=host_users)
        yield from within("securityContext", errors)


def _hooks(container: Container, pod: ContainerContext) -> Iterator[FieldError]:
    if container.lifecycle is not None:
        grace, os = pod.spec.terminationGracePeriodSeconds, pod.spec.os
        yield from within("lifecycle", validate_lifecycle(container.lifecycle, grace, os))
    if container.livenessProbe is not None:
        yield from within("livenessProbe", validate_liveness(container.livenessProbe))
    if container.readinessProbe is not None:
        yield from within("readinessProbe", validate_readiness(container.readinessProbe))
    if container.startupProbe is not None:
        yield from within("startupProbe", validate_liveness(container.startupProbe))


def _ports(ports: Sequence[ContainerPort]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, port in enumerate(ports):
        if port.name:
            if found := names.port_name(port.name):
                yield from rules.problems(f"[{i}].name", port.name, found)
            elif port.name in seen:
                yield FieldError.duplicate(f"[{i}].name", port.name)
            seen.add(port.name)
        if not port.containerPort:
            yield FieldError.required(f"[{i}].containerPort")
        elif found := names.port_number(port.containerPort):
            yield from rules.problems(f"[{i}].containerPort", port.containerPort, found)
        if port.hostPort and (found := names.port_number(port.hostPort)):
            yield from rules.problems(f"[{i}].hostPort", port.hostPort, found)
        if port.protocol not in rules.PROTOCOLS:
            yield from rules.one_of(f"[{i}].protocol", port.protocol, rules.PROTOCOLS)


def _host_ports(containers: Sequence[Container]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.ports):
            if port.hostPort:
                key = f"{port.protocol}/{port.hostIP}/{port.hostPort}"
                if key in seen:
                    yield FieldError.duplicate(f"[{i}].ports[{j}].hostPort", key)
                seen.add(key)


def _variables(container: Container, spec: PodSpec) -> Iterator[FieldError]:
    for i, variable in enumerate(container.env):
        for error in _variable(variable):
            yield error.under(f"env[{i}]")
        source = variable.valueFrom
        if source is not None and source.fieldRef is not None:
            for error in _own_selector(source.fieldRef, container, spec):
                yield error.under(f"env[{i}].valueFrom.fieldRef")


def _own_selector(
    ref: ObjectFieldSelector, container: Container, spec: PodSpec
) -> Iterator[FieldError]:
    """A variable is about the container that it is for."""
    named, errors = named_container(ref, spec)
    yield from errors
    if named and named != container.name:
        why = f'selector must name the container it is used in ("{container.name}")'
        yield FieldError.invalid("fieldPath", ref.fieldPath, why).only(ErrorScope.KEDGE)


def _variable(variable: EnvVar) -> Iterator[FieldError]:
    if not variable.name:
        yield FieldError.required("name")
    elif not is_variable_name(variable.name):
        yield from rules.problems("name", variable.name, names.env_var_name(variable.name))
    if variable.valueFrom is not None:
        yield from within("valueFrom", _source(variable, variable.valueFrom))


def _source(variable: EnvVar, source: EnvVarSource) -> Iterator[FieldError]:
    count = 0
    if source.fieldRef is not None:
        count += 1
        yield from within("fieldRef", validate_field_ref(source.fieldRef, VARIABLE_FIELDS))
    if source.resourceFieldRef is not None:
        count += 1
        errors = validate_resource_ref(source.resourceFieldRef, in_volume=False)
        yield from within("resourceFieldRef", errors)
    if source.configMapKeyRef is not None:
        count += 1
        yield from within("configMapKeyRef", validate_key_ref(source.configMapKeyRef))
    if source.secretKeyRef is not None:
        count += 1
        yield from within("secretKeyRef", validate_key_ref(source.secretKeyRef))
    if source.fileKeyRef is not None:
        count += 1
        yield from within("fileKeyRef", validate_file_ref(source.fileKeyRef))
    for name in ("containerFieldRef", "containerfieldRef"):
        if (ref := getattr(source, name)) is not None:
            count += 1
            yield from within(name, validate_container_field_ref(ref))
    if not count:
        yield FieldError.invalid("", "", _SOURCES)
    elif variable.value:
        yield FieldError.invalid("", "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield FieldError.invalid("", "", _ONE_AT_A_TIME)


def _env_from(sources: Sequence[EnvFromSource]) -> Iterator[FieldError]:
    for i, source in enumerate(sources):
        if source.prefix:
            found = names.env_var_name(source.prefix)
            yield from rules.problems(f"envFrom[{i}].prefix", source.prefix, found)
        given = {"configMapRef": source.configMapRef, "secretRef": source.secretRef}
        refs = {name: ref for name, ref in given.items() if ref is not None}
        for name, ref in refs.items():
            path = f"envFrom[{i}].{name}.name"
            if not ref.name:
                yield FieldError.required(path)
            else:
                yield from rules.problems(path, ref.name, names.dns_subdomain(ref.name))
        # Upstream blames the list for this, not the element.
        if not refs:
            why = "must specify one of: `configMapRef` or `secretRef`"
            yield FieldError.invalid("envFrom", "", why)
        elif len(refs) > 1:
            yield FieldError.invalid("envFrom", "", _ONE_AT_A_TIME)


def _mounts(container: Container, pod: ContainerContext) -> Iterator[FieldError]:
    device_names = {device.name for device in container.volumeDevices}
    device_paths = {device.devicePath for device in container.volumeDevices}
    seen: set[str] = set()
    for i, mount in enumerate(container.volumeMounts):
        name, path = f"[{i}].name", f"[{i}].mountPath"
        if not mount.name:
            yield FieldError.required(name)
        if mount.name not in pod.volumes:
            yield FieldError.not_found(name, mount.name)
        elif mount.name in pod.unportable:
            yield FieldError.not_found(name, mount.name).only(ErrorScope.KUBERNETES)
        if not mount.mountPath:
            yield FieldError.required(path)
        if mount.mountPath in seen:
            yield FieldError.invalid(path, mount.mountPath, "must be unique")
        seen.add(mount.mountPath)
        if mount.name in device_names:
            why = "must not already exist in volumeDevices"
            yield FieldError.invalid(name, mount.name, why)
        if mount.mountPath in device_paths:
            why = "must not already exist as a path in volumeDevices"
            yield FieldError.invalid(path, mount.mountPath, why)
        yield from _sub_path(mount, f"[{i}]")
        yield from _propagation(mount, container)


def _sub_path(mount: VolumeMount, at: str) -> Iterator[FieldError]:
    # Upstream blames the list of mounts for a bad path, and for what _propagation finds.
    if mount.subPath:
        yield from path_rules.descending("subPath", mount.subPath)
    if mount.subPathExpr:
        if mount.subPath:
            why = "subPathExpr and subPath are mutually exclusive"
            yield FieldError.invalid(f"{at}.subPathExpr", mount.subPathExpr, why)
        yield from path_rules.descending("subPathExpr", mount.subPathExpr)


def _propagation(mount: VolumeMount, container: Container) -> Iterator[FieldError]:
    mode, recursive = mount.mountPropagation, mount.recursiveReadOnly
    if mode is not None:
        supported = ("Bidirectional", "HostToContainer", "None")
        if mode not in supported:
            yield FieldError.not_supported("mountPropagation", mode, supported)
        context = container.securityContext
        if mode == "Bidirectional" and not (context is not None and context.privileged):
            why = "Bidirectional mount propagation is available only to privileged containers"
            yield FieldError.forbidden("mountPropagation", why)
    if recursive in ("Enabled", "IfPossible"):
        if not mount.readOnly:
            why = "may only be specified when readOnly is true"
            yield FieldError.forbidden("recursiveReadOnly", why)
        if mode not in (None, "None"):
            why = "may only be specified when mountPropagation is None or not specified"
            yield FieldError.forbidden("recursiveReadOnly", why)
    elif recursive not in (None, "Disabled"):
        supported = ("Disabled", "Enabled", "IfPossible")
        yield FieldError.not_supported("recursiveReadOnly", recursive, supported)


def _devices(container: Container, pod: ContainerContext) -> Iterator[FieldError]:
    mounted_names = {mount.name for mount in container.volumeMounts}
    mounted_paths = {mount.mountPath for mount in container.volumeMounts}
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for i, device in enumerate(container.volumeDevices):
        yield from _device_name(device, f"[{i}].name", pod, seen_names)
        path = f"[{i}].devicePath"
        if not device.devicePath:
            yield FieldError.required(path)
        if device.devicePath in seen_paths:
            yield FieldError.invalid(path, device.devicePath, "must be unique")
        if ".." in device.devicePath.split("/"):
            why = "can not contain backsteps ('..')"
            yield FieldError.invalid(path, device.devicePath, why)
        seen_paths.add(device.devicePath)
        if device.name in mounted_names:
            why = "must not already exist in volumeMounts"
            yield FieldError.invalid(f"[{i}].name", device.name, why)
        if device.devicePath in mounted_paths:
            why = "must not already exist as a path in volumeMounts"
            yield FieldError.invalid(path, device.devicePath, why)


def _device_name(
    device: VolumeDevice, path: str, pod: ContainerContext, seen: set[str]
) -> Iterator[FieldError]:
    if not device.name:
        yield FieldError.required(path)
    if device.name in seen:
        yield FieldError.invalid(path, device.name, "must be unique")
    if device.name:
        seen.add(device.name)
    volume = pod.volumes.get(device.name)
    if volume is None:
        yield FieldError.not_found(path, device.name)
    elif volume.persistentVolumeClaim is None and volume.ephemeral is None:
        why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        yield FieldError.invalid(path, device.name, why)


def _resize_policies(
    policies: Sequence[ContainerResizePolicy], pod_policy: str
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, policy in enumerate(policies):
        if policy.resourceName in seen:
            yield FieldError.duplicate(f"[{i}]", policy.resourceName)
        seen.add(policy.resourceName)
        yield from rules.one_of("", policy.resourceName, ("cpu", "memory"))
        yield from rules.one_of("", policy.restartPolicy, ("NotRequired", "RestartContainer"))
        if pod_policy == "Never" and policy.restartPolicy != "NotRequired":
            why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            yield FieldError.invalid("", policy.restartPolicy, why)


def _restarts(container: Container) -> Iterator[FieldError]:
    """When the container itself, rather than its pod, says when it restarts."""
    policy, rules_ = container.restartPolicy, container.restartPolicyRules
    if policy is None:
        why = "must specify restartPolicy when restart rules are used"
        yield FieldError.required("restartPolicy", why)
    elif policy not in _RESTART_POLICIES:
        yield FieldError.not_supported("restartPolicy", policy, _RESTART_POLICIES)
    if len(rules_) > 20:
        yield FieldError.too_many("restartPolicyRules", len(rules_), 20)
    for i, rule in enumerate(rules_):
        at = f"restartPolicyRules[{i}]"
        if rule.action not in ("Restart", "RestartAllContainers"):
            supported = ("Restart", "RestartAllContainers")
            yield FieldError.not_supported(f"{at}.action", rule.action, supported)
        if rule.exitCodes is None:
            yield FieldError.required(f"{at}.exitCodes", "must be specified")
            continue
        if rule.exitCodes.operator not in ("In", "NotIn"):
            path = f"{at}.exitCodes.operator"
            yield FieldError.not_supported(path, rule.exitCodes.operator, ("In", "NotIn"))
        if len(rule.exitCodes.values) > 255:
            yield FieldError.too_many(f"{at}.exitCodes.values", len(rule.exitCodes.values), 255)
