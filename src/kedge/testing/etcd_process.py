"""A real etcd for tests and benchmarks: one member on loopback, in a directory of its own."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

START_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.005


class EtcdMissing(Exception):
    """The machine has no etcd."""

    def __init__(self) -> None:
        super().__init__('no etcd on the PATH: run "tools/setup etcd" (Debian: etcd-server)')


class MemberNetwork(NamedTuple):
    """Where a member runs, and its addresses for clients and for other members."""

    client_address: str
    peer_address: str
    program: tuple[str, ...] = ()
    """Starts the member somewhere else."""


LOOPBACK: Final = MemberNetwork("127.0.0.1", "127.0.0.1")


class EtcdProcess:
    """One member; it can be killed and started again with its data."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        scheme: str = "http",
        name: str = "default",
        network: MemberNetwork = LOOPBACK,
    ) -> None:
        self.directory = directory
        self.flags = flags
        self.scheme = scheme
        self.name = name
        self.network = network
        self.client_port, self.peer_port = free_port(), free_port()
        self.peers = f"{name}={self.peer_url}"
        """All members, each with the address for the others."""
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def throwaway(cls, *flags: str) -> Self:
        """Start an empty etcd that does not wait for the disk."""
        etcd = cls(Path(tempfile.mkdtemp(prefix="kedge-etcd-")), "--unsafe-no-fsync", *flags)
        etcd.start()
        return etcd

    @property
    def endpoint(self) -> str:
        return f"{self.network.client_address}:{self.client_port}"

    @property
    def peer_url(self) -> str:
        return f"http://{self.network.peer_address}:{self.peer_port}"

    @property
    def url(self) -> str:
        """The value of --store."""
        return f"etcd://{self.endpoint}"

    def start(self) -> None:
        """Start, and wait until requests are answered."""
        self.spawn()
        self.wait()

    def spawn(self) -> None:
        """Start without waiting."""
        program = shutil.which("etcd")
        if program is None:
            raise EtcdMissing
        client, peer = f"{self.scheme}://{self.endpoint}", self.peer_url
        arguments = [
            f"--data-dir={self.directory / 'data'}",
            f"--listen-client-urls={','.join(self._client_urls())}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--name={self.name}",
            f"--initial-cluster={self.peers}",
            # An election is over at once.
            "--heartbeat-interval=10",
            "--election-timeout=100",
            "--log-level=error",
            *self.flags,
        ]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.network.program, program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def _client_urls(self) -> list[str]:
        """The addresses for clients, also for those in the network of the members."""
        hosts = dict.fromkeys((self.network.client_address, self.network.peer_address))
        return [f"{self.scheme}://{host}:{self.client_port}" for host in hosts]

    def wait(self) -> None:
        """Wait until requests are answered."""
        assert self.process is not None
        deadline = time.perf_counter() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.perf_counter() > deadline:
                log = (self.directory / "log").read_text()
                raise RuntimeError(f"etcd did not start: {log[-2000:]}")
            # A process is waited for in real time.
            time.sleep(_POLL_SECONDS)  # noqa: TID251

    def _answers(self) -> bool:
        if self.scheme == "https":
            with socket.socket() as probe:
                return probe.connect_ex((self.network.client_address, self.client_port)) == 0
        try:
            with urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except OSError:
            return False

    def kill(self) -> None:
        """Kill the process; its data stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Kill the process and delete its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


def three_members(
    directory: Path, networks: Sequence[MemberNetwork] = (LOOPBACK,) * 3
) -> list[EtcdProcess]:
    """Start an etcd cluster of three members, and wait until it has a leader."""
    # Heartbeats that fit a busy machine: a late one is not yet the loss of the leader.
    flags = ("--unsafe-no-fsync", "--heartbeat-interval=50", "--election-timeout=500")
    members = []
    for number, network in enumerate(networks, 1):
        (directory / f"m{number}").mkdir()
        members.append(
            EtcdProcess(directory / f"m{number}", *flags, name=f"m{number}", network=network)
        )
    try:
        for member in members:
            member.peers = ",".join(f"{each.name}={each.peer_url}" for each in members)
            member.spawn()
        for member in members:
            member.wait()
    except BaseException:
        for member in members:
            member.kill()
        raise
    return members


def free_port() -> int:
    """Return a port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
