"""The composition root: a configuration in, a running cluster out."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from kedge.cli import integrity, node, process, registry, restarts, server, state
from kedge.cli.announcement import Announcement, decode
from kedge.cli.children import Child, ProgramSpec, launching
from kedge.cli.down import changing, end_nodes, withdraw_context
from kedge.cli.failure import AlreadyRunning, Failure
from kedge.cli.process import Process
from kedge.cli.up import Say, Up, UpConfig, context
from kedge.machinery.clock import SystemClock
from kedge.restarter.program import Program
from kedge.restarter.restarter import SERVER

if TYPE_CHECKING:
    from kedge.apiserver.config import ServerConfig
    from kedge.node.config import NodeConfig


_GRACE: Final = 10.0
"""Seconds that an agent gets to end by itself."""
_ATTEMPTS: Final = 3
_PAUSE: Final = 0.02
_JOIN_FLAG: Final = "--join-fd"


def background(config: UpConfig, say: Say) -> Up:
    """Start the cluster in the background, or what of it does not run."""
    attempts = _ATTEMPTS
    while True:
        # Begin again if another command has deleted the cluster meanwhile, or if the ending
        # parent has started a server.
        with contextlib.suppress(state.Gone):
            try:
                return _start(config, say)
            except AlreadyRunning as error:
                attempts -= 1
                if not attempts:
                    # The exit codes that tell failures apart are for what starts servers again.
                    raise Failure(str(error)) from error


def _start(config: UpConfig, say: Say) -> Up:
    directory = config.server.state
    cluster = prepare(config, say)
    with changing(directory):
        if is_whole(config):
            return _as_it_runs(directory)
        # From here on nothing is restarted, and half-started programs have ended.
        restarts.stop(directory)
        if process.running(directory):
            return _complete(config, say)
        return _start_all(config, cluster, say)


def is_whole(config: UpConfig) -> bool:
    """Return whether the whole cluster runs, and its parent too unless the policy is never."""
    directory = config.server.state
    if process.running(directory) is None:
        return False
    known = restarts.read(directory)
    if known is None or not all(each.state == "running" for each in known.parts):
        return False
    if not all(runs(one) for one in config.nodes if one.pki.exists()):
        return False
    return known.policy == "never" or restarts.running(directory) is not None


def _start_all(config: UpConfig, cluster: state.Cluster, say: Say) -> Up:
    started = SystemClock().monotonic()
    directory = config.server.state
    settings = settle_port(config, cluster, say)
    say(f'Starting cluster "{cluster.name}" in {directory} ...')
    prepare_nodes(config.nodes)
    # All start at once: an agent has much to do before it needs a server.
    programs = {SERVER: server_program(settings)} | node_programs(config.nodes, directory)
    try:
        with launching(directory, programs) as launch:
            nodes = [each for name, each in launch.children.items() if name != SERVER]
            announced = decode(launch.children[SERVER].line(config.wait))
            took = SystemClock().monotonic() - started
            tell(nodes, announced.url)
            done = adopt(config, announced)
            say(f"API server ready at {done.url} ({took:.2f} s).")
            wait_for(nodes, config.wait)
            launch.keep(_parts(programs, announced.url, None), config.restart)
    except BaseException:
        # Containers that the agents have started do not end with them. If ending them fails, the
        # next command tries again: the user needs the reason of the failed start.
        with contextlib.suppress(Failure):
            end_nodes(directory)
        raise
    if nodes:
        took = SystemClock().monotonic() - started
        say(f"{_nodes(len(nodes))} ready ({took:.2f} s).")
    return done


def _complete(config: UpConfig, say: Say) -> Up:
    """Start missing agents and a missing parent; the server runs."""
    directory = config.server.state
    known = _ready_server(config)
    recorded = restarts.read(directory)
    programs = _recorded_programs(config, recorded)
    pids = {name: process.running(*_place(directory, name)) for name in programs}
    lost = {name: each for name, each in programs.items() if pids[name] is None}
    found = {name: each for name, each in pids.items() if each is not None}
    policy = recorded.policy if recorded else config.restart
    with launching(directory, lost, found) as launch:
        tell([*launch.children.values()], known.url)
        wait_for([*launch.children.values()], config.wait)
        launch.keep(_parts(programs, known.url, recorded), policy)
    for name in lost:
        say(f'The agent of node "{name}" was not running and was restarted.')
    if policy == "always" and not lost:
        say("The process that restarts the others was not running and was restarted.")
    return _as_it_runs(directory)


def _ready_server(config: UpConfig) -> state.Server:
    """Wait for the running server's record, and return it."""
    directory, clock = config.server.state, SystemClock()
    deadline = clock.monotonic() + config.wait
    while clock.monotonic() < deadline:
        running, known = process.running(directory), state.read_server(directory)
        if running is None:
            raise AlreadyRunning(f"the server in {directory} has just ended")
        if known is not None and known.pid == running.pid:
            return known
        time.sleep(_PAUSE)  # noqa: TID251 - no event loop runs here
    raise Failure(
        f"the server in {directory} was not ready within {config.wait:g} s: allow more time with"
        " --wait, or stop it with 'kedge down'"
    )


