"""The default StorageClass and the CSIDriver of kedge's own volumes."""

from typing import Any, Final

from kedge.api.storage_v1.local_volumes import DEFAULT_CLASS, LOCAL_DRIVER, LOCAL_PROVISIONER
from kedge.api.storage_v1.storage_class import IS_DEFAULT, WAIT
from kedge.apiserver.api import Api
from kedge.apiserver.bootstrap import ensure_object, request_for

VERSION: Final = "storage.k8s.io/v1"
CLASS: Final[dict[str, Any]] = {
    "apiVersion": VERSION,
    "kind": "StorageClass",
    "metadata": {"name": DEFAULT_CLASS, "annotations": {IS_DEFAULT: "true"}},
    "provisioner": LOCAL_PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": WAIT,
    "allowVolumeExpansion": True,
}
DRIVER: Final[dict[str, Any]] = {
    "apiVersion": VERSION,
    "kind": "CSIDriver",
    "metadata": {"name": LOCAL_DRIVER},
    "spec": {
        "attachRequired": False,
        "podInfoOnMount": False,
        "volumeLifecycleModes": ["Persistent"],
        "fsGroupPolicy": "File",
        "storageCapacity": True,
    },
}


async def ensure(api: Api) -> None:
    """Make the class and the driver at the first start.

    The driver is made last and shows that the class was made: a class that a person has deleted
    does not come back.
    """
    if api.find(request_for(api, DRIVER, "create")) is None:
        await ensure_object(api, CLASS)
        await ensure_object(api, DRIVER)
