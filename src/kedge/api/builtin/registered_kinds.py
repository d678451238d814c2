"""Kinds that kube-apiserver can decode, in every version: also in those it does not serve.

Errors about a body of another kind tell such kinds from unknown ones.
"""

from functools import cache
from typing import Final

_MAIN: Final = {
    "admissionregistration.k8s.io/v1": (
        "ValidatingWebhookConfiguration MutatingWebhookConfiguration "
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy "
        "MutatingAdmissionPolicyBinding"
    ),
    "admissionregistration.k8s.io/v1alpha1": (
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy "
        "MutatingAdmissionPolicyBinding"
    ),
    "admissionregistration.k8s.io/v1beta1": (
        "ValidatingWebhookConfiguration MutatingWebhookConfiguration "
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy "
        "MutatingAdmissionPolicyBinding"
    ),
    "internal.apiserver.k8s.io/v1alpha1": "StorageVersion",
    "apps/v1": "Deployment StatefulSet DaemonSet ReplicaSet ControllerRevision",
    "apps/v1beta1": "Deployment DeploymentRollback! Scale! StatefulSet ControllerRevision",
    "apps/v1beta2": "Deployment Scale! StatefulSet DaemonSet ReplicaSet ControllerRevision",
    "authentication.k8s.io/v1": "TokenReview! TokenRequest! SelfSubjectReview!",
    "authentication.k8s.io/v1alpha1": "SelfSubjectReview!",
    "authentication.k8s.io/v1beta1": "SelfSubjectReview! TokenReview!",
    "authorization.k8s.io/v1": (
        "SelfSubjectRulesReview! SelfSubjectAccessReview! SubjectAccessReview! "
        "LocalSubjectAccessReview!"
    ),
    "authorization.k8s.io/v1beta1": (
        "SelfSubjectRulesReview! SelfSubjectAccessReview! SubjectAccessReview! "
        "LocalSubjectAccessReview!"
    ),
    "autoscaling/v1": "HorizontalPodAutoscaler Scale!",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "batch/v1": "Job CronJob",
    "batch/v1beta1": "CronJob",
    "certificates.k8s.io/v1": "CertificateSigningRequest",
    "certificates.k8s.io/v1alpha1": "ClusterTrustBundle",
    "certificates.k8s.io/v1beta1": (
        "CertificateSigningRequest ClusterTrustBundle PodCertificateRequest"
    ),
    "coordination.k8s.io/v1": "Lease",
    "coordination.k8s.io/v1alpha2": "LeaseCandidate",
    "coordination.k8s.io/v1beta1": "Lease LeaseCandidate",
    "v1": (
        "Pod PodStatusResult! PodTemplate ReplicationController Service "
        "ServiceProxyOptions! Endpoints Node NodeProxyOptions! Binding! Event List! "
        "LimitRange ResourceQuota Namespace Secret ServiceAccount PersistentVolume "
        "PersistentVolumeClaim PodAttachOptions! PodLogOptions! PodExecOptions! "
        "PodPortForwardOptions! PodProxyOptions! ComponentStatus SerializedReference! "
        "RangeAllocation! ConfigMap"
    ),
    "discovery.k8s.io/v1": "EndpointSlice",
    "discovery.k8s.io/v1beta1": "EndpointSlice",
    "events.k8s.io/v1": "Event",
    "events.k8s.io/v1beta1": "Event",
    "extensions/v1beta1": (
        "Deployment DeploymentRollback! Scale! DaemonSet Ingress ReplicaSet NetworkPolicy"
    ),
    "flowcontrol.apiserver.k8s.io/v1": "FlowSchema PriorityLevelConfiguration",
    "flowcontrol.apiserver.k8s.io/v1beta1": "FlowSchema PriorityLevelConfiguration",
    "flowcontrol.apiserver.k8s.io/v1beta2": "FlowSchema PriorityLevelConfiguration",
    "flowcontrol.apiserver.k8s.io/v1beta3": "FlowSchema PriorityLevelConfiguration",
    "networking.k8s.io/v1": "Ingress IngressClass NetworkPolicy IPAddress ServiceCIDR",
    "networking.k8s.io/v1beta1": "Ingress IngressClass IPAddress ServiceCIDR",
    "node.k8s.io/v1": "RuntimeClass",
    "node.k8s.io/v1alpha1": "RuntimeClass",
    "node.k8s.io/v1beta1": "RuntimeClass",
    "policy/v1": "PodDisruptionBudget Eviction!",
    "policy/v1beta1": "PodDisruptionBudget Eviction!",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "rbac.authorization.k8s.io/v1alpha1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "rbac.authorization.k8s.io/v1beta1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "resource.k8s.io/v1": "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
    "resource.k8s.io/v1alpha3": "DeviceTaintRule ResourcePoolStatusRequest",
    "resource.k8s.io/v1beta1": "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
    "resource.k8s.io/v1beta2": (
        "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice"
    ),
    "scheduling.k8s.io/v1": "PriorityClass",
    "scheduling.k8s.io/v1alpha2": "Workload PodGroup",
    "scheduling.k8s.io/v1beta1": "PriorityClass",
    "storage.k8s.io/v1": (
        "StorageClass VolumeAttachment CSINode CSIDriver CSIStorageCapacity VolumeAttributesClass"
    ),
    "storage.k8s.io/v1alpha1": "VolumeAttachment CSIStorageCapacity VolumeAttributesClass",
    "storage.k8s.io/v1beta1": (
        "StorageClass VolumeAttachment CSIDriver CSINode CSIStorageCapacity VolumeAttributesClass"
    ),
    "storagemigration.k8s.io/v1beta1": "StorageVersionMigration",
}
"""The kinds of each version. An exclamation mark ends the name of a kind that has no list."""
_AGGREGATOR: Final = {
    "apiregistration.k8s.io/v1": "APIService",
    "apiregistration.k8s.io/v1beta1": "APIService",
}
_EXTENSIONS: Final = {
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "apiextensions.k8s.io/v1beta1": "CustomResourceDefinition ConversionReview!",
}
_SCHEMES: Final = {
    "apiregistration.k8s.io": ("pkg/apiserver/scheme/scheme.go:28", _AGGREGATOR),
    "apiextensions.k8s.io": ("pkg/apiserver/apiserver.go:55", _EXTENSIONS),
}
_MAIN_SCHEME: Final = ("pkg/api/legacyscheme/scheme.go:30", _MAIN)
_EVERYWHERE: Final = frozenset(
    (
        "CreateOptions",
        "DeleteOptions",
        "GetOptions",
        "ListOptions",
        "PatchOptions",
        "UpdateOptions",
        "WatchEvent",
        "Status",
        "APIVersions",
        "APIGroup",
        "APIGroupList",
        "APIResourceList",
    )
)
"""Kinds that every version has."""
_PACKAGES: Final = {"": "core", "events": "core", "internal": "apiserverinternal"}


def scheme(group: str) -> str:
    """Return the name of the scheme that decodes bodies for kinds of a group."""
    return _SCHEMES.get(group, _MAIN_SCHEME)[0]


def is_registered(group: str, api_version: str, kind: str) -> bool:
    """Whether the scheme of a group knows a kind."""
    versions = _SCHEMES.get(group, _MAIN_SCHEME)[1]
    if api_version not in versions and api_version != "v1":
        return False
    return kind in _EVERYWHERE or kind in _kinds(versions.get(api_version, ""))


@cache
def _kinds(names: str) -> frozenset[str]:
    kinds = names.split()
    lists = {f"{name}List" for name in kinds if not name.endswith("!")}
    return frozenset({name.removesuffix("!") for name in kinds} | lists)


def internal_type(group: str, kind: str) -> str:
    """Return the Go name of the type that all versions of a kind are converted to."""
    first = group.partition(".")[0]
    return f"{_PACKAGES.get(first, first)}.{kind}"


def go_type(api_version: str, kind: str) -> str:
    """Return the Go name of the type of a kind in a version."""
    version = "v1" if kind in _EVERYWHERE else api_version.rpartition("/")[2]
    return f"{version}.{kind}"
