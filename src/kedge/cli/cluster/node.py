"""`kedge node`: one node agent in the foreground."""

import gc
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.cli import flags
from kedge.settings.setting import BoundSetting, arguments, bound_settings

if TYPE_CHECKING:
    from kedge.node.config import Invitation, NodeConfig

NAME: Final = "node"
DESCRIPTION: Final = """\
Run the agent of one node in the foreground, until SIGTERM or SIGINT. It registers the node and
runs the pods that are bound to it. Containers continue to run when the agent ends, and the next
agent takes them over; 'kedge down' stops them.

With --token the machine joins a cluster that runs elsewhere; 'kedge token create
--print-join-command' prints the command there. After that, 'kedge node' without --token is enough.

'kedge up' starts the nodes of its cluster itself."""
EXAMPLES: Final = """\
  # Join the cluster of another machine
  kedge node --server https://192.0.2.7:6443 --token abcdef.0123456789abcdef \\
      --ca-cert-hash sha256:...

  # The same node again, after a restart of the machine
  kedge node

  # The second node of the cluster, after its agent was killed
  kedge node --node-name node-2

  # Give kedge's nodes their rights on a control plane that is not kedge's
  kedge node --print-role | kubectl apply -f -

  # The nodes, and the isolation level of their containers
  kubectl get nodes -L kedge.dev/level"""


def add_flags(parser: ArgumentParser) -> None:
    from kedge.node.config import Invitation, NodeConfig

    flags.add_which(parser)
    named = [each for each in bound_settings(NodeConfig) if each.field == "name"]
    flags.add_settings(parser, [*named, *bound_settings(Invitation)])
    address = "the address that leads to the server it has joined, else 127.0.0.1"
    flags.add_settings(parser, settings(), {"node-address": address})
    parser.add_argument(
        "--print-role",
        action="store_true",
        help="print the ClusterRole of nodes on a kube-apiserver, with its binding, and exit",
    )
    parser.add_argument(
        "--join-fd",
        type=int,
        metavar="N",
        help="read the URL of the server from this file descriptor, once it is known",
    )
    parser.add_argument(
        "--ready-fd",
        type=int,
        metavar="N",
        help="when the node is ready, write one line to this file descriptor",
    )


def settings() -> list[BoundSetting]:
    """Return the settings that all nodes of a cluster can share."""
    from kedge.node.config import NodeConfig

    return [each for each in bound_settings(NodeConfig) if each.field not in ("name", "cluster")]


def child_arguments(config: "NodeConfig", state: Path) -> list[str]:
    """Return the flags that make `kedge node` run with this very configuration."""
    from msgspec.structs import replace

    whole = replace(config, plugins=config.plugins or config.own_plugins)
    return ["--config=", f"--state={state}", *arguments(whole)]


def run(flags: Namespace) -> int:
    from kedge.cli.cluster.announcement import check_reader
    from kedge.cli.config import node as node_settings
    from kedge.cli.config.settings import Settings

    if flags.print_role:
        print(role_text(), end="")
        return 0
    source = Settings(flags)
    config = node_settings.node_config(source)
    last_seen = partial(node_settings.server_of_node, source, config)
    find = last_seen if flags.join_fd is None else url_from_pipe(flags.join_fd)
    ready = say(config) if flags.ready_fd is None else tell(flags.ready_fd)
    # A starter that sends the address of the server later has made the node, too.
    invited = node_settings.invitation(source) if flags.join_fd is None else None
    if flags.join_fd is None and invited is None:
        check_made(config)
    return run_agent(config, invited, find, ready, check_reader(flags.ready_fd))


def role_text() -> str:
    """Return the role of nodes on a control plane of Kubernetes, and its binding, as YAML."""
    from kedge.api.rbac_v1 import cluster_role, cluster_role_binding
    from kedge.apiserver.authorization.defaults import node_objects_elsewhere
    from kedge.machinery import yaml_text

    role, binding = node_objects_elsewhere()
    documents = (
        cluster_role.RESOURCE.to_document(role),
        cluster_role_binding.RESOURCE.to_document(binding),
    )
    return "---\n".join(yaml_text.write(each, sort=False) for each in documents)


def run_agent(
    config: "NodeConfig",
    invitation: "Invitation | None",
    find_server: Callable[[], str],
    ready: Callable[[], None],
    check: Callable[[], None] = lambda: None,
) -> int:
    """Run the agent until a signal ends it; `ready` is called once the node is ready, `check`
    raises if the starter is gone."""
    from kedge.cli.cluster import process
    from kedge.node.runtime import spawn

    if invitation is not None:
        prepare(config)
    check()
    process.claim(config.state, NAME)
    check()
    if invitation is not None:
        accept(config, invitation)
    os.chdir(config.state)
    # It starts while the agent is imported. Imports make no garbage; the agent enables gc again.
    supervisor = spawn.begin(config.runtime)
    gc.disable()
    from kedge.node import agent
    from kedge.node.host.api_access import ApiAccess

    agent.run(config, supervisor, lambda: ApiAccess(url=find_server(), pki=config.pki), ready)
    return 0


def check_made(config: "NodeConfig") -> None:
    """See that the node is one: it has a certificate, because it was made here or has joined."""
    from kedge.cli.failure import Failure
    from kedge.node.host.api_access import CERTIFICATE

    if not (config.pki / CERTIFICATE).exists():
        raise Failure(
            f"there is no node \"{config.name}\" in {config.state.parent}: 'kedge up --nodes K'"
            " makes nodes, and with --server and --token this machine joins a cluster"
        )


def prepare(config: "NodeConfig") -> None:
    """Make the directory of a node that is to join a cluster elsewhere."""
    from kedge.cli.cluster import state
    from kedge.cli.failure import Failure

    directory = config.hidden[0]
    if cluster := state.read(directory):
        raise Failure(
            f'{directory} holds the cluster "{cluster.name}": choose another directory with'
            " --state for a node that joins a cluster elsewhere"
        )
    state.check_outside(directory)
    try:
        for each in (directory, config.state.parent, config.state):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise state.unwritable(directory, error) from error


def accept(config: "NodeConfig", invitation: "Invitation") -> None:
    """Join, unless that has been done: a command may be given again and again."""
    import asyncio

    from kedge.cli.failure import Failure
    from kedge.machinery.clock import SystemClock
    from kedge.node.host import join, node_record

    clock = SystemClock()
    if join.has_valid_certificate(config.pki, invitation, clock):
        node_record.write_server(config.state, invitation.url)
        return
    try:
        asyncio.run(join.join_first(config.state, config.name, invitation, clock))
    except join.JoinFailure as error:
        raise Failure(str(error)) from error
    node_record.write_server(config.state, invitation.url)


def url_from_pipe(descriptor: int) -> Callable[[], str]:
    """Return a function that reads the URL of the server from a pipe."""

    def find() -> str:
        from kedge.cli.failure import Failure

        with open(descriptor, "rb") as pipe:
            if line := pipe.readline().decode().strip():
                return line
        raise Failure(
            "the process that started this node has ended without sending the address of the server"
        )

    return find


def tell(descriptor: int) -> Callable[[], None]:
    """Return a function that reports readiness through a pipe."""

    def ready() -> None:
        from kedge.cli.cluster import announcement

        announcement.say(descriptor, b"ready\n")

    return ready


def say(config: "NodeConfig") -> Callable[[], None]:
    def ready() -> None:
        print(f'Node "{config.name}" is ready.', file=sys.stderr, flush=True)

    return ready
