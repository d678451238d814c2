"""The programs that carry packets of an ordinary user's pods to the outside, pasta and slirp4netns.

Both read frames from a link that they make in a network namespace, and open ordinary sockets in
the machine's network. They parse whatever pods send, so they run with as few rights as they can,
and without their ways to the machine's loopback addresses.
"""

import asyncio
import contextlib
import fcntl
import os
import resource
import shutil
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Final, NamedTuple

from kedge.node.network.network_place import USER_MTU
from kedge.supervisor.kernel import libc

PASTA, SLIRP4NETNS = "pasta", "slirp4netns"
TUN: Final = "/dev/net/tun"
"""The device by which both make their link."""
TAP: Final = "koutside"
"""The name of that link."""
_GET_OWNER: Final = 0xB701
"""NS_GET_USERNS of ioctl_ns(2): the user namespace that owns a namespace."""
_MOST_WORDS: Final = 1 << 16
_LAST_LINES: Final = 2
_END_SECONDS: Final = 2.0


class UplinkNetwork(NamedTuple):
    """The addresses between a program and the nodes."""

    network: IPv4Network

    @property
    def gateway(self) -> str:
        """That of the program."""
        return str(self.network[2])

    @property
    def router(self) -> str:
        """That of the namespace of the program's link."""
        return str(self.network[100])

    @property
    def nodes(self) -> str:
        """That of the nodes, from which all packets to the outside come."""
        return str(self.network[101])


class UplinkProgram(NamedTuple):
    """An installed program."""

    name: str
    path: str

    def command(self, between: UplinkNetwork, owner: int, namespace: int) -> list[str]:
        """Return its command line. The descriptors are of a user namespace and of a network
        namespace that belongs to it."""
        inside = f"/proc/self/fd/{namespace}"
        if self.name == PASTA:
            return [self.path, *_PASTA, *_pasta(between), f"--userns=/proc/self/fd/{owner}",
                    f"--netns={inside}"]  # fmt: skip
        network = f"--cidr={between.network}"
        return [self.path, *_SLIRP4NETNS, network, "--netns-type=path", inside, TAP]


_PASTA: Final = (
    "--foreground",
    "--quiet",
    f"--mtu={USER_MTU}",
    "--stderr",
    "--ipv4-only",
    # The gateway address would mean the machine's loopback address.
    "--no-map-gw",
    # Ports of the machine, and of the namespace, that would lead to the other side.
    *("--tcp-ports=none", "--udp-ports=none", "--tcp-ns=none", "--udp-ns=none"),
    *("--no-dhcp", "--no-ndp", "--no-dhcpv6", "--no-ra"),
    f"--ns-ifname={TAP}",
)
_SLIRP4NETNS: Final = (
    "--disable-host-loopback",
    "--disable-dns",
    # A mount namespace without the machine's files, no capabilities, and a filter of system calls.
    "--enable-sandbox",
    "--enable-seccomp",
    f"--mtu={USER_MTU}",
)


def _pasta(between: UplinkNetwork) -> list[str]:
    length = between.network.prefixlen
    return [f"--address={between.nodes}", f"--netmask={length}", f"--gateway={between.gateway}"]


def find(name: str) -> UplinkProgram | None:
    """Return an installed program."""
    path = shutil.which(name)
    return UplinkProgram(name, path) if path else None


def lack_of_device() -> str:
    """Return why programs cannot make their link; empty if they can."""
    try:
        os.close(os.open(TUN, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{TUN}: {error.strerror}"
    return ""


class UplinkProcess:
    """A running program. It ends with this process, even if this one is killed."""

    def __init__(self, process: Process, words: int) -> None:
        """`words` is the end of a pipe to which the program writes, and is owned by this object."""
        self._process = process
        self._words = words

    @classmethod
    async def start(
        cls, program: UplinkProgram, between: UplinkNetwork, namespace: int
    ) -> "UplinkProcess":
        """Start a program with its link in a network namespace. Raises OSError."""
        owner = fcntl.ioctl(namespace, _GET_OWNER)
        # Without blocking: words that nothing reads in time are lost, and the program goes on.
        words, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            enters = owner if program.name == SLIRP4NETNS else -1
            process = await asyncio.create_subprocess_exec(
                *program.command(between, owner, namespace),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=writer,
                env={},
                cwd="/",
                pass_fds=(owner, namespace),
                preexec_fn=_preparation(os.getpid(), enters),
            )
        except BaseException:
            os.close(words)
            raise
        finally:
            os.close(owner)
            os.close(writer)
        return cls(process, words)

    @property
    def end_reason(self) -> str:
        """The exit code of the program and its last words; empty while it runs."""
        code = self._process.returncode
        if code is None:
            return ""
        words = "; ".join(self._said()[-_LAST_LINES:])
        return f"it ended with {code}{': ' if words else ''}{words}"

    async def wait(self, seconds: float) -> None:
        """Return when the program ends, or after some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        if self._process.returncode is None:
            # Room for later words.
            self._said()

    async def end(self) -> None:
        """Kill the program."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self.wait(_END_SECONDS)
        os.close(self._words)

    def _said(self) -> list[str]:
        """Return the lines that the program has written since the last call."""
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._words, _MOST_WORDS).decode(errors="replace")
            return [each for each in said.splitlines() if each.strip()]
        return []


def _preparation(parent: int, enters: int) -> Callable[[], None]:
    """Return what the child does before it becomes the program."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)

    def prepare() -> None:
        if enters >= 0:
            # The sandbox of slirp4netns takes root of a user namespace.
            libc.setns(enters, libc.NEW_USER)
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        # Each connection of a pod takes a descriptor.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return prepare
