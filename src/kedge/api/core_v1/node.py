"""Node: a machine that runs pods."""

import ipaddress
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kedge.api import rules
from kedge.api.core_v1.node_types import (
    ConfigMapNodeConfigSource,
    Node,
    NodeConfigSource,
    NodeStatus,
    Taint,
    is_simulated,
)
from kedge.api.core_v1.resource_defaults import rounded
from kedge.api.core_v1.resource_names import validate_amount
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource, Subresource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

ROLE_PREFIX = "node-role.kubernetes.io/"
ROLE = "kubernetes.io/role"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_is_feature = re.compile("[A-Z][A-Za-z0-9]*(/[A-Za-z0-9]+)*").fullmatch


def default(obj: Node) -> Node:
    spec, status = obj.spec, obj.status
    # podCIDR is the first of podCIDRs; a writer may know only one of the two.
    if spec.podCIDR and not spec.podCIDRs:
        obj = replace(obj, spec=replace(spec, podCIDRs=[spec.podCIDR]))
    elif spec.podCIDRs and not spec.podCIDR:
        obj = replace(obj, spec=replace(spec, podCIDR=spec.podCIDRs[0]))
    capacity = rounded(status.capacity)
    allocatable = rounded(status.allocatable) or capacity
    return replace(obj, status=replace(status, capacity=capacity, allocatable=allocatable))


def prepare_for_create(obj: Node) -> Node:
    spec = replace(obj.spec, configSource=None)
    return replace(obj, spec=spec, status=replace(obj.status, config=None))


def prepare_for_update(new: Node, old: Node) -> Node:
    if old.spec.configSource is None and new.spec.configSource is not None:
        return replace(new, spec=replace(new.spec, configSource=None))
    return new


def validate(obj: Node) -> Iterator[FieldError]:
    if is_simulated(obj.metadata.labels):
        # Most servers never load it.
        from kedge.api.core_v1 import simulation

        yield from simulation.validate_node(obj.metadata.annotations, "metadata.annotations")
    yield from validate_taints(obj.spec.taints, "metadata.taints")
    yield from _status(obj.status)
    yield from _pod_cidrs(obj.spec.podCIDRs)


def validate_taints(taints: Sequence[Taint], path: str) -> Iterator[FieldError]:
    """Everything wrong with the taints of a node."""
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        at = f"{path}[{i}]"
        yield from rules.problems(f"{at}.key", taint.key, names.qualified_name(taint.key))
        if found := names.label_value(taint.value):
            yield FieldError.invalid(f"{at}.value", taint.value, ";".join(found))
        yield from rules.one_of(f"{at}.effect", taint.effect, EFFECTS)
        if (taint.key, taint.effect) in seen:
            clash = FieldError.duplicate(at, taint)
            why = f"{clash.body}: taints must be unique by key and effect pair"
            yield FieldError(clash.reason, clash.field, why)
        seen.add((taint.key, taint.effect))


def _status(status: NodeStatus) -> Iterator[FieldError]:
    for field in ("capacity", "allocatable"):
        for name, amount in getattr(status, field).items():
            yield from validate_amount(name, amount, f"status.{field}.{name}")
    swap = status.nodeInfo.swap
    if swap is not None and swap.capacity is not None and swap.capacity <= 0:
        why = "must be greater than zero"
        yield FieldError.invalid("metadata.nodeSwapStatus.capacity", swap.capacity, why)
    yield from _features(status.declaredFeatures)


