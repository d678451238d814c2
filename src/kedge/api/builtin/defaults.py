"""Defaults of the kinds that are served from the table."""

from collections.abc import Mapping, Sequence
from typing import Any

from kedge.api.builtin.content import listed, reach, replaced, with_spec
from kedge.api.model import Document

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
    "volumeLifecycleModes": ["Persistent"],
}
_VOLUME_SOURCES: Mapping[str, Fields] = {
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "kind": "Shared",
        "readOnly": False,
    },
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "scaleIO": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
}


def _filled(fields: Fields, defaults: Fields) -> dict[str, Any]:
    return {**fields, **{name: value for name, value in defaults.items() if name not in fields}}


def _spec(obj: Document) -> dict[str, Any]:
    spec: dict[str, Any] = obj.content.get("spec") or {}
    return spec


def _changed(fields: Fields, name: str, value: Any) -> dict[str, Any]:
    """The fields with one of them set, unless it was absent and would still be empty."""
    return {**fields, name: value} if value or name in fields else dict(fields)


def persistent_volume(obj: Document) -> Document:
    spec = _filled(
        _spec(obj), {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}
    )
    for source, defaults in _VOLUME_SOURCES.items():
        if source in spec:
            spec[source] = _filled(spec[source], defaults)
    return with_spec(obj, spec)


def pending_volume(obj: Document) -> Document:
    """How a new volume starts."""
    return replaced(obj, obj.content | {"status": {"phase": "Pending"}})


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


def resource_claim(obj: Document) -> Document:
    return with_spec(obj, _claim(_spec(obj)))


def resource_claim_template(obj: Document) -> Document:
    spec = _spec(obj)
    return with_spec(obj, {**spec, "spec": _claim(spec.get("spec") or {})})


def _claim(spec: Fields) -> dict[str, Any]:
    requests = [_device_request(each) for each in listed(spec, "devices.requests")]
    if not requests:
        return dict(spec)
    return {**spec, "devices": {**spec["devices"], "requests": requests}}


def _device_request(request: Fields) -> dict[str, Any]:
    request = dict(request)
    if "exactly" in request:
        request["exactly"] = _counted(request["exactly"])
    if "firstAvailable" in request:
        request["firstAvailable"] = [_counted(each) for each in request["firstAvailable"]]
    return request


def _counted(request: Fields) -> dict[str, Any]:
    filled = {**request, "allocationMode": request.get("allocationMode") or "ExactCount"}
    if filled["allocationMode"] == "ExactCount":
        filled["count"] = request.get("count") or 1
    return filled


def storage_class(obj: Document) -> Document:
    defaults = {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
    return replaced(obj, _filled(obj.content, defaults))


def csi_driver(obj: Document) -> Document:
    return with_spec(obj, _filled(_spec(obj), _CSI_DRIVER))
