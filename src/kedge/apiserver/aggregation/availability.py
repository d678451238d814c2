"""The condition Available of an APIService: pure decisions, in upstream's words."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.apiserver.aggregation.remote_version import AVAILABLE, RemoteVersion


class Availability(NamedTuple):
    """Status, reason and message of the condition."""

    status: str
    reason: str
    message: str


LOCAL: Final = Availability("True", "Local", "Local APIServices are always available")
PASSED: Final = Availability("True", "Passed", "all checks passed")
MESSAGE_LENGTH: Final = 1024
"""Characters of an error in the condition; part of it comes from the other server."""


def failed_check(message: str) -> Availability:
    return Availability("False", "FailedDiscoveryCheck", message[:MESSAGE_LENGTH])


def service_problem(
    remote: RemoteVersion, service: Service | None, slices: Sequence[EndpointSlice]
) -> Availability | None:
    """Return why the Service cannot lead to a server; None if the server can be asked."""
    where = f'service/{remote.service} in "{remote.namespace}"'
    if service is None:
        return _unavailable("ServiceNotFound", f"{where} is not present")
    if service.spec.type != "ClusterIP":
        return None
    port = next((each for each in service.spec.ports if each.port == remote.port), None)
    if port is None:
        return _unavailable("ServicePortError", f"{where} is not listening on port {remote.port}")
    if not slices:
        return _unavailable("EndpointsNotFound", f"cannot find endpointslices for {where}")
    if not any(_leads_somewhere(each, port.name) for each in slices):
        message = f'endpointslices for {where} have no addresses with port name "{port.name}"'
        return _unavailable("MissingEndpoints", message)
    return None


def _unavailable(reason: str, message: str) -> Availability:
    return Availability("False", reason, message)


def _leads_somewhere(found: EndpointSlice, port_name: str) -> bool:
    has_port = any((port.name or "") == port_name and port.port for port in found.ports)
    return has_port and any(each.conditions.ready is not False for each in found.endpoints)


def with_condition(
    document: Mapping[str, Any], availability: Availability, now: str
) -> dict[str, Any]:
    """Return an APIService with this condition. The time of the transition changes only with the
    status, so that a document that says the same already is returned unchanged."""
    status = document.get("status") or {}
    conditions = list(status.get("conditions") or ())
    at = next(
        (at for at, each in enumerate(conditions) if each.get("type") == AVAILABLE), len(conditions)
    )
    old = conditions[at] if at < len(conditions) else {}
    since = old.get("lastTransitionTime") if old.get("status") == availability.status else now
    conditions[at : at + 1] = [
        {
            "type": AVAILABLE,
            "status": availability.status,
            "lastTransitionTime": since or now,
            "reason": availability.reason,
            "message": availability.message,
        }
    ]
    return {**document, "status": {**status, "conditions": conditions}}
