"""The gRPC methods of drivers for Dynamic Resource Allocation."""

from typing import Any, Final, NamedTuple

from kedge.deviceplugin.messages import Empty
from kedge.deviceplugin.methods import Method
from kedge.dra import messages as m


class DriverMethods(NamedTuple):
    """The methods of one version of the service."""

    prepare: Method[m.ClaimsRequest, m.PrepareResponse]
    unprepare: Method[m.ClaimsRequest, m.UnprepareResponse]


def _methods(package: str) -> DriverMethods:
    service = f"k8s.io.kubelet.pkg.apis.dra.{package}.DRAPlugin"
    return DriverMethods(
        Method(service, "NodePrepareResources", m.ClaimsRequest, m.PrepareResponse),
        Method(service, "NodeUnprepareResources", m.ClaimsRequest, m.UnprepareResponse),
    )


SERVICES: Final[dict[str, DriverMethods]] = {
    m.V1: _methods("v1"),
    m.V1BETA1: _methods("v1beta1"),
}
"""By the name under which drivers register: the methods of each version, the latest first."""

WATCH_HEALTH: Final[Method[Any, m.HealthResponse]] = Method(
    "v1alpha1.DRAResourceHealth", "NodeWatchResources", Empty, m.HealthResponse, streams=True
)
