"""Network namespaces that stand for machines, each with its own cluster directory, and segments
that connect them."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Final

from kedge.node.network.netlink import Netlink
from kedge.testing.network import NetworkNamespace

LINK: Final = "eth0"
"""The name of the link of each machine."""
_LIFE_SECONDS: Final = 900
_PATIENCE_SECONDS: Final = 90
_ENDING_SECONDS: Final = 30


class Machine:
    """A network namespace in which kedge runs with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.namespace = NetworkNamespace(_LIFE_SECONDS)
        self.home = home
        self.state = home / "state"
        home.mkdir()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("KEDGE_", "KUBE"))}
        own = {"HOME": str(home), "XDG_STATE_HOME": str(home / "states")}
        self.environment = clean | own | {"KUBECONFIG": str(home / "kubeconfig")}
        with self.netlink() as inside:
            inside.raise_link(inside.index("lo"))

    def netlink(self) -> Netlink:
        return Netlink(socket.socket(fileno=self.namespace.netlink()))

    def command(self, *words: str) -> list[str]:
        """Return the words that run a command on this machine."""
        return ["nsenter", f"--net={self.namespace.path}", *words]

    def run(self, *words: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*words),
            env=self.environment,
            cwd=self.home,
            input=given,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )

    def says(self, *words: str, given: str | None = None) -> str:
        """Run a command, which must succeed; return its output."""
        done = self.run(*words, given=given)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout.strip()

    def kedge(self, *arguments: str) -> str:
        return self.says(sys.executable, "-m", "kedge", *arguments, f"--state={self.state}")

    def kubectl(self, line: str, given: str | None = None) -> str:
        return self.says("kubectl", *shlex.split(line), given=given)

    def join_arguments(self) -> list[str]:
        """Return the words after `kedge node` of the command that this machine prints."""
        printed = shlex.split(self.kedge("token", "create", "--print-join-command"))
        assert printed[:2] == ["kedge", "node"]
        return printed[2:]

    def start_node(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a node agent and return it when the node is ready. Its messages go to a file."""
        words = [sys.executable, "-m", "kedge", "node", *arguments, f"--state={self.state}"]
        messages = self.home / "node.log"
        with messages.open("ab") as written:
            begun = written.tell()
            agent = subprocess.Popen(
                self.command(*words), env=self.environment, cwd=self.home, stderr=written
            )
        while "is ready" not in (said := messages.read_text()[begun:]):
            try:
                agent.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(said)
        return agent

    @contextmanager
    def node(self, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a node agent, ready; end it as an operator would."""
        agent = self.start_node(*arguments)
        try:
            yield agent
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait(_ENDING_SECONDS)

    def links(self) -> set[str]:
        with self.netlink() as inside:
            return set(inside.links())

    def end(self) -> None:
        """Remove everything of kedge on the machine, then the machine."""
        self.run(sys.executable, "-m", "kedge", "down", "--purge", f"--state={self.state}")
        self.namespace.end()


class Wiring:
    """Network segments, and a router between them, in a namespace of their own."""

    def __init__(self) -> None:
        self.namespace = NetworkNamespace(_LIFE_SECONDS)
        self._cables = 0
        with self._netlink() as inside:
            inside.raise_link(inside.index("lo"))
        forwarding = "/proc/sys/net/ipv4/ip_forward"
        words = ["nsenter", f"--net={self.namespace.path}", "sh", "-c", f"echo 1 > {forwarding}"]
        subprocess.run(words, check=True)

    def _netlink(self) -> Netlink:
        return Netlink(socket.socket(fileno=self.namespace.netlink()))

    def add_segment(self, name: str, router: IPv4Interface | None = None) -> None:
        """Add a segment, on which the router has an address."""
        with self._netlink() as inside:
            inside.add_bridge(name)
            index = inside.index(name)
            if router is not None:
                inside.add_address(index, router)
            inside.raise_link(index)

    def connect(
        self, machine: Machine, segment: str, address: IPv4Interface, router: IPv4Interface | None
    ) -> None:
        """Connect a machine to a segment, with a default route to the router."""
        self._cables += 1
        with self._netlink() as inside:
            name = f"cable{self._cables}"
            inside.add_pair(name, LINK, machine.namespace.path, inside.index(segment))
        with machine.netlink() as there:
            index = there.index(LINK)
            there.add_address(index, address)
            there.raise_link(index)
            if router is not None:
                there.add_default_route(index, router.ip)

    def end(self) -> None:
        self.namespace.end()
