"""The machine's own resolv.conf and hosts, which pods may inherit."""

from pathlib import Path
from typing import Final

from kedge.node.network.dns import resolv_conf
from kedge.node.runtime.runtime import DnsConfig

_ETC: Final = Path("/etc")


def machine_dns(directory: Path = _ETC) -> DnsConfig:
    """Return the name servers and search domains of the machine."""
    return resolv_conf(_read(directory / "resolv.conf"))


def machine_hosts(directory: Path = _ETC) -> str:
    """Return the machine's table of host names; empty if it has none."""
    return _read(directory / "hosts")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
