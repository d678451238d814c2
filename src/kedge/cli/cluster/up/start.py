"""Start a cluster in the background, or the missing parts of it."""

import contextlib
import time
from collections.abc import Mapping
from typing import Final

from kedge.cli.cluster import process, restarts, server_parts, state
from kedge.cli.cluster.announcement import decode
from kedge.cli.cluster.children import launching
from kedge.cli.cluster.down import changing, end_nodes
from kedge.cli.cluster.up.command import RESTART, Say, UpConfig, UpResult
from kedge.cli.cluster.up.discarding import discard
from kedge.cli.cluster.up.preparation import (
    adopt,
    help_along,
    one_port,
    prepare,
    running_cluster,
    settle_port,
    upgraded,
)
from kedge.cli.cluster.up.programs import (
    local_programs,
    pid_file_of,
    prepare_nodes,
    program_specs,
    recorded_programs,
    runs,
    server_programs,
    stop_spare,
    tell,
    wait_for,
)
from kedge.cli.failure import AlreadyRunning, Failure, StartFailure
from kedge.machinery.clock import SystemClock
from kedge.restarter.program import Program
from kedge.restarter.restarter import SERVER

_ATTEMPTS: Final = 3
_PAUSE: Final = 0.02


def background(config: UpConfig, say: Say) -> UpResult:
    """Start the cluster in the background, or what of it does not run."""
    attempts = _ATTEMPTS
    while True:
        # Begin again if another command has deleted the cluster meanwhile, or if the ending
        # parent has started a server.
        with contextlib.suppress(state.ClusterGone):
            try:
                return _start(config, say)
            except AlreadyRunning as error:
                attempts -= 1
                if not attempts:
                    # The exit codes that tell failures apart are for what starts servers again.
                    raise Failure(str(error)) from error


def _start(config: UpConfig, say: Say) -> UpResult:
    directory = config.server.state
    cluster = prepare(config, say)
    with changing(directory):
        if is_whole(config):
            return running_cluster(directory)
        # From here on nothing is restarted, and half-started programs have ended.
        restarts.stop(directory)
        if server_parts.any_running(directory):
            return _change(config, say) if config.changes else _complete(config, say)
        return _start_all(config, upgraded(directory, cluster, say), say)


def is_whole(config: UpConfig) -> bool:
    """Return whether the whole cluster runs with all settings, and its parent too unless the
    policy is never."""
    directory = config.server.state
    if server_parts.any_running(directory) is None or config.changes:
        return False
    known = restarts.read(directory)
    if known is None or not all(each.state == "running" for each in known.parts):
        return False
    if not all(runs(one) for one in config.nodes if one.pki.exists()):
        return False
    return known.policy == "never" or restarts.running(directory) is not None


def _start_all(config: UpConfig, cluster: state.ClusterRecord, say: Say) -> UpResult:
    started = SystemClock().monotonic()
    directory = config.server.state
    settings = one_port(settle_port(config, cluster, say))
    say(f'Starting cluster "{cluster.name}" in {directory} ...')
    prepare_nodes(config.nodes)
    stop_spare(config.spare)
    # All start at once: an agent has much to do before it needs a server.
    programs = server_programs(settings) | local_programs(config)
    try:
        with launching(directory, programs) as launch:
            nodes = [launch.children[name] for name, each in programs.items() if each.told]
            further = [
                child
                for name, child in launch.children.items()
                if name != SERVER and server_parts.is_server(name)
            ]
            help_along(settings, cluster)
            announced = decode(launch.children[SERVER].line(config.wait))
            took = SystemClock().monotonic() - started
            tell(nodes, announced.url)
            done = adopt(config, announced)
            say(f"API server ready at {done.url} ({took:.2f} s).")
            wait_for([*further, *nodes], config.wait)
            if further:
                took = SystemClock().monotonic() - started
                say(f"{settings.servers} servers ready ({took:.2f} s).")
            launch.keep(program_specs(programs, announced.url, None), config.restart)
    except BaseException as error:
        # Containers that the agents have started do not end with them. If ending them fails, the
        # next command tries again: the user needs the reason of the failed start.
        message = str(error)
        with contextlib.suppress(Failure, OSError):
            end_nodes(directory)
            if not cluster.has_run and not isinstance(error, AlreadyRunning):
                message = discard(config, message)
        if isinstance(error, AlreadyRunning) or not isinstance(error, Failure):
            raise
        raise StartFailure(message) from error
    if nodes:
        took = SystemClock().monotonic() - started
        say(f"{_nodes(len(config.nodes))} ready ({took:.2f} s).")
    return done


def _complete(config: UpConfig, say: Say) -> UpResult:
    """Start missing agents and a missing parent; the server runs."""
    directory = config.server.state
    known = _ready_server(config)
    recorded = restarts.read(directory)
    programs = recorded_programs(config, recorded)
    lost = _launch_missing(config, known.url, programs, recorded)
    for name in lost:
        what = "Server" if server_parts.is_server(name) else "The agent of node"
        say(f'{what} "{name}" was not running and was restarted.')
    if _policy(config, recorded) == "always" and not lost:
        say("The process that restarts the others was not running and was restarted.")
    return running_cluster(directory)


def _change(config: UpConfig, say: Say) -> UpResult:
    """Change settings of the running cluster; if that fails, it runs on as before."""
    # Imported here because it loads modules that a start does not need.
    from kedge.cli.cluster.up import live_changes

    directory = config.server.state
    known = _ready_server(config)
    recorded = restarts.read(directory)
    before = recorded_programs(config, recorded)
    try:
        programs = live_changes.change(config, known.url, before, say)
        _launch_missing(config, known.url, programs, recorded)
    except BaseException:
        with contextlib.suppress(Failure):
            _launch_missing(config, known.url, before, recorded)
        raise
    return running_cluster(directory)


def _launch_missing(
    config: UpConfig,
    url: str,
    programs: Mapping[str, Program],
    recorded: restarts.RestartRecord | None,
) -> list[str]:
    """Start the programs that do not run and a parent of all; returns the names of the started."""
    directory = config.server.state
    pids = {name: process.running(*pid_file_of(directory, name)) for name in programs}
    lost = {name: each for name, each in programs.items() if pids[name] is None}
    found = {name: each for name, each in pids.items() if each is not None}
    with launching(directory, lost, found) as launch:
        tell([launch.children[name] for name, each in lost.items() if each.told], url)
        wait_for([*launch.children.values()], config.wait)
        launch.keep(program_specs(programs, url, recorded), _policy(config, recorded))
    return list(lost)


def _policy(config: UpConfig, recorded: restarts.RestartRecord | None) -> str:
    """Return whether programs are restarted: as before, unless that is to change."""
    if recorded is None or any(each.setting is RESTART for each in config.changes):
        return config.restart
    return recorded.policy


def _ready_server(config: UpConfig) -> state.ServerRecord:
    """Wait for the running server's record, and return it."""
    directory, clock = config.server.state, SystemClock()
    deadline = clock.monotonic() + config.wait
    while clock.monotonic() < deadline:
        running, known = server_parts.any_running(directory), state.read_server(directory)
        if running is None:
            raise AlreadyRunning(f"the server in {directory} has just ended")
        if known is not None and (known.pid == running.pid or server_parts.is_shared(known)):
            return known
        time.sleep(_PAUSE)  # noqa: TID251 - no event loop runs here
    raise Failure(
        f"the server in {directory} was not ready within {config.wait:g} s: allow more time with"
        " --wait, or stop it with 'kedge down'"
    )


def _nodes(number: int) -> str:
    return "Node" if number == 1 else f"{number} nodes"
