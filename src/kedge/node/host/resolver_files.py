"""The machine's own resolv.conf and hosts, which pods may inherit."""

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kedge.api.builtin.service_networks import is_cluster_server
from kedge.node.network.dns import resolv_conf
from kedge.node.runtime.runtime import DnsConfig

_ETC: Final = Path("/etc")


def machine_dns(directory: Path = _ETC) -> DnsConfig:
    """Return the name servers and search domains of the machine, without those of clusters."""
    found = resolv_conf(_read(directory / "resolv.conf"))
    return replace(found, servers=[e for e in found.servers if not is_cluster_server(e)])


def machine_hosts(directory: Path = _ETC) -> str:
    """Return the machine's table of host names; empty if it has none."""
    return _read(directory / "hosts")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
