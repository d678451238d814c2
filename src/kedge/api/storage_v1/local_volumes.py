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
VOLUME_NODE: Final = "kedge.dev/node"
"""The label of local volumes: their node. A node may list the volumes that have its own."""
COPY_OF: Final = "kedge.dev/copy-of"
"""The attribute of volumes that begin as a copy of another: the handle of that."""
SNAPSHOT_OF: Final = "kedge.dev/snapshot-of"
"""The label of claims that 'kedge volume snapshot' made: the claim that they are a copy of."""
DEFAULT_CLASS: Final = "standard"
_LONGEST_LABEL: Final = 63
CAPACITY_NAMESPACE: Final = "kube-system"
"""Where nodes publish their free space, as CSIStorageCapacity objects."""


def node_label(node: str) -> str:
    """Return the value of VOLUME_NODE for a node, whose name may be longer than a label."""
    if len(node) <= _LONGEST_LABEL:
        return node
    return hashlib.sha256(node.encode()).hexdigest()[:_LONGEST_LABEL]


def capacity_name(node: str, storage_class: str) -> str:
    """Return the name of the object that tells how much space a node has for a class.

    Both names may have dashes and dots, and together they may be longer than a name.
    """
    digest = hashlib.sha256(f"{node}/{storage_class}".encode()).hexdigest()
    return f"kedge-local-{digest[:32]}"
