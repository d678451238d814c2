"""The addresses of the server: for itself, for its machine, and for others.

A module of its own, because the program that starts a server needs it too.
"""

from ipaddress import IPv4Address
from typing import Final

from kedge.api.builtin.service_networks import POD_NETWORK
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
    return config.hosts[0] if config.hosts else _main_address()


def peer_host(config: ServerConfig) -> str:
    """Return the address on which one of several servers of this machine is reached by itself."""
    if not is_unspecified(config.host):
        return config.host
    return "::1" if ":" in config.host else "127.0.0.1"


def machine_address(config: ServerConfig) -> str:
    """Return the address of this machine for other machines. It is a loopback address, or a name,
    if the server listens nowhere else."""
    return _main_address() if is_unspecified(config.host) else config.host


def _main_address() -> str:
    """Return the machine's address on the way out; without one, any that is not of a bridge of
    pods."""
    try:
        return address_towards(_SOMEWHERE, 443)
    except OSError:
        others = (each for each in own_addresses() if not _is_of_pods(each))
        return next(others, "127.0.0.1")


def _is_of_pods(address: str) -> bool:
    return ":" not in address and IPv4Address(address) in POD_NETWORK


def local(config: ServerConfig, port: int) -> str:
    """The URL to use on this machine."""
    if is_unspecified(config.host):
        return url("::1" if ":" in config.host else "127.0.0.1", port)
    return url(config.host, port)


def url(host: str, port: int) -> str:
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
