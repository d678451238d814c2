"""PersistentVolumeClaim of the metrics group: how full a mounted claim was, over four windows."""

from typing import Any

from msgspec import field

from kedge.api.metrics_v1alpha1.windows import Metrics, Windows, megabytes
from kedge.api.model import Object
from kedge.api.presentation import Column, Presentation, name_column
from kedge.api.resource import ObjectSource, Resource
from kedge.metrics.windows import MAIN


class PersistentVolumeClaim(Object):
    """The usage of a claim that pods have mounted."""

    __required__ = ("usage",)

    usage: Windows = field(default_factory=dict)
    """Bytes (storage) and files and directories (inodes), by length of the window: 10s, 1m, 1h,
    1d."""


def _storage(claim: Any) -> str:
    return megabytes(claim.usage.get(MAIN, Metrics()).mean.get("storage"))


def _inodes(claim: Any) -> str:
    found = claim.usage.get(MAIN, Metrics()).mean.get("inodes")
    return "<unknown>" if found is None else str(found.value())


RESOURCE: Resource[PersistentVolumeClaim] = Resource(
    type=PersistentVolumeClaim,
    group="metrics",
    version="v1alpha1",
    plural="persistentvolumeclaims",
    verbs=("get", "list", "watch"),
    source=ObjectSource.NODE_REPORTS,
    registry="metrics/persistentvolumeclaims",
    presentation=Presentation(
        columns=(
            name_column(),
            Column(
                name="STORAGE",
                description="Bytes used on average during the last minute.",
                cell=_storage,
            ),
            Column(
                name="INODES",
                description="Files and directories on average during the last minute.",
                cell=_inodes,
            ),
        ),
    ),
)
