"""`kedge down`: stop a cluster and leave nothing behind."""

import contextlib
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from kedge.cli import flags
from kedge.cli.failure import Failure

if TYPE_CHECKING:
    from kedge.cli.cluster import state
    from kedge.cli.cluster.registry import ClusterLocation, RegisteredCluster

DESCRIPTION: Final = """\
Stop a cluster and remove its context from the kubeconfig; the context that was current before is
current again. The cluster's objects are kept for the next 'kedge up', unless --purge is given.
If claims have data on this machine, --purge says how much and asks first; without a terminal it
needs --yes.
It is not an error if the cluster is not running. The command also works after any of the cluster's
processes was killed or stopped. It always ends, and lists what it could not stop or remove.

With --keep-nodes only the server stops. Node agents and containers continue to run, the context
stays in the kubeconfig, and the agents connect to the next server at the same address: the one of
'kedge up', or a kube-apiserver on the cluster's objects (docs/graduating.md).

On a machine that has joined a cluster elsewhere, the command stops the node and its containers.
'kedge node' starts the node again, unless --purge was given.

--purge also deletes a cluster of another version of kedge, whose files this one does not know."""
EXAMPLES: Final = """\
  # Stop the cluster "default"
  kedge down

  # Stop another cluster and delete its objects and files
  kedge down --name other --purge

  # Stop the server alone
  kedge down --keep-nodes

  # Stop all clusters of this user
  kedge down --all"""

_GRACE: Final = 10.0
"""Seconds that a process gets to exit before it is killed."""
_TURN_SECONDS: Final = 90.0
"""How long another command may take that starts or stops the same cluster."""
_NODE_SECONDS: Final = 45.0
"""Seconds that ending all containers of one node may take; usually it takes a fraction of one."""

T = TypeVar("T")


def add_flags(parser: ArgumentParser) -> None:
    flags.add_which(parser)
    parser.add_argument(
        "--purge", action="store_true", help="delete all objects and files of the cluster"
    )
    parser.add_argument("--all", action="store_true", help="all clusters of this user")
    parser.add_argument(
        "--keep-nodes", action="store_true", help="stop only the server; pods continue to run"
    )
    parser.add_argument(
        "--yes", action="store_true", help="with --purge, delete the data of volumes without asking"
    )


def run(flags: Namespace) -> int:
    from kedge.cli.config.cluster import where
    from kedge.cli.config.settings import Settings

    location = where(Settings(flags))
    if flags.keep_nodes:
        if flags.purge or flags.all:
            raise Failure(
                "--keep-nodes stops the server of one cluster: leave --purge and --all out"
            )
        return stop_server(location)
    if flags.purge and not flags.yes:
        from kedge.cli.cluster import volume_data

        volume_data.confirm_deletion(volume_data.stored(_directories(location, every=flags.all)))
    return stop(location, purge=flags.purge, every=flags.all)


def _directories(where: "ClusterLocation", *, every: bool) -> list[Path]:
    """The directories of the clusters and nodes that are meant."""
    from kedge.cli.cluster import registry

    found = _found(where, every=every, purge=True)
    joined = list(registry.joined(where.root)) if every else _only_nodes(where, found)
    return [*(one.directory for one in found), *joined]


def stop(where: "ClusterLocation", *, purge: bool, every: bool) -> int:
    """Stop one cluster or all; raises a Failure that lists what could not be stopped."""
    from kedge.cli.cluster import registry, state
    from kedge.cli.output.progress import ProgressLine
    from kedge.machinery.clock import SystemClock

    found = _found(where, every=every, purge=purge)
    joined = list(registry.joined(where.root)) if every else _only_nodes(where, found)
    if not found and not joined:
        print(f"There is no cluster{'' if every else f' {where}'} here: nothing to stop.")
    failures: list[str] = []
    steps: list[Callable[[], str]] = [
        *(partial(take_down, one, where.root, purge=purge) for one in found),
        *(partial(take_nodes_down, directory, purge=purge) for directory in joined),
    ]
    line = ProgressLine(sys.stderr, SystemClock())
    for step in steps:
        line.announce("Stopping the cluster and its containers ...")
        # The trouble of one is no reason to leave the others running.
        try:
            told = step()
            line.end()
            print(told)
        except state.ClusterGone as gone:
            line.end()
            print(f"{gone}: nothing to stop.")
        except Failure as failure:
            failures.append(str(failure))
        finally:
            line.end()
    if failures:
        raise Failure("\n".join(failures))
    return 0


def _found(where: "ClusterLocation", *, every: bool, purge: bool) -> "list[RegisteredCluster]":
    """The clusters that are meant; those of another version of kedge only to be deleted."""
    from kedge.cli.cluster import registry

    if every:
        strange = [one for one, _ in registry.strange(where.root)] if purge else []
        return [*registry.every(where.root), *strange]
    one = registry.find_to_delete(where) if purge else registry.find(where)
    return [one] if one else []


