"""The causes of failed pulls, each with the next step of the user."""

import socket
import ssl
from typing import Final

from kedge.client.transport import Unreachable
from kedge.node.images.oci import bounded

_RESTART: Final = "'kedge up --restart'"
_RATE_LIMIT: Final = 429
_PROXY_AUTHENTICATION: Final = 407


class PullFailure(Exception):
    """The registry did not serve the image."""

    def __init__(self, cause: str, advice: str = "") -> None:
        super().__init__(bounded(cause))
        self.advice = advice
        """The next step of the user for this cause; empty if there is none."""


class PullUnauthorized(PullFailure):
    """The registry refused access; other credentials may work."""


class RegistryUnreachable(PullFailure):
    """Nothing answered: another way to the registry may work."""


def unreachable(host: str, error: Unreachable) -> RegistryUnreachable:
    """Return the failure of a connection to a registry's host, HOST or HOST:PORT."""
    # Imported here because a node that pulls nothing does not need it.
    from kedge.client.tunnel import ProxyFailure

    match error.__cause__:
        case ProxyFailure():
            return RegistryUnreachable(
                str(error), f"set HTTPS_PROXY or NO_PROXY right and run {_RESTART}"
            )
        case socket.gaierror() as cause:
            return RegistryUnreachable(
                f"the name of {host} cannot be looked up (DNS): {cause.strerror}",
                "check the name of the registry and the network; behind a proxy, set HTTPS_PROXY"
                f" and run {_RESTART}",
            )
        case ssl.SSLCertVerificationError() as cause:
            return RegistryUnreachable(
                f"the certificate of {host} is not trusted (TLS): {cause.verify_message}",
                f"name its authority with 'kedge up --registry-ca {host}=FILE', or do not verify it"
                f" with 'kedge up --insecure-registry {host}'",
            )
        case ssl.SSLError() as cause:
            return RegistryUnreachable(
                f"the TLS handshake with {host} failed: {cause}",
                f"if the registry speaks plain HTTP, use 'kedge up --insecure-registry {host}'",
            )
        case TimeoutError():
            return RegistryUnreachable(
                str(error),
                f"check the network; behind a proxy, set HTTPS_PROXY and run {_RESTART}",
            )
    return RegistryUnreachable(str(error), "check that the registry runs and can be reached")


def silent(host: str, *, has_answered: bool) -> PullFailure:
    """Return the failure of a registry's host that does not answer, or no longer."""
    if has_answered:
        return PullFailure(f"{host} stopped answering")
    return RegistryUnreachable(f"{host} does not answer", "check that the registry runs")


def of_status(status: int, what: str, words: str) -> PullFailure:
    """Return the failure of an answer without success; `words` are those of the registry."""
    said = f": {words}" if words else ""
    if status == 404:
        return PullFailure(
            "not found in the registry (404)", "check the name and the tag of the image"
        )
    if status in (401, 403):
        return PullUnauthorized(
            f"the registry denies access ({status}){said} (it may not exist, or need a pull"
            " secret)",
            "check the name, give the pod imagePullSecrets, or pull it with your own credentials by"
            " 'kedge image pull IMAGE'",
        )
    if status == _PROXY_AUTHENTICATION:
        return PullFailure(
            "the proxy asks for credentials (407)",
            f"set HTTP_PROXY=http://USER:PASSWORD@HOST:PORT and run {_RESTART}",
        )
    if status == _RATE_LIMIT:
        return PullFailure(
            f"the registry's rate limit is reached (429){said}",
            "wait, give the pod imagePullSecrets, or use a mirror with 'kedge up --registry-mirror"
            " REGISTRY=URL'",
        )
    return PullFailure(f"the registry answers {status} for {what}: {words or 'no reason'}")
