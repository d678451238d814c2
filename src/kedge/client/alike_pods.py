"""AlikePods: pods of one owner, or of one namespace without owners, share their equal parts.

Thousands of pods of one template differ in a few fields. Decoded one by one each takes 9.5 KB; when
labels, owners, tolerations, token volumes and conditions are those of the pod before, 2.5 KB. A
search for garbage also has fewer lists and maps to visit. It takes 5 µs for each pod.
"""

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.status import ContainerStatus, HostIP, PodIP, PodStatus
from kedge.api.core_v1.volume.volume import Volume
from kedge.api.model import ObjectMeta

MOST: Final = 256
"""Owners or namespaces, and phases of their pods, whose last pod is known."""
LONGEST_ADDRESS: Final = 64
"""Longer addresses are none. A node may write them all the same, and they would be kept."""

T = TypeVar("T")


class AlikePods:
    """Remembers the last pod of each owner in each phase: the conditions depend on the phase. Pods
    without owners count as those of their namespace."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Pod] = {}
        self._kept: WeakValueDictionary[str, Pod] = WeakValueDictionary()
        """By uid, the newest state, as long as some reader has it: readers lag behind each other,
        and after a start each of them lists."""

    def trimmed(self, pod: Pod) -> Pod:
        """Return the pod without managed fields. Parts that are equal to those of the last pod are
        those of the last pod; if it is a state that a reader has, it is the same object."""
        uid = pod.metadata.uid
        kept = self._kept.get(uid)
        found = self._shared(pod, pod if kept is None else kept)
        if kept is not None:
            if _version(kept) > _version(found):
                return found  # for a reader that lags
            # A pod that leaves a selection comes in its former state, but with the newer version.
            if found == kept:
                return kept
        self._kept[uid] = found
        return found

    def _shared(self, pod: Pod, former: Pod) -> Pod:
        owners = pod.metadata.ownerReferences
        place = owners[0].uid if owners else pod.metadata.namespace, pod.status.phase
        like = self._last.pop(place, pod)
        found = self._last[place] = replace(
            pod,
            metadata=_metadata(pod.metadata, like.metadata, former.metadata),
            spec=_spec(pod.spec, like.spec),
            status=_status(pod.status, like.status),
        )
        if len(self._last) > MOST:
            del self._last[next(iter(self._last))]
        return found


def _version(pod: Pod) -> int:
    version = pod.metadata.resourceVersion
    return int(version) if version.isdigit() else 0


def _metadata(meta: ObjectMeta, like: ObjectMeta, former: ObjectMeta) -> ObjectMeta:
    """`former` is that of another state of the same pod: maps have its name and uid as keys."""
    return replace(
        meta,
        managedFields=(),
        name=_either(meta.name, former.name),
        uid=_either(meta.uid, former.uid),
        generateName=_either(meta.generateName, like.generateName),
        namespace=_either(meta.namespace, like.namespace),
        creationTimestamp=_either(meta.creationTimestamp, like.creationTimestamp),
        labels=_either(meta.labels, like.labels),
        annotations=_either(meta.annotations, like.annotations),
        ownerReferences=_either(meta.ownerReferences, like.ownerReferences),
    )


def _spec(spec: PodSpec, like: PodSpec) -> PodSpec:
    return replace(
        spec,
        volumes=_volumes(spec.volumes, like.volumes),
        containers=_either(spec.containers, like.containers),
        initContainers=_either(spec.initContainers, like.initContainers),
        nodeSelector=_either(spec.nodeSelector, like.nodeSelector),
        affinity=_either(spec.affinity, like.affinity),
        securityContext=_either(spec.securityContext, like.securityContext),
        tolerations=_either(spec.tolerations, like.tolerations),
        # A node has many pods, of different owners.
        nodeName=sys.intern(spec.nodeName),
        serviceAccount=_either(spec.serviceAccount, like.serviceAccount),
        serviceAccountName=_either(spec.serviceAccountName, like.serviceAccountName),
        schedulerName=_either(spec.schedulerName, like.schedulerName),
        restartPolicy=_either(spec.restartPolicy, like.restartPolicy),
        dnsPolicy=_either(spec.dnsPolicy, like.dnsPolicy),
        preemptionPolicy=_either(spec.preemptionPolicy, like.preemptionPolicy),
    )


def _volumes(volumes: Sequence[Volume], like: Sequence[Volume]) -> Sequence[Volume]:
    """Return the volumes. That of the service account's token has a name of its own in each pod,
    and the same sources."""
    if volumes == like or len(volumes) != len(like):
        return _either(volumes, like)
    return [
        replace(each, projected=other.projected) if each.projected == other.projected else each
        for each, other in zip(volumes, like, strict=True)
    ]


def _status(status: PodStatus, like: PodStatus) -> PodStatus:
    return replace(
        status,
        phase=_either(status.phase, like.phase),
        conditions=_either(status.conditions, like.conditions),
        containerStatuses=_container_statuses(status.containerStatuses, like.containerStatuses),
        hostIP=sys.intern(status.hostIP),
        hostIPs=_host_addresses(status),
        podIPs=_either(status.podIPs, [PodIP(ip=status.podIP)]),
        startTime=_either(status.startTime, like.startTime),
        qosClass=_either(status.qosClass, like.qosClass),
    )


def _host_addresses(status: PodStatus) -> Sequence[HostIP]:
    if len(status.hostIP) > LONGEST_ADDRESS:
        return status.hostIPs
    return _either(status.hostIPs, _only(status.hostIP))


@lru_cache(4096)
def _only(address: str) -> Sequence[HostIP]:
    """Return the addresses of a node that has this one: a node has many pods."""
    return [HostIP(ip=sys.intern(address))]


def _container_statuses(
    statuses: Sequence[ContainerStatus], like: Sequence[ContainerStatus]
) -> Sequence[ContainerStatus]:
    """Return the states of containers. Each has an id of its own."""
    if statuses == like or len(statuses) != len(like):
        return _either(statuses, like)
    return [_container_status(*each) for each in zip(statuses, like, strict=True)]


def _container_status(status: ContainerStatus, like: ContainerStatus) -> ContainerStatus:
    return replace(
        status,
        name=_either(status.name, like.name),
        state=_either(status.state, like.state),
        lastState=_either(status.lastState, like.lastState),
        image=_either(status.image, like.image),
        imageID=_either(status.imageID, like.imageID),
        allocatedResources=_either(status.allocatedResources, like.allocatedResources),
        resources=_either(status.resources, like.resources),
        volumeMounts=_either(status.volumeMounts, like.volumeMounts),
        user=_either(status.user, like.user),
    )


def _either(part: T, like: T) -> T:
    """Return the part of the other pod if both are equal."""
    return like if part == like else part
