"""Which proxy a request takes, by the rules of Go programs for HTTPS_PROXY and NO_PROXY."""

import base64
from collections.abc import Mapping
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

_PORTS: Final = {"http": 80, "https": 443}
_ALL: Final = ("ALL_PROXY", "all_proxy")

Address = IPv4Address | IPv6Address


class InvalidProxy(ValueError):
    """A variable does not hold the address of a proxy that kedge can use."""


class ProxyAddress(msgspec.Struct, frozen=True):
    """An HTTP proxy."""

    scheme: str
    """How to talk to the proxy itself: http or https."""
    host: str
    port: int
    username: str = ""
    password: str = ""
    variable: str = ""
    """The variable of the environment that names it."""

    def __str__(self) -> str:
        """Return its URL without the password, and where it comes from."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        source = f" (${self.variable})" if self.variable else ""
        return f"{self.scheme}://{host}:{self.port}{source}"

    @property
    def authorization(self) -> str:
        """The value of the Proxy-Authorization header; empty without a user."""
        if not self.username and not self.password:
            return ""
        text = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(text).decode()}"


class ProxyVariable(msgspec.Struct, frozen=True):
    """A variable of the environment and its content."""

    name: str = ""
    text: str = ""


class ProxyRules(msgspec.Struct, frozen=True):
    """The proxies of an environment, and the hosts that are reached without them."""

    https: ProxyVariable = ProxyVariable()
    http: ProxyVariable = ProxyVariable()
    exceptions: str = ""
    """The content of NO_PROXY."""

    def find(self, url: str) -> ProxyAddress | None:
        """Return the proxy for a URL; None if it is reached directly. Raises InvalidProxy."""
        parts = urlsplit(url)
        variable = self.https if parts.scheme == "https" else self.http
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        if not variable.text or is_excepted(self.exceptions, host, port):
            return None
        return parse(variable)

    def described(self) -> list[str]:
        """Return what there is to tell about the proxies, without passwords."""
        found = []
        for variable in dict.fromkeys((self.https, self.http)):
            if variable.text:
                try:
                    found.append(f"proxy {parse(variable)}")
                except InvalidProxy as error:
                    found.append(f"no usable proxy: {error}")
        if found and self.exceptions:
            found.append(f"no proxy for {self.exceptions}")
        return found


def from_environment(environment: Mapping[str, str]) -> ProxyRules:
    """Return the rules of an environment. As in Go, names in upper case come first.

    Go programs ignore ALL_PROXY, which curl uses. Here it counts if it names an HTTP proxy: many
    machines set it to a SOCKS proxy, and a pull that works in Docker must not fail for that.
    """
    every = _first(environment, *_ALL)
    # Only the scheme is looked at here: a proxy that is not valid fails the requests that need it.
    scheme, mark, _ = every.text.partition("://")
    if mark and scheme.lower() not in _PORTS:
        every = ProxyVariable()
    https = _first(environment, "HTTPS_PROXY", "https_proxy")
    http = _first(environment, "HTTP_PROXY", "http_proxy")
    return ProxyRules(
        https=https if https.text else every,
        http=http if http.text else every,
        exceptions=_first(environment, "NO_PROXY", "no_proxy").text,
    )


def _first(environment: Mapping[str, str], *names: str) -> ProxyVariable:
    found = (ProxyVariable(name, environment.get(name, "").strip()) for name in names)
    return next((each for each in found if each.text), ProxyVariable())


def parse(variable: ProxyVariable) -> ProxyAddress:
    """Return the proxy that a variable names: a URL, or HOST:PORT for an HTTP proxy."""
    text = variable.text
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    # The text is not quoted: it may have a password.
    if not host:
        raise InvalidProxy(
            f"${variable.name} is not the address of a proxy: write http://HOST:PORT"
        )
    if parts.scheme not in _PORTS:
        raise InvalidProxy(
            f"${variable.name} names a {parts.scheme} proxy: kedge can use HTTP proxies, write"
            " http://HOST:PORT"
        )
    return ProxyAddress(
        scheme=parts.scheme,
        host=host,
        port=port or _PORTS[parts.scheme],
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        variable=variable.name,
    )


def is_excepted(exceptions: str, host: str, port: int) -> bool:
    """Return whether a host is reached without a proxy: loopback always is."""
    host = host.lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [each.strip().lower() for each in exceptions.split(",")]
    return any(_fits(each, host, address, port) for each in entries if each)


def _fits(entry: str, host: str, address: Address | None, port: int) -> bool:
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    name, its_port = _split(entry)
    if not name or (its_port and its_port != str(port)):
        return False
    its_address = _address(name)
    if its_address is not None or address is not None:
        return its_address == address
    name = name.removeprefix("*") if name.startswith("*.") else name
    # example.com is the host and all below it, .example.com only those below.
    return host.endswith(name if name.startswith(".") else f".{name}") or host == name


def _split(entry: str) -> tuple[str, str]:
    """Return host and port; the port is empty if there is none."""
    if entry.startswith("[") and entry.endswith("]"):
        return entry[1:-1], ""
    host, colon, port = entry.rpartition(":")
    if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        return entry, ""
    return host.removeprefix("[").removesuffix("]"), port


def _address(text: str) -> Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    _, slash, length = entry.partition("/")
    if not slash or not length.isdecimal():
        return None
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        return None
