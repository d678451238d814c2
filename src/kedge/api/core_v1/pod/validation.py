"""Validation of pods and pod templates."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kedge.api import rules
from kedge.api.core_v1.nesting import each, within
from kedge.api.core_v1.node_types import SIMULATION_PREFIX
from kedge.api.core_v1.pod.affinity_validation import (
    validate_affinity,
    validate_spread,
    validate_toleration,
)
from kedge.api.core_v1.pod.container_validation import (
    ContainerContext,
    validate_containers,
    validate_ephemeral_containers,
    validate_image_spelling,
    validate_init_containers,
)
from kedge.api.core_v1.pod.security_validation import (
    validate_host_process,
    validate_os,
    validate_pod_security_context,
)
from kedge.api.core_v1.pod.spec import (
    HostAlias,
    PodDNSConfig,
    PodResourceClaim,
    PodSpec,
    PodTemplateSpec,
    all_containers,
)
from kedge.api.core_v1.resource_validation import validate_overhead, validate_pod_resources
from kedge.api.core_v1.volume.validation import validate_volumes
from kedge.api.internal_forms import internal_form
from kedge.api.metadata import validate_annotations, validate_labels
from kedge.api.model import ObjectMeta
from kedge.machinery import names
from kedge.machinery.errors import FieldError

if TYPE_CHECKING:
    from kedge.api.core_v1.pod.pod import Pod

MIRROR_POD: Final = "kubernetes.io/config.mirror"
"""Marks a pod that a node made from a file of its own."""
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")
_MOST_NAMESERVERS: Final = 3
_MOST_SEARCHES: Final = 32
_LONGEST_SEARCHES: Final = 2048
_LONGEST_HOSTNAME: Final = 64
_INT32: Final = 2**31


def validate(pod: "Pod") -> Iterator[FieldError]:
    """Everything wrong with a pod, metadata excepted."""
    if pod.metadata.annotations:
        yield from _annotations(pod.metadata.annotations, pod.spec, "metadata.annotations")
    yield from validate_spec(pod.spec, "spec", metadata=pod.metadata)
    if not pod.spec.serviceAccountName and pod.spec.volumes:
        yield from _no_tokens(pod.spec)
    yield from each("spec.containers", pod.spec.containers, validate_image_spelling)
    yield from each("spec.initContainers", pod.spec.initContainers, validate_image_spelling)


def validate_new(pod: "Pod") -> Iterator[FieldError]:
    """Yield the errors that only a new pod can have."""
    if pod.spec.ephemeralContainers:
        yield FieldError.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if pod.spec.nodeName and pod.spec.schedulingGates:
        why = "cannot be set until all schedulingGates have been cleared"
        yield FieldError.forbidden("spec.nodeName", why)


def validate_template(template: PodTemplateSpec, path: str) -> Iterator[FieldError]:
    """Everything wrong with what a workload makes pods from, say `spec.template`."""
    # Upstream leaves `metadata` out of these two paths.
    yield from validate_labels(template.metadata.labels, f"{path}.labels")
    yield from validate_annotations(template.metadata.annotations, f"{path}.annotations")
    yield from _annotations(template.metadata.annotations, template.spec, f"{path}.annotations")
    yield from validate_spec(template.spec, f"{path}.spec")
    if template.spec.ephemeralContainers:
        why = "ephemeral containers not allowed in pod template"
        yield FieldError.forbidden(f"{path}.spec.ephemeralContainers", why)


def validate_spec(
    spec: PodSpec, path: str, *, metadata: ObjectMeta | None = None
) -> Iterator[FieldError]:
    """Everything wrong with what a pod is to be; `metadata` is that of a real pod, if it is one."""
    return within(path, _spec(spec, metadata))


def _spec(spec: PodSpec, metadata: ObjectMeta | None) -> Iterator[FieldError]:
    if spec.terminationGracePeriodSeconds is None:
        yield FieldError.required("terminationGracePeriodSeconds")
    pod_name = metadata.name if metadata is not None else ""
    volumes = validate_volumes(spec, pod_name, of_pod=metadata is not None)
    yield from within("volumes", volumes.errors)
    if spec.resourceClaims:
        yield from _resource_claims(spec, metadata)
    claims = {claim.name for claim in spec.resourceClaims if claim.name}
    pod = ContainerContext(spec, volumes.sound, claims, volumes.unportable)
    yield from within("containers", validate_containers(pod))
    if spec.initContainers:
        yield from within("initContainers", validate_init_containers(pod))
    if spec.ephemeralContainers:
        yield from within("ephemeralContainers", validate_ephemeral_containers(pod))
    if spec.resources is not None:
        yield from within("resources", validate_pod_resources(spec, pod.claims))
    if spec.hostNetwork:
        yield from _host_network_ports(spec, of_pod=metadata is not None)
    yield from _policies(spec)
    yield from _placement(spec)
    yield from _identity(spec)
    if spec.os is not None:
        yield from validate_os(spec)
    yield from _file_variables(spec)


def _policies(spec: PodSpec) -> Iterator[FieldError]:
    if spec.restartPolicy not in _RESTART_POLICIES:
        yield from rules.one_of("restartPolicy", spec.restartPolicy, _RESTART_POLICIES)
    if spec.dnsPolicy not in _DNS_POLICIES:
        yield from rules.one_of("dnsPolicy", spec.dnsPolicy, _DNS_POLICIES)
    if spec.securityContext is not None:
        errors = validate_pod_security_context(spec.securityContext, spec)
        yield from within("securityContext", errors)
    if spec.dnsConfig is not None or spec.dnsPolicy == "None":
        yield from within("dnsConfig", _dns(spec.dnsConfig, spec.dnsPolicy))
    deadline = spec.activeDeadlineSeconds
    if deadline is not None:
        found = names.in_range(deadline, 1, _INT32 - 1)
        yield from rules.problems("activeDeadlineSeconds", deadline, found)
    if spec.preemptionPolicy is not None:
        policy = spec.preemptionPolicy
        yield from rules.one_of("preemptionPolicy", policy, _PREEMPTION_POLICIES)
    if spec.hostUsers is False:
        yield from _own_users(spec)


def _placement(spec: PodSpec) -> Iterator[FieldError]:
    """Where the pod may go, and with what."""
    if spec.nodeSelector:
        yield from validate_labels(spec.nodeSelector, "nodeSelector")
    if spec.affinity is not None:
        yield from within("affinity", validate_affinity(spec.affinity))
    for i, gate in enumerate(spec.readinessGates):
        found = names.qualified_name(gate.conditionType)
        yield from rules.problems(f"readinessGates[{i}].conditionType", gate.conditionType, found)
    if spec.schedulingGates:
        yield from _scheduling_gates(spec)
    if spec.topologySpreadConstraints:
        errors = validate_spread(spec.topologySpreadConstraints)
        yield from within("topologySpreadConstraints", errors)
    if spec.tolerations:
        yield from each("tolerations", spec.tolerations, validate_toleration)
    if spec.overhead:
        yield from within("overhead", validate_overhead(spec.overhead))
    group = spec.schedulingGroup
    if group is not None:
        if group.podGroupName is None:
            why = "must specify one of: `podGroupName`"
            yield FieldError.invalid("schedulingGroup.podGroupName", None, why)
        else:
            found = names.dns_subdomain(group.podGroupName)
            path = "schedulingGroup.podGroupName"
            yield from rules.problems(path, group.podGroupName, found)


def _identity(spec: PodSpec) -> Iterator[FieldError]:
    """Yield the errors of the pod's names and references."""
    yield from validate_host_process(spec)
    if spec.hostnameOverride is not None:
        yield from _hostname_override(spec, spec.hostnameOverride)
    for name, rule in _NAMES.items():
        value = getattr(spec, name)
        if value and (found := rule(value)):
            yield from rules.problems(name, value, found)
    if spec.runtimeClassName == "":
        found = names.dns_subdomain("")
        yield from rules.problems("runtimeClassName", "", found)
    if spec.hostAliases:
        yield from each("hostAliases", spec.hostAliases, _host_alias)


