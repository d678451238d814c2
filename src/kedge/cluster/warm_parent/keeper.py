"""The keeper of one cluster: starts its programs, waits for the test process, then ends them.

The cluster lives as long as the connection to the test process. The kernel closes the connection
when that process ends, however it ends.
"""

import contextlib
import os
import select
import signal
import socket
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from kedge.cli.cluster import node, process, server, state
from kedge.cli.cluster.announcement import Announcement, decode
from kedge.cli.cluster.up.command import UpConfig, context
from kedge.cli.config.settings import Settings
from kedge.cli.config.up import up_config
from kedge.cli.failure import Failure
from kedge.client import kubeconfig
from kedge.cluster.warm_parent import leftovers
from kedge.cluster.warm_parent.message import (
    ClusterAnswer,
    ClusterEnd,
    ClusterRequest,
    MessageSocket,
)
from kedge.cluster.warm_parent.program import ForkedProgram, Work
from kedge.cluster.warm_parent.signing_key import SharedSigningKey
from kedge.machinery import atomic
from kedge.machinery.clock import SystemClock
from kedge.node.config import NodeConfig

SERVER: Final = "server"
GRACE_SECONDS: Final = 10.0
"""How long the programs of a cluster that is kept may take to end by themselves."""


def keep(connection: socket.socket, parser: ArgumentParser, key: SharedSigningKey) -> None:
    """Run the cluster that the test process asks for, until it closes the connection."""
    os.setsid()
    messages = MessageSocket(connection)
    line = messages.line()
    if not line:
        return
    keeper = Keeper(msgspec.json.decode(line, type=ClusterRequest), messages, key)
    try:
        answer = keeper.start(parser)
    except Exception as error:
        # The test process raises it; here the rest of the cluster is to be removed.
        answer = ClusterAnswer(error=str(error) or repr(error))
    try:
        messages.send(answer)
        if not answer.error and not keeper.wait():
            return
    except ConnectionError:
        pass  # the test process was killed
    ended = ClusterEnd(problems=keeper.end())
    try:
        messages.send(ended)
    except ConnectionError:
        if ended.problems:
            raise Failure(ended.problems) from None


class Keeper:
    """The programs and the directory of one cluster."""

    def __init__(
        self, request: ClusterRequest, messages: MessageSocket, key: SharedSigningKey
    ) -> None:
        self._request = request
        self._messages = messages
        self._key = key
        self._programs: list[ForkedProgram] = []
        self._state: Path | None = None

    def start(self, parser: ArgumentParser) -> ClusterAnswer:
        """Start all programs; returns when they are ready."""
        os.environ.clear()
        os.environ.update(self._request.environment)
        os.chdir(self._request.directory)
        if not self._request.state:
            atomic.forgo_sync()
        self._state = self._make_directory()
        config = self._config(parser, self._state)
        self._prepare(config)
        self._fork(SERVER, self._state / "server.log", _server(config, self._messages))
        for one in config.nodes:
            self._fork(one.name, one.state / "node.log", _node(one, self._messages))
        deadline = SystemClock().monotonic() + config.wait
        ready = decode(self._line(self._programs[0], deadline))
        for each in self._programs[1:]:
            each.tell(ready.url)
        file = self._write_kubeconfig(config, ready)
        for each in self._programs[1:]:
            self._line(each, deadline)
        return ClusterAnswer(
            url=ready.url,
            ca_pem=ready.ca_pem,
            token=ready.token,
            state=str(self._state),
            kubeconfig=str(file),
            processes={each.name: each.pid for each in self._programs},
        )

    def wait(self) -> bool:
        """Return when the cluster is to end: True if the test process closes the connection or has
        gone, False if it kept the cluster and another command has ended that."""
        if not self._messages.line():
            return True
        # Not before: the programs end when their keeper does.
        for each in self._programs:
            os.waitpid(each.pid, 0)
        return False

    def end(self) -> str:
        """End the cluster; returns what could not be ended or removed."""
        if self._request.state:
            self._stop()
        for each in self._programs:
            each.kill()
        if self._state is None:
            return ""
        return leftovers.end(self._state, is_kept=bool(self._request.state))

    def _make_directory(self) -> Path:
        if self._request.state:
            return Path(self._request.state).resolve()
        return Path(tempfile.mkdtemp(prefix=leftovers.PREFIX)).resolve()

    def _config(self, parser: ArgumentParser, directory: Path) -> UpConfig:
        plugins = directory / "nodes" / "node-1" / "kubelet" / "device-plugins"
        flags, unknown = parser.parse_known_args(
            # Only one node of a machine can have the directory that Kubernetes has for plugins.
            ["--config=", f"--device-plugin-dir={plugins}", *self._request.arguments]
        )
        if unknown:
            raise Failure(f"kedge up has no setting {unknown[0].partition('=')[0]}")
        flags.state = directory
        config = up_config(Settings(flags))
        if config.spare:
            raise Failure("a cluster for tests has a fixed number of nodes: give one number")
        if self._request.objects:
            begun = replace(config.server, first_objects=Path(self._request.objects))
            return config._replace(server=begun)
        return config

    def _prepare(self, config: UpConfig) -> None:
        directory = config.server.state
        state.prepare(directory, config.server.name)
        process.claim(directory, leftovers.PART)
        self._key.put(config.server.pki)
        for each in config.nodes:
            each.state.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _fork(self, name: str, log: Path, work: Work) -> None:
        self._programs.append(ForkedProgram(name, log, work))

    def _line(self, program: ForkedProgram, deadline: float) -> bytes:
        return program.line(deadline, self._messages.connected.fileno())

    def _write_kubeconfig(self, config: UpConfig, ready: Announcement) -> Path:
        own = config.server.state / "kubeconfig"
        access = kubeconfig.ClusterAccess(
            context(config.server.name), ready.url, ready.ca_pem, ready.token
        )
        kubeconfig.merge(own, access)
        if not self._request.kubeconfig:
            return own
        chosen = Path(self._request.kubeconfig).resolve()
        kubeconfig.merge(chosen, access)
        return chosen

    def _stop(self) -> None:
        """Let the programs end by themselves, because their files are used again."""
        poll = select.poll()
        for each in self._programs:
            poll.register(each.handle, select.POLLIN)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(each.handle, signal.SIGTERM)
        deadline = SystemClock().monotonic() + GRACE_SECONDS
        left = len(self._programs)
        while left and (rest := deadline - SystemClock().monotonic()) > 0:
            for handle, _ in poll.poll(rest * 1000):
                poll.unregister(handle)
                left -= 1


def _server(config: UpConfig, messages: MessageSocket) -> Work:
    def work(ready: int, heard: int) -> int:
        os.close(heard)
        messages.connected.close()
        return server.serve(config.server, server.tell(ready))

    return work


def _node(config: NodeConfig, messages: MessageSocket) -> Work:
    def work(ready: int, heard: int) -> int:
        messages.connected.close()
        return node.run_agent(config, None, node.url_from_pipe(heard), node.tell(ready))

    return work
