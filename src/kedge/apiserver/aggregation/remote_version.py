"""RemoteVersion: an API version that a server behind a Service answers for."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kedge.apiserver.group_priorities import APIREGISTRATION, GroupPriority

AVAILABLE: Final = "Available"
_DEFAULT_PORT: Final = 443


class RemoteVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an APIService that names a Service."""

    name: str
    """The name of the APIService."""
    group: str
    version: str
    namespace: str
    service: str
    port: int
    ca_bundle: str
    """The authorities of the server's certificate, PEM in base64; empty trusts those of the
    machine."""
    is_insecure: bool
    """Whether any certificate is accepted."""
    priority: GroupPriority
    is_available: bool
    """Whether the condition Available is True."""

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/{self.version}"

    @property
    def host(self) -> str:
        """The name in the server's certificate."""
        return f"{self.service}.{self.namespace}.svc"


def remote_version(document: Mapping[str, Any]) -> RemoteVersion | None:
    """Return the version of an APIService; None if this server answers for it itself."""
    spec = document.get("spec") or {}
    service = spec.get("service")
    group = spec.get("group", "")
    if not service or not can_be_remote(group):
        return None
    return RemoteVersion(
        name=document["metadata"]["name"],
        group=group,
        version=spec.get("version", ""),
        namespace=service.get("namespace", ""),
        service=service.get("name", ""),
        port=service.get("port") or _DEFAULT_PORT,
        ca_bundle=spec.get("caBundle") or "",
        is_insecure=bool(spec.get("insecureSkipTLSVerify")),
        priority=GroupPriority(spec.get("groupPriorityMinimum", 0), spec.get("versionPriority", 0)),
        is_available=_is_available(document),
    )


def can_be_remote(group: str) -> bool:
    """Whether another server may answer for the group. The core group and that of APIServices
    are this server's: without them, no client could correct the APIService."""
    return group not in ("", APIREGISTRATION)


def _is_available(document: Mapping[str, Any]) -> bool:
    for condition in (document.get("status") or {}).get("conditions") or ():
        if condition.get("type") == AVAILABLE:
            return bool(condition.get("status") == "True")
    return False
