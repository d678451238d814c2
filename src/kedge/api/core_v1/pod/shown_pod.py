"""ShownPod: the part of a pod that the rows of `kubectl get pods` show.

A table of thousands of pods decodes each of them; this part takes a third of the time of a whole
pod. Its fields are named as in `Pod`, so that the columns read either.
"""

from collections.abc import Sequence

import msgspec

from kedge.api.core_v1.pod.status import ContainerState, PodIP


class ShownMetadata(msgspec.Struct, frozen=True, gc=False):
    """The part of a pod's metadata that rows show."""

    name: str = ""
    creationTimestamp: str = ""
    deletionTimestamp: str = ""


class ShownContainer(msgspec.Struct, frozen=True, gc=False):
    """The part of an init container that rows show."""

    name: str = ""
    restartPolicy: str | None = None


class CountedContainer(msgspec.Struct, frozen=True, gc=False):
    """A container. Rows show how many there are, and no more."""


class ShownGate(msgspec.Struct, frozen=True, gc=False):
    """A readiness gate."""

    conditionType: str = ""


class ShownSpec(msgspec.Struct, frozen=True, gc=False):
    """The part of a PodSpec that rows show."""

    containers: Sequence[CountedContainer] = ()
    initContainers: Sequence[ShownContainer] = ()
    nodeName: str = ""
    readinessGates: Sequence[ShownGate] = ()


class ShownCondition(msgspec.Struct, frozen=True, gc=False):
    """The part of a condition that rows show."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ShownContainerStatus(msgspec.Struct, frozen=True, gc=False):
    """The part of a container's status that rows show."""

    name: str = ""
    state: ContainerState = ContainerState()
    lastState: ContainerState = ContainerState()
    ready: bool = False
    restartCount: int = 0
    started: bool | None = None


class ShownStatus(msgspec.Struct, frozen=True, gc=False):
    """The part of a PodStatus that rows show."""

    phase: str = ""
    reason: str = ""
    nominatedNodeName: str = ""
    conditions: Sequence[ShownCondition] = ()
    initContainerStatuses: Sequence[ShownContainerStatus] = ()
    containerStatuses: Sequence[ShownContainerStatus] = ()
    podIPs: Sequence[PodIP] = ()


class ShownPod(msgspec.Struct, frozen=True, gc=False):
    """The part of a Pod that rows show."""

    metadata: ShownMetadata = ShownMetadata()
    spec: ShownSpec = ShownSpec()
    status: ShownStatus = ShownStatus()
