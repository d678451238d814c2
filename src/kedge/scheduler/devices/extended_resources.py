"""The claim for the extended resources of a pod that a node provides by devices of a class.

A container that runs to its end before others start leaves its devices to them. So the requests of
such init containers are met from those of later containers first, and what they need beyond that
is requested once, for the greediest of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.status import ContainerExtendedResourceRequest
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.api.resource_v1.device_request import (
    EXACT_COUNT,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from kedge.api.resource_v1.extended_resources import CLAIM_ANNOTATION
from kedge.api.resource_v1.resource_claim import ResourceClaim

NOT_CREATED_NAME: Final = "<extended-resources>"
"""The name of a claim that is not created yet: no claim can have it."""


class ExtendedResourceClaim(NamedTuple):
    """The claim that is to be made for a pod, and which container uses which request."""

    claim: ResourceClaim
    mappings: Sequence[ContainerExtendedResourceRequest]


class _Share(NamedTuple):
    """One container's part of a resource."""

    request: DeviceRequest | None
    """The devices that it needs beyond those of others; None if it needs none."""
    mappings: list[ContainerExtendedResourceRequest]

    @property
    def devices(self) -> int:
        return _count(self.request) if self.request is not None else 0


def extended_resource_claim(pod: Pod, classes: Mapping[str, str]) -> ExtendedResourceClaim:
    """Return the claim for some resources of a pod, given their classes."""
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(classes):
        found = _of_resource(pod, resource, classes[resource])
        requests += found.requests
        mappings += found.mappings
    requests.sort(key=lambda each: each.name)
    return ExtendedResourceClaim(_claim(pod, requests), mappings)


class _ResourceRequests(NamedTuple):
    requests: list[DeviceRequest]
    mappings: list[ContainerExtendedResourceRequest]


def _of_resource(pod: Pod, resource: str, class_: str) -> _ResourceRequests:
    lasting: dict[int, _Share] = {}
    passing: dict[int, Container] = {}
    for index, container, is_passing in _containers(pod):
        if is_passing:
            passing[index] = container
        else:
            lasting[index] = _share(index, container, resource, class_, ())
    shares = [
        _share(index, container, resource, class_, _after(index, lasting))
        for index, container in passing.items()
    ]
    greediest = max(shares, key=lambda each: each.devices, default=None)
    shared = greediest.request if greediest is not None else None
    requests = [] if shared is None else [shared]
    requests += [each.request for each in lasting.values() if each.request is not None]
    mappings = [each for share in lasting.values() for each in share.mappings]
    for share in shares:
        mappings += _renamed(share, shared)
    return _ResourceRequests(requests, mappings)


def _containers(pod: Pod) -> Iterator[tuple[int, Container, bool]]:
    """Yield index and container of a pod, and whether it ends before others start."""
    count = len(pod.spec.initContainers)
    for index, container in enumerate((*pod.spec.initContainers, *pod.spec.containers)):
        yield index, container, index < count and not is_sidecar(container)


def _after(index: int, lasting: Mapping[int, _Share]) -> list[DeviceRequest]:
    return [
        share.request for at, share in lasting.items() if at >= index and share.request is not None
    ]


def _share(
    index: int,
    container: Container,
    resource: str,
    class_: str,
    reusable: Sequence[DeviceRequest],
) -> _Share:
    asked = container.resources.requests
    amount = asked[resource].value() if resource in asked else 0
    mappings: list[ContainerExtendedResourceRequest] = []
    if not amount:
        return _Share(None, mappings)
    for request in reusable:
        mappings.append(_mapping(container, resource, request.name))
        amount -= _count(request)
        if amount <= 0:
            return _Share(None, mappings)
    name = f"container-{index}-request-{sorted(asked).index(resource)}"
    exactly = ExactDeviceRequest(deviceClassName=class_, allocationMode=EXACT_COUNT, count=amount)
    mappings.append(_mapping(container, resource, name))
    return _Share(DeviceRequest(name=name, exactly=exactly), mappings)


def _renamed(share: _Share, shared: DeviceRequest | None) -> list[ContainerExtendedResourceRequest]:
    """Return the mappings of a share with the request of the greediest in place of its own."""
    if share.request is None or shared is None:
        return share.mappings
    *reused, own = share.mappings
    renamed = ContainerExtendedResourceRequest(
        containerName=own.containerName, resourceName=own.resourceName, requestName=shared.name
    )
    return [*reused, renamed]


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(
        containerName=container.name, resourceName=resource, requestName=request
    )


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


def _claim(pod: Pod, requests: Sequence[DeviceRequest]) -> ResourceClaim:
    meta = pod.metadata
    owner = OwnerReference(
        apiVersion="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            name=NOT_CREATED_NAME,
            namespace=meta.namespace,
            # Unlike that of a claim from the API, it is the pod's: the claim has none yet.
            uid=meta.uid,
            generateName=f"{meta.name}-extended-resources-",
            annotations={CLAIM_ANNOTATION: "true"},
            ownerReferences=[owner],
        ),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
    )