def _only_nodes(where: "ClusterLocation", found: "list[RegisteredCluster]") -> list[Path]:
    """The directory that is meant, if it holds no cluster but nodes that have joined one."""
    from kedge.cli.cluster import registry

    directory = where.directory or registry.resolve(where.root, where.name)
    return [directory] if not found and registry.holds_nodes(directory) else []


def take_nodes_down(directory: Path, *, purge: bool) -> str:
    """End the nodes of a cluster that runs elsewhere; says what was done."""
    from kedge.cli.cluster import process, registry

    nodes = registry.node_directories(directory)
    names = ", ".join(f'"{node.name}"' for node in nodes)
    with changing(directory):
        running = any(process.running(node, "node") for node in nodes)
        problems = _end_strays(directory) + _end_nodes(directory)
        check_down(f"node {names}", directory, problems)
        if purge:
            _delete(directory)
    said = f"Node {names} was {'stopped' if running else 'not running; its pods are stopped'}"
    rest = f"{directory} is deleted" if purge else f"its state is kept in {directory}"
    return f"{said}; {rest}."


def take_down(found: "RegisteredCluster", root: Path, *, purge: bool) -> str:
    """Stop the cluster and undo what `kedge up` did outside its directory; says what was done."""
    from kedge.cli.cluster import node_pool, registry, restarts, server_parts

    name, directory = found.cluster.name, found.directory
    problems: list[str] = []
    with changing(directory):
        # The parent first: it would restart the programs that are stopped here.
        _attempt(problems, lambda: restarts.stop(directory))
        problems += _end_strays(directory)
        # Before the nodes: it would start them again.
        _attempt(problems, lambda: end_autoscaler(directory))
        problems += _end_nodes(directory)
        killed = _end_servers(directory, problems)
        check_down(f'cluster "{name}"', directory, problems)
        try:
            for part in server_parts.parts(directory):
                (directory / f"{part}.json").unlink(missing_ok=True)
            restarts.forget(directory)
            node_pool.forget(directory)
            withdraw_context(directory, root)
        except OSError as error:
            raise Failure(
                f'cluster "{name}" is down, but {directory} cannot be changed: {error.strerror}'
            ) from error
        if purge:
            _delete(directory)
            registry.forget(root, name, directory)
    how = "killed, since it did not end by itself" if killed else "stopped"
    said = f'Cluster "{name}" was {how}' if killed is not None else _not_running(name)
    rest = f"{directory} is deleted" if purge else f"its state is kept in {directory}"
    if purge and found.cluster.elsewhere:
        rest = f"{rest}. {_objects_elsewhere(found.cluster.elsewhere)}"
    return f"{said}; {rest}."


def _end_servers(directory: Path, problems: list[str]) -> bool | None:
    """Stop the servers, the first one last: it has the gateway. Returns whether one was killed;
    None if none ran. A failure to stop one is added to the problems."""
    from kedge.cli.cluster import restarts, server_parts

    ends = [
        _attempt(problems, partial(restarts.stop_process, directory, part, _GRACE))
        for part in reversed(server_parts.parts(directory))
    ]
    ran = [each for each in ends if each is not None]
    return any(ran) if ran else None


def stop_server(where: "ClusterLocation") -> int:
    """Stop the server of a cluster and what would restart it; leave the nodes as they are."""
    from kedge.cli.cluster import registry, restarts

    found = registry.find(where)
    if found is None:
        raise registry.absent(where)
    name, directory = found.cluster.name, found.directory
    problems: list[str] = []
    with changing(directory):
        _attempt(problems, lambda: restarts.stop(directory))
        _attempt(problems, lambda: end_autoscaler(directory))
        killed = _end_servers(directory, problems)
        check_down(f'the server of cluster "{name}"', directory, problems)
        # The address of the server stays on record: an agent that is started later looks there.
        restarts.forget(directory)
    how = "was not running" if killed is None else "was killed" if killed else "was stopped"
    print(
        f'The server of cluster "{name}" {how}; its nodes and their pods continue to run.\n'
        f"Start it again with:  kedge up --name {name}"
    )
    return 0


def _objects_elsewhere(store: str) -> str:
    from kedge.settings.parse import POSTGRESQL

    way = "'etcdctl del --prefix /registry/' and 'etcdctl del --prefix /kedge/'"
    if store.startswith(POSTGRESQL):
        from kedge.settings.postgresql import postgresql_address

        way = f"'DROP SCHEMA \"{postgresql_address(store).schema}\" CASCADE' in psql"
    return f"Its objects are still in {store}: delete them with {way}"


def _not_running(name: str) -> str:
    return f'Cluster "{name}" was not running'


def _attempt(problems: list[str], step: "Callable[[], T]") -> "T | None":
    """Do one step; a failure is recorded and does not prevent the next steps."""
    try:
        return step()
    except Failure as failure:
        problems.append(str(failure))
        return None


