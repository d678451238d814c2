"""Switches of the kernel that let packets of pods pass.

They are files of /proc/sys. Container engines mount those read-only, also for a container that may
change its network. Netlink sets the same of each link.
"""

import contextlib
import errno
import logging
import os
from pathlib import Path
from typing import Final

from kedge.machinery import atomic
from kedge.node.network.netlink import Netlink
from kedge.node.network.network_place import MACHINE, NetworkPlace

log = logging.getLogger(__name__)

_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_BEFORE: Final = Path("/run/kedge/forwarding")
"""The value of ip_forward before the first node of the machine started, for the last one to
restore."""
_NUMBERS: Final = {"forwarding": 1, "send_redirects": 6, "rp_filter": 8, "route_localnet": 26}
"""The switches of a link by their numbers in linux/ip.h."""


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
    if before.strip() == "1":
        return
    if _is_read_only():
        # Only the links that are there now: a container gets no further ones. The setting is that
        # of the container's network, and ends with it.
        _forward_from_links()
        return
    _BEFORE.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write(_BEFORE, before.encode())
    _FORWARDING.write_text("1")


def stop_forwarding() -> None:
    """Restore the setting that all nodes of the machine share, after the last one."""
    if _BEFORE.exists():
        if not _is_read_only():
            _FORWARDING.write_text(_BEFORE.read_text())
        _BEFORE.unlink()
        with contextlib.suppress(OSError):
            _BEFORE.parent.rmdir()


def _is_read_only() -> bool:
    return bool(os.statvfs(_FORWARDING).f_flag & os.ST_RDONLY)


def _forward_from_links() -> None:
    with Netlink.within(MACHINE) as netlink:
        for index in netlink.links().values():
            netlink.set_ipv4(index, _NUMBERS["forwarding"], 1)


def _set(namespace: NetworkPlace, link: str, name: str, value: str) -> None:
    try:
        _switch(namespace, link, name, value)
    except OSError as error:
        log.warning("cannot set link=%s %s=%s error=%s", link, name, value, error)


def _switch(namespace: NetworkPlace, link: str, name: str, value: str) -> None:
    try:
        namespace.switch(link, name, value)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        with Netlink.within(namespace) as netlink:
            netlink.set_ipv4(netlink.index(link), _NUMBERS[name], int(value))
