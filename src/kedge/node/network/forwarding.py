"""Switches of the kernel that let packets of pods pass."""

import contextlib
import logging
from pathlib import Path
from typing import Final

from kedge.machinery import atomic
from kedge.node.network.network_place import MACHINE, NetworkPlace

log = logging.getLogger(__name__)

_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_BEFORE: Final = Path("/run/kedge/forwarding")
"""The value of ip_forward before the first node of the machine started, for the last one to
restore."""


def forward_between_pods(link: str, namespace: NetworkPlace = MACHINE) -> None:
    """Let packets in by a bridge. Unlike `ip_forward`, this changes nothing of the machine."""
    _set(namespace, link, "forwarding", "1")
    # Packets from a pod to another leave by the link by which they came. That is intended.
    _set(namespace, link, "send_redirects", "0")


def forward_from_tunnel(link: str) -> None:
    """Let packets of pods of other machines in."""
    _set(MACHINE, link, "forwarding", "1")
    # Several nodes of a machine send by one tunnel, and each gets the answers by its own. The chain
    # `tunnel` checks senders more strictly than this filter would.
    _set(MACHINE, link, "rp_filter", "2")


def reach_loopback(link: str, namespace: NetworkPlace = MACHINE) -> None:
    """Let rules send packets of pods to programs that listen on 127.0.0.1, and packets of programs
    there to pods. The rules also drop what pods send to 127.0.0.0/8 themselves."""
    _set(namespace, link, "route_localnet", "1")


def start_forwarding() -> None:
    """Let answers from outside in to pods, and store the previous value."""
    before = _FORWARDING.read_text()
    if before.strip() != "1":
        _BEFORE.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write(_BEFORE, before.encode())
        _FORWARDING.write_text("1")


def stop_forwarding() -> None:
    """Restore the setting that all nodes of the machine share, after the last one."""
    if _BEFORE.exists():
        _FORWARDING.write_text(_BEFORE.read_text())
        _BEFORE.unlink()
        with contextlib.suppress(OSError):
            _BEFORE.parent.rmdir()


def _set(namespace: NetworkPlace, link: str, name: str, value: str) -> None:
    try:
        namespace.switch(link, name, value)
    except OSError as error:
        log.warning("cannot set link=%s %s=%s error=%s", link, name, value, error)