def _features(features: Sequence[str]) -> Iterator[FieldError]:
    for i, feature in enumerate(features):
        path = f"status.declaredFeatures[{i}]"
        if i > 0 and feature == features[i - 1]:
            yield FieldError.duplicate(path, feature)
        elif i > 0 and feature < features[i - 1]:
            yield FieldError.invalid(path, feature, "list must be sorted alphabetically")
        if len(feature) > 253:
            why = f'invalid feature name "{feature}": must be no more than 253 characters'
            yield FieldError.invalid(path, feature, why)
        elif not _is_feature(feature):
            why = (
                f'invalid feature name "{feature}": must start with an UpperCamelCase segment, '
                "with subsequent segments separated by '/' (e.g., MyFeature or "
                "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            )
            yield FieldError.invalid(path, feature, why)


def _pod_cidrs(cidrs: Sequence[str]) -> Iterator[FieldError]:
    broken = False
    for i, cidr in enumerate(cidrs):
        if found := names.cidr(cidr):
            broken = True
            yield from rules.problems(f"spec.podCIDRs[{i}]", cidr, found)
    if broken or len(cidrs) < 2:
        return
    families = {ipaddress.ip_network(cidr).version for cidr in cidrs}
    if len(cidrs) > len(families):
        why = "may specify no more than one CIDR for each IP family"
        yield FieldError.invalid("spec.podCIDRs", cidrs, why)


def validate_update(new: Node, old: Node) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for i, address in enumerate(new.status.addresses):
        if (address.type, address.address) in seen:
            yield FieldError.duplicate(f"status.addresses[{i}]", address)
        seen.add((address.type, address.address))
    if old.spec.podCIDRs and new.spec.podCIDRs != old.spec.podCIDRs:
        why = 'node updates may not change podCIDR except from "" to valid'
        yield FieldError.forbidden("spec.podCIDRs", why)
    if old.spec.providerID and new.spec.providerID != old.spec.providerID:
        why = 'node updates may not change providerID except from "" to valid'
        yield FieldError.forbidden("spec.providerID", why)
    if new.spec.configSource is not None:
        yield from _config_source(new.spec.configSource)
    if new.spec.externalID != old.spec.externalID:
        yield FieldError.forbidden("spec.externalID", "may not be updated")


def validate_status(new: Node, old: Node) -> Iterator[FieldError]:
    yield from _status(new.status)
    yield from validate_update(new, old)


def _config_source(source: NodeConfigSource) -> Iterator[FieldError]:
    path = "spec.configSource"
    if source.configMap is None:
        why = "exactly one reference subfield must be non-nil"
        yield FieldError.invalid(path, source, why)
    else:
        yield from _config_map(source.configMap, f"{path}.configMap")


def _config_map(source: ConfigMapNodeConfigSource, path: str) -> Iterator[FieldError]:
    for field in ("uid", "resourceVersion"):
        if getattr(source, field):
            yield FieldError.forbidden(f"{path}.{field}", f"{field} must not be set in spec")
    checks = {
        "namespace": names.dns_label,
        "name": names.dns_subdomain,
        "kubeletConfigKey": names.config_key,
    }
    for field, check in checks.items():
        if not (value := getattr(source, field)):
            yield FieldError.required(f"{path}.{field}")
        else:
            yield from rules.problems(f"{path}.{field}", value, check(value))


def status_cell(obj: Node) -> str:
    """Whether the node is ready, and whether pods may be sent there."""
    ready = next((c.status for c in obj.status.conditions if c.type == "Ready"), "")
    text = {"": "Unknown", "True": "Ready"}.get(ready, "NotReady")
    return f"{text},SchedulingDisabled" if obj.spec.unschedulable else text


def roles_cell(obj: Node) -> str:
    labels = obj.metadata.labels
    roles = {key.removeprefix(ROLE_PREFIX) for key in labels if key.startswith(ROLE_PREFIX)}
    roles.add(labels.get(ROLE, ""))
    return ",".join(sorted(roles - {""})) or "<none>"


def _address(obj: Node, kind: str) -> str:
    return next((a.address for a in obj.status.addresses if a.type == kind), "<none>")


def kernel_cell(obj: Node) -> str:
    info = obj.status.nodeInfo
    kernel = info.kernelVersion or "<unknown>"
    return f"{kernel} ({info.architecture})" if info.architecture else kernel


RESOURCE: Resource[Node] = Resource(
    type=Node,
    plural="nodes",
    namespaced=False,
    subresources=[
        Subresource(
            "proxy",
            verbs=("create", "delete", "get", "patch", "update"),
            kind="NodeProxyOptions",
        ),
        STATUS,
    ],
    registry="minions",
    strategy=Strategy(
        counts_generation=False,
        keeps_posted_status=True,
        default=default,
        prepare_for_create=prepare_for_create,
        prepare_for_update=prepare_for_update,
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_status,
    ),
    presentation=Presentation(
        short_names=["no"],
        fields={"spec.unschedulable": lambda obj: str(obj.spec.unschedulable).lower()},
        columns=[
            name_column(),
            Column(name="Status", cell=status_cell, description="Whether the node is ready."),
            Column(name="Roles", cell=roles_cell, description="What the node is for."),
            age_column(),
            Column(
                name="Version",
                cell=lambda obj: obj.status.nodeInfo.kubeletVersion,
                description="Version of the node agent.",
            ),
            Column(
                name="Internal-IP",
                cell=lambda obj: _address(obj, "InternalIP"),
                priority=1,
                description="Address inside the cluster.",
            ),
            Column(
                name="External-IP",
                cell=lambda obj: _address(obj, "ExternalIP"),
                priority=1,
                description="Address outside the cluster.",
            ),
            Column(
                name="OS-Image",
                cell=lambda obj: obj.status.nodeInfo.osImage or "<unknown>",
                priority=1,
                description="The operating system.",
            ),
            Column(
                name="Kernel-Version",
                cell=kernel_cell,
                priority=1,
                description="Kernel and processor.",
            ),
            Column(
                name="Container-Runtime",
                cell=lambda obj: obj.status.nodeInfo.containerRuntimeVersion or "<unknown>",
                priority=1,
                description="What runs the containers.",
            ),
        ],
    ),
)
