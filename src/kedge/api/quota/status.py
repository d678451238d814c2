"""The status of a ResourceQuota that corresponds to what was counted."""

from kedge.api.core_v1.resource_quota import ResourceQuotaSpec, ResourceQuotaStatus
from kedge.api.quota.account import greater
from kedge.api.quota.measure import ZERO, Usage
from kedge.machinery.quantity import LARGEST, Quantity


def status_of(
    spec: ResourceQuotaSpec, status: ResourceQuotaStatus, used: Usage
) -> ResourceQuotaStatus:
    """Return the status after a count; usage that is not counted yet stays as it was."""
    known = {**status.used, **used}
    return ResourceQuotaStatus(
        hard={name: readable(amount) for name, amount in spec.hard.items()},
        used={name: readable(known[name]) for name in sorted(spec.hard) if name in known},
    )


def readable(amount: Quantity) -> Quantity:
    """Return the amount as clients read it from a status.

    A sum may be greater than any amount that can be read. Written as it is, the status would always
    differ from the count, or the quota could not be decoded at all."""
    if amount <= LARGEST:
        return amount
    try:
        return Quantity.parse(str(amount))
    except ValueError:
        return LARGEST


def at_least(before: Usage, used: Usage) -> Usage:
    """Return the used amounts, or what they were before if that is more."""
    return greater(used, {name: before.get(name, ZERO) for name in used})


def is_complete(spec: ResourceQuotaSpec, status: ResourceQuotaStatus) -> bool:
    """Whether the status has the bounds of the spec, and the usage of each."""
    return status.hard == spec.hard and spec.hard.keys() <= status.used.keys()
