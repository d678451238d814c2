"""Users in the headers of a request: an authenticating proxy names them, and proves with its
client certificate that it may."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from kedge.apiserver.authentication.certificates import ClientCertificates, common_name
from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.request import User
from kedge.machinery.certificates import end_of
from kedge.machinery.clock import Clock
from kedge.web.message import HttpRequest
from kedge.web.request_reader import VALUE_SEPARATOR

PROXY: Final = User("front-proxy", ("system:masters",))
"""The user that connections of a proxy are counted for; they carry requests of many users."""

_is_escape_broken = re.compile(r"%(?![0-9a-fA-F]{2})").search


class RequestHeaders(msgspec.Struct, frozen=True):
    """The names of the headers, in lower case."""

    users: tuple[str, ...] = ("x-remote-user",)
    uids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)

    def prefixes(self) -> tuple[str, ...]:
        """Return how the names of these headers begin."""
        return (*self.users, *self.uids, *self.groups, *self.extra_prefixes)

    def user(self, headers: Mapping[str, str]) -> User | None:
        """Return the user whom the headers name; None if they name none, CredentialRefused if a
        value is not UTF-8."""
        name = _first(headers, self.users)
        if not name:
            return None
        groups = [value for header in self.groups for value in _values(headers, header) if value]
        return User(name, tuple(groups), _first(headers, self.uids), tuple(self._extra(headers)))

    def _extra(self, headers: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        found: dict[str, list[str]] = {}
        for prefix in self.extra_prefixes:
            for header in headers:
                if header.startswith(prefix):
                    key = extra_key(header[len(prefix) :])
                    found.setdefault(key, []).extend(_values(headers, header))
        yield from ((key, tuple(values)) for key, values in found.items())

    def stripped(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers without these, so that no server behind believes them."""
        single = {*self.users, *self.uids, *self.groups}
        prefixes = self.extra_prefixes
        return {
            name: value
            for name, value in headers.items()
            if name not in single and not name.startswith(prefixes)
        }


class HeaderProxies:
    """Client certificates where some are of proxies, which are believed about the user, and the
    others are of the user. The authority of a certificate decides which."""

    def __init__(
        self,
        headers: RequestHeaders,
        proxy_authorities: frozenset[str],
        allowed: frozenset[str],
        own: ClientCertificates,
        own_authorities: frozenset[str],
        *,
        clock: Clock,
    ) -> None:
        """Authorities are hashes of certificates; `allowed` are the common names that a proxy may
        have, any if there are none."""
        self.headers = headers
        self._proxy_authorities = proxy_authorities
        self._allowed = allowed
        self._own = own
        self._own_authorities = own_authorities
        self._clock = clock

    def replace_authorities(self, proxy_authorities: frozenset[str]) -> None:
        """Believe proxies of these authorities, and no others."""
        self._proxy_authorities = proxy_authorities

    def user(self, http: HttpRequest) -> User | None:
        """Return the user of a request with a certificate; None if no user is named,
        CredentialRefused if the certificate does not hold."""
        certificate = http.peer_certificate
        if certificate is None:
            return None
        authority = certificate.get("authority")
        refusal = CredentialRefused("the client certificate is of an unknown authority")
        if authority in self._proxy_authorities:
            try:
                user = self._named(http, certificate)
            except CredentialRefused as why:
                refusal = why
            else:
                if user is not None:
                    return user
        if authority in self._own_authorities:
            return self._own.holder(certificate)
        # Also a proxy that names no user: it must not pass for an anonymous user.
        raise refusal

    def _named(self, http: HttpRequest, certificate: Mapping[str, Any]) -> User | None:
        check_proxy(certificate, self._allowed, self._clock)
        user = self.headers.user(http.headers)
        if user is not None:
            http.identified(PROXY)
            http.on_identified = None
        return user


def check_proxy(certificate: Mapping[str, Any], allowed: frozenset[str], clock: Clock) -> None:
    """Raise CredentialRefused unless a verified certificate is one of a proxy, now."""
    # TLS has looked at the dates when the connection was made, which may be long ago.
    if clock.now() > end_of(certificate):
        raise CredentialRefused("the proxy's certificate has expired")
    if allowed and common_name(certificate) not in allowed:
        raise CredentialRefused("the proxy's common name is not in the allowed list")


def extra_key(text: str) -> str:
    """Return the key of an extra field from the rest of its header's name: per cent signs escape
    what names of headers cannot hold. A broken escape is left as it is, as upstream."""
    if _is_escape_broken(text):
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise CredentialRefused("a key of an extra field is not UTF-8") from None


def _first(headers: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the first value of the first of these headers that is not empty."""
    firsts = (value for name in names for value in _values(headers, name)[:1])
    return next(filter(None, firsts), "")


def _values(headers: Mapping[str, str], name: str) -> list[str]:
    text = headers.get(name)
    if text is None:
        return []
    try:
        # Headers are read byte by byte; names of users are in UTF-8.
        return text.encode("latin-1").decode().split(VALUE_SEPARATOR)
    except UnicodeDecodeError:
        raise CredentialRefused("a header that names the user is not UTF-8") from None