_NAMES: Final = {
    "serviceAccountName": names.dns_subdomain,
    "nodeName": names.dns_subdomain,
    "hostname": names.dns_label,
    "subdomain": names.dns_label,
    "priorityClassName": names.dns_subdomain,
    "runtimeClassName": names.dns_subdomain,
}


def _annotations(annotations: Mapping[str, str], spec: PodSpec, path: str) -> Iterator[FieldError]:
    if MIRROR_POD in annotations and not spec.nodeName:
        why = "must set spec.nodeName if mirror pod annotation is set"
        yield FieldError.invalid(f"{path}[{MIRROR_POD}]", annotations[MIRROR_POD], why)
    cost = annotations.get(DELETION_COST)
    if cost is not None and not _is_int32(cost):
        yield FieldError.invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer")
    if any(key.startswith(SIMULATION_PREFIX) for key in annotations):
        # Most servers and nodes never load it.
        from kedge.api.core_v1 import simulation

        names_of_containers = [container.name for _, container in all_containers(spec)]
        yield from simulation.validate_pod(annotations, names_of_containers, path)


def _is_int32(text: str) -> bool:
    return not names.decimal_integer(text) and len(text) < 12 and -_INT32 <= int(text) < _INT32


def _no_tokens(spec: PodSpec) -> Iterator[FieldError]:
    for i, volume in enumerate(spec.volumes):
        for j, part in enumerate(volume.projected.sources if volume.projected is not None else ()):
            if part.serviceAccountToken is not None:
                path = f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken"
                why = "must not be specified when serviceAccountName is not set"
                yield FieldError.forbidden(path, why)


