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


def configuration(client_ca: bytes, proxy_ca: bytes) -> dict[str, str]:
    """Return the data of the ConfigMap."""
    lists = {
        "requestheader-allowed-names": [CLIENT_NAME],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-uid-headers": ["X-Remote-Uid"],
        "requestheader-username-headers": ["X-Remote-User"],
    }
    return {
        "client-ca-file": client_ca.decode(),
        "requestheader-client-ca-file": proxy_ca.decode(),
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
