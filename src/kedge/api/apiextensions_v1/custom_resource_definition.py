"""CustomResourceDefinition: a kind that users add to the API."""

from collections.abc import Iterable

import msgspec

from kedge.api.apiextensions_v1 import formats
from kedge.api.apiextensions_v1.definition import (
    CustomResourceConversion,
    CustomResourceDefinition,
    CustomResourceDefinitionVersion,
    CustomResourceValidation,
    schema_of_version,
    storage_version,
)
from kedge.api.apiextensions_v1.definition_rules import validate, validate_status, validate_update
from kedge.api.apiextensions_v1.json_schema import every, normal
from kedge.api.presentation import Presentation
from kedge.api.resource import STATUS, Resource
from kedge.api.strategy import Strategy, keep_metadata

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a definition until its objects are gone."""


def default(crd: CustomResourceDefinition) -> CustomResourceDefinition:
    spec = crd.spec
    names = msgspec.structs.replace(
        spec.names,
        singular=spec.names.singular or spec.names.kind.lower(),
        listKind=spec.names.listKind or (f"{spec.names.kind}List" if spec.names.kind else ""),
    )
    spec = msgspec.structs.replace(
        spec,
        names=names,
        conversion=_default_conversion(spec.conversion),
        versions=[_normal_version(version) for version in spec.versions],
    )
    crd = msgspec.structs.replace(crd, spec=spec)
    return crd if crd.status.storedVersions else remember_storage_version(crd)


def _default_conversion(given: CustomResourceConversion | None) -> CustomResourceConversion:
    if given is None:
        return CustomResourceConversion(strategy="None")
    webhook = given.webhook
    client = webhook.clientConfig if webhook is not None else None
    if webhook is None or client is None or client.service is None or client.service.port:
        return given
    service = msgspec.structs.replace(client.service, port=443)
    client = msgspec.structs.replace(client, service=service)
    webhook = msgspec.structs.replace(webhook, clientConfig=client)
    return msgspec.structs.replace(given, webhook=webhook)


def _normal_version(version: CustomResourceDefinitionVersion) -> CustomResourceDefinitionVersion:
    schema = schema_of_version(version)
    if schema is None:
        return version
    try:
        validation = CustomResourceValidation(openAPIV3Schema=normal(schema))
    except msgspec.ValidationError:
        return version  # left for `validate` to refuse
    return msgspec.structs.replace(version, schema=validation)


def remember_storage_version(crd: CustomResourceDefinition) -> CustomResourceDefinition:
    """The definition with its storage version among those that objects may be stored in."""
    name = storage_version(crd)
    if not name or name in crd.status.storedVersions:
        return crd
    stored = (*crd.status.storedVersions, name)
    status = msgspec.structs.replace(crd.status, storedVersions=stored)
    return msgspec.structs.replace(crd, status=status)


def prepare_for_update(
    new: CustomResourceDefinition, old: CustomResourceDefinition
) -> CustomResourceDefinition:
    return remember_storage_version(new)


def warn(crd: CustomResourceDefinition) -> Iterable[str]:
    schemas = [schema_of_version(version) for version in crd.spec.versions]
    parts = [part for schema in schemas if schema is not None for part in every(schema)]
    for part in parts:
        if part.format and not formats.recognized(part.format, part.type):
            yield f'unrecognized format "{part.format}"'


def prepare_for_delete(obj: CustomResourceDefinition) -> CustomResourceDefinition:
    """Add the finalizer that keeps the definition until its objects are deleted."""
    finalizers = list(dict.fromkeys([*obj.metadata.finalizers, CLEANUP]))
    metadata = msgspec.structs.replace(obj.metadata, finalizers=finalizers)
    return msgspec.structs.replace(obj, metadata=metadata)


RESOURCE: Resource[CustomResourceDefinition] = Resource(
    type=CustomResourceDefinition,
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    namespaced=False,
    subresources=[STATUS],
    registry="apiextensions.k8s.io/customresourcedefinitions",
    strategy=Strategy(
        default=default,
        prepare_for_update=prepare_for_update,
        prepare_for_status_update=keep_metadata,
        validate_new=validate,
        validate_update=lambda new, old: validate_update(new, default(old)),
        validate_status=validate_status,
        warnings=warn,
        blocks_deletion=lambda obj: not obj.metadata.deletionTimestamp,
        prepare_for_delete=prepare_for_delete,
        allows_unconditional_update=False,
    ),
    presentation=Presentation(short_names=["crd", "crds"], categories=["api-extensions"]),
)
