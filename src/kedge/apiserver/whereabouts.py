"""The addresses of the server: for itself, for its machine, and for others.

A module of its own, because the program that starts a server needs it too.
"""

from typing import Final

from kedge.apiserver.config import ServerConfig
from kedge.machinery.interfaces import address_towards, is_unspecified, own_addresses

_SOMEWHERE: Final = "203.0.113.1"
"""A documentation address without a host; the route to it leads out of the machine."""


def hosts(config: ServerConfig) -> list[str]:
    """Under which names and addresses the server is to be reached."""
    every = own_addresses() if is_unspecified(config.host) else []
    return [config.host, *config.hosts, *every]


def advertised(config: ServerConfig, port: int) -> str:
    """The URL to give to other machines."""
    return url(advertised_host(config), port)


def advertised_host(config: ServerConfig) -> str:
    """Return the address for other machines: the configured one, else the machine's main one."""
    if not is_unspecified(config.host):
        return config.host
    if config.hosts:
        return config.hosts[0]
    try:
        return address_towards(_SOMEWHERE, 443)
    except OSError:
        return next(iter(own_addresses()), "127.0.0.1")


def local(config: ServerConfig, port: int) -> str:
    """The URL to use on this machine."""
    if is_unspecified(config.host):
        return url("::1" if ":" in config.host else "127.0.0.1", port)
    return url(config.host, port)


def url(host: str, port: int) -> str:
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
