"""Validation of pod updates: the mutable fields of the main resource and each subresource."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kedge.api import rules
from kedge.api.core_v1.pod.affinity import Affinity, Toleration
from kedge.api.core_v1.pod.affinity_validation import (
    validate_node_affinity_growth,
    validate_node_selector_growth,
)
from kedge.api.core_v1.pod.claim_status_validation import validate_claim_status
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.validation import MIRROR_POD
from kedge.api.internal_forms import internal_diff
from kedge.api.model import ObjectMeta
from kedge.machinery import names
from kedge.machinery.errors import FieldError

if TYPE_CHECKING:
    from kedge.api.core_v1.pod.pod import Pod

_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_ONLY_THESE: Final = "pod updates may not change fields other than " + ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        "`spec.terminationGracePeriodSeconds` "
        "(allow it to be set to 1 if it was previously negative)",
    )
)
_INT32_MAX: Final = 2**31 - 1


def validate_update(new: "Pod", old: "Pod") -> Iterator[FieldError]:
    """Everything wrong with a change of a pod's own fields."""
    yield from _annotations(new, old)
    for name in ("containers", "initContainers"):
        if len(getattr(new.spec, name)) != len(getattr(old.spec, name)):
            why = "pod updates may not add or remove containers"
            yield FieldError.forbidden(f"spec.{name}", why)
            return
    deadline_errors = list(_deadline(new.spec, old.spec))
    yield from deadline_errors
    if deadline_errors and new.spec.activeDeadlineSeconds is not None:
        return
    yield from _tolerations(new.spec.tolerations, old.spec.tolerations)
    yield from _gates(new.spec, old.spec)
    if new.spec == old.spec:
        return
    masked = _with_old_mutables(new.spec, old.spec)
    if old.spec.schedulingGates:
        yield from (error.under("spec") for error in _narrowing(masked, old.spec))
        masked = _with_old_choice_of_nodes(masked, old.spec)
    if changed_fields(masked, old.spec):
        difference = internal_diff(old.spec, masked, "core.PodSpec")
        yield FieldError.forbidden("spec", f"{_ONLY_THESE}\n{difference}")


def _annotations(new: "Pod", old: "Pod") -> Iterator[FieldError]:
    after, before = new.metadata.annotations, old.metadata.annotations
    for key in before:
        path = f"metadata.annotations[{key}]"
        if after.get(key) == before[key]:
            continue
        if key.startswith(_APP_ARMOR):
            yield FieldError.forbidden(path, "may not remove or update AppArmor annotations")
        if key == MIRROR_POD:
            yield FieldError.forbidden(path, "may not remove or update mirror pod annotation")
    for key in after.keys() - before.keys():
        path = f"metadata.annotations[{key}]"
        if key.startswith(_APP_ARMOR):
            yield FieldError.forbidden(path, "may not add AppArmor annotations")
        if key == MIRROR_POD:
            yield FieldError.forbidden(path, "may not add mirror pod annotation")


def _deadline(new: PodSpec, old: PodSpec) -> Iterator[FieldError]:
    """A deadline may be set once, and then only come nearer."""
    path = "spec.activeDeadlineSeconds"
    after, before = new.activeDeadlineSeconds, old.activeDeadlineSeconds
    if after is None:
        if before is not None:
            why = "must not update from a positive integer to nil value"
            yield FieldError.invalid(path, None, why)
    elif found := names.in_range(after, 0, _INT32_MAX):
        yield from rules.problems(path, after, found)
    elif before is not None and before < after:
        yield FieldError.invalid(path, after, "must be less than or equal to previous value")


def _tolerations(new: Sequence[Toleration], old: Sequence[Toleration]) -> Iterator[FieldError]:
    """Tolerations may come and last longer or shorter; none may go."""
    kept = {replace(toleration, tolerationSeconds=None) for toleration in new}
    for toleration in old:
        if replace(toleration, tolerationSeconds=None) not in kept:
            why = "existing toleration can not be modified except its tolerationSeconds"
            yield FieldError.forbidden("spec.tolerations", why)
            return


