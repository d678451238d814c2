"""The ports of the gateway, and the file that names them for `kedge open` and `kedge status`."""

import contextlib
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kedge.machinery import atomic
from kedge.settings.published_port import HTTP, HTTPS, LOOPBACK, PublishedPort

RECORD: Final = "gateway.json"
LOCAL: Final = PublishedPort(LOOPBACK, 0, HTTP)
"""The port for names of Services; 0 means any free one."""


class GatewayRecord(msgspec.Struct, frozen=True):
    """The ports at which a gateway listens."""

    ports: tuple[PublishedPort, ...] = ()
    """The first one is on loopback, for names of Services."""

    def url(self, host: str) -> str:
        """Return the URL of a host name on this machine; the shortest one if there are several."""
        ours = [each for each in self.ports if each.target == HTTP] or list(self.ports)
        port = min((each.port for each in ours), key=lambda port: port != HTTP)
        return f"http://{host}/" if port == HTTP else f"http://{host}:{port}/"


def read(state: Path) -> GatewayRecord | None:
    """Return the ports of the gateway of a cluster; None if it has none."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((state / RECORD).read_bytes(), type=GatewayRecord)
    return None


def write(state: Path, record: GatewayRecord) -> None:
    content = msgspec.json.encode(record)
    with contextlib.suppress(OSError):
        if (state / RECORD).read_bytes() == content:
            return
    atomic.write(state / RECORD, content)


def forget(state: Path) -> None:
    """Remove the record of a gateway that does not run any more."""
    (state / RECORD).unlink(missing_ok=True)


def wanted_ports(
    port: int, published: Sequence[PublishedPort], before: GatewayRecord | None
) -> list[PublishedPort]:
    """Return the ports to listen on: the one for Services, then those that are published. Without
    a number the first one is the same as before, so that bookmarks stay valid."""
    if not port and before is not None and before.ports:
        port = before.ports[0].port
    return [LOCAL._replace(port=port), *dict.fromkeys(published)]


class PortUnavailable(Exception):
    """The gateway cannot listen on a port; the text says which, why, and what to do."""

    def __init__(self, port: PublishedPort, error: OSError) -> None:
        at = f"{port.address} port {port.port}"
        if error.errno == errno.EADDRINUSE:
            why = f"{at} is in use by another program: stop that one, or publish another port"
        elif error.errno in (errno.EACCES, errno.EPERM):
            why = f"this user may not listen on {at}: publish a port above 1023"
        else:
            why = f"{at}: {error.strerror}: publish another port"
        scheme = "HTTPS" if port.target == HTTPS else "HTTP"
        flag = f"--publish PORT:{port.target}"
        super().__init__(f"the gateway cannot offer {scheme}: {why} with {flag}")