def _place(directory: Path, name: str) -> tuple[Path, str]:
    """Return the directory of the process' pid file, and the name of that file."""
    return (directory, SERVER) if name == SERVER else (directory / "nodes" / name, node.NAME)


def _recorded_programs(config: UpConfig, recorded: restarts.Restarts | None) -> dict[str, Program]:
    """Return the programs of a running cluster with the flags that they were started with: new
    flags apply from the next start. Programs without a record get the flags of this command."""
    directory = config.server.state
    settings = settle_port(config, _remembered(directory), _nothing)
    here = [one for one in config.nodes if one.pki.exists()]
    programs = {SERVER: server_program(settings)} | node_programs(here, directory)
    for each in recorded.parts if recorded else ():
        place, _ = _place(directory, each.name)
        if each.flags and place.exists():
            what = programs[each.name].what if each.name in programs else f'node "{each.name}"'
            told = "" if each.name == SERVER else _JOIN_FLAG
            log = str(place / ("server.log" if each.name == SERVER else "node.log"))
            programs[each.name] = Program(what, [*_kedge(), *each.flags], log, told)
    return programs


def _parts(
    programs: Mapping[str, Program], url: str, recorded: restarts.Restarts | None
) -> list[ProgramSpec]:
    """Return the programs in the form that their parent needs."""
    before = {each.name: each for each in recorded.parts} if recorded else {}
    return [_program_spec(name, each, url, before.get(name)) for name, each in programs.items()]


def _program_spec(
    name: str, program: Program, url: str, before: restarts.ProgramStatus | None
) -> ProgramSpec:
    skipped = len(_kedge())
    flags = list(program.arguments[skipped:])
    if name == SERVER:
        # A restarted server uses the same port, where clients know it.
        port = urlsplit(url).port or 0
        flags = [f"--port={port}" if flag.startswith("--port=") else flag for flag in flags]
    return ProgramSpec(
        name=name,
        what=program.what,
        arguments=[*program.arguments[:skipped], *flags],
        flags=flags,
        log=program.log,
        told=program.told,
        line=url if program.told else "",
        restarts=before.restarts if before else 0,
        reason=before.reason if before else "",
        ended=before.ended if before else 0.0,
    )


def foreground(config: UpConfig, say: Say) -> Up | None:
    """Run the cluster until it is told to end, and undo what was done; None, unless it runs."""
    directory = config.server.state
    cluster = prepare(config, say)
    with contextlib.ExitStack() as turn:
        # Until the server is ready: another command would take what is half started for leftovers.
        turn.enter_context(changing(directory))
        if process.running(directory):
            return _as_it_runs(directory)
        restarts.stop(directory)
        _run_in_foreground(config, cluster, say, turn)
    return None


