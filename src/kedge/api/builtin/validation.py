"""Validation of the most used kinds that are served from the table."""

import base64
import binascii
import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kedge.api import rules
from kedge.api.builtin.content import listed, numbered, reach, text
from kedge.api.label_selector import validate_label_selector
from kedge.api.model import Document, LabelSelector
from kedge.machinery import names
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity

Errors = Iterator[FieldError]
Fields = Mapping[str, Any]

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_CLASS = "kubernetes.io/ingress.class"
_CLASS_NAME = "spec.ingressClassName"
_FORBIDDEN_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_FORBIDDEN_AFTER_PATHS = ("/..", "/.")
_LONGEST_CONTROLLER = 250
_MOST_PARAMETERS = 512
_LARGEST_PARAMETERS = 256 * 1024
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_SOURCES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
)
_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)


def named(path: str, value: str, rule: Callable[[str], list[str]]) -> Errors:
    """The field must be set, to a name that follows the rule."""
    if not value:
        yield FieldError.required(path)
    else:
        yield from rules.problems(path, value, rule(value))


def selector(fields: Fields, path: str, name: str) -> Errors:
    if name in fields:
        given = msgspec.convert(fields[name], LabelSelector)
        yield from validate_label_selector(given, f"{path}.{name}")


def ingress(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    if not spec.get("rules") and "defaultBackend" not in spec:
        why = "either `defaultBackend` or `rules` must be specified"
        yield FieldError.invalid("spec", None, why)
    if "defaultBackend" in spec:
        yield from _backend(spec["defaultBackend"], "spec.defaultBackend")
    for path, rule in numbered(obj.content, "spec.rules"):
        yield from _ingress_rule(rule, path)
    for path, tls in numbered(obj.content, "spec.tls"):
        for i, host in enumerate(listed(tls, "hosts")):
            yield from _host(host, f"{path}.hosts[{i}]")
        if secret := text(tls, "secretName"):
            yield from rules.problems(f"{path}.secretName", secret, names.dns_subdomain(secret))
    if "ingressClassName" in spec:
        name = spec["ingressClassName"]
        yield from rules.problems("spec.ingressClassName", name, names.dns_subdomain(name))


def new_ingress(obj: Document) -> Errors:
    annotation, name = obj.metadata.annotations.get(_CLASS), text(obj.content, _CLASS_NAME)
    if annotation is not None and name and annotation != name:
        why = "must match `ingressClassName` when both are specified"
        yield FieldError.invalid(f"annotations.{_CLASS}", annotation, why)


def _host(host: str, path: str) -> Errors:
    rule = names.wildcard_dns_subdomain if "*" in host else names.dns_subdomain
    yield from rules.problems(path, host, rule(host))


def _ingress_rule(rule: Fields, path: str) -> Errors:
    if host := text(rule, "host"):
        if _is_address(host):
            why = "must be a DNS name, not an IP address"
            yield FieldError.invalid(f"{path}.host", host, why)
        yield from _host(host, f"{path}.host")
    if "http" in rule:
        paths = listed(rule, "http.paths")
        if not paths:
            yield FieldError.required(f"{path}.http.paths")
        for i, each in enumerate(paths):
            yield from _ingress_path(each, f"{path}.http.paths[{i}]")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _ingress_path(fields: Fields, path: str) -> Errors:
    kind, value = fields.get("pathType"), text(fields, "path")
    if kind is None:
        yield FieldError.required(f"{path}.pathType", "pathType must be specified")
        return
    if kind not in _PATH_TYPES:
        yield FieldError.not_supported(f"{path}.pathType", kind, _PATH_TYPES)
    elif not value.startswith("/") and (value or kind != "ImplementationSpecific"):
        yield FieldError.invalid(f"{path}.path", value, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        for part in _FORBIDDEN_IN_PATHS:
            if part in value:
                yield FieldError.invalid(f"{path}.path", value, f"must not contain '{part}'")
        for part in _FORBIDDEN_AFTER_PATHS:
            if value.endswith(part):
                yield FieldError.invalid(f"{path}.path", value, f"cannot end with '{part}'")
    yield from _backend(fields.get("backend") or {}, f"{path}.backend")


def _backend(backend: Fields, path: str) -> Errors:
    if "resource" in backend and "service" in backend:
        yield FieldError.invalid(path, "", "cannot set both resource and service backends")
    elif "resource" in backend:
        yield from _local_reference(backend["resource"], f"{path}.resource")
    elif "service" in backend:
        yield from _service_backend(backend["service"], path)
    else:
        yield FieldError.invalid(path, "", "resource or service backend is required")


def _service_backend(service: Fields, path: str) -> Errors:
    yield from named(f"{path}.service.name", text(service, "name"), names.dns_label)
    name, number = text(service, "port.name"), reach(service, "port.number", 0)
    if name and number:
        yield FieldError.invalid(path, "", "cannot set both port name & port number")
    elif name:
        yield from rules.problems(f"{path}.service.port.name", name, names.port_name(name))
    elif number:
        found = names.port_number(number)
        yield from rules.problems(f"{path}.service.port.number", number, found)
    else:
        yield FieldError.required(path, "port name or number is required")


def _local_reference(reference: Fields, path: str) -> Errors:
    if "apiGroup" in reference:
        group = reference["apiGroup"]
        yield from rules.problems(f"{path}.apiGroup", group, names.dns_subdomain(group))
    yield from named(f"{path}.kind", text(reference, "kind"), names.path_segment)
    yield from named(f"{path}.name", text(reference, "name"), names.path_segment)


def ingress_class(obj: Document) -> Errors:
    controller = text(obj.content, "spec.controller")
    if len(controller) > _LONGEST_CONTROLLER:
        yield FieldError.too_long("spec.controller", _LONGEST_CONTROLLER)
    yield from named("spec.controller", controller, names.domain_prefixed_path)
    parameters = reach(obj.content, "spec.parameters")
    if parameters is not None:
        yield from _class_parameters(parameters, "spec.parameters")


def _class_parameters(parameters: Fields, path: str) -> Errors:
    yield from _local_reference(parameters, path)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        yield FieldError.required(f"{path}.scope")
    elif scope not in ("Cluster", "Namespace"):
        yield FieldError.not_supported(f"{path}.scope", scope, ("Cluster", "Namespace"))
    elif scope == "Namespace" and namespace is None:
        why = "`parameters.scope` is set to 'Namespace'"
        yield FieldError.required(f"{path}.namespace", why)
    elif scope == "Namespace":
        yield from rules.problems(f"{path}.namespace", namespace, names.dns_label(str(namespace)))
    elif namespace is not None:
        yield FieldError.forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")


def ingress_class_update(new: Document, old: Document) -> Errors:
    yield from _unchanged(new, old, "spec.controller")


def _unchanged(new: Document, old: Document, path: str) -> Errors:
    yield from rules.unchanged(path, reach(new.content, path), reach(old.content, path))


def network_policy(obj: Document) -> Errors:
    yield from selector(obj.content.get("spec") or {}, "spec", "podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for path, rule in numbered(obj.content, f"spec.{direction}"):
            for i, port in enumerate(listed(rule, "ports")):
                yield from _policy_port(port, f"{path}.ports[{i}]")
            for i, peer in enumerate(listed(rule, peers)):
                yield from _policy_peer(peer, f"{path}.{peers}[{i}]")
    types = listed(obj.content, "spec.policyTypes")
    if len(types) > 2:
        yield FieldError.invalid(
            "spec.policyTypes", types, "may not specify more than two policyTypes"
        )
        return
    for i, each in enumerate(types):
        if each not in ("Ingress", "Egress"):
            yield FieldError.not_supported(f"spec.policyTypes[{i}]", each, ("Ingress", "Egress"))


def _policy_port(fields: Fields, path: str) -> Errors:
    yield from rules.none_or_one_of(
        f"{path}.protocol", fields.get("protocol"), ("TCP", "UDP", "SCTP")
    )
    port, last = fields.get("port"), fields.get("endPort")
    if isinstance(port, int):
        yield from rules.problems(f"{path}.port", port, names.port_number(port))
        if last is not None:
            if last < port:
                why = "must be greater than or equal to `port`"
                yield FieldError.invalid(f"{path}.endPort", port, why)
            yield from rules.problems(f"{path}.endPort", last, names.port_number(last))
        return
    if last is not None:
        why = "not specified" if port is None else "non-numeric"
        yield FieldError.invalid(
            f"{path}.endPort", last, f"may not be specified when `port` is {why}"
        )
    if port is not None:
        yield from rules.problems(f"{path}.port", port, names.port_name(port))


def _policy_peer(peer: Fields, path: str) -> Errors:
    yield from selector(peer, path, "podSelector")
    yield from selector(peer, path, "namespaceSelector")
    if "ipBlock" in peer:
        yield from _ip_block(peer["ipBlock"], f"{path}.ipBlock")
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if name in peer]
    if not given:
        yield FieldError.required(path, "must specify a peer")
    elif len(given) > 1 and "ipBlock" in peer:
        yield FieldError.forbidden(path, "may not specify both ipBlock and another peer")


def _ip_block(block: Fields, path: str) -> Errors:
    cidr = text(block, "cidr")
    yield from named(f"{path}.cidr", cidr, names.cidr)
    if not cidr or names.cidr(cidr):
        return
    whole = ipaddress.ip_network(cidr)
    for i, part in enumerate(listed(block, "except")):
        found = names.cidr(part)
        yield from rules.problems(f"{path}.except[{i}]", part, found)
        if not found and not _strictly_within(ipaddress.ip_network(part), whole):
            why = "must be a strict subset of `cidr`"
            yield FieldError.invalid(f"{path}.except[{i}]", part, why)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _strictly_within(part: Network, whole: Network) -> bool:
    if part.version != whole.version or part.prefixlen <= whole.prefixlen:
        return False
    return part.network_address in whole


def storage_class(obj: Document) -> Errors:
    fields = obj.content
    yield from named("provisioner", text(fields, "provisioner").lower(), names.qualified_name)
    yield from _parameters(fields.get("parameters") or {})
    policies, modes = ("Delete", "Retain"), ("Immediate", "WaitForFirstConsumer")
    yield from rules.none_or_one_of("reclaimPolicy", fields.get("reclaimPolicy"), policies)
    yield from rules.one_of("volumeBindingMode", text(fields, "volumeBindingMode"), modes)


def _parameters(parameters: Mapping[str, str]) -> Errors:
    if len(parameters) > _MOST_PARAMETERS:
        yield FieldError.too_long("parameters", _MOST_PARAMETERS)
        return
    if "" in parameters:
        yield FieldError.invalid("parameters", "", "field can not be empty.")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
    if size > _LARGEST_PARAMETERS:
        yield FieldError.too_long("parameters", _LARGEST_PARAMETERS)


def storage_class_update(new: Document, old: Document) -> Errors:
    for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        yield from _unchanged(new, old, field)


def volume_attributes_class(obj: Document) -> Errors:
    parameters = obj.content.get("parameters") or {}
    yield from named("driverName", text(obj.content, "driverName").lower(), names.qualified_name)
    yield from _parameters(parameters)
    if not parameters:
        yield FieldError.required("parameters", "must contain at least one key/value pair")


def volume_attributes_class_update(new: Document, old: Document) -> Errors:
    yield from _unchanged(new, old, "driverName")
    yield from _unchanged(new, old, "parameters")


def persistent_volume(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    yield from _access_modes(listed(spec, "accessModes"))
    yield from _capacity(spec.get("capacity") or {})
    policy = spec.get("persistentVolumeReclaimPolicy")
    policies = ("Delete", "Recycle", "Retain")
    yield from rules.none_or_one_of("spec.persistentVolumeReclaimPolicy", policy, policies)
    yield from _volume_source(spec)
    if name := text(spec, "storageClassName"):
        yield from rules.problems("spec.storageClassName", name, names.dns_subdomain(name))
    yield from rules.none_or_one_of(
        "spec.volumeMode", spec.get("volumeMode"), ("Block", "Filesystem")
    )


def _access_modes(modes: Sequence[str]) -> Errors:
    path = "spec.accessModes"
    if not modes:
        yield FieldError.required(path)
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield FieldError.not_supported(path, mode, _ACCESS_MODES)
    known = {mode for mode in modes if mode in _ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield FieldError.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _capacity(capacity: Mapping[str, str]) -> Errors:
    if not capacity:
        yield FieldError.required("spec.capacity")
    if set(capacity) != {"storage"}:
        yield FieldError.not_supported("spec.capacity", capacity, ("storage",))
    for name, amount in capacity.items():
        if Quantity.of(amount) <= Quantity.of("0"):
            yield FieldError.invalid(f"spec.capacity[{name}]", amount, "must be greater than zero")


def _volume_source(spec: Fields) -> Errors:
    given = [source for source in _VOLUME_SOURCES if source in spec]
    if not given:
        yield FieldError.required("spec", "must specify a volume type")
        return
    for source in given[1:]:
        yield FieldError.forbidden(f"spec.{source}", "may not specify more than 1 volume type")
    source, path = spec[given[0]], f"spec.{given[0]}"
    match given[0]:
        case "hostPath":
            yield from _host_path(source, path)
        case "local":
            yield from _plain_path(text(source, "path"), f"{path}.path")
            if "nodeAffinity" not in spec:
                yield FieldError.required(
                    "spec.nodeAffinity", "Local volume requires node affinity"
                )
        case "nfs":
            yield from _nfs(source, path)
        case "csi":
            yield from named(f"{path}.driver", text(source, "driver").lower(), names.dns_subdomain)
            if not text(source, "volumeHandle"):
                yield FieldError.required(f"{path}.volumeHandle")


def _host_path(source: Fields, path: str) -> Errors:
    yield from _plain_path(text(source, "path"), f"{path}.path")
    kind = source.get("type", "")
    if text(source, "path") and kind not in _HOST_PATH_TYPES:
        yield FieldError.not_supported(f"{path}.type", kind, _HOST_PATH_TYPES)


def _plain_path(value: str, path: str) -> Errors:
    if not value:
        yield FieldError.required(path)
    elif ".." in value.split("/"):
        yield FieldError.invalid(path, value, "must not contain '..'")


def _nfs(source: Fields, path: str) -> Errors:
    if not text(source, "server"):
        yield FieldError.required(f"{path}.server")
    where = text(source, "path")
    if not where:
        yield FieldError.required(f"{path}.path")
    if not where.startswith("/"):
        yield FieldError.invalid(f"{path}.path", where, "must be an absolute path")


def persistent_volume_update(new: Document, old: Document) -> Errors:
    before, after = old.content.get("spec") or {}, new.content.get("spec") or {}
    if any(before.get(source) != after.get(source) for source in _VOLUME_SOURCES):
        why = "spec.persistentvolumesource is immutable after creation"
        yield FieldError.forbidden("spec.persistentvolumesource", why)
    yield from rules.unchanged("volumeMode", after.get("volumeMode"), before.get("volumeMode"))


def runtime_class(obj: Document) -> Errors:
    yield from named("handler", text(obj.content, "handler"), names.dns_label)


def runtime_class_update(new: Document, old: Document) -> Errors:
    yield from _unchanged(new, old, "handler")


def signing_request(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    if problem := _request_problem(text(spec, "request")):
        yield FieldError.invalid("spec.request", text(spec, "request"), problem)
    usages = listed(spec, "usages")
    if not usages:
        yield FieldError.required("spec.usages")
    for i, usage in enumerate(usages):
        if usage not in _USAGES:
            yield FieldError.not_supported(f"spec.usages[{i}]", usage, _USAGES)
    for i in rules.repeated(usages):
        yield FieldError.duplicate(f"spec.usages[{i}]", usages[i])
    yield from _signer(text(spec, "signerName"), "spec.signerName")
    seconds = spec.get("expirationSeconds", 600)
    if seconds < 600:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        yield FieldError.invalid("spec.expirationSeconds", seconds, why)


def _request_problem(request: str) -> str:
    """Why this base64 text is no certificate request that its own key has signed."""
    # Too slow to import for those who never see such a request.
    from cryptography import x509

    try:
        pem = base64.b64decode(request, validate=True)
        parsed = x509.load_pem_x509_csr(pem)
    except (binascii.Error, ValueError):
        return "PEM block type must be CERTIFICATE REQUEST"
    return "" if parsed.is_signature_valid else "x509: signature verification failed"


def _signer(name: str, path: str) -> Errors:
    if not name:
        yield FieldError.required(path)
        return
    if name == "kubernetes.io/legacy-unknown":
        why = "the legacy signerName is not allowed via this API version"
        yield FieldError.invalid(path, name, why)
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield FieldError.invalid(path, name, why)
        return
    yield from _labelled(domain, path, names.dns_label)
    if "." not in domain:
        why = "should be a domain with at least two segments separated by dots"
        yield FieldError.invalid(path, domain, why)
    yield from _labelled(rest, path, names.dns_subdomain)


def _labelled(value: str, path: str, rule: Callable[[str], list[str]]) -> Errors:
    """Return the errors of the first invalid part between dots."""
    for label in value.split("."):
        if found := rule(label):
            for problem in found:
                yield FieldError.invalid(path, value, f'validating label "{label}": {problem}')
            return


def api_service(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    group, version = text(spec, "group"), text(spec, "version")
    if obj.metadata.name != f"{version}.{group}":
        why = f'must be `spec.version+"."+spec.group`: "{version}.{group}"'
        yield FieldError.invalid("metadata.name", obj.metadata.name, why)
    if not group and version != "v1":
        why = "only v1 may have an empty group and it better be legacy kube"
        yield FieldError.required("spec.group", why)
    if group:
        yield from rules.problems("spec.group", group, names.dns_subdomain(group))
    yield from rules.problems("spec.version", version, names.dns1035_label(version))
    for field, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(field, 0)
        if not 0 < value <= most:
            why = f"must be positive and less than {most}"
            yield FieldError.invalid(f"spec.{field}", value, why)


def network_policy_warnings(_: Document) -> Iterator[str]:
    """Warn that packets pass all the same: its author relies on the policy."""
    yield "NetworkPolicies are stored, but this version does not enforce them: no packet is dropped"