def _gates(new: PodSpec, old: PodSpec) -> Iterator[FieldError]:
    known = {gate.name for gate in old.schedulingGates}
    for i, gate in enumerate(new.schedulingGates):
        if gate.name not in known:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.name}'"
            yield FieldError.forbidden(f"spec.schedulingGates[{i}].name", why)


def _with_old_mutables(new: PodSpec, old: PodSpec) -> PodSpec:
    """The new spec, all that may change put back as it was."""
    grace = new.terminationGracePeriodSeconds
    if grace == 1 and (old.terminationGracePeriodSeconds or 0) < 0:
        grace = old.terminationGracePeriodSeconds
    return replace(
        new,
        containers=_with_old_images(new.containers, old.containers),
        initContainers=_with_old_images(new.initContainers, old.initContainers),
        activeDeadlineSeconds=old.activeDeadlineSeconds,
        schedulingGates=old.schedulingGates,
        tolerations=old.tolerations,
        terminationGracePeriodSeconds=grace,
    )


def _with_old_images(new: Sequence[Container], old: Sequence[Container]) -> Sequence[Container]:
    return [replace(n, image=o.image) for n, o in zip(new, old, strict=True)] or ()


def _narrowing(new: PodSpec, old: PodSpec) -> Iterator[FieldError]:
    """A pod that is still held back may also choose its nodes more narrowly."""
    yield from validate_node_selector_growth(new.nodeSelector, old.nodeSelector)
    after, before = _node_affinity(new), _node_affinity(old)
    if after != before:
        yield from validate_node_affinity_growth(after, before)


def _node_affinity(spec: PodSpec) -> Any:
    return spec.affinity.nodeAffinity if spec.affinity is not None else None


def _with_old_choice_of_nodes(new: PodSpec, old: PodSpec) -> PodSpec:
    if _node_affinity(new) == _node_affinity(old):
        return replace(new, nodeSelector=old.nodeSelector)
    affinity = replace(new.affinity or Affinity(), nodeAffinity=_node_affinity(old))
    kept = old.affinity if old.affinity is None and affinity == Affinity() else affinity
    return replace(new, nodeSelector=old.nodeSelector, affinity=kept)


def changed_fields(new: PodSpec, old: PodSpec) -> Sequence[str]:
    """Names of the fields that differ; an empty list is as good as none."""
    return [
        name
        for name in PodSpec.__struct_fields__
        if not _same(getattr(new, name), getattr(old, name))
    ]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Sequence) and isinstance(other, Sequence):
        return list(one) == list(other)
    return bool(one == other)


def validate_status(new: "Pod", old: "Pod") -> Iterator[FieldError]:
    """Everything wrong with a report about a pod."""
    yield from _annotations(new, old)
    status, before = new.status, old.status
    for i, condition in enumerate(status.conditions):
        if condition.observedGeneration < 0:
            path = f"status.conditions[{i}].observedGeneration"
            why = "must be a non-negative integer"
            yield FieldError.invalid(path, condition.observedGeneration, why)
        found = names.qualified_name(condition.type)
        yield from rules.problems(f"status.conditions[{i}].Type", condition.type, found)
    yield from _nomination(new, old)
    if status.observedGeneration < 0:
        why = "must be a non-negative integer"
        yield FieldError.invalid("status.observedGeneration", status.observedGeneration, why)
    # Old nodes leave it out; then it is kept.
    if status.qosClass:
        yield from rules.unchanged("status.qosClass", status.qosClass, before.qosClass)
    for name in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        yield from _revivals(new, old, name)
    yield from _addresses("podIPs", [a.ip for a in status.podIPs], [a.ip for a in before.podIPs])
    yield from _host_addresses(new, old)
    if status.extendedResourceClaimStatus != before.extendedResourceClaimStatus:
        yield from validate_claim_status(new)


def _nomination(new: "Pod", old: "Pod") -> Iterator[FieldError]:
    path, node = "status.nominatedNodeName", new.status.nominatedNodeName
    if not node or node == old.status.nominatedNodeName:
        return
    yield from rules.problems(path, node, names.dns_subdomain(node))
    if old.spec.nodeName:
        why = "may not be set on pods that are already bound to a node"
        yield FieldError.forbidden(path, why)


