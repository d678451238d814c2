"""PublishedPort: a port of the machine at which the gateway answers."""

import argparse
from typing import NamedTuple

from kedge.settings.parse import port_number

HTTP = 80
HTTPS = 443
LOOPBACK = "127.0.0.1"


class PublishedPort(NamedTuple):
    """An address and port to listen on, and the port of the gateway behind it."""

    address: str
    port: int
    target: int
    """80 for HTTP, 443 for HTTPS."""

    @property
    def url(self) -> str:
        scheme = "https" if self.target == HTTPS else "http"
        return f"{scheme}://{self._authority}"

    @property
    def _authority(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self._authority}:{self.target}"


def parse_published_port(value: str) -> PublishedPort:
    """Return the port of `[ADDRESS:]PORT:80` or `[ADDRESS:]PORT:443`."""
    rest, _, target = value.rpartition(":")
    address, _, port = rest.rpartition(":")
    if not port or target not in (str(HTTP), str(HTTPS)):
        raise argparse.ArgumentTypeError(
            f'"{value}" is not PORT:80 or PORT:443: the gateway offers HTTP as port 80 and HTTPS as'
            " port 443"
        )
    return PublishedPort(address.strip("[]") or LOOPBACK, port_number(port), int(target))


INGRESS_PORTS = (PublishedPort(LOOPBACK, HTTP, HTTP), PublishedPort(LOOPBACK, HTTPS, HTTPS))
"""The ports that `--ingress` stands for."""
