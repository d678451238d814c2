"""Front proxy: the API server in front, which passes the user of a request in headers."""

import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from kedge.apiserver.request import User
from kedge.machinery.clock import Clock
from kedge.machinery.errors import unauthorized
from kedge.web.message import HttpRequest
from kedge.web.request_reader import COMMA_HEADERS, VALUE_SEPARATOR

CONFIG_MAP: Final = ("kube-system", "extension-apiserver-authentication")
"""The ConfigMap with the authority of the front proxy and the names of its headers."""


class FrontProxyError(Exception):
    """The configuration of the front proxy in the cluster cannot be used."""


class FrontProxy(msgspec.Struct, frozen=True):
    """How to recognize the proxy, and in which headers it names the user."""

    ca_pem: str
    """The authority of its certificate; empty if there is no front proxy."""
    allowed: tuple[str, ...] = ()
    """The common names that it may have; any if there are none."""
    user_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)

    def user(self, http: HttpRequest, clock: Clock) -> User | None:
        """The user in the headers of the proxy; 401 if the certificate is not the proxy's."""
        certificate = http.peer_certificate
        if certificate is None:
            return None
        ends = ssl.cert_time_to_seconds(certificate["notAfter"])
        # TLS has looked at the dates when the connection was made, which may be long ago.
        if clock.now().timestamp() > ends:
            raise unauthorized()
        if self.allowed and not set(self.allowed) & set(_common_names(certificate)):
            raise unauthorized()
        names = _values(http, self.user_headers)
        if not names or not names[0]:
            return None
        uids = _values(http, self.uid_headers)
        return User(
            names[0],
            tuple(_values(http, self.group_headers)),
            uids[0] if uids else "",
            tuple(self._extra(http)),
        )

    def _extra(self, http: HttpRequest) -> list[tuple[str, tuple[str, ...]]]:
        found = []
        for name in http.headers:
            for prefix in self.extra_prefixes:
                if name.startswith(prefix):
                    found.append((unquote(name[len(prefix) :]), tuple(_values(http, (name,)))))
        return found


def read(data: Mapping[str, str]) -> FrontProxy:
    """The front proxy in the data of the ConfigMap; raises FrontProxyError."""
    proxy = FrontProxy(
        ca_pem=data.get("requestheader-client-ca-file", ""),
        allowed=_names(data, "requestheader-allowed-names"),
        user_headers=_headers(data, "requestheader-username-headers"),
        uid_headers=_headers(data, "requestheader-uid-headers"),
        group_headers=_headers(data, "requestheader-group-headers"),
        extra_prefixes=_headers(data, "requestheader-extra-headers-prefix"),
    )
    used = (*proxy.user_headers, *proxy.uid_headers, *proxy.group_headers, *proxy.extra_prefixes)
    for header in used:
        if not header.startswith(COMMA_HEADERS):
            # Several of them would come as one with commas, which names may hold themselves.
            raise FrontProxyError(
                f'the API server names users in "{header}": only X-Remote-* is understood'
            )
    return proxy


def _headers(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _names(data, key))


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        return tuple(msgspec.json.decode(data.get(key) or "[]", type=list[str]))
    except msgspec.DecodeError as error:
        raise FrontProxyError(f"{'/'.join(CONFIG_MAP)}: {key}: {error}") from None


def _values(http: HttpRequest, headers: tuple[str, ...]) -> list[str]:
    found = []
    for header in headers:
        text = http.headers.get(header)
        if text is not None:
            found += [_decoded(value) for value in text.split(VALUE_SEPARATOR)]
    return found


def _decoded(value: str) -> str:
    """Headers are read byte by byte; names are in UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise unauthorized() from None


def _common_names(certificate: Mapping[str, Any]) -> list[str]:
    pairs = [pair for parts in certificate["subject"] for pair in parts]
    return [value for name, value in pairs if name == "commonName"]