def _revivals(new: "Pod", old: "Pod", field: str) -> Iterator[FieldError]:
    """Containers that have ended for good may not be reported as alive."""
    now = {status.name: status for status in getattr(new.status, field)}
    for i, status in enumerate(getattr(old.status, field)):
        ended = status.state.terminated
        later = now.get(status.name)
        if ended is None or later is None or later.state.terminated is not None:
            continue
        ephemeral = field == "ephemeralContainerStatuses"
        if ephemeral or not _may_restart(old.spec, status.name, ended.exitCode):
            why = "may not be transitioned to non-terminated state"
            yield FieldError.forbidden(f"status.{field}[{i}].state", why)


def _may_restart(spec: PodSpec, name: str, exit_code: int) -> bool:
    containers = [*spec.containers, *spec.initContainers]
    all_rules = [rule for c in containers for rule in c.restartPolicyRules]
    if any(rule.action == "RestartAllContainers" for rule in all_rules):
        return True
    container = next((c for c in containers if c.name == name), None)
    if container is None:
        return False
    policy = spec.restartPolicy
    if container.restartPolicy is not None:
        policy = container.restartPolicy
        if _restart_rule_matches(container, exit_code):
            return True
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _restart_rule_matches(container: Container, exit_code: int) -> bool:
    for rule in container.restartPolicyRules:
        codes = rule.exitCodes
        if codes is not None and (exit_code in codes.values) == (codes.operator == "In"):
            return rule.action == "Restart"
    return False


def _host_addresses(new: "Pod", old: "Pod") -> Iterator[FieldError]:
    addresses = [address.ip for address in new.status.hostIPs]
    if addresses and new.status.hostIP != addresses[0]:
        yield FieldError.invalid("status.hostIPs[0].ip", addresses[0], "must be equal to `hostIP`")
    yield from _addresses("hostIPs", addresses, [address.ip for address in old.status.hostIPs])


def _addresses(field: str, new: Sequence[str], old: Sequence[str]) -> Iterator[FieldError]:
    known = frozenset(old)
    for i, address in enumerate(new):
        if address not in known:
            yield from rules.problems(f"status.{field}[{i}]", address, names.ip_address(address))
    families = [":" in address for address in new]
    if len(families) != len(set(families)):
        why = "may specify no more than one IP for each IP family"
        yield FieldError.invalid(f"status.{field}", [{"IP": address} for address in new], why)


def only_ephemeral(new: "Pod", old: "Pod") -> "Pod":
    """The old pod with the new one's ephemeral containers: all that their subresource changes."""
    spec = replace(old.spec, ephemeralContainers=new.spec.ephemeralContainers)
    return replace(new, metadata=kept_metadata(new, old), spec=spec, status=old.status)


def kept_metadata(new: "Pod", old: "Pod") -> ObjectMeta:
    """The new metadata with what subresources of pods do not change."""
    return replace(
        new.metadata,
        labels=old.metadata.labels,
        annotations=old.metadata.annotations,
        finalizers=old.metadata.finalizers,
        ownerReferences=old.metadata.ownerReferences,
    )


def validate_ephemeral(new: "Pod", old: "Pod") -> Iterator[FieldError]:
    """Everything wrong with containers added through the ephemeralcontainers subresource."""
    if MIRROR_POD in old.metadata.annotations:
        yield FieldError.forbidden("", "static pods do not support ephemeral containers")
        return
    yield from _annotations(new, old)
    now = {container.name: container for container in new.spec.ephemeralContainers}
    for container in old.spec.ephemeralContainers:
        if container.name not in now:
            why = f'existing ephemeral containers "{container.name}" may not be removed\n'
            yield FieldError.forbidden("spec.ephemeralContainers", why)
        elif now[container.name] != container:
            why = f'existing ephemeral containers "{container.name}" may not be changed\n'
            why += internal_diff(container, now[container.name], "core.EphemeralContainer")
            yield FieldError.forbidden("spec.ephemeralContainers", why)
