"""The network namespace of an ordinary user's nodes.

An ordinary user owns every namespace below the user namespace that it makes. The supervisor lives
in such a user namespace with a network namespace of its own, so what it does not change in the
machine's network, it can change there: links, addresses, routes and packet rules. The nodes of one
cluster share one network namespace, as the nodes of root share that of the machine. The kernel
removes it with the last supervisor. Agents and servers ask for sockets in it
(kedge.supervisor.sockets).
"""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from typing import Final, NamedTuple

from kedge.supervisor.kernel import cgroups
from kedge.supervisor.server import AgentRequest, Handler, RequestError

OWN, MACHINE = "own", "machine"
"""The values of `network` in the answer to `hello`: a network namespace of the supervisor's own, or
the machine's."""
SWITCHES: Final = ("forwarding", "send_redirects", "route_localnet")
"""Settings of a link that agents may change."""
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)


class SocketRequests:
    """Answers requests for sockets in the supervisor's network namespace."""

    def handlers(self) -> dict[str, Handler]:
        return {"socket": self._socket, "switch": self._switch}

    def _socket(self, call: AgentRequest) -> None:
        family, kind, protocol = (int(call.message[key]) for key in ("family", "kind", "protocol"))
        if family not in _FAMILIES:
            raise RequestError(f"no sockets of the family {family}")
        made = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        call.answer({}, [made.detach()])

    def _switch(self, call: AgentRequest) -> None:
        link, name, value = (str(call.message[key]) for key in ("link", "name", "value"))
        if name not in SWITCHES or not link.isalnum():
            raise RequestError(f"{link}/{name} is not a setting of a link that agents may change")
        cgroups.write(f"/proc/sys/net/ipv4/conf/{link}/{name}", value)
        call.answer()


class SharedNamespaces(NamedTuple):
    """Descriptors of the namespaces that the supervisors of one cluster share."""

    user: int
    network: int


@contextlib.contextmanager
def exclusive(directory: str) -> Iterator[None]:
    """Lock out other supervisors of the cluster that are starting: one makes the namespaces, and
    the others find them once it listens."""
    # Not above, here and below: only the supervisors of ordinary users find each other.
    from kedge.supervisor.sockets import nodes_directory

    nodes = nodes_directory(directory)
    if not nodes:
        yield
        return
    held = os.open(nodes, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        # Explicitly: forked children have the descriptor too.
        fcntl.flock(held, fcntl.LOCK_UN)
        os.close(held)


def shared_namespaces(directory: str) -> SharedNamespaces | None:
    """Return the namespaces of another supervisor of the cluster; None if no other runs."""
    from kedge.supervisor.sockets import siblings

    for other in siblings(directory):
        with contextlib.suppress(OSError):
            if found := _namespaces_of(other):
                return found
    return None


def _namespaces_of(directory: str) -> SharedNamespaces | None:
    from kedge.supervisor.sockets import supervisor

    pid = supervisor(directory)
    if not pid or _is_ours(pid):
        return None
    found = SharedNamespaces(
        *(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("user", "net"))
    )
    # Checked again: the pid may have been reused in between.
    if supervisor(directory) == pid:
        return found
    for descriptor in found:
        os.close(descriptor)
    return None


def _is_ours(pid: int) -> bool:
    """Whether a process has no user namespace of its own: nothing is to be shared with it."""
    return os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user")
