"""How often Kubernetes checks the metadata of an update, by kind.

Its generic code checks the object (M) and the change (U). Then the code of the kind checks one or
both again, in an order of its own. Each check adds its errors to the causes of the answer.
"""

from typing import Final, NamedTuple

_MAIN: Final = {
    "UM": """ConfigMap Endpoints PersistentVolumeClaim Pod Secret ServiceAccount
        APIService.apiregistration.k8s.io ControllerRevision.apps Ingress.networking.k8s.io
        IngressClass.networking.k8s.io VolumeAttributesClass.storage.k8s.io""",
    "MU": """Namespace Node Job.batch IPAddress.networking.k8s.io RuntimeClass.node.k8s.io
        ClusterRole.rbac.authorization.k8s.io ClusterRoleBinding.rbac.authorization.k8s.io
        Role.rbac.authorization.k8s.io RoleBinding.rbac.authorization.k8s.io
        DeviceClass.resource.k8s.io ResourceClaim.resource.k8s.io
        ResourceClaimTemplate.resource.k8s.io CSIStorageCapacity.storage.k8s.io
        StorageClass.storage.k8s.io""",
    "M": """LimitRange MutatingAdmissionPolicy.admissionregistration.k8s.io
        MutatingAdmissionPolicyBinding.admissionregistration.k8s.io
        MutatingWebhookConfiguration.admissionregistration.k8s.io
        ValidatingAdmissionPolicy.admissionregistration.k8s.io
        ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io
        ValidatingWebhookConfiguration.admissionregistration.k8s.io
        EndpointSlice.discovery.k8s.io FlowSchema.flowcontrol.apiserver.k8s.io
        PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io CSINode.storage.k8s.io
        VolumeAttachment.storage.k8s.io""",
    "MM": "PersistentVolume",
    "": "Event PodDisruptionBudget.policy",
}
"""Checks by the code of the kind; those of kinds that are not listed: U."""

_UNCHECKED_STATUS: Final = frozenset(
    [
        "CronJob.batch",
        "PodDisruptionBudget.policy",
        "VolumeAttachment.storage.k8s.io",
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io",
    ]
)
"""Kinds whose code does not check the metadata of a write to the status."""

_ANY_FINALIZER: Final = frozenset(
    [
        "Event",
        "PodDisruptionBudget.policy",
        "Lease.coordination.k8s.io",
        "RuntimeClass.node.k8s.io",
        "APIService.apiregistration.k8s.io",
        "CustomResourceDefinition.apiextensions.k8s.io",
        "MutatingAdmissionPolicy.admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io",
        "MutatingWebhookConfiguration.admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration.admissionregistration.k8s.io",
    ]
)
"""Built-in kinds with finalizers that need neither be standard nor have a domain."""

_BY_KIND: Final = {kind: checks for checks, kinds in _MAIN.items() for kind in kinds.split()}


class MetadataChecks(NamedTuple):
    """The checks by the code of one kind, beyond the generic ones."""

    main: str
    """M checks the object, U the change; in that order."""
    status: str
    """The same for a write to the status."""
    any_finalizer: bool
    """Whether finalizers may be any qualified names."""


def checks_of(group: str, kind: str, *, custom: bool = False) -> MetadataChecks:
    """Return the checks of a kind."""
    if custom:
        return MetadataChecks("U", "U", True)
    name = f"{kind}.{group}" if group else kind
    status = "" if name in _UNCHECKED_STATUS else "U"
    return MetadataChecks(_BY_KIND.get(name, "U"), status, name in _ANY_FINALIZER)
