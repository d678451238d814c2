"""The composition root: a configuration in, a running cluster out."""

import contextlib
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from kedge.cli import node, process, registry, server, state
from kedge.cli.announcement import Announcement, decode
from kedge.cli.children import Child, Launch, Program, launching
from kedge.cli.down import end_nodes, withdraw_context
from kedge.cli.failure import Failure
from kedge.cli.up import Say, Up, UpConfig, context
from kedge.machinery.clock import SystemClock

if TYPE_CHECKING:
    from kedge.apiserver.config import ServerConfig
    from kedge.node.config import NodeConfig


_GRACE: Final = 10.0
"""Seconds that an agent gets to end by itself."""


def background(config: UpConfig, say: Say) -> Up:
    """Start the cluster in the background, or what of it does not run."""
    while True:
        # Who waited for it to be deleted has to begin anew.
        with contextlib.suppress(state.Gone):
            return _start(config, say)


def _start(config: UpConfig, say: Say) -> Up:
    directory = config.server.state
    cluster = prepare(config, say)
    with state.changing(directory):
        started = SystemClock().monotonic()
        if process.running(directory):
            revive(config, say)
            return _as_it_runs(directory)
        settings = settle_port(config, cluster, say)
        say(f'Starting cluster "{cluster.name}" in {directory} ...')
        try:
            with launching() as launch:
                # All start at once: an agent has much to do before it needs a server.
                program = launch(server_program(settings))
                nodes = agents(config, launch)
                announced = decode(program.line(config.wait))
                took = SystemClock().monotonic() - started
                tell(nodes, announced.url)
                done = adopt(config, announced)
                say(f"API server ready at {done.url} ({took:.2f} s).")
                wait_for(nodes, config.wait)
        except BaseException:
            # What the agents had started by then does not end with them.
            end_nodes(directory)
            raise
        if nodes:
            took = SystemClock().monotonic() - started
            say(f"{_nodes(len(nodes))} ready ({took:.2f} s).")
    return done


def foreground(config: UpConfig, say: Say) -> Up | None:
    """Run the cluster until it is told to end, and undo what was done; None, unless it runs."""
    directory = config.server.state
    cluster = prepare(config, say)
    if process.running(directory):
        return _as_it_runs(directory)
    settings = settle_port(config, cluster, say)
    adopted = False
    with launching() as launch:
        nodes = agents(config, launch)

        def announce(ready: Announcement) -> None:
            nonlocal adopted
            tell(nodes, ready.url)
            done = adopt(config, ready)
            adopted = True
            say(f'API server of cluster "{cluster.name}" ready at {done.url}; Ctrl-C stops it.')
            say(f'Context "{context(cluster.name)}" is the current one in {done.kubeconfig}.')

        try:
            server.run(settings, announce)
        finally:
            end_nodes(directory)
            if adopted:
                withdraw_context(directory, config.root)
    return None


def agents(config: UpConfig, launch: Launch) -> list[Child]:
    """The agents of the nodes, started and waiting to be told where the server is. By then it has
    made their certificates."""
    for one in config.nodes:
        # Whatever is made below, with whatever rights, is then nobody else's to reach.
        one.state.parent.mkdir(mode=0o700, exist_ok=True)
        one.state.mkdir(mode=0o700, exist_ok=True)
        if agent := process.running(one.state, "node"):
            # It outlived its server and may look for it elsewhere; containers do not mind.
            process.stop(agent, _GRACE)
    return [launch(node_program(one, config.server.state)) for one in config.nodes]


def tell(nodes: Sequence[Child], url: str) -> None:
    """Let the nodes join the server."""
    for one in nodes:
        one.tell(url)


def wait_for(nodes: Sequence[Child], patience: float) -> None:
    """Return when all nodes are ready."""
    for one in nodes:
        one.line(patience)


def revive(config: UpConfig, say: Say) -> None:
    """Start the agents that this cluster's nodes had and have lost."""
    directory = config.server.state
    known = state.read_server(directory)
    lost = [one for one in config.nodes if one.pki.exists() and not runs(one)]
    if known is None or not lost:
        return
    with launching() as launch:
        children = [launch(node_program(one, directory)) for one in lost]
        tell(children, known.url)
        wait_for(children, config.wait)
    for one in lost:
        say(f'The agent of node "{one.name}" was not running: it is again.')