def check_down(what: str, directory: Path, problems: list[str]) -> None:
    """Raise a Failure that lists the problems, if there are any."""
    if problems:
        raise Failure(
            f"{what} was not stopped completely: {'; '.join(problems)}. Its files are kept in"
            f" {directory}: remove the cause, then run 'kedge down' again"
        )


@contextlib.contextmanager
def changing(directory: Path) -> Iterator[None]:
    """Hold the cluster's lock; fail if another command holds it for too long."""
    from kedge.cli.cluster import deadline, state

    with contextlib.ExitStack() as stack:
        with deadline.within(_TURN_SECONDS, lambda: _busy(directory)):
            stack.enter_context(state.changing(directory))
        yield


def _busy(directory: Path) -> Failure:
    return Failure(
        f"another kedge command has been starting or stopping the cluster in {directory} for"
        f" {_TURN_SECONDS:g} s: end that one first (see 'ps -C kedge')"
    )


def end_autoscaler(directory: Path) -> None:
    """Stop the node autoscaler, if there is one."""
    from kedge.cli.cluster import node_pool, restarts

    restarts.stop_process(directory, node_pool.PART, _GRACE)


def end_nodes(directory: Path) -> None:
    """Stop the agents of the cluster's nodes and all that they run; nothing of it is left."""
    check_down("the cluster", directory, _end_nodes(directory))


def _end_nodes(directory: Path) -> list[str]:
    """The same; returns what could not be stopped or removed."""
    from kedge.cli.cluster import registry

    problems: list[str] = []
    nodes = _attempt(problems, lambda: registry.node_directories(directory))
    for node in nodes or ():
        _attempt(problems, lambda node=node: end_node(node))  # type: ignore[misc]
    return problems


def _end_strays(directory: Path) -> list[str]:
    """Stop what no pid file leads to; returns what could not be stopped."""
    from kedge.cli.cluster import process

    problems: list[str] = []
    for stray in process.strays(directory):
        _attempt(problems, lambda stray=stray: process.stop(stray, _GRACE))  # type: ignore[misc]
    return problems


def end_node(node: Path) -> None:
    """Stop the agent of a node and all that it runs; raises a Failure."""
    from kedge.cli.cluster import deadline, integrity, restarts

    restarts.stop_process(node, "node", _GRACE)
    integrity.check_node_types(node)
    # Imported here because it loads most of the node's modules.
    from kedge.node.host import teardown

    late = Failure(
        f'what node "{node.name}" runs could not be ended within {_NODE_SECONDS:g} s: see'
        f" {node}/runtime/supervisor.log"
    )
    try:
        with deadline.within(_NODE_SECONDS, lambda: late):
            left = teardown.teardown(node)
    except OSError as error:
        raise Failure(f'node "{node.name}": {error}') from error
    if left:
        raise Failure(f'node "{node.name}": {left}')


def withdraw_context(directory: Path, root: Path) -> None:
    """Take the cluster's context out of the kubeconfig that it was put into, if any."""
    import msgspec

    from kedge.cli.cluster import state
    from kedge.cli.cluster.up.command import context
    from kedge.client import kubeconfig

    try:
        cluster = state.read(directory)
    except (state.RecordDamaged, state.UnknownStateLayout):
        return
    if cluster is None or not cluster.kubeconfig:
        return
    before = kubeconfig.KubeconfigState(cluster.previous_context, cluster.kubeconfig_existed)
    try:
        # Another user's cluster may have the same name.
        ours = state.authority(directory)
        kubeconfig.remove(Path(cluster.kubeconfig), context(cluster.name), before, ours)
    except kubeconfig.KubeconfigError as error:
        raise Failure(
            f'cluster "{cluster.name}" is down, but its context is still in the kubeconfig: {error}'
        ) from error
    _bequeath(cluster, root)
    forgotten = msgspec.structs.replace(
        cluster, kubeconfig="", previous_context="", kubeconfig_existed=True
    )
    state.write(directory, forgotten)


def _bequeath(gone: "state.ClusterRecord", root: Path) -> None:
    """Tell clusters that would restore this one's context what to restore instead."""
    import msgspec

    from kedge.cli.cluster import registry, state
    from kedge.cli.cluster.up.command import context

    for other in registry.every(root):
        same_file = other.cluster.kubeconfig == gone.kubeconfig
        if same_file and other.cluster.previous_context == context(gone.name):
            heir = msgspec.structs.replace(
                other.cluster,
                previous_context=gone.previous_context,
                kubeconfig_existed=gone.kubeconfig_existed,
            )
            state.write(other.directory, heir)


def _delete(directory: Path) -> None:
    from kedge.cli.cluster import state
    from kedge.supervisor.files.removal import remove_all

    # The kernel leaves directories there that not even their owner may look into.
    if failure := remove_all(f"{directory}/nodes"):
        raise Failure(f"cannot delete {directory}/nodes: {failure}")
    try:
        state.delete(directory)
    except OSError as error:
        raise Failure(f"cannot delete {error.filename}: {error.strerror}") from error
