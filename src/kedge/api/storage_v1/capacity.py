"""Free space for new volumes, as drivers publish it."""

from collections.abc import Iterable, Mapping
from typing import Final

from kedge.api.label_selector import matches
from kedge.api.storage_v1.csi import CsiStorageCapacity
from kedge.api.storage_v1.local_volumes import LOCAL_PROVISIONER
from kedge.api.storage_v1.storage_class import StorageClass

UNKNOWN: Final = 1 << 62
"""The free space of a node that has not published any for a class of kedge's own driver: a class
may be newer than the node's last report."""


def free_bytes(
    storage_class: StorageClass,
    labels: Mapping[str, str],
    capacities: Iterable[CsiStorageCapacity],
) -> int:
    """Return the size of the largest volume that a node with these labels can have."""
    found = [
        each.largest
        for each in capacities
        if each.storageClassName == storage_class.metadata.name
        and matches(each.nodeTopology, labels)
    ]
    missing = UNKNOWN if storage_class.provisioner == LOCAL_PROVISIONER else 0
    return max(found, default=missing)
