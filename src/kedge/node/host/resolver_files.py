"""The machine's own /etc/resolv.conf and /etc/hosts, which pods may inherit."""

from pathlib import Path

from kedge.node.network.dns import resolv_conf
from kedge.node.runtime.runtime import DnsConfig


def machine_dns() -> DnsConfig:
    """Return the name servers and search domains of the machine."""
    return resolv_conf(_read("/etc/resolv.conf"))


def machine_hosts() -> str:
    """Return the machine's table of host names; empty if it has none."""
    return _read("/etc/hosts")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
