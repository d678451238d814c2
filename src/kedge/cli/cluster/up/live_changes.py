"""Change the nodes of a running cluster: how many there are, and the settings of their agents."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.cli.cluster import node, node_pool, restarts, server_parts
from kedge.cli.cluster.down import end_node
from kedge.cli.cluster.up.command import NODES, Say, UpConfig
from kedge.cli.cluster.up.programs import node_programs, prepare_nodes
from kedge.cli.cluster.up.running_settings import OF_IMAGES
from kedge.cli.failure import Failure
from kedge.machinery.clock import Clock, SystemClock
from kedge.restarter.program import Program
from kedge.supervisor.files.removal import remove_all

if TYPE_CHECKING:
    from kedge.api.core_v1.pod.pod import Pod
    from kedge.client.client import Client

_GRACE: Final = 10.0
"""Seconds that an agent gets to end by itself."""
_PAUSE: Final = 0.1
"""Seconds between two looks at the pods of a node that is to be removed."""


def change(
    config: UpConfig, url: str, programs: Mapping[str, Program], say: Say
) -> dict[str, Program]:
    """Remove nodes, and stop the agents that start again with other flags. Returns the programs
    that are to run; containers of other nodes continue to run."""
    changed = {each.setting.name: each for each in config.changes}
    wanted = dict(programs)
    after = node_programs(config.nodes, config.server.state)
    before = [
        name for name in programs if not server_parts.is_server(name) and name != node_pool.PART
    ]
    if NODES.name in changed:
        gone = [name for name in before if name not in after]
        _remove(config, url, gone, say)
        for name in gone:
            del wanted[name]
        new = [each for each in config.nodes if each.name not in programs]
        _certify(config, [each.name for each in new])
        prepare_nodes(new)
        wanted |= {each.name: after[each.name] for each in new}
    if any(each.name in changed for each in OF_IMAGES):
        for each in config.nodes:
            if each.name in programs:
                wanted[each.name] = after[each.name]
                restarts.stop_process(each.state, node.NAME, _GRACE)
    return wanted


def _certify(config: UpConfig, names: Sequence[str]) -> None:
    """Make the certificates of nodes that are added, as the server does for the first ones."""
    from kedge.apiserver import pki

    server = config.server
    for name in names:
        hosts = (name, server.local_nodes[name])
        pki.ensure_node(server.pki, name, hosts, server.node_pki(name), SystemClock().now())


def _remove(config: UpConfig, url: str, names: Sequence[str], say: Say) -> None:
    """Evict the pods of nodes, stop the nodes and delete their Node objects."""
    if not names:
        return
    directory = config.server.state
    _call(directory, url, lambda client: drain(client, SystemClock(), names, config.wait))
    for name in names:
        place = directory / "nodes" / name
        end_node(place)
        if _has_data(place / "volumes"):
            say(
                f'Node "{name}" has data of volumes, which are kept in {place}:'
                f" '--nodes {_number(name)}' brings the node back."
            )
        elif failure := remove_all(str(place)):
            say(f"warning: {place} was not deleted: {failure}.")
    _call(directory, url, lambda client: _forget(client, names))


def _has_data(volumes: Path) -> bool:
    return volumes.is_dir() and any(volumes.iterdir())


def _number(name: str) -> str:
    return name.rpartition("-")[2]


def _client(directory: Path, url: str) -> "Client":
    from kedge.client.login import Login

    return Login(
        context="",
        file=directory / "cluster.json",
        server=url,
        ca_pem=(directory / "pki" / "ca.crt").read_bytes(),
        token=(directory / "token").read_text().strip(),
    ).client("kedge-up")


def _call(directory: Path, url: str, work: "Callable[[Client], Awaitable[None]]") -> None:
    """Run work with a client of the cluster; raises a Failure."""
    from kedge.client.transport import Unreachable
    from kedge.machinery.errors import StatusError

    async def calls() -> None:
        client = _client(directory, url)
        try:
            await work(client)
        finally:
            await client.close()

    try:
        asyncio.run(calls())
    except (StatusError, Unreachable) as error:
        raise Failure(f"the nodes were not changed: {error}") from error


async def drain(client: "Client", clock: Clock, names: Sequence[str], seconds: float) -> None:
    """Evict the pods of nodes and wait until they have ended. On a failure the nodes are as
    before, except for pods that were evicted."""
    from kedge.node_autoscaler.eviction import evict

    if alone := [each for each in await _pods(client, names) if not _has_controller(each)]:
        raise Failure(
            f"{_listed(alone)} would be lost with {' and '.join(names)}, because no controller"
            f" would create it again: delete it first with 'kedge delete pod -n"
            f" {alone[0].metadata.namespace} {alone[0].metadata.name}'"
        )
    await _set_unschedulable(client, names, unschedulable=True)
    deadline = clock.monotonic() + seconds
    try:
        while left := await _pods(client, names):
            if clock.monotonic() > deadline:
                raise Failure(
                    f"{_listed(left)} did not end within {seconds:g} s: a PodDisruptionBudget may"
                    " protect it; allow more time with --wait, or delete it"
                )
            for pod in left:
                if not pod.metadata.deletionTimestamp:
                    await evict(client, pod)
            await clock.sleep(_PAUSE)
    except BaseException:
        await _set_unschedulable(client, names, unschedulable=False)
        raise


async def _pods(client: "Client", names: Sequence[str]) -> "list[Pod]":
    """Return the pods that must go elsewhere before nodes are removed."""
    from kedge.api.core_v1.pod import pod
    from kedge.node_autoscaler.cluster_state import stays
    from kedge.scheduler.scheduler import NOT_ENDED

    found = (await client.list(pod.RESOURCE, fields=NOT_ENDED)).items
    return [each for each in found if each.spec.nodeName in names and not stays(each)]


def _has_controller(pod: "Pod") -> bool:
    return any(each.controller for each in pod.metadata.ownerReferences)


def _listed(pods: "Sequence[Pod]") -> str:
    first = pods[0].metadata
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return f"pod {first.namespace}/{first.name}{more}"


async def _set_unschedulable(
    client: "Client", names: Sequence[str], *, unschedulable: bool
) -> None:
    from kedge.api.core_v1 import node as core_node
    from kedge.machinery.errors import StatusError

    for name in names:
        try:
            await client.patch(
                core_node.RESOURCE, name, {"spec": {"unschedulable": unschedulable or None}}
            )
        except StatusError as error:
            if error.code != 404:
                raise


async def _forget(client: "Client", names: Sequence[str]) -> None:
    """Delete the Node objects."""
    from kedge.api.core_v1 import node as core_node
    from kedge.machinery.errors import StatusError

    for name in names:
        try:
            await client.delete(core_node.RESOURCE, name)
        except StatusError as error:
            if error.code != 404:
                raise
