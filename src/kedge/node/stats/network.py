"""Counters of the network: of a pod's network namespace, and of the machine's own interfaces."""

import contextlib
import os
from collections.abc import Callable, Collection
from typing import Final

from kedge.metrics.windows import TICK_SECONDS
from kedge.node.stats.details import NUMBER, DetailReading

_RECEIVE: Final = NUMBER["network-receive"]
_TRANSMIT: Final = NUMBER["network-transmit"]
_READ: Final = os.O_RDONLY | os.O_CLOEXEC
_LARGE: Final = 1 << 16
_LOOK_AGAIN: Final = 60 // TICK_SECONDS
"""Readings after which interfaces that have come or gone are looked for."""


def traffic(text: bytes, interfaces: Collection[bytes] | None = None) -> tuple[int, int]:
    """Bytes received and sent by these interfaces in the text of /proc/net/dev; by all but the
    loopback if None."""
    received = sent = 0
    for line in text.split(b"\n")[2:]:
        name, colon, numbers = line.partition(b":")
        name = name.strip()
        if colon and (name != b"lo" if interfaces is None else name in interfaces):
            fields = numbers.split(None, 9)
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


class NetworkSource:
    """A file like /proc/PID/net/dev. The open file belongs to the network namespace, not to the
    process, so it outlives the process. Fulfils DetailSource."""

    def __init__(
        self, path: str, interfaces: Callable[[], Collection[bytes]] | None = None
    ) -> None:
        """`interfaces` returns those that count; None for all but the loopback."""
        self._file = -1
        self._interfaces = interfaces
        self._counted: Collection[bytes] | None = None
        self._age = _LOOK_AGAIN
        with contextlib.suppress(OSError):
            self._file = os.open(path, _READ)

    def fill(self, found: DetailReading) -> None:
        if self._file < 0:
            return
        if self._interfaces is not None and self._age >= _LOOK_AGAIN:
            self._age = 0
            self._counted = self._interfaces()
        self._age += 1
        with contextlib.suppress(OSError, ValueError, IndexError):
            received, sent = traffic(os.pread(self._file, _LARGE, 0), self._counted)
            found[_RECEIVE], found[_TRANSMIT] = float(received), float(sent)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def of_process(pid: int) -> NetworkSource | None:
    """The network of a process; None if it is that of this machine."""
    try:
        if _namespace(str(pid)) == _namespace("self"):
            return None
    except OSError:
        return None
    return NetworkSource(f"/proc/{pid}/net/dev")


def _namespace(pid: str) -> tuple[int, int]:
    status = os.stat(f"/proc/{pid}/ns/net")
    return status.st_dev, status.st_ino


def of_machine() -> NetworkSource:
    """The interfaces by which this machine is connected to others."""
    return NetworkSource("/proc/net/dev", hardware)


def hardware(directory: str = "/sys/class/net", routes: str = "/proc/net/route") -> set[bytes]:
    """Names of interfaces with a device; if there is none, those with a default route. Bridges,
    tunnels and the ends of pods would count the same bytes again."""
    with contextlib.suppress(OSError):
        names = os.listdir(directory)
        found = {each.encode() for each in names if os.path.exists(f"{directory}/{each}/device")}
        if found:
            return found
    with contextlib.suppress(OSError), open(routes, "rb") as file:
        lines = [line.split() for line in file.read().splitlines()[1:]]
        return {fields[0] for fields in lines if len(fields) > 1 and fields[1] == b"00000000"}
    return set()
