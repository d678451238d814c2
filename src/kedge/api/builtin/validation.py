"""Validation of the most used kinds that are served from the table."""

import base64
import binascii
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from kedge.api import rules
from kedge.api.builtin import policy_limits
from kedge.api.builtin.content import listed, numbered, reach, text, typed
from kedge.api.core_v1.nesting import each, within
from kedge.api.core_v1.pod.affinity import Toleration
from kedge.api.core_v1.pod.affinity_validation import validate_toleration
from kedge.api.core_v1.resource_validation import validate_overhead
from kedge.api.internal_forms import internal_form
from kedge.api.label_selector import validate_label_selector
from kedge.api.metadata import validate_labels
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
        given = typed(fields[name], LabelSelector)
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
    yield from rules.unchanged(path, text(new.content, path), text(old.content, path))


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
    for i, kind in enumerate(types):
        if kind not in ("Ingress", "Egress"):
            yield FieldError.not_supported(f"spec.policyTypes[{i}]", kind, ("Ingress", "Egress"))


def _policy_port(fields: Fields, path: str) -> Errors:
    protocol = fields.get("protocol")
    if protocol is not None and protocol not in ("TCP", "UDP", "SCTP"):
        yield FieldError.not_supported(f"{path}.protocol", protocol, ("TCP", "UDP", "SCTP"))
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


def runtime_class(obj: Document) -> Errors:
    yield from named("handler", text(obj.content, "handler"), names.dns_label)
    if overhead := reach(obj.content, "overhead.podFixed"):
        limits = {name: Quantity.of(amount) for name, amount in overhead.items()}
        yield from within("overhead", validate_overhead(limits))
    if selector_ := reach(obj.content, "scheduling.nodeSelector"):
        yield from validate_labels(selector_, "scheduling.nodeSelector")
    yield from _tolerations(obj)


def _tolerations(obj: Document) -> Errors:
    path = "scheduling.tolerations"
    given = [typed(each, Toleration) for each in listed(obj.content, path)]
    yield from each(path, given, validate_toleration)
    for i in rules.repeated([replace(one, tolerationSeconds=None) for one in given]):
        shown = internal_form(given[i], "core.Toleration")
        yield FieldError.duplicate(f"{path}[{i}]", shown)


def runtime_class_update(new: Document, old: Document) -> Errors:
    yield from _unchanged(new, old, "handler")


def signing_request(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    if problem := _request_problem(text(spec, "request")):
        yield FieldError.invalid("spec.request", spec.get("request"), problem)
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
    for field, name in (
        ("generateName", obj.metadata.generateName),
        ("name", obj.metadata.name),
    ):
        if name not in ("", f"{version}.{group}"):
            why = f'must be `spec.version+"."+spec.group`: "{version}.{group}"'
            yield FieldError.invalid(f"metadata.{field}", name, why)
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
    yield from _api_service_target(spec)


def _api_service_target(spec: Mapping[str, Any]) -> Errors:
    """Check which server answers for the version, and how it is verified."""
    service, bundle = spec.get("service"), text(spec, "caBundle")
    is_insecure = bool(spec.get("insecureSkipTLSVerify"))
    if not service:
        if bundle:
            size = f"{len(bundle) * 3 // 4} bytes"
            why = "local APIServices may not have a caBundle"
            yield FieldError.invalid("spec.caBundle", size, why)
        if is_insecure:
            why = "local APIServices may not have insecureSkipTLSVerify"
            yield FieldError.invalid("spec.insecureSkipTLSVerify", True, why)
        return
    if text(spec, "group") in ("", "apiregistration.k8s.io"):
        why = "this server answers for the core group and for APIServices itself"
        yield FieldError.forbidden("spec.service", why)
    for field in ("namespace", "name"):
        if not service.get(field):
            yield FieldError.required(f"spec.service.{field}", "")
    if not 0 < (port := service.get("port", 443)) < 1 << 16:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        yield FieldError.invalid("spec.service.port", port, why)
    if is_insecure and bundle:
        why = "may not be true if caBundle is present"
        yield FieldError.invalid("spec.insecureSkipTLSVerify", True, why)


def network_policy_warnings(obj: Document) -> Iterator[str]:
    """Warn about parts of a policy that nodes leave out."""
    return policy_limits.excesses(obj.content)
