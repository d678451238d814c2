"""Masquerading: connections of pods to the outside have the machine's address."""

import asyncio
import contextlib
import logging
import shutil
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from kedge.machinery import atomic

log = logging.getLogger(__name__)

_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_BEFORE: Final = Path("/run/kedge/forwarding")
"""The value of ip_forward before the first node of the machine started, for the last one to
restore."""


async def allow(name: str, network: IPv4Network) -> str:
    """Enable masquerading; return a text for the log that says how, or why not."""
    way = await _hide(name, network)
    if not way:
        return "neither nft nor iptables is installed: pods reach only this machine and each other"
    _forward()
    return f"pods reach the outside by {way}"


async def forbid(name: str, network: IPv4Network) -> None:
    """Disable masquerading of one network."""
    for command in (_nft_removal(name), _iptables(network, "-D")):
        if shutil.which(command[0]):
            await _run(command)


def stop_forwarding() -> None:
    """Restore the setting that all nodes of the machine share, after the last one."""
    if _BEFORE.exists():
        _FORWARDING.write_text(_BEFORE.read_text())
        _BEFORE.unlink()
        with contextlib.suppress(OSError):
            _BEFORE.parent.rmdir()


async def _hide(name: str, network: IPv4Network) -> str:
    if shutil.which("nft"):
        await _run(_nft_removal(name))
        if await _run(["nft", "-f", "-"], _nft_table(name, network)):
            return "nftables"
    if shutil.which("iptables"):
        present = await _run(_iptables(network, "-C"))
        if present or await _run(_iptables(network, "-A")):
            return "iptables"
    return ""


def _forward() -> None:
    """Enable IP forwarding, and store the previous value."""
    before = _FORWARDING.read_text()
    if before.strip() != "1":
        _BEFORE.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write(_BEFORE, before.encode())
        _FORWARDING.write_text("1")


def _nft_table(name: str, network: IPv4Network) -> str:
    return (
        f"table ip {name} {{\n"
        "  chain postrouting {\n"
        "    type nat hook postrouting priority 100; policy accept;\n"
        f"    ip saddr {network} ip daddr != {network} masquerade\n"
        "  }\n"
        "}\n"
    )


def _nft_removal(name: str) -> list[str]:
    return ["nft", "delete", "table", "ip", name]


def _iptables(network: IPv4Network, action: str) -> list[str]:
    rule = ["-s", str(network), "!", "-d", str(network), "-j", "MASQUERADE"]
    return ["iptables", "-w", "-t", "nat", action, "POSTROUTING", *rule]


async def _run(command: list[str], given: str = "") -> bool:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.communicate(given.encode())
    return process.returncode == 0
