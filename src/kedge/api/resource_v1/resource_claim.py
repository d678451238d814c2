"""ResourceClaim: a claim to devices, which the scheduler allocates and pods use."""

from collections.abc import Iterator
from typing import Final

from msgspec import field
from msgspec.structs import replace

from kedge.api.core_v1.nesting import within
from kedge.api.internal_forms import internal_form
from kedge.api.model import Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource
from kedge.api.resource_v1.claim_status_validation import (
    allocated_devices,
    shared_device_id,
    validate_claim_status,
)
from kedge.api.resource_v1.device_claim_defaults import with_request_defaults
from kedge.api.resource_v1.device_claim_validation import request_names, validate_device_claim
from kedge.api.resource_v1.device_request import ResourceClaimSpec
from kedge.api.resource_v1.resource_claim_status import ResourceClaimStatus
from kedge.api.rules import IMMUTABLE
from kedge.api.strategy import Strategy, keep_metadata
from kedge.machinery.errors import FieldError

GROUP: Final = "resource.k8s.io"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim that is allocated, until it is not."""
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim made from a template: its name in the pod's resourceClaims."""
ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
"""Label of namespaces whose claims may ask for admin access."""


class ResourceClaim(Object):
    """A claim to devices; the scheduler allocates them, and pods use them."""

    __required__ = ("spec",)

    spec: ResourceClaimSpec = field(default_factory=ResourceClaimSpec)
    """The devices that the claim asks for. Cannot be changed."""
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)
    """The observed state of the claim."""


def default(obj: ResourceClaim) -> ResourceClaim:
    return replace(obj, spec=with_request_defaults(obj.spec))


def validate_new(obj: ResourceClaim) -> Iterator[FieldError]:
    return within("spec.devices", validate_device_claim(obj.spec.devices))


def validate_update(new: ResourceClaim, old: ResourceClaim) -> Iterator[FieldError]:
    if new.spec != old.spec:
        yield FieldError.invalid(
            "spec", internal_form(new.spec, "resource.ResourceClaimSpec"), IMMUTABLE
        )


def prepare_for_status_update(new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
    """Keep the metadata, and drop the state of devices that are no longer allocated."""
    freed = allocated_devices(old.status) - allocated_devices(new.status)
    devices = [each for each in new.status.devices if shared_device_id(each) not in freed]
    kept: ResourceClaim = keep_metadata(new, old)
    return replace(kept, status=replace(new.status, devices=devices or ()))


def validate_status(new: ResourceClaim, old: ResourceClaim) -> Iterator[FieldError]:
    errors = validate_claim_status(
        new.status,
        old.status,
        request_names(new.spec.devices),
        terminating=bool(new.metadata.deletionTimestamp),
    )
    return within("status", errors)


def state_cell(obj: ResourceClaim) -> str:
    states = ["deleted"] if obj.metadata.deletionTimestamp else []
    if obj.status.allocation is not None:
        states.append("allocated")
        if obj.status.reservedFor:
            states.append("reserved")
    elif not states:
        states.append("pending")
    return ",".join(states)


RESOURCE: Resource[ResourceClaim] = Resource(
    type=ResourceClaim,
    group=GROUP,
    plural="resourceclaims",
    subresources=[STATUS],
    strategy=Strategy(
        counts_generation=False,
        returns_deleted_object=True,
        default=default,
        prepare_for_status_update=prepare_for_status_update,
        validate_new=validate_new,
        validate_update=validate_update,
        validate_status=validate_status,
    ),
    presentation=Presentation(
        columns=[
            name_column(),
            Column(
                name="State",
                cell=state_cell,
                description="Whether the claim is pending, allocated, reserved or deleted.",
            ),
            age_column(),
        ],
    ),
)