def _run_in_foreground(
    config: UpConfig, cluster: state.Cluster, say: Say, turn: contextlib.ExitStack
) -> None:
    """Be the server; `turn` is closed when other commands may touch the cluster."""
    directory = config.server.state
    settings = settle_port(config, cluster, say)
    prepare_nodes(config.nodes)
    programs = node_programs(config.nodes, directory)
    # The server is this very process: its end is the end of the cluster.
    here = {SERVER: Process(os.getpid(), process.birth(os.getpid()))}
    adopted = False
    with launching(directory, programs, here) as launch:

        def announce(ready: Announcement) -> None:
            nonlocal adopted
            nodes = [*launch.children.values()]
            tell(nodes, ready.url)
            done = adopt(config, ready)
            adopted = True
            this = ProgramSpec(name=SERVER, what="the server", arguments=[], flags=[], log="")
            launch.keep([this, *_parts(programs, ready.url, None)], config.restart)
            say(f'API server of cluster "{cluster.name}" ready at {done.url}; Ctrl-C stops it.')
            say(f'Context "{context(cluster.name)}" is the current one in {done.kubeconfig}.')
            turn.close()

        try:
            server.run(settings, announce)
        except AlreadyRunning:
            # By other means than 'kedge up': nodes and the process that restarts them are its own.
            raise
        except BaseException:
            _end_foreground(config, adopted=adopted)
            raise
        _end_foreground(config, adopted=adopted)


def _end_foreground(config: UpConfig, *, adopted: bool) -> None:
    # Not in turn with other commands: a 'kedge down' that has stopped this process waits for it.
    directory = config.server.state
    restarts.stop(directory)
    end_nodes(directory)
    if adopted:
        withdraw_context(directory, config.root)


def prepare_nodes(nodes: Sequence["NodeConfig"]) -> None:
    """Make the directories of nodes; end agents that outlived their server."""
    for one in nodes:
        # Whatever is made below, with whatever rights, is then nobody else's to reach.
        one.state.parent.mkdir(mode=0o700, exist_ok=True)
        one.state.mkdir(mode=0o700, exist_ok=True)
        # It may have the address of another server. Containers are not affected.
        restarts.stop_process(one.state, node.NAME, _GRACE)


def node_programs(nodes: Sequence["NodeConfig"], directory: Path) -> dict[str, Program]:
    """Return the programs of node agents, which wait for the server's address. The server makes
    their certificates before that."""
    return {one.name: node_program(one, directory) for one in nodes}


def tell(nodes: Sequence[Child], url: str) -> None:
    """Let the nodes join the server."""
    for one in nodes:
        one.tell(url)


def wait_for(nodes: Sequence[Child], patience: float) -> None:
    """Return when all nodes are ready."""
    for one in nodes:
        one.line(patience)


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
    if process.running(directory) is None:
        # Before anything is started: containers must not end because of an error that the server
        # would report.
        for note in integrity.check(directory, cluster, database=config.server.store == "sqlite"):
            say(f"warning: {note}.")
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
    except kubeconfig.KubeconfigError as error:
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
        log=str(settings.state / "server.log"),
    )


def node_program(config: "NodeConfig", directory: Path) -> Program:
    return Program(
        what=f'node "{config.name}"',
        arguments=[*_kedge(), node.NAME, *node.arguments(config, directory)],
        log=str(config.state / "node.log"),
        told=_JOIN_FLAG,
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
    access = kubeconfig.ClusterAccess(
        context(cluster.name), announced.url, announced.ca_pem, announced.token
    )
    try:
        before = kubeconfig.merge(config.kubeconfig, access)
    except kubeconfig.KubeconfigError as error:
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


def _nothing(_: str) -> None:
    """Discard the message."""


def _remembered(directory: Path) -> state.Cluster:
    cluster = state.read(directory)
    if cluster is None:
        raise Failure(f"{directory} was removed while the cluster was being started")
    return cluster


def _as_it_runs(directory: Path) -> Up:
    known = state.read_server(directory)
    url = known.url if known else "an address that is not known yet"
    return Up(url, _remembered(directory).kubeconfig, "", was_running=True)
