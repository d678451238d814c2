"""Validation of the kinds of storage.k8s.io."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kedge.api import rules
from kedge.api.builtin import persistent_volumes
from kedge.api.builtin.content import listed, numbered, reach, text
from kedge.api.builtin.validation import Errors, Fields, named, selector
from kedge.api.core_v1.volume.validation import validate_driver_name
from kedge.api.internal_forms import internal_form
from kedge.api.model import Document
from kedge.machinery import names
from kedge.machinery.errors import MAX_ERRORS, FieldError
from kedge.machinery.quantity import Quantity

_MOST_PARAMETERS: Final = 512
_LARGEST_PARAMETERS: Final = 256 * 1024
_LARGEST_ATTACHMENT_METADATA: Final = 256 * 1024
_LONGEST_MESSAGE: Final = 1024
_LONGEST_NODE_ID: Final = 256
_RECLAIM_POLICIES: Final = ("Delete", "Retain")
_BINDING_MODES: Final = ("Immediate", "WaitForFirstConsumer")
_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLE_MODES: Final = ("Persistent", "Ephemeral")
_SHORTEST_TOKEN: Final = 600
_LONGEST_TOKEN: Final = 1 << 32
_SHORTEST_PERIOD: Final = 10
_EITHER_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def same(path: str, new: Any, old: Any) -> Errors:
    """The field must stay as it was; an empty value is the same as none."""
    if (new or None) != (old or None):
        shown = dict(sorted(new.items())) if isinstance(new, Mapping) else new
        yield FieldError.invalid(path, shown, rules.IMMUTABLE)


def storage_class(obj: Document) -> Errors:
    fields = obj.content
    yield from named("provisioner", text(fields, "provisioner").lower(), names.qualified_name)
    yield from _parameters(fields.get("parameters") or {})
    yield from rules.none_or_one_of("reclaimPolicy", fields.get("reclaimPolicy"), _RECLAIM_POLICIES)
    mode = fields.get("volumeBindingMode")
    if mode is None:
        yield FieldError.required("volumeBindingMode")
    elif mode not in _BINDING_MODES:
        yield FieldError.not_supported("volumeBindingMode", mode, _BINDING_MODES)
    yield from _topologies(fields)


def storage_class_update(new: Document, old: Document) -> Errors:
    yield from same("parameters", new.content.get("parameters"), old.content.get("parameters"))
    for field in ("provisioner", "reclaimPolicy", "volumeBindingMode"):
        yield from rules.unchanged(field, text(new.content, field), text(old.content, field))


def _parameters(parameters: Mapping[str, str]) -> Errors:
    if len(parameters) > _MOST_PARAMETERS:
        yield FieldError.too_long("parameters", _MOST_PARAMETERS)
        return
    if "" in parameters:
        yield FieldError.invalid("parameters", "", "field can not be empty.")
    if _size(parameters) > _LARGEST_PARAMETERS:
        yield FieldError.too_long("parameters", _LARGEST_PARAMETERS)


def _size(values: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in values.items())


def _topologies(storage_class: Fields) -> Errors:
    terms = listed(storage_class, "allowedTopologies")
    # Upstream begins with an empty term for each given one, so an empty one repeats all of them.
    seen: Counter[frozenset[tuple[str, frozenset[str]]]] = Counter({frozenset(): len(terms)})
    for path, term in numbered(storage_class, "allowedTopologies"):
        requirements: dict[str, frozenset[str]] = {}
        for i, each in enumerate(listed(term, "matchLabelExpressions")):
            at = f"{path}.matchLabelExpressions[{i}]"
            key = text(each, "key")
            yield from _topology_values(listed(each, "values"), f"{at}.values")
            yield from rules.problems(f"{at}.key", key, names.qualified_name(key))
            if key in requirements:
                yield FieldError.duplicate(f"{at}.key", key)
            requirements[key] = frozenset(listed(each, "values"))
        whole = frozenset(requirements.items())
        for _ in range(min(seen[whole], MAX_ERRORS)):
            yield FieldError.duplicate(f"{path}.matchLabelExpressions", "")
        seen[whole] += 1


def _topology_values(values: Sequence[str], path: str) -> Errors:
    if not values:
        yield FieldError.required(path)
    for i in rules.repeated(values):
        yield FieldError.duplicate(f"{path}[{i}]", values[i])


def volume_attributes_class(obj: Document) -> Errors:
    parameters = obj.content.get("parameters") or {}
    yield from named("driverName", text(obj.content, "driverName").lower(), names.qualified_name)
    yield from _parameters(parameters)
    if not parameters:
        yield FieldError.required("parameters", "must contain at least one key/value pair")


def volume_attributes_class_update(new: Document, old: Document) -> Errors:
    for field in ("driverName", "parameters"):
        if (new.content.get(field) or None) != (old.content.get(field) or None):
            yield FieldError.forbidden(field, f"updates to {field} are forbidden.")


def csi_driver(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    policy = spec.get("fsGroupPolicy")
    if policy is not None and policy not in _GROUP_POLICIES:
        yield FieldError.not_supported("spec.fsGroupPolicy", policy, _GROUP_POLICIES)
    yield from _token_requests(listed(spec, "tokenRequests"))
    for mode in listed(spec, "volumeLifecycleModes"):
        if mode not in _LIFECYCLE_MODES:
            yield FieldError.not_supported("spec.volumeLifecycleModes", mode, _LIFECYCLE_MODES)
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < _SHORTEST_PERIOD:
        why = f"must be greater than or equal to {_SHORTEST_PERIOD} seconds"
        yield FieldError.invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, why)
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        yield FieldError.invalid("spec.serviceAccountTokenInSecrets", in_secrets, why)


def _token_requests(requests: Sequence[Fields]) -> Errors:
    audiences: set[str] = set()
    for i, request in enumerate(requests):
        path, audience = f"spec.tokenRequests[{i}]", text(request, "audience")
        if audience in audiences:
            yield FieldError.duplicate(f"{path}.audience", audience)
            continue
        audiences.add(audience)
        seconds = request.get("expirationSeconds")
        if seconds is None:
            continue
        at = f"{path}.expirationSeconds"
        if seconds < _SHORTEST_TOKEN:
            why = "may not specify a duration less than 10 minutes"
            yield FieldError.invalid(at, seconds, why)
        if seconds > _LONGEST_TOKEN:
            why = "may not specify a duration larger than 2^32 seconds"
            yield FieldError.invalid(at, seconds, why)


def csi_driver_update(new: Document, old: Document) -> Errors:
    now, before = new.content.get("spec") or {}, old.content.get("spec") or {}
    # Upstream names the field attachedRequired.
    if now.get("attachRequired") != before.get("attachRequired"):
        yield FieldError.invalid(
            "spec.attachedRequired", now.get("attachRequired"), rules.IMMUTABLE
        )
    field = "volumeLifecycleModes"
    yield from same(f"spec.{field}", now.get(field), before.get(field))


def csi_node(obj: Document) -> Errors:
    drivers: set[str] = set()
    for path, driver in numbered(obj.content, "spec.drivers"):
        name, node = text(driver, "name"), text(driver, "nodeID")
        yield from validate_driver_name(f"{path}.name", name)
        if not node:
            yield FieldError.required(f"{path}.nodeID")
        if len(node.encode()) > _LONGEST_NODE_ID:
            why = f"must be {_LONGEST_NODE_ID} characters or less"
            yield FieldError.invalid(f"{path}.nodeID", node, why)
        yield from rules.nonnegative(
            f"{path}.allocatable.count", reach(driver, "allocatable.count")
        )
        if name in drivers:
            yield FieldError.duplicate(f"{path}.name", name)
        drivers.add(name)
        yield from _topology_keys(listed(driver, "topologyKeys"), path)


def _topology_keys(keys: Sequence[str], path: str) -> Errors:
    """Return the errors of the keys; upstream reports them at the driver."""
    repeated = set(rules.repeated(keys))
    for i, key in enumerate(keys):
        if not key:
            yield FieldError.required(path)
        if i in repeated:
            yield FieldError.duplicate(path, key)
        yield from rules.problems(path, key, names.qualified_name(key))


def csi_node_update(new: Document, old: Document) -> Errors:
    after = listed(new.content, "spec.drivers")
    for before in listed(old.content, "spec.drivers"):
        for driver in after:
            if text(driver, "name") != text(before, "name"):
                continue
            if _fixed(driver) != _fixed(before):
                shown = internal_form(_fixed(driver), "storage.CSINodeDriver")
                yield FieldError.invalid("spec.drivers", shown, rules.IMMUTABLE)


def _fixed(driver: Fields) -> dict[str, Any]:
    """Return the fields of a driver that cannot change."""
    return {name: value for name, value in driver.items() if value and name != "allocatable"}


def csi_storage_capacity(obj: Document) -> Errors:
    fields = obj.content
    if fields.get("nodeTopology") is not None:
        for error in selector(fields, "", "nodeTopology"):
            yield FieldError(error.reason, error.field.lstrip("."), error.body)
    name = text(fields, "storageClassName")
    yield from rules.problems("storageClassName", name, names.dns_subdomain(name))
    capacity = fields.get("capacity")
    if capacity is not None and Quantity.of(capacity) < Quantity.of("0"):
        yield FieldError.invalid("capacity", str(capacity), rules.NEGATIVE)


def csi_storage_capacity_update(new: Document, old: Document) -> Errors:
    now, before = new.content, old.content
    if now.get("nodeTopology") != before.get("nodeTopology"):
        yield FieldError.invalid("nodeTopology", now.get("nodeTopology"), rules.IMMUTABLE)
    field = "storageClassName"
    if text(now, field) != text(before, field):
        yield FieldError.invalid(field, text(now, field), rules.IMMUTABLE)


def volume_attachment(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    yield from validate_driver_name("spec.attacher", text(spec, "attacher"))
    source = spec.get("source") or {}
    yield from _attached_source(source, "spec.source")
    node = text(spec, "nodeName")
    yield from rules.problems("spec.nodeName", node, names.dns_subdomain(node))
    yield from _attachment_status(obj.content.get("status") or {})
    volume = source.get("persistentVolumeName")
    if volume is not None:
        found = names.dns_subdomain(volume)
        yield from rules.problems("spec.source.persistentVolumeName", volume, found)


def _attached_source(source: Fields, path: str) -> Errors:
    inline, volume = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and volume is None:
        yield FieldError.required(path, _EITHER_SOURCE)
    elif inline is not None and volume is not None:
        yield FieldError.forbidden(path, _EITHER_SOURCE)
    elif volume == "":
        why = "must specify non empty persistentVolumeName"
        yield FieldError.required(f"{path}.persistentVolumeName", why)
    elif inline is not None:
        yield from persistent_volumes.validate_inline(inline, f"{path}.inlineVolumeSpec")


def _attachment_status(status: Fields) -> Errors:
    if _size(status.get("attachmentMetadata") or {}) > _LARGEST_ATTACHMENT_METADATA:
        yield FieldError.too_long("status.attachmentMetadata", _LARGEST_ATTACHMENT_METADATA)
    for field in ("attachError", "detachError"):
        error = status.get(field) or {}
        if len(text(error, "message").encode()) > _LONGEST_MESSAGE:
            # The limit in the message is another one than the limit of the check, as upstream.
            at = f"status.{field}.message"
            yield FieldError.too_long(at, _LARGEST_ATTACHMENT_METADATA)
        code = error.get("errorCode")
        if code is not None and code < 0:
            why = f"must be between 0 and {2**31 - 1}, inclusive"
            yield FieldError.invalid(f"status.{field}.errorCode", code, why)


def volume_attachment_update(new: Document, old: Document) -> Errors:
    if new.content.get("spec") != old.content.get("spec"):
        shown = internal_form(new.content.get("spec"), "storage.VolumeAttachmentSpec")
        yield FieldError.invalid("spec", shown, rules.IMMUTABLE)


def volume_attachment_status(new: Document, old: Document) -> Errors:
    """Yield the errors of a write to the status: those of the whole object, as upstream."""
    yield from volume_attachment(new)
