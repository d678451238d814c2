"""Run a cluster in the foreground; this process is the server."""

import contextlib
import os

from kedge.cli.cluster import process, restarts, server, server_parts, state
from kedge.cli.cluster.announcement import Announcement
from kedge.cli.cluster.children import ProgramSpec, launching
from kedge.cli.cluster.down import changing, end_autoscaler, end_nodes, withdraw_context
from kedge.cli.cluster.process import Process
from kedge.cli.cluster.up.command import Say, UpConfig, UpResult, context
from kedge.cli.cluster.up.discarding import discard
from kedge.cli.cluster.up.preparation import (
    adopt,
    prepare,
    running_cluster,
    settle_port,
    upgraded,
)
from kedge.cli.cluster.up.programs import (
    local_programs,
    prepare_nodes,
    program_specs,
    stop_spare,
    tell,
)
from kedge.cli.failure import AlreadyRunning, Failure
from kedge.restarter.restarter import SERVER


def foreground(config: UpConfig, say: Say) -> UpResult | None:
    """Run the cluster until a signal, then take it down; return a result if it runs already."""
    directory = config.server.state
    if config.server.servers > 1:
        raise Failure("--foreground runs one server: leave it out, or leave out --servers")
    cluster = prepare(config, say)
    with contextlib.ExitStack() as turn:
        # Until the server is ready: another command would take what is half started for leftovers.
        turn.enter_context(changing(directory))
        if server_parts.any_running(directory):
            return running_cluster(directory)
        restarts.stop(directory)
        _run_in_foreground(config, upgraded(directory, cluster, say), say, turn)
    return None


def _run_in_foreground(
    config: UpConfig, cluster: state.ClusterRecord, say: Say, turn: contextlib.ExitStack
) -> None:
    """Be the server; `turn` is closed when other commands may touch the cluster."""
    directory = config.server.state
    settings = settle_port(config, cluster, say)
    prepare_nodes(config.nodes)
    stop_spare(config.spare)
    programs = local_programs(config)
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
            launch.keep([this, *program_specs(programs, ready.url, None)], config.restart)
            say(f'API server of cluster "{cluster.name}" ready at {done.url}; Ctrl-C stops it.')
            say(f'Context "{context(cluster.name)}" is the current one in {done.kubeconfig}.')
            turn.close()

        try:
            server.serve(settings, announce)
        except AlreadyRunning:
            # By other means than 'kedge up': nodes and the process that restarts them are its own.
            raise
        except BaseException:
            _end_foreground(config, adopted=adopted)
            if not adopted and not cluster.has_run:
                # A new cluster that could not be started leaves nothing.
                with contextlib.suppress(Failure, OSError):
                    discard(config, "")
            raise
        _end_foreground(config, adopted=adopted)


def _end_foreground(config: UpConfig, *, adopted: bool) -> None:
    # Not in turn with other commands: a 'kedge down' that has stopped this process waits for it.
    directory = config.server.state
    restarts.stop(directory)
    end_autoscaler(directory)
    end_nodes(directory)
    if adopted:
        withdraw_context(directory, config.root)
