"""The programs of a cluster: their command lines, and what `kedge up` exchanges with them."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from kedge.cli.cluster import node, node_pool, process, restarts, server, server_parts
from kedge.cli.cluster.children import Child, ProgramSpec
from kedge.cli.cluster.up.command import UpConfig
from kedge.cli.cluster.up.preparation import recorded_cluster, settle_port
from kedge.restarter.program import Program

if TYPE_CHECKING:
    from kedge.apiserver.config import ServerConfig
    from kedge.node.config import NodeConfig

_GRACE: Final = 10.0
"""Seconds that an agent gets to end by itself."""
_JOIN_FLAG: Final = "--join-fd"


def server_program(settings: "ServerConfig") -> Program:
    part = server_parts.part_of(settings.replica)
    return Program(
        what="the server" if settings.is_first else f"server {settings.replica}",
        arguments=[*kedge_command(), server.NAME, *server.child_arguments(settings)],
        log=str(settings.state / f"{part}.log"),
    )


def server_programs(settings: "ServerConfig") -> dict[str, Program]:
    """Return the programs of all servers, the first one at first."""
    numbers = range(1, settings.servers + 1)
    each = (replace(settings, replica=number if number > 1 else 0) for number in numbers)
    return {server_parts.part_of(one.replica): server_program(one) for one in each}


def node_program(config: "NodeConfig", directory: Path) -> Program:
    return Program(
        what=f'node "{config.name}"',
        arguments=[*kedge_command(), node.NAME, *node.child_arguments(config, directory)],
        log=str(config.state / "node.log"),
        told=_JOIN_FLAG,
    )


def kedge_command() -> list[str]:
    # -P: nothing that lies about in the working directory is to be taken for a module.
    return [sys.executable, "-P", "-m", "kedge"]


def node_programs(nodes: Sequence["NodeConfig"], directory: Path) -> dict[str, Program]:
    """Return the programs of node agents, which wait for the server's address. The server makes
    their certificates before that."""
    return {one.name: node_program(one, directory) for one in nodes}


def local_programs(config: UpConfig) -> dict[str, Program]:
    """Return the programs besides the server; writes the record of nodes that may be added."""
    directory = config.server.state
    programs = node_programs(config.nodes, directory)
    if not config.spare:
        node_pool.forget(directory)
        return programs
    spare = node_programs(config.spare, directory)
    record = node_pool.PoolRecord(
        least=len(config.nodes),
        calm_seconds=config.scale_down_delay,
        nodes=tuple(
            node_pool.PoolNode(name=name, arguments=tuple(each.arguments), log=each.log)
            for name, each in spare.items()
        ),
    )
    node_pool.write(directory, record)
    return programs | {node_pool.PART: autoscaler_program(directory)}


def autoscaler_program(directory: Path) -> Program:
    return Program(
        what="the node autoscaler",
        arguments=[*kedge_command(), node_pool.PART, "--config=", f"--state={directory}"],
        log=str(directory / f"{node_pool.PART}.log"),
        told=_JOIN_FLAG,
    )


def recorded_programs(
    config: UpConfig, recorded: restarts.RestartRecord | None
) -> dict[str, Program]:
    """Return the programs of a running cluster with the flags that they were started with: new
    flags apply from the next start. Programs without a record get the flags of this command."""
    directory = config.server.state
    settings = settle_port(config, recorded_cluster(directory), _discard)
    here = [one for one in config.nodes if one.pki.exists()]
    programs = server_programs(settings) | node_programs(here, directory)
    if node_pool.read(directory):
        programs[node_pool.PART] = autoscaler_program(directory)
    for each in recorded.parts if recorded else ():
        place, part = pid_file_of(directory, each.name)
        if each.flags and place.exists():
            what = programs[each.name].what if each.name in programs else f'node "{each.name}"'
            told = "" if server_parts.is_server(each.name) else _JOIN_FLAG
            log = str(place / f"{part}.log")
            programs[each.name] = Program(what, [*kedge_command(), *each.flags], log, told)
    return programs


def program_specs(
    programs: Mapping[str, Program], url: str, recorded: restarts.RestartRecord | None
) -> list[ProgramSpec]:
    """Return the programs in the form that their parent needs."""
    before = {each.name: each for each in recorded.parts} if recorded else {}
    return [_program_spec(name, each, url, before.get(name)) for name, each in programs.items()]


def _program_spec(
    name: str, program: Program, url: str, before: restarts.ProgramStatus | None
) -> ProgramSpec:
    skipped = len(kedge_command())
    flags = list(program.arguments[skipped:])
    if server_parts.is_server(name):
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


def pid_file_of(directory: Path, name: str) -> tuple[Path, str]:
    """Return the directory of the process' pid file, and the name of that file."""
    if server_parts.is_server(name) or name == node_pool.PART:
        return directory, name
    return directory / "nodes" / name, node.NAME


def prepare_nodes(nodes: Sequence["NodeConfig"]) -> None:
    """Make the directories of nodes; end agents that outlived their server."""
    for one in nodes:
        # Other users cannot reach files below, whatever their permissions are.
        one.state.parent.mkdir(mode=0o700, exist_ok=True)
        one.state.mkdir(mode=0o700, exist_ok=True)
        # It may have the address of another server. Containers are not affected.
        restarts.stop_process(one.state, node.NAME, _GRACE)


def stop_spare(nodes: Sequence["NodeConfig"]) -> None:
    """End agents that outlived their server; the autoscaler starts those that are needed."""
    for one in nodes:
        if one.state.exists():
            restarts.stop_process(one.state, node.NAME, _GRACE)


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


def _discard(_: str) -> None:
    """Discard the message."""