def _resource_claims(spec: PodSpec, metadata: ObjectMeta | None) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, claim in enumerate(spec.resourceClaims):
        if metadata is not None and MIRROR_POD in metadata.annotations:
            yield FieldError.forbidden("", "static pods do not support resource claims")
        else:
            yield from within(f"resourceClaims[{i}]", _resource_claim(claim, seen))


def _resource_claim(claim: PodResourceClaim, seen: set[str]) -> Iterator[FieldError]:
    if not claim.name:
        yield FieldError.required("name")
    elif claim.name in seen:
        yield FieldError.duplicate("name", claim.name)
    else:
        yield from rules.problems("name", claim.name, names.dns_label(claim.name))
        seen.add(claim.name)
    sources = {
        "resourceClaimName": claim.resourceClaimName,
        "resourceClaimTemplateName": claim.resourceClaimTemplateName,
    }
    given = {name: value for name, value in sources.items() if value is not None}
    if len(given) == 2:
        why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        yield FieldError.invalid("", internal_form(claim, "core.PodResourceClaim"), why)
    if not given:
        why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        yield FieldError.invalid("", internal_form(claim, "core.PodResourceClaim"), why)
    for name, value in given.items():
        yield from rules.problems(name, value, names.dns_subdomain(value))


def _host_network_ports(spec: PodSpec, *, of_pod: bool) -> Iterator[FieldError]:
    for i, container in enumerate(spec.containers):
        for j, port in enumerate(container.ports):
            # A template may leave the port out: it is filled in once there is a pod.
            if (of_pod or port.hostPort) and port.hostPort != port.containerPort:
                path = f"containers[{i}].ports[{j}].hostPort"
                why = "must match `containerPort` when `hostNetwork` is true"
                yield FieldError.invalid(path, port.hostPort, why)


