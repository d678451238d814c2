"""The `kubectl get` columns of the kinds that are served from the table."""

from collections.abc import Callable, Sequence
from typing import Any

from kedge.api.builtin.content import listed, reach, text
from kedge.api.model import Document
from kedge.api.presentation import Column, age_column, name_column
from kedge.machinery import selectors
from kedge.machinery.durations import human_age

_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_DEFAULT_STORAGE_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_INGRESS_CLASS = ("ingressclass.kubernetes.io/is-default-class",)
_HOSTS_SHOWN = 3


def _field(name: str, path: str, default: object = "", type: str = "string") -> Column:
    """A column that shows one field of the object."""
    return Column(name=name, type=type, cell=lambda obj: reach(obj.content, path, default))


def _count(name: str, path: str) -> Column:
    return Column(name=name, type="integer", cell=lambda obj: len(listed(obj.content, path)))


def _cell(name: str, cell: Callable[[Document], object]) -> Column:
    return Column(name=name, cell=cell)


def _marked_name(annotations: Sequence[str]) -> Column:
    """The name, followed by a remark if this is the class that others use by default."""

    def cell(obj: Document) -> str:
        is_default = any(obj.metadata.annotations.get(key) == "true" for key in annotations)
        return obj.metadata.name + (" (default)" if is_default else "")

    return Column(name="Name", format="name", cell=cell)


def _hosts(obj: Document) -> str:
    rules = listed(obj.content, "spec.rules")
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    if not hosts:
        return "*"
    shown = ",".join(hosts[:_HOSTS_SHOWN])
    # Upstream counts the rules that come after the third host was found, with a host or without.
    seen = 0
    for rule in rules:
        if seen == _HOSTS_SHOWN:
            return f"{shown} + {len(rules) - _HOSTS_SHOWN} more..."
        seen += bool(rule.get("host"))
    return shown


def _addresses(obj: Document) -> str:
    points = listed(obj.content, "status.loadBalancer.ingress")
    return ",".join(sorted({text(p, "ip") or text(p, "hostname") for p in points} - {""}))


def _ingress_ports(obj: Document) -> str:
    return "80, 443" if listed(obj.content, "spec.tls") else "80"


def _class_parameters(obj: Document) -> str:
    given = reach(obj.content, "spec.parameters")
    if not given:
        return "<none>"
    group = f".{given['apiGroup']}" if "apiGroup" in given else ""
    return f"{text(given, 'kind')}{group}/{text(given, 'name')}"


def _pod_selector(obj: Document) -> str:
    return _printed_selector(reach(obj.content, "spec.podSelector", {})) or "<none>"


def _access_modes(obj: Document) -> str:
    modes = listed(obj.content, "spec.accessModes")
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in modes)


def _phase(obj: Document) -> str:
    return "Terminating" if obj.metadata.deletionTimestamp else text(obj.content, "status.phase")


def _claim(obj: Document) -> str:
    claim = reach(obj.content, "spec.claimRef")
    return f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim is not None else ""


def _storage_class(obj: Document) -> str:
    beta = obj.metadata.annotations.get("volume.beta.kubernetes.io/storage-class")
    return text(obj.content, "spec.storageClassName") if beta is None else beta


def _health(obj: Document) -> dict[str, str]:
    conditions = listed(obj.content, "conditions")
    return next((each for each in conditions if each.get("type") == "Healthy"), {})


def _health_status(obj: Document) -> str:
    condition = _health(obj)
    if not condition:
        return "Unknown"
    return "Healthy" if condition.get("status") == "True" else "Unhealthy"


def _requested_duration(obj: Document) -> str:
    seconds = reach(obj.content, "spec.expirationSeconds")
    return "<none>" if seconds is None else human_age(seconds)


def _csr_condition(obj: Document) -> str:
    types = {condition.get("type") for condition in listed(obj.content, "status.conditions")}
    verdict = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    failed = ",Failed" if "Failed" in types else ""
    issued = ",Issued" if reach(obj.content, "status.certificate") else ""
    return verdict + failed + issued


def _param_kind(obj: Document) -> str:
    kind = reach(obj.content, "spec.paramKind")
    return "<unset>" if kind is None else f"{text(kind, 'apiVersion')}/{text(kind, 'kind')}"


def _param_ref(obj: Document) -> str:
    given = reach(obj.content, "spec.paramRef") or {}
    if name := text(given, "name"):
        return f"{text(given, 'namespace') or '*'}/{name}"
    # Upstream prints the Go struct of a selector; its usual spelling says the same in fewer words.
    return "<unset>" if "selector" not in given else _printed_selector(given["selector"])


def _printed_selector(selector: dict[str, Any]) -> str:
    try:
        return str(selectors.labels_from_object(selector))
    except ValueError:
        return "<error>"


def _dangling(obj: Document) -> str:
    conditions = listed(obj.content, "status.conditions")
    return next((text(c, "status") for c in conditions if c.get("type") == "Dangling"), "?")


def _joined(path: str, empty: str = "") -> Callable[[Document], str]:
    return lambda obj: ",".join(listed(obj.content, path)) or empty


def _audiences(obj: Document) -> str:
    requests = reach(obj.content, "spec.tokenRequests")
    if requests is None:
        return "<unset>"
    return ",".join(text(request, "audience") for request in requests)


def _parent(obj: Document) -> str:
    parent = reach(obj.content, "spec.parentRef")
    if parent is None:
        return "<none>"
    what = ".".join(filter(None, (text(parent, "resource"), text(parent, "group")))).lower()
    return "/".join(filter(None, (what, text(parent, "namespace"), text(parent, "name"))))


