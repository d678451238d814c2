"""URLs, parsed as Go's `url.ParseRequestURI` parses them."""

import re
from typing import ClassVar, Final
from urllib.parse import quote, unquote_plus, unquote_to_bytes

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import Functions, first_traversed, function, library, method
from kedge.machinery.cel.types import BOOL, STRING, URL, list_of, map_of
from kedge.machinery.errors import quoted

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:").match
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2}).{0,2}").search
_PORT: Final = re.compile(r":[0-9]*").fullmatch
_KEPT: Final = "/$&+,:;=@!*'()-_.~[]"


class UrlValue:
    """An absolute URL or path as a value of expressions."""

    __slots__ = ("host", "path", "query", "scheme", "text")

    cel_type: ClassVar[str] = URL.name

    def __init__(self, text: str, scheme: str, host: str, path: str, query: str) -> None:
        self.text = text
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlValue) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def hostname(self) -> str:
        """Return the host without port and brackets."""
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.rpartition(":")[0] if ":" in self.host else self.host

    def port(self) -> str:
        """Return the port, or nothing."""
        after = self.host.rpartition("]")[2]
        return after.rpartition(":")[2] if ":" in after else ""

    def parameters(self) -> dict[str, list[str]]:
        """Return the values of the query by name."""
        found: dict[str, list[str]] = {}
        for pair in self.query.split("&"):
            if not pair or ";" in pair or _BAD_ESCAPE(pair):
                continue
            key, _, value = pair.partition("=")
            found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
        return found

    def escaped_path(self) -> str:
        """Return the path as it is sent."""
        return quote(unquote_to_bytes(self.path), safe=_KEPT)


def parse_request_uri(text: str) -> UrlValue:
    """Return the URL; ValueError in Go's words."""
    failed = f"parse {quoted(text)}: "
    if any(ord(c) < 0x20 or ord(c) == 0x7F for c in text):
        raise ValueError(f"{failed}net/url: invalid control character in URL")
    if not text:
        raise ValueError(f"{failed}empty url")
    scheme, rest = "", text
    found = _SCHEME(text)
    if found is not None:
        scheme, rest = found[0][:-1].lower(), text[found.end() :]
    elif text.startswith(":"):
        raise ValueError(f"{failed}missing protocol scheme")
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return UrlValue(text, scheme, "", "", query)
        raise ValueError(f"{failed}invalid URI for request")
    host = ""
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        host = _host(authority.rpartition("@")[2], failed)
        rest = slash + path
    bad = _BAD_ESCAPE(rest)
    if bad is not None:
        raise ValueError(f'{failed}invalid URL escape "{bad[0]}"')
    return UrlValue(text, scheme, host, rest, query)


def _host(host: str, failed: str) -> str:
    if host.startswith("["):
        _, bracket, port = host.rpartition("]")
        if not bracket:
            raise ValueError(f"{failed}missing ']' in host")
    else:
        _, colon, number = host.partition(":")
        port = colon + number
        if " " in host:
            raise ValueError(f'{failed}invalid character " " in host name')
    if port and _PORT(port) is None:
        raise ValueError(f'{failed}invalid port "{port}" after host')
    return host


def _url(text: str) -> UrlValue:
    try:
        return parse_request_uri(text)
    except ValueError as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parse_request_uri(text)
    except ValueError:
        return False
    return True


def _is_url_price(text: str) -> int:
    """Return upstream's price, which is 1, and more for long texts: they take as long to parse."""
    return max(1, len(text) // 10 - 1000)


_ONE: Final = (URL,)

URLS: Final[Functions] = library(
    url=(function("string_to_url", (STRING,), URL, _url, first_traversed),),
    isURL=(function("is_url_string", (STRING,), BOOL, _is_url, _is_url_price),),
    getScheme=(method("url_get_scheme", _ONE, STRING, lambda url: url.scheme),),
    getHost=(method("url_get_host", _ONE, STRING, lambda url: url.host),),
    getHostname=(method("url_get_hostname", _ONE, STRING, UrlValue.hostname),),
    getPort=(method("url_get_port", _ONE, STRING, UrlValue.port),),
    getEscapedPath=(method("url_get_escaped_path", _ONE, STRING, UrlValue.escaped_path),),
    getQuery=(method("url_get_query", _ONE, map_of(STRING, list_of(STRING)), UrlValue.parameters),),
)