def _dns(config: PodDNSConfig | None, policy: str) -> Iterator[FieldError]:
    if config is None:
        yield FieldError.required("", "must provide `dnsConfig` when `dnsPolicy` is None")
        return
    if policy == "None" and not config.nameservers:
        why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield FieldError.required("nameservers", why)
        return
    if len(config.nameservers) > _MOST_NAMESERVERS:
        why = f"must not have more than {_MOST_NAMESERVERS} nameservers"
        yield FieldError.invalid("nameservers", config.nameservers, why)
    for i, address in enumerate(config.nameservers):
        yield from rules.problems(f"nameservers[{i}]", address, names.ip_address(address))
    if len(config.searches) > _MOST_SEARCHES:
        why = f"must not have more than {_MOST_SEARCHES} search paths"
        yield FieldError.invalid("searches", config.searches, why)
    if len(" ".join(config.searches)) > _LONGEST_SEARCHES:
        why = (
            f"must not have more than {_LONGEST_SEARCHES} characters (including spaces) "
            "in the search list"
        )
        yield FieldError.invalid("searches", config.searches, why)
    for i, search in enumerate(config.searches):
        if search != ".":
            domain = search.removesuffix(".")
            found = names.dns_subdomain_with_underscore(domain)
            yield from rules.problems(f"searches[{i}]", domain, found)
    for i, option in enumerate(config.options):
        if not option.name:
            yield FieldError.required(f"options[{i}]", "must not be empty")


def _own_users(spec: PodSpec) -> Iterator[FieldError]:
    """A pod with user ids of its own cannot share other namespaces of the host."""
    why = "when `hostUsers` is false"
    if spec.hostNetwork:
        yield FieldError.forbidden("hostNetwork", why)
    if spec.hostPID:
        yield FieldError.forbidden("HostPID", why)
    if spec.hostIPC:
        yield FieldError.forbidden("HostIPC", why)
    for path, container in all_containers(spec):
        if container.volumeDevices:
            yield FieldError.forbidden(f"{path}.volumeDevices", why)


def _scheduling_gates(spec: PodSpec) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, gate in enumerate(spec.schedulingGates):
        path = f"schedulingGates[{i}]"
        yield from rules.problems(path, gate.name, names.qualified_name(gate.name))
        if gate.name in seen:
            yield FieldError.duplicate(path, gate.name)
        seen.add(gate.name)


def _hostname_override(spec: PodSpec, hostname: str) -> Iterator[FieldError]:
    if spec.setHostnameAsFQDN:
        why = "may not be specified when setHostnameAsFQDN is true"
        yield FieldError.forbidden("hostnameOverride", why)
    if spec.hostNetwork:
        why = "may not be specified when hostNetwork is true"
        yield FieldError.forbidden("hostnameOverride", why)
    if len(hostname) > _LONGEST_HOSTNAME:
        yield FieldError.too_long("hostnameOverride", _LONGEST_HOSTNAME)
    yield from rules.problems("hostnameOverride", hostname, names.dns_subdomain(hostname))


def _host_alias(alias: HostAlias) -> Iterator[FieldError]:
    yield from rules.problems("ip", alias.ip, names.ip_address(alias.ip))
    for i, hostname in enumerate(alias.hostnames):
        yield from rules.problems(f"hostnames[{i}]", hostname, names.dns_subdomain(hostname))


def _file_variables(spec: PodSpec) -> Iterator[FieldError]:
    """Variables can only be read from the files of an empty directory."""
    for path, container in all_containers(spec):
        for i, variable in enumerate(container.env):
            if variable.valueFrom is None or variable.valueFrom.fileKeyRef is None:
                continue
            name = variable.valueFrom.fileKeyRef.volumeName
            at = f"{path}.env[{i}].valueFrom.fileKeyRef.volumeName"
            named = [volume for volume in spec.volumes if volume.name == name]
            if not named:
                yield FieldError.not_found(at, name)
            elif named[-1].emptyDir is None:
                why = "referenced volume must be of type emptyDir"
                yield FieldError.invalid(at, name, why)
