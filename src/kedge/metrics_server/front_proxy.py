"""Front proxy: the API server in front, which passes the user of a request in headers."""

from collections.abc import Mapping
from typing import Final

import msgspec

from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.authentication.request_headers import RequestHeaders, check_proxy
from kedge.apiserver.request import User
from kedge.machinery.clock import Clock
from kedge.machinery.errors import unauthorized
from kedge.web.message import HttpRequest
from kedge.web.request_reader import COMMA_HEADERS

CONFIG_MAP: Final = ("kube-system", "extension-apiserver-authentication")
"""The ConfigMap with the authority of the front proxy and the names of its headers."""


class FrontProxyError(Exception):
    """The configuration of the front proxy in the cluster cannot be used."""


class FrontProxy(msgspec.Struct, frozen=True):
    """How to recognize the proxy, and in which headers it names the user."""

    ca_pem: str
    """The authority of its certificate; empty if there is no front proxy."""
    allowed: frozenset[str] = frozenset()
    """The common names that it may have; any if there are none."""
    headers: RequestHeaders = RequestHeaders()

    def user(self, http: HttpRequest, clock: Clock) -> User | None:
        """The user in the headers of the proxy; 401 if the certificate is not the proxy's."""
        if http.peer_certificate is None:
            return None
        try:
            check_proxy(http.peer_certificate, self.allowed, clock)
            return self.headers.user(http.headers)
        except CredentialRefused:
            raise unauthorized() from None


def read(data: Mapping[str, str]) -> FrontProxy:
    """The front proxy in the data of the ConfigMap; raises FrontProxyError."""
    headers = RequestHeaders(
        users=_headers(data, "requestheader-username-headers"),
        uids=_headers(data, "requestheader-uid-headers"),
        groups=_headers(data, "requestheader-group-headers"),
        extra_prefixes=_headers(data, "requestheader-extra-headers-prefix"),
    )
    return FrontProxy(
        ca_pem=data.get("requestheader-client-ca-file", ""),
        allowed=frozenset(_names(data, "requestheader-allowed-names")),
        headers=headers,
    )


def _headers(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return the headers that are understood; FrontProxyError if others are all there are.

    Several of the others would come as one with commas, which names may hold themselves.
    """
    names = tuple(name.lower() for name in _names(data, key))
    understood = tuple(name for name in names if name.startswith(COMMA_HEADERS))
    if names and not understood:
        raise FrontProxyError(
            f'the API server names users in "{names[0]}": only X-Remote-* is understood'
        )
    return understood


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        return tuple(msgspec.json.decode(data.get(key) or "[]", type=list[str]))
    except msgspec.DecodeError as error:
        raise FrontProxyError(f"{'/'.join(CONFIG_MAP)}: {key}: {error}") from None
