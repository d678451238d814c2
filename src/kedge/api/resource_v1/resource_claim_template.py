"""ResourceClaimTemplate: the claim that is made for each pod that refers to it."""

from collections.abc import Iterator

from msgspec import field
from msgspec.structs import replace

from kedge.api.core_v1.claim_validation import unsettable_metadata
from kedge.api.core_v1.nesting import within
from kedge.api.internal_forms import internal_form
from kedge.api.metadata import validate_annotations, validate_labels
from kedge.api.model import Model, Object, ObjectMeta
from kedge.api.presentation import Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.resource_v1.device_claim_defaults import with_request_defaults
from kedge.api.resource_v1.device_claim_validation import validate_device_claim
from kedge.api.resource_v1.device_request import ResourceClaimSpec
from kedge.api.resource_v1.resource_claim import GROUP
from kedge.api.rules import IMMUTABLE
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError


class ResourceClaimTemplateSpec(Model):
    """The claim that is made."""

    __required__ = ("spec",)

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    """Labels and annotations of the claim."""
    spec: ResourceClaimSpec = field(default_factory=ResourceClaimSpec)
    """The spec of the claim."""


class ResourceClaimTemplate(Object):
    """Makes a claim for each pod that refers to it; the claim goes with the pod."""

    __required__ = ("spec",)

    spec: ResourceClaimTemplateSpec = field(default_factory=ResourceClaimTemplateSpec)
    """The claim that is made. Cannot be changed."""


def default(obj: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return replace(obj, spec=replace(obj.spec, spec=with_request_defaults(obj.spec.spec)))


def validate(obj: ResourceClaimTemplate) -> Iterator[FieldError]:
    metadata = obj.spec.metadata
    yield from validate_annotations(metadata.annotations, "spec.metadata.annotations")
    yield from validate_labels(metadata.labels, "spec.metadata.labels")
    yield from within("spec", unsettable_metadata(metadata))
    yield from within("spec.spec.devices", validate_device_claim(obj.spec.spec.devices))


def validate_update(new: ResourceClaimTemplate, old: ResourceClaimTemplate) -> Iterator[FieldError]:
    if new.spec != old.spec:
        yield FieldError.invalid(
            "spec", internal_form(new.spec, "resource.ResourceClaimTemplateSpec"), IMMUTABLE
        )


RESOURCE: Resource[ResourceClaimTemplate] = Resource(
    type=ResourceClaimTemplate,
    group=GROUP,
    plural="resourceclaimtemplates",
    strategy=Strategy(
        counts_generation=False,
        returns_deleted_object=True,
        default=default,
        validate=validate,
        validate_update=validate_update,
    ),
    presentation=Presentation(columns=[name_column(), age_column()]),
)