def runs(node: "NodeConfig") -> bool:
    return process.running(node.state, "node") is not None


def _nodes(number: int) -> str:
    return "Node" if number == 1 else f"{number} nodes"


def prepare(config: UpConfig, say: Say) -> state.Cluster:
    """See that nothing will be in the way, then make the cluster's directory."""
    name, directory = config.server.name, config.server.state
    if config.kubeconfig.exists():
        check(config.kubeconfig, context(name), state.authority(directory))
    registry.check_free(config.root, name, directory)
    cluster = state.prepare(directory, name)
    try:
        registry.register(config.root, name, directory)
    except OSError as error:
        say(
            f"warning: 'kedge list' will not show this cluster: cannot write to {config.root}:"
            f" {error.strerror}. Stop it with 'kedge down --state {directory}'."
        )
    return cluster


def check(path: Path, name: str, ours: bytes) -> None:
    """See that the kubeconfig is one, and that no other cluster is in use under our name."""
    # Not above: nothing is to wait for a YAML library that there is nothing to read with.
    from kedge.client import kubeconfig

    try:
        known = kubeconfig.find(path, name)
    except kubeconfig.Unusable as error:
        raise Failure(str(error)) from error
    if known and known.ca_pem not in (b"", ours) and answers(known.server):
        raise Failure(
            f'the context "{name}" in {path} is that of another cluster, at {known.server}: choose'
            " another --name, or another file with --kubeconfig"
        )


def answers(url: str) -> bool:
    """Whether somebody listens there."""
    where = urlsplit(url)
    try:
        socket.create_connection((where.hostname or "", where.port or 443), 1).close()
    except (OSError, ValueError):
        return False
    return True


def settle_port(config: UpConfig, cluster: state.Cluster, say: Say) -> "ServerConfig":
    """The server's configuration with the port it is to have: as asked, as before, or any."""
    asked = config.server
    if config.port_given or not cluster.port:
        return asked
    if port_is_free(asked.host, cluster.port):
        return msgspec.structs.replace(asked, port=cluster.port)
    say(f"Port {cluster.port}, which the cluster had before, is in use: taking another one.")
    return asked


def port_is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def server_program(settings: "ServerConfig") -> Program:
    return Program(
        what="the server",
        arguments=[*_kedge(), server.NAME, *server.arguments(settings)],
        log=settings.state / "server.log",
    )


def node_program(config: "NodeConfig", directory: Path) -> Program:
    return Program(
        what=f'node "{config.name}"',
        arguments=[*_kedge(), node.NAME, *node.arguments(config, directory)],
        log=config.state / "node.log",
        told="--join-fd",
    )


def _kedge() -> list[str]:
    # -P: nothing that lies about in the working directory is to be taken for a module.
    return [sys.executable, "-P", "-m", "kedge"]


def adopt(config: UpConfig, announced: Announcement) -> Up:
    """Point kubectl at the cluster, and remember how things were before."""
    from kedge.client import kubeconfig

    directory = config.server.state
    cluster = _remembered(directory)
    if cluster.kubeconfig not in ("", str(config.kubeconfig)):
        # A server that was killed has left its context in another file.
        withdraw_context(directory, config.root)
        cluster = _remembered(directory)
    access = kubeconfig.Access(
        context(cluster.name), announced.url, announced.ca_pem, announced.token
    )
    try:
        before = kubeconfig.merge(config.kubeconfig, access)
    except kubeconfig.Unusable as error:
        raise Failure(str(error)) from error
    cluster = msgspec.structs.replace(
        cluster,
        port=urlsplit(announced.url).port or 0,
        kubeconfig=str(config.kubeconfig),
        previous_context=before.context or cluster.previous_context,
        kubeconfig_existed=before.existed and cluster.kubeconfig_existed,
    )
    state.write(directory, cluster)
    return Up(announced.url, cluster.kubeconfig, before.context, was_running=False)


def _remembered(directory: Path) -> state.Cluster:
    cluster = state.read(directory)
    if cluster is None:
        raise Failure(f"{directory} was removed while the cluster was being started")
    return cluster


def _as_it_runs(directory: Path) -> Up:
    known = state.read_server(directory)
    url = known.url if known else "an address that is not known yet"
    return Up(url, _remembered(directory).kubeconfig, "", was_running=True)
