"""The explicit list of built-in kinds that are served from the table of published types."""

from collections.abc import Callable, Mapping
from typing import Any

from kedge.api.builtin import columns, defaults, schemas, signing_requests, validation, webhooks
from kedge.api.builtin.content import text
from kedge.api.model import Document
from kedge.api.resource import STATUS, Resource, Subresource, keep_metadata
from kedge.machinery import names

ADMISSION = "admissionregistration.k8s.io"
AGGREGATION = "apiregistration.k8s.io"
AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"
CERTIFICATES = "certificates.k8s.io"
FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"
NETWORKING = "networking.k8s.io"
NODE = "node.k8s.io"
DEVICES = "resource.k8s.io"
STORAGE = "storage.k8s.io"

_CREATE = ("create",)


def _kind(group: str, kind: str, plural: str, **facts: Any) -> Resource[Document]:
    """A kind whose fields the table knows."""
    package = group.partition(".")[0] or "core"
    name = schemas.full_name(f"{package}.v1.{kind}")
    return Resource(
        type=Document,
        group=group,
        kind=kind,
        plural=plural,
        schema_source=lambda: schemas.schema(name),
        **facts,
    )


def _extension(kind: str, plural: str, **facts: Any) -> Resource[Document]:
    """A kind by which others take part in admission."""
    return _kind(
        ADMISSION,
        kind,
        plural,
        namespaced=False,
        categories=("api-extensions",),
        unconditional_update=False,
        **facts,
    )


def _fields(*paths: str) -> Mapping[str, Callable[[Document], str]]:
    """Field selectors that compare the text at these paths."""
    return {path: lambda obj, path=path: text(obj.content, path) for path in paths}  # type: ignore[misc]


