"""Names of kedge's own storage: directories of a node, made on demand."""

import hashlib
from typing import Final

LOCAL_PROVISIONER: Final = "kedge.dev/local"
"""The provisioner of the default class."""
LOCAL_DRIVER: Final = "local.kedge.dev"
"""The CSI driver of its volumes, whose name may not contain a slash."""
LOCAL_FINALIZER: Final = "kedge.dev/local-volume"
"""On volumes whose node must remove the data before the object may go."""
LOCAL_DATA: Final = "kedge.dev/local-data"
"""The annotation of volumes whose data were made: the node that has them."""
COPY_OF: Final = "kedge.dev/copy-of"
"""The attribute of volumes that begin as a copy of another: the handle of that."""
SNAPSHOT_OF: Final = "kedge.dev/snapshot-of"
"""The label of claims that 'kedge volume snapshot' made: the claim that they are a copy of."""
DEFAULT_CLASS: Final = "standard"
CAPACITY_NAMESPACE: Final = "kube-system"
"""Where nodes publish their free space, as CSIStorageCapacity objects."""


def capacity_name(node: str, storage_class: str) -> str:
    """Return the name of the object that tells how much space a node has for a class.

    Both names may have dashes and dots, and together they may be longer than a name.
    """
    digest = hashlib.sha256(f"{node}/{storage_class}".encode()).hexdigest()
    return f"kedge-local-{digest[:32]}"
