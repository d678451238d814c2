"""Defaults of containers."""

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from kedge.api.core_v1 import image
from kedge.api.core_v1.pod.container import Container, ContainerPort, EnvVar, ResourceRequirements
from kedge.api.core_v1.pod.probe import HTTPGetAction, Lifecycle, LifecycleHandler, Probe
from kedge.api.core_v1.resource_defaults import rounded
from kedge.api.core_v1.resource_names import EPHEMERAL_STORAGE, STORAGE
from kedge.api.core_v1.volume.defaults import default_field
from kedge.machinery.quantity import Quantity

C = TypeVar("C", bound=Container)


def default_container(container: C) -> C:
    """Return the container with its defaults."""
    changes: dict[str, Any] = {"resources": rounded_resources(container.resources)}
    if not container.imagePullPolicy:
        changes["imagePullPolicy"] = image.pull_policy(container.image)
    if not container.terminationMessagePath:
        changes["terminationMessagePath"] = "/dev/termination-log"
    if not container.terminationMessagePolicy:
        changes["terminationMessagePolicy"] = "File"
    if container.ports:
        changes["ports"] = [_port(port) for port in container.ports]
    if container.env:
        changes["env"] = [_variable(variable) for variable in container.env]
    if container.livenessProbe is not None:
        changes["livenessProbe"] = _probe(container.livenessProbe)
    if container.readinessProbe is not None:
        changes["readinessProbe"] = _probe(container.readinessProbe)
    if container.startupProbe is not None:
        changes["startupProbe"] = _probe(container.startupProbe)
    if container.lifecycle is not None:
        changes["lifecycle"] = _lifecycle(container.lifecycle)
    return replace(container, **changes)


def rounded_resources(resources: ResourceRequirements) -> ResourceRequirements:
    limits, requests = rounded(resources.limits), rounded(resources.requests)
    if limits is resources.limits and requests is resources.requests:
        return resources
    return replace(resources, limits=limits, requests=requests)


def requesting_limits(container: C) -> C:
    """Return the container with its limits as requests, where it has no request."""
    container = _storing(container)
    limits, requests = container.resources.limits, container.resources.requests
    if limits.keys() <= requests.keys():
        return container
    resources = replace(container.resources, requests={**limits, **requests})
    return replace(container, resources=resources)


def _storing(container: C) -> C:
    """Storage, which only kedge knows containers to ask for, is what nodes call ephemeral."""
    resources = container.resources
    if STORAGE not in resources.limits and STORAGE not in resources.requests:
        return container
    limits, requests = _with_ephemeral(resources.limits), _with_ephemeral(resources.requests)
    return replace(container, resources=replace(resources, limits=limits, requests=requests))


def _with_ephemeral(amounts: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    if STORAGE not in amounts:
        return amounts
    return {EPHEMERAL_STORAGE: amounts[STORAGE], **amounts}


def on_host_ports(container: C) -> C:
    """Return the container with each of its ports as a host port too."""
    ports = [
        port if port.hostPort else replace(port, hostPort=port.containerPort)
        for port in container.ports
    ]
    return replace(container, ports=ports) if ports else container


def _port(port: ContainerPort) -> ContainerPort:
    return port if port.protocol else replace(port, protocol="TCP")


def _variable(variable: EnvVar) -> EnvVar:
    source = variable.valueFrom
    if source is None:
        return variable
    changes: dict[str, Any] = {}
    for name in ("fieldRef", "containerFieldRef", "containerfieldRef"):
        field = getattr(source, name)
        if field is not None and not field.apiVersion:
            changes[name] = default_field(field)
    if source.fileKeyRef is not None and source.fileKeyRef.optional is None:
        changes["fileKeyRef"] = replace(source.fileKeyRef, optional=False)
    return replace(variable, valueFrom=replace(source, **changes)) if changes else variable


def _probe(probe: Probe) -> Probe:
    changes: dict[str, Any] = {}
    if probe.httpGet is not None:
        changes["httpGet"] = _http_get(probe.httpGet)
    if probe.grpc is not None and probe.grpc.service is None:
        changes["grpc"] = replace(probe.grpc, service="")
    return replace(
        probe,
        timeoutSeconds=probe.timeoutSeconds or 1,
        periodSeconds=probe.periodSeconds or 10,
        successThreshold=probe.successThreshold or 1,
        failureThreshold=probe.failureThreshold or 3,
        **changes,
    )


def _http_get(action: HTTPGetAction) -> HTTPGetAction:
    return replace(action, path=action.path or "/", scheme=action.scheme or "HTTP")


def _lifecycle(lifecycle: Lifecycle) -> Lifecycle | None:
    """Return the hooks. The stop signal is dropped: its feature gate is off upstream."""
    if lifecycle.postStart is None and lifecycle.preStop is None and lifecycle.stopSignal:
        return None
    return replace(
        lifecycle,
        postStart=_hook(lifecycle.postStart),
        preStop=_hook(lifecycle.preStop),
        stopSignal=None,
    )


def _hook(hook: LifecycleHandler | None) -> LifecycleHandler | None:
    if hook is None or hook.httpGet is None:
        return hook
    return replace(hook, httpGet=_http_get(hook.httpGet))
