"""Defaults of pods, and the initial status.

A list that stays empty is `()`, the fields' default, so that it stays off the wire.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kedge.api.core_v1.pod.affinity import (
    Affinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from kedge.api.core_v1.pod.container_defaults import (
    default_container,
    on_host_ports,
    requesting_limits,
    rounded_resources,
)
from kedge.api.core_v1.pod.resources import pod_level, qos_class, total
from kedge.api.core_v1.pod.security import PodSecurityContext
from kedge.api.core_v1.pod.spec import PodSpec, PodTemplateSpec
from kedge.api.core_v1.pod.status import PodCondition, PodIP, PodStatus
from kedge.api.core_v1.resource_defaults import rounded
from kedge.api.core_v1.volume.defaults import default_volume
from kedge.api.model import LabelSelector, LabelSelectorRequirement
from kedge.machinery.quantity import Quantity

if TYPE_CHECKING:
    from kedge.api.core_v1.pod.pod import Pod

_GATED = PodCondition(
    type="PodScheduled",
    status="False",
    reason="SchedulingGated",
    message="Scheduling is blocked due to non-empty scheduling gates",
)


def default(pod: "Pod") -> "Pod":
    """The pod as the server keeps it."""
    spec = default_spec(pod.spec)
    changes: dict[str, Any] = {"containers": [requesting_limits(c) for c in spec.containers]}
    if spec.initContainers:
        changes["initContainers"] = [requesting_limits(c) for c in spec.initContainers]
    if spec.enableServiceLinks is None:
        changes["enableServiceLinks"] = True
    if (spec.terminationGracePeriodSeconds or 0) < 0:
        changes["terminationGracePeriodSeconds"] = 1
    spec = replace(spec, **changes)
    if spec.resources is not None:
        spec = _with_pod_amounts(spec)
    if spec.hostNetwork:
        spec = _with_host_ports(spec)
    return replace(pod, spec=spec, status=_with_addresses(pod.status))


def default_template(template: PodTemplateSpec) -> PodTemplateSpec:
    """Return a pod template with its defaults."""
    return replace(template, spec=default_spec(template.spec))


def default_spec(spec: PodSpec) -> PodSpec:
    """Set the defaults that pods and templates share."""
    account = spec.serviceAccountName or spec.serviceAccount
    changes: dict[str, Any] = {
        "containers": [default_container(c) for c in spec.containers],
        "serviceAccountName": account,
        "serviceAccount": account,
    }
    if spec.volumes:
        changes["volumes"] = [default_volume(volume) for volume in spec.volumes]
    if spec.initContainers:
        changes["initContainers"] = [default_container(c) for c in spec.initContainers]
    if spec.ephemeralContainers:
        changes["ephemeralContainers"] = [default_container(c) for c in spec.ephemeralContainers]
    if not spec.restartPolicy:
        changes["restartPolicy"] = "Always"
    if spec.terminationGracePeriodSeconds is None:
        changes["terminationGracePeriodSeconds"] = 30
    if not spec.dnsPolicy:
        changes["dnsPolicy"] = "ClusterFirst"
    if spec.securityContext is None:
        changes["securityContext"] = PodSecurityContext()
    if not spec.schedulerName:
        changes["schedulerName"] = "default-scheduler"
    if spec.schedulingGroup is not None:
        # Its feature gate is off upstream.
        changes["schedulingGroup"] = None
    if spec.overhead:
        changes["overhead"] = rounded(spec.overhead)
    if spec.resources is not None:
        changes["resources"] = rounded_resources(spec.resources)
    return replace(spec, **changes)


def prepare_for_create(pod: "Pod") -> "Pod":
    """Return a new pod as pending, with its QoS class."""
    status = PodStatus(phase="Pending", qosClass=qos_class(pod))
    if pod.spec.schedulingGates:
        gated = replace(_GATED, lastTransitionTime=pod.metadata.creationTimestamp)
        status = replace(status, conditions=[gated])
    spec, labels = pod.spec, pod.metadata.labels
    if spec.affinity is not None:
        spec = replace(spec, affinity=_selecting_own_labels(spec.affinity, labels))
    if spec.topologySpreadConstraints:
        spread = [_spread_by_own_labels(c, labels) for c in spec.topologySpreadConstraints]
        spec = replace(spec, topologySpreadConstraints=spread)
    return replace(pod, spec=spec, status=status)


def prepare_for_status_update(new: "Pod", old: "Pod") -> "Pod":
    """A written status with what its writer may not take back."""
    status = new.status
    generation = status.observedGeneration or old.status.observedGeneration
    known = {c.type: c.observedGeneration for c in old.status.conditions}
    conditions = [
        c
        if c.observedGeneration or not known.get(c.type)
        else replace(c, observedGeneration=known[c.type])
        for c in status.conditions
    ]
    kept = replace(
        status,
        qosClass=status.qosClass or old.status.qosClass,
        observedGeneration=generation,
        conditions=conditions or (),
    )
    owners = old.metadata.ownerReferences
    return replace(new, status=kept, metadata=replace(new.metadata, ownerReferences=owners))


def _with_addresses(status: PodStatus) -> PodStatus:
    """The pod's address and its list of addresses say the same, the single one being believed."""
    changes: dict[str, Any] = {}
    if status.podIP and (not status.podIPs or status.podIPs[0].ip != status.podIP):
        changes["podIPs"] = [PodIP(ip=status.podIP)]
    elif status.podIPs and not status.podIP:
        changes["podIP"] = status.podIPs[0].ip
    return replace(status, **changes) if changes else status


