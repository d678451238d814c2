"""Usage of claims as rows of a table."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim as CoreClaim
from kedge.api.metrics_v1alpha1.persistent_volume_claim import PersistentVolumeClaim
from kedge.cli.usage.detail_columns import scaled
from kedge.cli.usage.lines import NOTHING, TopOptions, share, statistic
from kedge.machinery.quantity import Quantity

NAMES: Final = ("persistentvolumeclaims", "persistentvolumeclaim", "pvc", "volumes")
"""The names that the command line accepts."""
_UNKNOWN: Final = "-"

KnownClaims = Mapping[str, CoreClaim]
"""Claims by namespace and name."""


def ordered(found: Iterable[PersistentVolumeClaim], look: TopOptions) -> list[Any]:
    by_name = sorted(found, key=lambda each: (each.metadata.namespace, each.metadata.name))
    if look.sort_by == "name":
        return by_name
    return sorted(by_name, key=lambda each: -_used(each, look).get("storage", NOTHING).nanos)


def table(
    found: Iterable[PersistentVolumeClaim], known: KnownClaims, look: TopOptions
) -> list[str]:
    """Return the lines of text."""
    rows = [_heading(look)] if look.headings else []
    rows += [_cells(each, known, look) for each in ordered(found, look)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]


def documents(
    found: Iterable[PersistentVolumeClaim], known: KnownClaims, look: TopOptions
) -> dict[str, Any]:
    """Return the same for programs."""
    items = [_document(each, known, look) for each in ordered(found, look)]
    return {"window": look.window, "statistic": look.statistic, "items": items}


def _heading(look: TopOptions) -> list[str]:
    shown = ["NAMESPACE"] if look.everywhere else []
    shown += ["CLAIM", "USED", "CAPACITY", "USED%", "INODES"]
    return shown + (["VOLUME", "CLASS"] if look.wide else [])


def _cells(found: PersistentVolumeClaim, known: KnownClaims, look: TopOptions) -> list[str]:
    meta, used = found.metadata, _used(found, look)
    claim = _core(found, known)
    storage, inodes, capacity = used.get("storage"), used.get("inodes"), _capacity(claim)
    shown = [meta.namespace] if look.everywhere else []
    shown += [meta.name, _bytes(storage), _bytes(capacity), share(storage, capacity)]
    shown.append(_UNKNOWN if inodes is None else str(inodes.value()))
    if look.wide:
        volume = claim.spec.volumeName if claim is not None else ""
        class_ = claim.spec.storageClassName if claim is not None else ""
        shown += [volume or _UNKNOWN, class_ or _UNKNOWN]
    return shown


def _core(found: PersistentVolumeClaim, known: KnownClaims) -> CoreClaim | None:
    return known.get(f"{found.metadata.namespace}/{found.metadata.name}")


def _capacity(claim: CoreClaim | None) -> Quantity | None:
    return claim.status.capacity.get("storage") if claim is not None else None


def _used(found: PersistentVolumeClaim, look: TopOptions) -> Mapping[str, Quantity]:
    return statistic(found.usage, look)


def _bytes(amount: Quantity | None) -> str:
    return _UNKNOWN if amount is None else scaled(amount.nanos / 1_000_000_000, "B")


def _document(found: PersistentVolumeClaim, known: KnownClaims, look: TopOptions) -> dict[str, Any]:
    made: dict[str, Any] = {"namespace": found.metadata.namespace, "name": found.metadata.name}
    made["usage"] = {name: str(amount) for name, amount in _used(found, look).items()}
    capacity = _capacity(_core(found, known))
    return made | ({"capacity": str(capacity)} if capacity is not None else {})
