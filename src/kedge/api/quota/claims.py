"""The quota usage of a PersistentVolumeClaim: its count and its storage, also by storage class."""

from collections.abc import Iterable

from kedge.api.core_v1.persistent_volume_claim import STORAGE_CLASS, PersistentVolumeClaim
from kedge.api.core_v1.resource_names import STORAGE
from kedge.api.core_v1.resource_quota import ATTRIBUTES_CLASS
from kedge.api.quota.count import count_name
from kedge.api.quota.measure import ONE, QuotaMeasure
from kedge.machinery.quantity import Quantity

_COUNT = count_name("", "persistentvolumeclaims")
_CLAIMS = "persistentvolumeclaims"
_REQUESTS = "requests.storage"
_OF_CLASS = ".storageclass.storage.k8s.io/"
_SUFFIXES = (_OF_CLASS + _CLAIMS, _OF_CLASS + _REQUESTS)
_NAMES = frozenset((_COUNT, _CLAIMS, _REQUESTS))


class ClaimQuotaMeter:
    """The meter of persistent volume claims."""

    known = frozenset((ATTRIBUTES_CLASS,))
    looks = True

    def names(self, hard: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in hard if name in _NAMES or name.endswith(_SUFFIXES))

    def measure(self, obj: PersistentVolumeClaim) -> QuotaMeasure:
        usage = {_COUNT: ONE, _CLAIMS: ONE}
        storage = _storage(obj)
        if storage is not None:
            usage[_REQUESTS] = storage
        if class_ := _class(obj):
            usage[class_ + _OF_CLASS + _CLAIMS] = ONE
            if storage is not None:
                usage[class_ + _OF_CLASS + _REQUESTS] = storage
        attributes = _attributes_classes(obj)
        return QuotaMeasure(usage, {ATTRIBUTES_CLASS: attributes} if attributes else {})

    def missing(self, obj: PersistentVolumeClaim, names: Iterable[str]) -> str:
        return ""


def _storage(claim: PersistentVolumeClaim) -> Quantity | None:
    """The bytes asked for, or those set aside already if an expansion had to be given up."""
    asked = claim.spec.resources.requests.get(STORAGE)
    if asked is None:
        return None
    allocated = claim.status.allocatedResources.get(STORAGE)
    larger = asked if allocated is None or allocated <= asked else allocated
    return Quantity.from_value(larger.value(), larger.format)


def _class(claim: PersistentVolumeClaim) -> str:
    # The annotation is older than the field and still wins.
    annotated = claim.metadata.annotations.get(STORAGE_CLASS)
    return annotated if annotated is not None else claim.spec.storageClassName or ""


def _attributes_classes(claim: PersistentVolumeClaim) -> list[str]:
    """Every class the claim has, wants or is on its way to."""
    modifying = claim.status.modifyVolumeStatus
    classes = (
        claim.spec.volumeAttributesClassName,
        claim.status.currentVolumeAttributesClassName,
        modifying.targetVolumeAttributesClassName if modifying is not None else "",
    )
    return [name for name in dict.fromkeys(classes) if name]
