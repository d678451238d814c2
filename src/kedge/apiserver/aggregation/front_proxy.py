"""The front proxy's side of authentication: extension servers believe the headers of a request if
its client certificate is that of the front proxy."""

from collections.abc import Iterable
from typing import Final

import msgspec

from kedge.apiserver.request import User
from kedge.machinery.errors import bad_request

NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "extension-apiserver-authentication"
"""The ConfigMap in which extension servers find these authorities and headers."""
CLIENT_NAME: Final = "front-proxy-client"
"""The common name of the front proxy's certificate."""

_TOKEN: Final = frozenset(
    b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)
"""Characters of a header's name, without the per cent sign, which escapes the others."""


class TrustedProxies(msgspec.Struct, frozen=True):
    """The proxies whose headers servers believe."""

    authorities: bytes
    """Certificates of their authorities."""
    allowed_names: tuple[str, ...]
    """Their common names; any if there are none."""
    users: tuple[str, ...] = ("X-Remote-User",)
    uids: tuple[str, ...] = ("X-Remote-Uid",)
    groups: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    def joined(self, others: "TrustedProxies | None") -> "TrustedProxies":
        """Return these and other proxies: one list holds for the certificates of all."""
        if others is None:
            return self
        names = _union(self.allowed_names, others.allowed_names)
        return TrustedProxies(
            b"\n".join((self.authorities.rstrip(), others.authorities)),
            names if self.allowed_names and others.allowed_names else (),
            _union(self.users, others.users),
            _union(self.uids, others.uids),
            _union(self.groups, others.groups),
            _union(self.extra_prefixes, others.extra_prefixes),
        )


def _union(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of both, each once, regardless of case."""
    return tuple({name.lower(): name for name in (*theirs, *ours)}.values())


def configuration(client_ca: bytes, proxies: TrustedProxies) -> dict[str, str]:
    """Return the data of the ConfigMap."""
    lists = {
        "requestheader-allowed-names": proxies.allowed_names,
        "requestheader-extra-headers-prefix": proxies.extra_prefixes,
        "requestheader-group-headers": proxies.groups,
        "requestheader-uid-headers": proxies.uids,
        "requestheader-username-headers": proxies.users,
    }
    return {
        "client-ca-file": client_ca.decode(),
        "requestheader-client-ca-file": proxies.authorities.decode(),
        **{key: msgspec.json.encode(value).decode() for key, value in lists.items()},
    }


def user_headers(user: User) -> list[tuple[str, str]]:
    """Return the headers that name the user; 400 if a header cannot hold one of the values.

    A value is never changed to fit: it would name another user.
    """
    headers = [("x-remote-user", _value(user.name))]
    if user.uid:
        headers.append(("x-remote-uid", _value(user.uid)))
    headers += [("x-remote-group", _value(group)) for group in user.groups]
    for key, values in user.extra:
        name = f"x-remote-extra-{_escaped(key)}"
        headers += [(name, _value(value)) for value in values]
    return headers


def _value(text: str) -> str:
    """Return a value whose bytes on the wire are UTF-8; headers are written in Latin-1."""
    if text != text.strip(" \t") or _has_control_character(text):
        raise bad_request(f"the user has {text!r}, which no header can pass on")
    return text.encode().decode("latin-1")


def _has_control_character(text: Iterable[str]) -> bool:
    return any(sign < " " or sign == "\x7f" for sign in text)


def _escaped(key: str) -> str:
    """Return the key of an extra as part of a header's name."""
    return "".join(chr(each) if each in _TOKEN else f"%{each:02X}" for each in key.encode())