def _with_host_ports(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        containers=[on_host_ports(c) for c in spec.containers],
        initContainers=[on_host_ports(c) for c in spec.initContainers] or (),
    )


def _with_pod_amounts(spec: PodSpec) -> PodSpec:
    """Set pod-level requests and limits that follow from those of the containers."""
    assert spec.resources is not None
    limits: dict[str, Quantity] = dict(spec.resources.limits)
    requests: dict[str, Quantity] = dict(spec.resources.requests)
    if limits or requests:
        for name, amount in total(spec, "limits").items():
            if name.startswith("hugepages-") and name not in requests:
                limits.setdefault(name, amount)
    if limits:
        for name, amount in total(spec, "requests").items():
            if name in ("cpu", "memory"):
                requests.setdefault(name, amount)
        for name, amount in limits.items():
            if pod_level(name):
                requests.setdefault(name, amount)
    return replace(spec, resources=replace(spec.resources, limits=limits, requests=requests))


def _selecting_own_labels(affinity: Affinity, labels: Mapping[str, str]) -> Affinity:
    return replace(
        affinity,
        podAffinity=_terms_by_own_labels(affinity.podAffinity, labels),
        podAntiAffinity=_terms_by_own_labels(affinity.podAntiAffinity, labels),
    )


def _terms_by_own_labels(affinity: Any, labels: Mapping[str, str]) -> Any:
    if affinity is None:
        return None
    required: Sequence[PodAffinityTerm] = [
        _term_by_own_labels(term, labels)
        for term in affinity.requiredDuringSchedulingIgnoredDuringExecution
    ]
    preferred = [
        replace(wish, podAffinityTerm=_term_by_own_labels(wish.podAffinityTerm, labels))
        for wish in affinity.preferredDuringSchedulingIgnoredDuringExecution
    ]
    return replace(
        affinity,
        requiredDuringSchedulingIgnoredDuringExecution=required or (),
        preferredDuringSchedulingIgnoredDuringExecution=preferred or (),
    )


def _term_by_own_labels(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    if term.labelSelector is None or not (term.matchLabelKeys or term.mismatchLabelKeys):
        return term
    selector = _and_labels(term.labelSelector, "In", term.matchLabelKeys, labels)
    selector = _and_labels(selector, "NotIn", term.mismatchLabelKeys, labels)
    return replace(term, labelSelector=selector)


def _spread_by_own_labels(
    constraint: TopologySpreadConstraint, labels: Mapping[str, str]
) -> TopologySpreadConstraint:
    if constraint.labelSelector is None or not constraint.matchLabelKeys:
        return constraint
    selector = _and_labels(constraint.labelSelector, "In", constraint.matchLabelKeys, labels)
    return replace(constraint, labelSelector=selector)


def _and_labels(
    selector: LabelSelector, operator: str, keys: Sequence[str], labels: Mapping[str, str]
) -> LabelSelector:
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=[labels[key]])
        for key in keys
        if key in labels
    ]
    return replace(selector, matchExpressions=[*selector.matchExpressions, *added])
