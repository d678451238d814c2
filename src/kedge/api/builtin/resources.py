"""The explicit list of built-in kinds that are served from the table of published types."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from kedge.api.builtin import (
    admission_policy_validation,
    columns,
    defaults,
    flow_control_validation,
    persistent_volumes,
    schemas,
    service_network_validation,
    signing_requests,
    storage_validation,
    validation,
    warnings,
    webhooks,
    zero_values,
)
from kedge.api.builtin.content import replaced, text
from kedge.api.model import Document
from kedge.api.presentation import Column, Presentation
from kedge.api.resource import STATUS, Resource, Subresource
from kedge.api.strategy import Strategy, keep_metadata
from kedge.machinery import names

ADMISSION = "admissionregistration.k8s.io"
AGGREGATION = "apiregistration.k8s.io"
AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"
CERTIFICATES = "certificates.k8s.io"
FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"
NETWORKING = "networking.k8s.io"
NODE = "node.k8s.io"
STORAGE = "storage.k8s.io"

_CREATE = ("create",)


def _kind(
    group: str,
    kind: str,
    plural: str,
    *,
    subresources: Sequence[Subresource] = (),
    strategy: Strategy[Document] | None = None,
    **facts: Any,
) -> Resource[Document]:
    """A kind whose fields the table knows."""
    package = group.partition(".")[0] or "core"
    name = schemas.full_name(f"{package}.v1.{kind}")
    strategy = strategy or Strategy()
    complete = strategy.default
    if STATUS in subresources:
        complete = defaults.with_status(kind, complete)
    complete, check = _written(complete, name), strategy.validate_update
    strategy = replace(
        strategy,
        default=complete,
        # An older release may have stored the old object without these defaults.
        validate_update=lambda new, old: check(new, complete(old)),
    )
    return Resource(
        type=Document,
        group=group,
        kind=kind,
        plural=plural,
        schema_source=lambda: schemas.schema(name),
        subresources=subresources,
        strategy=strategy,
        **facts,
    )


def _written(default: Callable[[Document], Document], name: str) -> Callable[[Document], Document]:
    """Return the defaults of a kind, with the zero values that Kubernetes writes."""

    def complete(obj: Document) -> Document:
        filled = default(obj)
        return replaced(filled, zero_values.written(filled.content, schemas.schema(name)))

    return complete


def _extension(
    kind: str, plural: str, columns: Sequence[Column], *, status: bool = False, **rules: Any
) -> Resource[Document]:
    """A kind by which others take part in admission."""
    return _kind(
        ADMISSION,
        kind,
        plural,
        namespaced=False,
        subresources=(STATUS,) if status else (),
        strategy=Strategy(
            allows_unconditional_update=False,
            warnings=admission_policy_validation.static_name,
            **rules,
        ),
        presentation=Presentation(categories=("api-extensions",), columns=columns),
    )


def _fields(*paths: str) -> Mapping[str, Callable[[Document], str]]:
    """Field selectors that compare the text at these paths."""
    return {path: lambda obj, path=path: text(obj.content, path) for path in paths}  # type: ignore[misc]


RESOURCES: tuple[Resource[Document], ...] = (
    _kind("", "Binding", "bindings", verbs=_CREATE, strategy=Strategy(counts_generation=False)),
    _kind(
        "",
        "ComponentStatus",
        "componentstatuses",
        namespaced=False,
        verbs=("get", "list"),
        strategy=Strategy(counts_generation=False),
        presentation=Presentation(
            deprecation="v1 ComponentStatus is deprecated in v1.19+",
            short_names=("cs",),
            columns=columns.COMPONENT_STATUS,
        ),
    ),
    _kind(
        "",
        "PersistentVolume",
        "persistentvolumes",
        namespaced=False,
        subresources=(STATUS,),
        strategy=Strategy(
            returns_deleted_object=True,
            counts_generation=False,
            default=defaults.persistent_volume,
            prepare_for_create=defaults.pending_volume,
            validate=persistent_volumes.validate,
            validate_update=persistent_volumes.validate_update,
            warnings=warnings.persistent_volume,
        ),
        presentation=Presentation(short_names=("pv",), columns=columns.PERSISTENT_VOLUME),
    ),
    _extension(
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        columns.MUTATING_POLICY,
        default=defaults.admission_policy,
        validate=admission_policy_validation.mutating_policy,
    ),
    _extension(
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        columns.POLICY_BINDING,
        default=defaults.admission_policy_binding,
        validate=admission_policy_validation.mutating_binding,
    ),
    _extension(
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        columns.WEBHOOKS,
        default=defaults.mutating_webhooks,
        validate_new=webhooks.validate,
        validate_update=webhooks.validate_update,
    ),
    _extension(
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        columns.VALIDATING_POLICY,
        status=True,
        default=defaults.admission_policy,
        validate=admission_policy_validation.validating_policy,
        prepare_for_status_update=keep_metadata,
        validate_status=admission_policy_validation.validating_policy_status,
    ),
    _extension(
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        columns.POLICY_BINDING,
        default=defaults.admission_policy_binding,
        validate=admission_policy_validation.validating_binding,
    ),
    _extension(
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        columns.WEBHOOKS,
        default=defaults.validating_webhooks,
        validate_new=webhooks.validate,
        validate_update=webhooks.validate_update,
    ),
    _kind(
        AGGREGATION,
        "APIService",
        "apiservices",
        namespaced=False,
        subresources=(STATUS,),
        registry="apiregistration.k8s.io/apiservices",
        strategy=Strategy(
            allows_unconditional_update=False,
            counts_generation=False,
            check_name=names.path_segment,
            prepare_for_status_update=keep_metadata,
            default=defaults.api_service,
            validate=validation.api_service,
        ),
        presentation=Presentation(categories=("api-extensions",), columns=columns.API_SERVICE),
    ),
    _kind(
        CERTIFICATES,
        "CertificateSigningRequest",
        "certificatesigningrequests",
        namespaced=False,
        subresources=(Subresource("approval"), STATUS),
        strategy=Strategy(
            counts_generation=False,
            check_name=names.path_segment,
            prepare_for_update=defaults.kept_signing_request,
            prepare_for_status_update=signing_requests.kept_status,
            validate=validation.signing_request,
            validate_status=signing_requests.status_errors,
        ),
        presentation=Presentation(
            short_names=("csr",),
            fields=_fields("spec.signerName"),
            columns=columns.CERTIFICATE_SIGNING_REQUEST,
        ),
    ),
    _kind(
        FLOW_CONTROL,
        "FlowSchema",
        "flowschemas",
        namespaced=False,
        subresources=(STATUS,),
        strategy=Strategy(
            prepare_for_status_update=keep_metadata,
            default=defaults.flow_schema,
            validate=flow_control_validation.flow_schema,
            validate_status=flow_control_validation.conditions,
        ),
        presentation=Presentation(columns=columns.FLOW_SCHEMA),
    ),
    _kind(
        FLOW_CONTROL,
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        namespaced=False,
        subresources=(STATUS,),
        strategy=Strategy(
            prepare_for_status_update=keep_metadata,
            default=defaults.priority_level,
            validate=flow_control_validation.priority_level,
            validate_status=flow_control_validation.conditions,
        ),
        presentation=Presentation(columns=columns.PRIORITY_LEVEL),
    ),
    _kind(
        NETWORKING,
        "IngressClass",
        "ingressclasses",
        namespaced=False,
        strategy=Strategy(
            default=defaults.ingress_class,
            validate=validation.ingress_class,
            validate_update=validation.ingress_class_update,
        ),
        presentation=Presentation(columns=columns.INGRESS_CLASS),
    ),
    _kind(
        NETWORKING,
        "Ingress",
        "ingresses",
        subresources=(STATUS,),
        registry="ingress",
        strategy=Strategy(validate=validation.ingress, validate_new=validation.new_ingress),
        presentation=Presentation(short_names=("ing",), columns=columns.INGRESS),
    ),
    _kind(
        NETWORKING,
        "IPAddress",
        "ipaddresses",
        namespaced=False,
        strategy=Strategy(
            counts_generation=False,
            check_name=names.canonical_ip_address,
            validate=service_network_validation.ip_address,
            validate_update=service_network_validation.ip_address_update,
        ),
        presentation=Presentation(short_names=("ip",), columns=columns.IP_ADDRESS),
    ),
    _kind(
        NETWORKING,
        "NetworkPolicy",
        "networkpolicies",
        strategy=Strategy(
            default=defaults.network_policy,
            validate=validation.network_policy,
            warnings=validation.network_policy_warnings,
        ),
        presentation=Presentation(short_names=("netpol",), columns=columns.NETWORK_POLICY),
    ),
    _kind(
        NETWORKING,
        "ServiceCIDR",
        "servicecidrs",
        namespaced=False,
        subresources=(STATUS,),
        strategy=Strategy(
            counts_generation=False,
            validate_new=service_network_validation.service_cidr,
            validate_update=service_network_validation.service_cidr_update,
            prepare_for_status_update=keep_metadata,
        ),
        presentation=Presentation(columns=columns.SERVICE_CIDR),
    ),
    _kind(
        NODE,
        "RuntimeClass",
        "runtimeclasses",
        namespaced=False,
        strategy=Strategy(
            allows_unconditional_update=False,
            allows_create_on_update=True,
            counts_generation=False,
            default=defaults.runtime_class,
            validate=validation.runtime_class,
            warnings=warnings.runtime_class,
            validate_update=validation.runtime_class_update,
        ),
        presentation=Presentation(columns=columns.RUNTIME_CLASS),
    ),
    _kind(
        STORAGE,
        "CSIDriver",
        "csidrivers",
        namespaced=False,
        strategy=Strategy(
            returns_deleted_object=True,
            allows_unconditional_update=False,
            first_generation=0,
            default=defaults.csi_driver,
            validate=storage_validation.csi_driver,
            validate_update=storage_validation.csi_driver_update,
            warnings=warnings.csi_driver,
        ),
        presentation=Presentation(columns=columns.CSI_DRIVER),
    ),
    _kind(
        STORAGE,
        "CSINode",
        "csinodes",
        namespaced=False,
        strategy=Strategy(
            returns_deleted_object=True,
            allows_unconditional_update=False,
            counts_generation=False,
            validate=storage_validation.csi_node,
            validate_update=storage_validation.csi_node_update,
        ),
        presentation=Presentation(columns=columns.CSI_NODE),
    ),
    _kind(
        STORAGE,
        "CSIStorageCapacity",
        "csistoragecapacities",
        strategy=Strategy(
            allows_unconditional_update=False,
            counts_generation=False,
            validate=storage_validation.csi_storage_capacity,
            validate_update=storage_validation.csi_storage_capacity_update,
            warnings=warnings.csi_storage_capacity,
        ),
        presentation=Presentation(columns=columns.CSI_STORAGE_CAPACITY),
    ),
    _kind(
        STORAGE,
        "StorageClass",
        "storageclasses",
        namespaced=False,
        strategy=Strategy(
            returns_deleted_object=True,
            counts_generation=False,
            default=defaults.storage_class,
            validate=storage_validation.storage_class,
            validate_update=storage_validation.storage_class_update,
            warnings=warnings.storage_class,
        ),
        presentation=Presentation(short_names=("sc",), columns=columns.STORAGE_CLASS),
    ),
    _kind(
        STORAGE,
        "VolumeAttachment",
        "volumeattachments",
        namespaced=False,
        subresources=(STATUS,),
        strategy=Strategy(
            returns_deleted_object=True,
            allows_unconditional_update=False,
            counts_generation=False,
            default=defaults.volume_attachment,
            validate=storage_validation.volume_attachment,
            validate_update=storage_validation.volume_attachment_update,
            prepare_for_status_update=keep_metadata,
            validate_status=storage_validation.volume_attachment_status,
        ),
        presentation=Presentation(columns=columns.VOLUME_ATTACHMENT),
    ),
    _kind(
        STORAGE,
        "VolumeAttributesClass",
        "volumeattributesclasses",
        namespaced=False,
        strategy=Strategy(
            returns_deleted_object=True,
            counts_generation=False,
            validate=storage_validation.volume_attributes_class,
            validate_update=storage_validation.volume_attributes_class_update,
        ),
        presentation=Presentation(short_names=("vac",), columns=columns.VOLUME_ATTRIBUTES_CLASS),
    ),
)


def _review(group: str, kind: str, *, namespaced: bool = False) -> Resource[Document]:
    return _kind(
        group,
        kind,
        f"{kind.lower()}s",
        namespaced=namespaced,
        verbs=_CREATE,
        strategy=Strategy(counts_generation=False),
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


def built_in(group: str, plural: str) -> Resource[Document]:
    """Return the resource of a kind that is served from the table."""
    return next(each for each in RESOURCES if (each.group, each.plural) == (group, plural))
