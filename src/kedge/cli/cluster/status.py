"""`kedge status`: what runs, where, since when, and what it holds."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kedge.cli import flags

if TYPE_CHECKING:
    from kedge.cli.cluster.cluster_status import ClusterStatus, RestartStatus
    from kedge.cli.cluster.registry import ClusterLocation

DESCRIPTION: Final = """\
Show whether a cluster runs, its URL, its start time and its number of objects; which of its
processes have died, why, and whether they are restarted.
The exit code is 0 if the cluster is ready, else 1."""
EXAMPLES: Final = """\
  kedge status
  kedge status --name other -o json

  # Start the cluster unless it runs
  kedge status || kedge up"""


def add_flags(parser: ArgumentParser) -> None:
    flags.add_which(parser)
    flags.add_output(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.config.cluster import where
    from kedge.cli.config.settings import Settings

    return show(where(Settings(flags)), flags.output)


def show(where: "ClusterLocation", output: str | None) -> int:
    """Print the status; 0 if the cluster is ready."""
    import msgspec

    from kedge.cli.cluster import registry
    from kedge.cli.cluster.cluster_status import is_ready, look
    from kedge.cli.output import printers
    from kedge.machinery.clock import SystemClock

    found = registry.find(where)
    if found is None:
        raise registry.absent(where)
    clock = SystemClock()
    status = look(found, clock.now())
    if status.status == "Running":
        word = "Ready" if is_ready(found.directory, status.address, clock) else "NotReady"
        status = msgspec.structs.replace(status, status=word)
    print(printers.document(status, output) if output else describe(status))
    return 0 if status.status == "Ready" else 1


def describe(status: "ClusterStatus") -> str:
    from kedge.cli.output.printers import facts

    pairs = [("Name", status.name), ("Status", status.status), ("State", status.state)]
    if status.pid:
        pairs += [
            ("Address", status.address or "<none>"),
            ("Context", status.context),
            ("Process", f"{status.pid}, up {status.uptime}" if status.uptime else str(status.pid)),
            ("Version", status.version or "<unknown>"),
            ("Admission", ", ".join(status.admission) or "<none>"),
            ("Extensions", "refused" if status.upstream_only else "accepted"),
            ("Controllers", _controllers(status.disabled_controllers)),
            ("Gateway", ", ".join(status.gateway) or "<none>"),
        ]
    for each in status.servers:
        process = f"{each.status}, process {each.pid}" if each.pid else each.status
        pairs.append((f"Server {each.name}", process))
    if status.most_nodes:
        pairs.append(("Nodes", _range(status)))
    for node in status.nodes:
        told = f"{node.status}, level {node.level}" if node.level else node.status
        if node.runtime:
            told = f"{told}, runtime {node.runtime}"
        if node.service_proxy:
            told = f"{told}, services: {node.service_proxy}"
        if node.network_policy:
            told = f"{told}, network policies: {node.network_policy}"
        if node.node_network:
            told = f"{told}, other machines: {node.node_network}"
        pairs.append((f"Node {node.name}", f"{told}, process {node.pid}" if node.pid else told))
    # Nodes of `kedge up` share these settings.
    shared = dict.fromkeys(line for node in status.nodes for line in node.registries)
    pairs += [("Registries", line) for line in shared]
    if status.restart:
        pairs.append(("Restart", _restart(status)))
    pairs += [(f"Died {each.name}", _death(each)) for each in status.restarts]
    pairs.append(("Store", _store(status)))
    return facts(pairs)


def _store(status: "ClusterStatus") -> str:
    from kedge.cli.output.printers import size
    from kedge.settings.parse import is_elsewhere

    if is_elsewhere(status.store):
        return status.store  # "etcdctl endpoint status" and psql show its size
    kind = f"{status.store}, " if status.store else ""
    return f"{kind}{size(status.store_bytes)}"


def _range(status: "ClusterStatus") -> str:
    running = sum(bool(each.pid) for each in status.nodes)
    process = f"process {status.autoscaler}" if status.autoscaler else "which does not run"
    span = f"{status.least_nodes} to {status.most_nodes}"
    return f"{running} of {span}, by the node autoscaler, {process}"


def _restart(status: "ClusterStatus") -> str:
    if status.restart == "never" or status.parent:
        return f"{status.restart}, process {status.parent}" if status.parent else status.restart
    return "the parent process is gone, nothing is restarted: run 'kedge up'"


def _death(seen: "RestartStatus") -> str:
    """How a process ended, and what was done about it."""
    said = f"{seen.ended} ago, {seen.reason}"
    if seen.given_up:
        return f"{said}; given up: {seen.given_up} (see {seen.log}, then 'kedge up')"
    times = "once" if seen.restarts == 1 else f"{seen.restarts} times"
    if seen.state == "waiting":
        return f"{said}; starts again in {seen.next_start}, was restarted {times}"
    return f"{said}; restarted {times}"


def _controllers(disabled: Sequence[str]) -> str:
    from kedge.controllers.names import ALL

    if not disabled:
        return "all"
    if len(disabled) == len(ALL):
        return "<none>"
    running = [name for name in ALL if name not in disabled]
    few = len(disabled) <= len(running)
    return f"all but {', '.join(disabled)}" if few else ", ".join(running)
