"""Pod: a group of containers that run together on one node."""

from msgspec import field

from kedge.api.core_v1.pod.columns import COLUMNS, row_conditions
from kedge.api.core_v1.pod.defaults import begin, carry_status, default, default_template
from kedge.api.core_v1.pod.resize import only_resources, validate_resize
from kedge.api.core_v1.pod.resources import qos_class
from kedge.api.core_v1.pod.spec import PodSpec, PodTemplateSpec
from kedge.api.core_v1.pod.status import ContainerStatus, PodCondition, PodStatus
from kedge.api.core_v1.pod.update import (
    only_ephemeral,
    validate_ephemeral,
    validate_status,
    validate_update,
)
from kedge.api.core_v1.pod.validation import (
    validate,
    validate_new,
    validate_spec,
    validate_template,
)
from kedge.api.core_v1.pod.warnings import warn
from kedge.api.model import Object
from kedge.api.resource import STATUS, Resource, Subresource

__all__ = [
    "RESOURCE",
    "ContainerStatus",
    "Pod",
    "PodCondition",
    "PodSpec",
    "PodStatus",
    "PodTemplateSpec",
    "carry_status",
    "default",
    "default_template",
    "only_ephemeral",
    "only_resources",
    "qos_class",
    "validate",
    "validate_ephemeral",
    "validate_new",
    "validate_resize",
    "validate_spec",
    "validate_template",
]


class Pod(Object):
    """A group of containers that run together on one node."""

    spec: PodSpec = field(default_factory=PodSpec)
    """What the pod is to be."""
    status: PodStatus = field(default_factory=PodStatus)
    """What has become of it, as last reported."""


_STREAM = ("create", "get")
_PROXY = ("create", "delete", "get", "patch", "update")


def grace(pod: Pod, asked: int | None) -> int:
    """How long a pod may take to end: one that runs nowhere needs no time at all."""
    if not pod.spec.nodeName or pod.status.phase in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return asked
    own = pod.spec.terminationGracePeriodSeconds
    return 30 if own is None else max(own, 0)


def _address(pod: Pod) -> str:
    return pod.status.podIPs[0].ip if pod.status.podIPs else ""


RESOURCE = Resource(
    type=Pod,
    plural="pods",
    short_names=["po"],
    categories=["all"],
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
    default=default,
    begin=begin,
    carry_status=carry_status,
    grace=grace,
    answers_with_object=True,
    validate=validate,
    validate_new=validate_new,
    validate_update=validate_update,
    validate_status=validate_status,
    warn=warn,
    columns=COLUMNS,
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
)
