"""ScaleTarget: the workload of an autoscaler."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kedge.api.resource import Resource


class ScaleTarget(msgspec.Struct, frozen=True):
    """The scale subresource of a workload."""

    resource: Resource[Any]
    document: Mapping[str, Any]

    @property
    def replicas(self) -> int:
        return int(self.document.get("spec", {}).get("replicas", 0))

    @property
    def observed_replicas(self) -> int:
        """The replicas that the workload has."""
        return int(self.document.get("status", {}).get("replicas", 0))

    @property
    def selector(self) -> str:
        return str(self.document.get("status", {}).get("selector", ""))
