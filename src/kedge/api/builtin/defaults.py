"""Defaults of the kinds that are served from the table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kedge.api.builtin.content import listed, reach, replaced, with_spec
from kedge.api.core_v1.resource_defaults import rounded
from kedge.api.model import Document
from kedge.machinery.quantity import Quantity

Fields = Mapping[str, Any]

_WEBHOOK = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
}
_MATCH_RESOURCES = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
_QUEUING = {"handSize": 8, "queues": 64, "queueLengthLimit": 50}
_CSI_DRIVER = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
}
_NOT_SERVED = "preventPodSchedulingIfMissing"
"""A field of CSIDrivers behind a feature gate that is off."""
_OPTIONAL_IN_SOURCES: Mapping[str, Fields] = {
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "kind": "Shared",
        "readOnly": False,
    },
    "hostPath": {"type": ""},
}
"""Defaults of fields whose zero value means something."""
_REQUIRED_IN_SOURCES: Mapping[str, Fields] = {
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "scaleIO": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
}
_EMPTY_STATUS: Mapping[str, Fields] = {
    "Ingress": {"loadBalancer": {}},
    "VolumeAttachment": {"attached": False},
}
"""The status of a new object, where it is not just `{}`."""


def _filled(fields: Fields, defaults: Fields) -> dict[str, Any]:
    return {**fields, **{name: value for name, value in defaults.items() if name not in fields}}


def _nonzero(fields: Fields, defaults: Fields) -> dict[str, Any]:
    """The fields with defaults for those that are absent or zero."""
    return {
        **fields,
        **{name: value for name, value in defaults.items() if not fields.get(name)},
    }


def _spec(obj: Document) -> dict[str, Any]:
    spec: dict[str, Any] = obj.content.get("spec") or {}
    return spec


def _changed(fields: Fields, name: str, value: Any) -> dict[str, Any]:
    """The fields with one of them set, unless it was absent and would still be empty."""
    return {**fields, name: value} if value or name in fields else dict(fields)


def with_status(kind: str, default: Callable[[Document], Document]) -> Callable[..., Document]:
    """Return the defaults of a kind, with an empty status if the object has none.

    So a JSON patch can add a field to the status of an object without a reported status.
    """
    empty = _EMPTY_STATUS.get(kind, {})

    def complete(obj: Document) -> Document:
        content = default(obj).content
        return replaced(obj, {**content, "status": _filled(content.get("status") or {}, empty)})

    return complete


def persistent_volume(obj: Document) -> Document:
    spec = _volume(_spec(obj))
    spec = _nonzero(_filled(spec, {"volumeMode": "Filesystem"}), _RETAINED)
    return with_spec(obj, spec)


_RETAINED = {"persistentVolumeReclaimPolicy": "Retain"}


def _volume(spec: Fields) -> dict[str, Any]:
    """The spec of a volume with the defaults of its source and rounded amounts."""
    filled = dict(spec)
    for source, defaults in _OPTIONAL_IN_SOURCES.items():
        if source in spec:
            filled[source] = _filled(spec[source], defaults)
    for source, defaults in _REQUIRED_IN_SOURCES.items():
        if source in spec:
            filled[source] = _nonzero(spec[source], defaults)
    if capacity := spec.get("capacity"):
        filled["capacity"] = _rounded(capacity)
    return filled


def _rounded(amounts: Mapping[str, str]) -> dict[str, str]:
    exact = {name: Quantity.of(amount) for name, amount in amounts.items()}
    return {name: str(amount) for name, amount in rounded(exact).items()}


def volume_attachment(obj: Document) -> Document:
    spec = {"attacher": "", "nodeName": "", **_spec(obj)}
    source = spec.get("source") or {}
    if "inlineVolumeSpec" in source:
        source = {**source, "inlineVolumeSpec": _volume(source["inlineVolumeSpec"])}
    return with_spec(obj, {**spec, "source": source})


def pending_volume(obj: Document) -> Document:
    """How a new volume starts."""
    status = {"phase": "Pending", "lastPhaseTransitionTime": obj.metadata.creationTimestamp}
    return replaced(obj, obj.content | {"status": status})


def validating_webhooks(obj: Document) -> Document:
    return _webhooks(obj, _WEBHOOK)


def mutating_webhooks(obj: Document) -> Document:
    return _webhooks(obj, {**_WEBHOOK, "reinvocationPolicy": "Never"})


def _webhooks(obj: Document, defaults: Fields) -> Document:
    webhooks = [_webhook(_filled(hook, defaults)) for hook in listed(obj.content, "webhooks")]
    return replaced(obj, _changed(obj.content, "webhooks", webhooks))


def _webhook(hook: dict[str, Any]) -> dict[str, Any]:
    hook = _changed(hook, "rules", _scoped(hook.get("rules") or ()))
    service = reach(hook, "clientConfig.service")
    if service is not None:
        client = {**hook["clientConfig"], "service": _filled(service, {"port": 443})}
        hook = {**hook, "clientConfig": client}
    return hook


def _scoped(rules: Sequence[Fields]) -> list[dict[str, Any]]:
    return [_filled(rule, {"scope": "*"}) for rule in rules]


def admission_policy(obj: Document) -> Document:
    spec = _filled(_spec(obj), {"failurePolicy": "Fail"})
    return with_spec(obj, _matching(spec, "matchConstraints"))


def admission_policy_binding(obj: Document) -> Document:
    return with_spec(obj, _matching(_spec(obj), "matchResources"))


def _matching(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """A spec whose description of the objects it is about is complete."""
    if name not in spec:
        return spec
    resources = _filled(spec[name], _MATCH_RESOURCES)
    for rules in ("resourceRules", "excludeResourceRules"):
        resources = _changed(resources, rules, _scoped(resources.get(rules) or ()))
    return {**spec, name: resources}


def api_service(obj: Document) -> Document:
    spec = _spec(obj)
    if "service" in spec:
        spec = {**spec, "service": _filled(spec["service"], {"port": 443})}
    return with_spec(obj, spec)


def kept_signing_request(new: Document, old: Document) -> Document:
    """Keep the old request except its metadata."""
    return replaced(new, old.content)


def flow_schema(obj: Document) -> Document:
    spec = _spec(obj)
    return with_spec(obj, {**spec, "matchingPrecedence": spec.get("matchingPrecedence") or 1000})


def priority_level(obj: Document) -> Document:
    spec = dict(_spec(obj))
    if "exempt" in spec:
        spec["exempt"] = _filled(
            spec["exempt"], {"nominalConcurrencyShares": 0, "lendablePercent": 0}
        )
    if "limited" in spec:
        spec["limited"] = _limited(spec["limited"])
    return with_spec(obj, spec)


def _limited(limited: Fields) -> dict[str, Any]:
    filled = _filled(limited, {"nominalConcurrencyShares": 30, "lendablePercent": 0})
    queuing = reach(filled, "limitResponse.queuing")
    if queuing is not None:
        set_ = {name: value for name, value in queuing.items() if value}
        filled["limitResponse"] = {**filled["limitResponse"], "queuing": _filled(set_, _QUEUING)}
    return filled


def runtime_class(obj: Document) -> Document:
    overhead = reach(obj.content, "overhead.podFixed")
    if not overhead:
        return obj
    return replaced(obj, {**obj.content, "overhead": {"podFixed": _rounded(overhead)}})


def ingress_class(obj: Document) -> Document:
    spec = _spec(obj)
    if "parameters" in spec:
        spec = {**spec, "parameters": _filled(spec["parameters"], {"scope": "Cluster"})}
    return with_spec(obj, spec)


def network_policy(obj: Document) -> Document:
    spec = dict(_spec(obj))
    for direction in ("ingress", "egress"):
        rules = [_policy_rule(rule) for rule in spec.get(direction) or ()]
        spec = _changed(spec, direction, rules)
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return with_spec(obj, _filled(spec, {"podSelector": {}}))


def _policy_rule(rule: Fields) -> dict[str, Any]:
    ports = [_filled(port, {"protocol": "TCP"}) for port in rule.get("ports") or ()]
    return _changed(rule, "ports", ports)


def storage_class(obj: Document) -> Document:
    defaults = {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
    return replaced(obj, _filled(obj.content, defaults))


def csi_driver(obj: Document) -> Document:
    spec = _nonzero(_filled(_spec(obj), _CSI_DRIVER), {"volumeLifecycleModes": ["Persistent"]})
    requests = [{"audience": "", **request} for request in listed(spec, "tokenRequests")]
    spec = _changed(spec, "tokenRequests", requests)
    return with_spec(obj, {name: value for name, value in spec.items() if name != _NOT_SERVED})
