"""Validation of the claims that a pod's status names."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kedge.api import rules
from kedge.api.core_v1.pod.status import ContainerExtendedResourceRequest
from kedge.machinery import names
from kedge.machinery.errors import FieldError

if TYPE_CHECKING:
    from kedge.api.core_v1.pod.pod import Pod

_PATH = "status.extendedResourceClaimStatus"
_NO_CONTAINER = (
    "must match the name of an entry in spec.initContainers.name or spec.containers.name"
)
_NO_RESOURCE = (
    "must match the extended resource name of an entry in "
    "spec.initContainers.resources.requests or spec.containers.resources.requests"
)


def validate_claim_status(pod: "Pod") -> Iterator[FieldError]:
    """Everything wrong with the claim for a pod's extended resources."""
    status = pod.status.extendedResourceClaimStatus
    if status is None:
        return
    path = f"{_PATH}.requestMappings"
    if not status.requestMappings:
        yield FieldError.required(path, "at least one request mapping is required")
    seen: set[ContainerExtendedResourceRequest] = set()
    for i, mapping in enumerate(status.requestMappings):
        yield from _mapping(pod, f"{path}[{i}]", mapping)
        if mapping in seen:
            for name in ("containerName", "resourceName", "requestName"):
                yield FieldError.duplicate(f"{path}[{i}].{name}", getattr(mapping, name))
        seen.add(mapping)
    claim = f"{_PATH}.resourceClaimName"
    if not status.resourceClaimName:
        yield FieldError.required(claim)
    else:
        found = names.dns_subdomain(status.resourceClaimName)
        yield from rules.problems(claim, status.resourceClaimName, found)


def _mapping(
    pod: "Pod", path: str, mapping: ContainerExtendedResourceRequest
) -> Iterator[FieldError]:
    containers = (*pod.spec.initContainers, *pod.spec.containers)
    asked = [each.resources.requests for each in containers if each.name == mapping.containerName]
    if not asked:
        yield FieldError.invalid(f"{path}.containerName", mapping.containerName, _NO_CONTAINER)
    elif mapping.resourceName not in asked[0]:
        yield FieldError.invalid(f"{path}.resourceName", mapping.resourceName, _NO_RESOURCE)
    found = names.dns_label(mapping.requestName)
    yield from rules.problems(f"{_PATH}.requestName", mapping.requestName, found)
