"""Pod: a group of containers that run together on one node."""

from collections.abc import Sequence

import msgspec
from msgspec import field

from kedge.api.core_v1.pod.columns import COLUMNS, LIMITS, row_conditions
from kedge.api.core_v1.pod.defaults import (
    default,
    prepare_for_create,
    prepare_for_status_update,
)
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.status import PodIP, PodStatus
from kedge.api.core_v1.pod.update import (
    validate_status,
    validate_update,
)
from kedge.api.core_v1.pod.validation import (
    validate,
    validate_new,
)
from kedge.api.core_v1.pod.warnings import warn
from kedge.api.model import Object
from kedge.api.presentation import Presentation
from kedge.api.resource import STATUS, Resource, Subresource
from kedge.api.strategy import Strategy, not_on_update


class Pod(Object, weakref=True, gc=True):
    """A group of containers that run together on one node."""

    # With weak references, to find a pod that some reader keeps; msgspec wants gc for them.

    spec: PodSpec = field(default_factory=PodSpec)
    """The desired state of the pod."""
    status: PodStatus = field(default_factory=PodStatus)
    """The observed state, as last reported."""


_STREAM = ("create", "get")
_PROXY = ("create", "delete", "get", "patch", "update")


def grace_period(pod: Pod, asked: int | None) -> int:
    """How long a pod may take to end: one that runs nowhere needs no time at all."""
    if not pod.spec.nodeName or pod.status.phase in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return asked
    own = pod.spec.terminationGracePeriodSeconds
    return 30 if own is None else max(own, 0)


def _address(pod: Pod) -> str:
    return pod.status.podIPs[0].ip if pod.status.podIPs else ""


class SelectableSpec(msgspec.Struct, frozen=True, gc=False):
    """The part of a PodSpec that field selectors read."""

    nodeName: str = ""
    restartPolicy: str = ""
    schedulerName: str = ""
    serviceAccountName: str = ""
    hostNetwork: bool = False


class SelectableStatus(msgspec.Struct, frozen=True, gc=False):
    """The part of a PodStatus that field selectors read."""

    phase: str = ""
    podIPs: Sequence[PodIP] = ()
    nominatedNodeName: str = ""


class SelectablePod(msgspec.Struct, frozen=True, gc=False):
    """The part of a Pod that field selectors read."""

    spec: SelectableSpec = SelectableSpec()
    status: SelectableStatus = SelectableStatus()


def _shown_pod() -> type[msgspec.Struct]:
    # Imported here: an agent shows no tables, and a server none at its start.
    from kedge.api.core_v1.pod.shown_pod import ShownPod

    return ShownPod


RESOURCE: Resource[Pod] = Resource(
    type=Pod,
    plural="pods",
    subresources=[
        Subresource("attach", _STREAM, "PodAttachOptions"),
        Subresource("binding", ("create",), "Binding"),
        Subresource("ephemeralcontainers"),
        Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
        Subresource("exec", _STREAM, "PodExecOptions"),
        Subresource("log", ("get",)),
        Subresource("portforward", _STREAM, "PodPortForwardOptions"),
        Subresource("proxy", _PROXY, "PodProxyOptions"),
        Subresource("resize"),
        STATUS,
    ],
    strategy=Strategy(
        default=default,
        prepare_for_create=prepare_for_create,
        prepare_for_status_update=prepare_for_status_update,
        grace_period=grace_period,
        returns_deleted_object=True,
        validate=validate,
        validate_new=validate_new,
        validate_update=validate_update,
        validate_status=validate_status,
        warnings=warn,
        warns_on_update=not_on_update,
    ),
    presentation=Presentation(
        short_names=["po"],
        categories=["all"],
        columns=COLUMNS,
        further_column=LIMITS,
        row_source=_shown_pod,
        row_conditions=row_conditions,
        fields={
            "spec.host": lambda pod: pod.spec.nodeName,
            "spec.nodeName": lambda pod: pod.spec.nodeName,
            "spec.restartPolicy": lambda pod: pod.spec.restartPolicy,
            "spec.schedulerName": lambda pod: pod.spec.schedulerName,
            "spec.serviceAccountName": lambda pod: pod.spec.serviceAccountName,
            "spec.hostNetwork": lambda pod: "true" if pod.spec.hostNetwork else "false",
            "status.phase": lambda pod: pod.status.phase,
            "status.podIP": _address,
            "status.podIPs": _address,
            "status.nominatedNodeName": lambda pod: pod.status.nominatedNodeName,
        },
        field_source=SelectablePod,
    ),
)
