"""Lease: who holds something, and until when; nodes show with one that they are alive."""

from collections.abc import Iterator

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.model import Int32, MicroTime, Model, Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError


class LeaseSpec(Model):
    """The holder of the lease, and its duration."""

    acquireTime: MicroTime = ""
    """When the holder got it."""
    holderIdentity: str | None = None
    """The identity of the holder; empty after a release."""
    leaseDurationSeconds: Int32 | None = None
    """How long after the last renewal others must wait."""
    leaseTransitions: Int32 | None = None
    """How often it went from one holder to another."""
    preferredHolder: str | None = None
    """The preferred next holder, if there is a strategy."""
    renewTime: MicroTime = ""
    """When the holder last renewed it."""
    strategy: str | None = None
    """How the next holder is chosen, if it is chosen by others."""


class Lease(Object):
    """A claim to something that lapses unless renewed."""

    spec: LeaseSpec = field(default_factory=LeaseSpec)
    """The holder of the lease, and its duration."""


def without_gated_fields(lease: Lease) -> Lease:
    """Return the lease without the fields of coordinated leader election, whose feature gate is off
    upstream."""
    if lease.spec.strategy is None and lease.spec.preferredHolder is None:
        return lease
    return replace(lease, spec=replace(lease.spec, strategy=None, preferredHolder=None))


def validate(obj: Lease) -> Iterator[FieldError]:
    spec = obj.spec
    if spec.leaseDurationSeconds is not None and spec.leaseDurationSeconds <= 0:
        why = "must be greater than 0"
        yield FieldError.invalid("spec.leaseDurationSeconds", spec.leaseDurationSeconds, why)
    yield from rules.nonnegative("spec.leaseTransitions", spec.leaseTransitions)


RESOURCE: Resource[Lease] = Resource(
    type=Lease,
    group="coordination.k8s.io",
    plural="leases",
    strategy=Strategy(
        counts_generation=False,
        default=without_gated_fields,
        allows_create_on_update=True,
        allows_unconditional_update=False,
        validate=validate,
    ),
    presentation=Presentation(
        columns=[
            name_column(),
            Column(
                name="Holder",
                cell=lambda obj: obj.spec.holderIdentity or "",
                description="Who holds the lease.",
            ),
            age_column(),
        ]
    ),
)