def _service(obj: Document) -> str:
    service = reach(obj.content, "spec.service")
    return "Local" if service is None else f"{text(service, 'namespace')}/{text(service, 'name')}"


def _available(obj: Document) -> str:
    conditions = listed(obj.content, "status.conditions")
    found: dict[str, str] = next(
        (each for each in conditions if each.get("type") == "Available"), {}
    )
    status, reason = found.get("status", "Unknown"), found.get("reason")
    return f"{status} ({reason})" if reason and status != "True" else status


NAME_AND_AGE = (name_column(), age_column())

PERSISTENT_VOLUME = (
    name_column(),
    _field("Capacity", "spec.capacity.storage", "0"),
    _cell("Access Modes", _access_modes),
    _field("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
    _cell("Status", _phase),
    _cell("Claim", _claim),
    _cell("StorageClass", _storage_class),
    _field("VolumeAttributesClass", "spec.volumeAttributesClassName", "<unset>"),
    _field("Reason", "status.reason"),
    age_column(),
    Column(
        name="VolumeMode",
        priority=1,
        cell=lambda obj: reach(obj.content, "spec.volumeMode", "<unset>"),
    ),
)
COMPONENT_STATUS = (
    name_column(),
    _cell("Status", _health_status),
    _cell("Message", lambda obj: _health(obj).get("message", "")),
    _cell("Error", lambda obj: _health(obj).get("error", "")),
)
WEBHOOKS = (name_column(), _count("Webhooks", "webhooks"), age_column())
VALIDATING_POLICY = (
    name_column(),
    _count("Validations", "spec.validations"),
    _cell("ParamKind", _param_kind),
    age_column(),
)
MUTATING_POLICY = (
    name_column(),
    _count("Mutations", "spec.mutations"),
    _cell("ParamKind", _param_kind),
    age_column(),
)
POLICY_BINDING = (
    name_column(),
    _field("PolicyName", "spec.policyName"),
    _cell("ParamRef", _param_ref),
    age_column(),
)
API_SERVICE = (
    name_column(),
    _cell("Service", _service),
    _cell("Available", _available),
    age_column(),
)
CERTIFICATE_SIGNING_REQUEST = (
    name_column(),
    age_column(),
    _field("SignerName", "spec.signerName", "<none>"),
    _field("Requestor", "spec.username"),
    _cell("RequestedDuration", _requested_duration),
    _cell("Condition", _csr_condition),
)
FLOW_SCHEMA = (
    name_column(),
    _field("PriorityLevel", "spec.priorityLevelConfiguration.name"),
    _field("MatchingPrecedence", "spec.matchingPrecedence", 0),
    _field("DistinguisherMethod", "spec.distinguisherMethod.type", "<none>"),
    age_column(),
    _cell("MissingPL", _dangling),
)
PRIORITY_LEVEL = (
    name_column(),
    _field("Type", "spec.type"),
    _field("NominalConcurrencyShares", "spec.limited.nominalConcurrencyShares", "<none>"),
    _field("Queues", "spec.limited.limitResponse.queuing.queues", "<none>"),
    _field("HandSize", "spec.limited.limitResponse.queuing.handSize", "<none>"),
    _field("QueueLengthLimit", "spec.limited.limitResponse.queuing.queueLengthLimit", "<none>"),
    age_column(),
)
INGRESS = (
    name_column(),
    _field("Class", "spec.ingressClassName", "<none>"),
    _cell("Hosts", _hosts),
    _cell("Address", _addresses),
    _cell("Ports", _ingress_ports),
    age_column(),
)
INGRESS_CLASS = (
    _marked_name(_DEFAULT_INGRESS_CLASS),
    _field("Controller", "spec.controller"),
    _cell("Parameters", _class_parameters),
    age_column(),
)
NETWORK_POLICY = (name_column(), _cell("Pod-Selector", _pod_selector), age_column())
IP_ADDRESS = (name_column(), _cell("ParentRef", _parent))
SERVICE_CIDR = (name_column(), _cell("CIDRs", _joined("spec.cidrs")), age_column())
RUNTIME_CLASS = (name_column(), _field("Handler", "handler"), age_column())
STORAGE_CLASS = (
    _marked_name(_DEFAULT_STORAGE_CLASS),
    _field("Provisioner", "provisioner"),
    _field("ReclaimPolicy", "reclaimPolicy", "Delete"),
    _field("VolumeBindingMode", "volumeBindingMode", "Immediate"),
    _field("AllowVolumeExpansion", "allowVolumeExpansion", False),
    age_column(),
)
VOLUME_ATTRIBUTES_CLASS = (name_column(), _field("DriverName", "driverName"), age_column())
VOLUME_ATTACHMENT = (
    name_column(),
    Column(name="Attacher", format="name", cell=lambda obj: text(obj.content, "spec.attacher")),
    _field("PV", "spec.source.persistentVolumeName"),
    _field("Node", "spec.nodeName"),
    _field("Attached", "status.attached", False, "boolean"),
    age_column(),
)
CSI_NODE = (name_column(), _count("Drivers", "spec.drivers"), age_column())
CSI_DRIVER = (
    name_column(),
    _field("AttachRequired", "spec.attachRequired", True, "boolean"),
    _field("PodInfoOnMount", "spec.podInfoOnMount", False, "boolean"),
    _field("StorageCapacity", "spec.storageCapacity", False, "boolean"),
    _cell("TokenRequests", _audiences),
    _field("RequiresRepublish", "spec.requiresRepublish", False, "boolean"),
    _cell("Modes", _joined("spec.volumeLifecycleModes", "<none>")),
    age_column(),
)
CSI_STORAGE_CAPACITY = (
    name_column(),
    _field("StorageClassName", "storageClassName"),
    _field("Capacity", "capacity", "<unset>"),
)