RESOURCES: tuple[Resource[Document], ...] = (
    _kind("", "Binding", "bindings", verbs=_CREATE, counts_generation=False),
    _kind(
        "",
        "ComponentStatus",
        "componentstatuses",
        deprecation="v1 ComponentStatus is deprecated in v1.19+",
        namespaced=False,
        verbs=("get", "list"),
        short_names=("cs",),
        counts_generation=False,
        columns=columns.COMPONENT_STATUS,
    ),
    _kind(
        "",
        "PersistentVolume",
        "persistentvolumes",
        namespaced=False,
        short_names=("pv",),
        subresources=(STATUS,),
        counts_generation=False,
        default=defaults.persistent_volume,
        begin=defaults.pending_volume,
        validate=validation.persistent_volume,
        validate_update=validation.persistent_volume_update,
        columns=columns.PERSISTENT_VOLUME,
    ),
    _kind("", "PodTemplate", "podtemplates", columns=columns.POD_TEMPLATE),
    _extension(
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        default=defaults.admission_policy,
        columns=columns.MUTATING_POLICY,
    ),
    _extension(
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        default=defaults.admission_policy_binding,
        columns=columns.POLICY_BINDING,
    ),
    _extension(
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        default=defaults.mutating_webhooks,
        validate=webhooks.validate,
        columns=columns.WEBHOOKS,
    ),
    _extension(
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        subresources=(STATUS,),
        default=defaults.admission_policy,
        columns=columns.VALIDATING_POLICY,
    ),
    _extension(
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        default=defaults.admission_policy_binding,
        columns=columns.POLICY_BINDING,
    ),
    _extension(
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        default=defaults.validating_webhooks,
        validate=webhooks.validate,
        columns=columns.WEBHOOKS,
    ),
    _kind(
        AGGREGATION,
        "APIService",
        "apiservices",
        namespaced=False,
        categories=("api-extensions",),
        subresources=(STATUS,),
        carry_status=keep_metadata,
        registry="apiregistration.k8s.io/apiservices",
        unconditional_update=False,
        counts_generation=False,
        check_name=names.path_segment,
        default=defaults.api_service,
        validate=validation.api_service,
        columns=columns.API_SERVICE,
    ),
    _kind(
        CERTIFICATES,
        "CertificateSigningRequest",
        "certificatesigningrequests",
        namespaced=False,
        short_names=("csr",),
        subresources=(Subresource("approval"), STATUS),
        fields=_fields("spec.signerName"),
        counts_generation=False,
        check_name=names.path_segment,
        carry=defaults.kept_signing_request,
        carry_status=signing_requests.kept_status,
        validate=validation.signing_request,
        validate_status=signing_requests.status_errors,
        columns=columns.CERTIFICATE_SIGNING_REQUEST,
    ),
    _kind(
        FLOW_CONTROL,
        "FlowSchema",
        "flowschemas",
        namespaced=False,
        subresources=(STATUS,),
        carry_status=keep_metadata,
        default=defaults.flow_schema,
        columns=columns.FLOW_SCHEMA,
    ),
    _kind(
        FLOW_CONTROL,
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        namespaced=False,
        subresources=(STATUS,),
        carry_status=keep_metadata,
        default=defaults.priority_level,
        columns=columns.PRIORITY_LEVEL,
    ),
    _kind(
        NETWORKING,
        "IngressClass",
        "ingressclasses",
        namespaced=False,
        default=defaults.ingress_class,
        validate=validation.ingress_class,
        validate_update=validation.ingress_class_update,
        columns=columns.INGRESS_CLASS,
    ),
    _kind(
        NETWORKING,
        "Ingress",
        "ingresses",
        short_names=("ing",),
        subresources=(STATUS,),
        registry="ingress",
        validate=validation.ingress,
        columns=columns.INGRESS,
    ),
    _kind(
        NETWORKING,
        "IPAddress",
        "ipaddresses",
        namespaced=False,
        short_names=("ip",),
        counts_generation=False,
        check_name=names.canonical_ip_address,
        columns=columns.IP_ADDRESS,
    ),
    _kind(
        NETWORKING,
        "NetworkPolicy",
        "networkpolicies",
        short_names=("netpol",),
        default=defaults.network_policy,
        validate=validation.network_policy,
        columns=columns.NETWORK_POLICY,
    ),
    _kind(
        NETWORKING,
        "ServiceCIDR",
        "servicecidrs",
        namespaced=False,
        subresources=(STATUS,),
        counts_generation=False,
        validate=validation.service_cidr,
        columns=columns.SERVICE_CIDR,
    ),
    _kind(
        NODE,
        "RuntimeClass",
        "runtimeclasses",
        namespaced=False,
        unconditional_update=False,
        create_on_update=True,
        counts_generation=False,
        validate=validation.runtime_class,
        validate_update=validation.runtime_class_update,
        columns=columns.RUNTIME_CLASS,
    ),
    _kind(DEVICES, "DeviceClass", "deviceclasses", namespaced=False, columns=columns.NAME_AND_AGE),
    _kind(
        DEVICES,
        "ResourceClaim",
        "resourceclaims",
        subresources=(STATUS,),
        counts_generation=False,
        default=defaults.resource_claim,
        columns=columns.RESOURCE_CLAIM,
    ),
    _kind(
        DEVICES,
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        counts_generation=False,
        default=defaults.resource_claim_template,
        columns=columns.NAME_AND_AGE,
    ),
    _kind(
        DEVICES,
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        fields=_fields("spec.nodeName", "spec.driver"),
        columns=columns.RESOURCE_SLICE,
    ),
    _kind(
        STORAGE,
        "CSIDriver",
        "csidrivers",
        namespaced=False,
        unconditional_update=False,
        counts_generation=False,
        default=defaults.csi_driver,
        columns=columns.CSI_DRIVER,
    ),
    _kind(
        STORAGE,
        "CSINode",
        "csinodes",
        namespaced=False,
        unconditional_update=False,
        counts_generation=False,
        columns=columns.CSI_NODE,
    ),
    _kind(
        STORAGE,
        "CSIStorageCapacity",
        "csistoragecapacities",
        unconditional_update=False,
        counts_generation=False,
        columns=columns.CSI_STORAGE_CAPACITY,
    ),
    _kind(
        STORAGE,
        "StorageClass",
        "storageclasses",
        namespaced=False,
        short_names=("sc",),
        counts_generation=False,
        default=defaults.storage_class,
        validate=validation.storage_class,
        validate_update=validation.storage_class_update,
        columns=columns.STORAGE_CLASS,
    ),
    _kind(
        STORAGE,
        "VolumeAttachment",
        "volumeattachments",
        namespaced=False,
        subresources=(STATUS,),
        unconditional_update=False,
        counts_generation=False,
        columns=columns.VOLUME_ATTACHMENT,
    ),
    _kind(
        STORAGE,
        "VolumeAttributesClass",
        "volumeattributesclasses",
        namespaced=False,
        short_names=("vac",),
        counts_generation=False,
        validate=validation.volume_attributes_class,
        validate_update=validation.volume_attributes_class_update,
        columns=columns.VOLUME_ATTRIBUTES_CLASS,
    ),
)


def _review(group: str, kind: str, *, namespaced: bool = False) -> Resource[Document]:
    return _kind(
        group,
        kind,
        f"{kind.lower()}s",
        namespaced=namespaced,
        verbs=_CREATE,
        counts_generation=False,
    )


REVIEWS: tuple[Resource[Document], ...] = (
    _review(AUTHENTICATION, "SelfSubjectReview"),
    _review(AUTHENTICATION, "TokenReview"),
    _review(AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True),
    _review(AUTHORIZATION, "SelfSubjectAccessReview"),
    _review(AUTHORIZATION, "SelfSubjectRulesReview"),
    _review(AUTHORIZATION, "SubjectAccessReview"),
)
"""Questions put to the server: answered, never stored."""
