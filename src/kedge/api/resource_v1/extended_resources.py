"""Extended resources that devices of a class provide: their names, and the claims made for them."""

from collections.abc import Iterable, Iterator
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.resource_names import is_extended
from kedge.api.resource_v1.device_class import DeviceClass
from kedge.api.resource_v1.pod_claims import is_owned
from kedge.api.resource_v1.resource_claim import ResourceClaim

DEVICE_CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Followed by the name of a class: the extended resource that each class has without naming one."""
CLAIM_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that the scheduler has made for the extended resources of a pod."""


def may_have_class(resource: str) -> bool:
    """Whether devices of a class can provide a resource."""
    return is_extended(resource) or resource.startswith(DEVICE_CLASS_PREFIX)


def asks_for_extended(pod: Pod) -> bool:
    """Whether a container of a pod asks for a resource that devices of a class can provide."""
    containers = (*pod.spec.initContainers, *pod.spec.containers)
    return any(may_have_class(name) for each in containers for name in each.resources.requests)


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """Return the class of each extended resource.

    Several classes may name the same resource while users move from one to the other: the newest
    has it, and of classes of the same second the first by name.
    """
    ordered = sorted(classes, key=lambda each: each.metadata.name, reverse=True)
    ordered.sort(key=lambda each: each.metadata.creationTimestamp or "")
    found: dict[str, DeviceClass] = {}
    for class_ in ordered:
        if class_.spec.extendedResourceName is not None:
            found[class_.spec.extendedResourceName] = class_
        found[DEVICE_CLASS_PREFIX + class_.metadata.name] = class_
    return found


def is_made_for_resources(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the scheduler has made a claim for the extended resources of a pod."""
    return claim.metadata.annotations.get(CLAIM_ANNOTATION) == "true" and is_owned(claim, pod)


def claimed_resources(pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield the container and the name of each extended resource that a claim provides."""
    status = pod.status.extendedResourceClaimStatus
    for mapping in status.requestMappings if status is not None else ():
        yield mapping.containerName, mapping.resourceName
