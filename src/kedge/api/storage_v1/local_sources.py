"""The source of the data of a local volume: another claim."""

from typing import Final

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1.local_volumes import LOCAL_PROVISIONER

_ADVICE: Final = (
    'it can begin with the data of a PersistentVolumeClaim, also of one that "kedge volume'
    ' snapshot" made'
)


def source_claim(claim: PersistentVolumeClaim) -> str:
    """Return the name of the claim whose content a claim begins with; empty if there is none."""
    source = claim.spec.dataSourceRef
    if source is None or source.kind != "PersistentVolumeClaim" or source.apiGroup:
        return ""
    is_here = (source.namespace or claim.metadata.namespace) == claim.metadata.namespace
    return source.name if is_here else ""


def source_refusal(claim: PersistentVolumeClaim) -> str:
    """Return why no local volume can begin with what a claim names; empty if it can."""
    source = claim.spec.dataSourceRef
    if source is None or source_claim(claim):
        return ""
    what = f"{source.kind} {source.name}"
    return f"a volume of {LOCAL_PROVISIONER} cannot be made from {what}: {_ADVICE}"
