"""`kedge node`: one node agent in the foreground."""

import gc
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.cli import flags

if TYPE_CHECKING:
    from kedge.node.config import Invitation, NodeConfig

NAME: Final = "node"
HELP: Final = "Run a node agent in the foreground"
DESCRIPTION: Final = """\
Run the agent of one node in the foreground, until SIGTERM or SIGINT. It registers the node and
runs the pods that are bound to it; its containers run on when the agent ends, and the next agent
takes them over; 'kedge down' ends them.

With --token the machine joins a cluster that runs elsewhere; the line to type is what 'kedge token
create --print-join-command' prints there. From then on 'kedge node' alone is enough.

'kedge up' starts the nodes of its own cluster itself."""
EXAMPLES: Final = """\
  # Join the cluster of another machine
  kedge node --server https://192.0.2.7:6443 --token abcdef.0123456789abcdef \\
      --ca-cert-hash sha256:...

  # The same node again, after a restart of the machine
  kedge node

  # The second node of the cluster, after its agent was killed
  kedge node --node-name node-2

  # What runs here, and how much of a container this machine allows
  kubectl get nodes -L kedge.dev/level"""


def add_flags(parser: ArgumentParser) -> None:
    flags.add_which(parser)
    parser.add_argument(
        "--node-name",
        type=flags.node_name,
        metavar="NAME",
        help="name of the node in the cluster (default: $KEDGE_NODE_NAME, else the host name when"
        " joining, else the one node in --state, else node-1)",
    )
    add_joining(parser)
    flags.add_node(
        parser,
        address="the address that leads to the server it has joined, else 127.0.0.1",
        resolution="1m",
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


def add_joining(parser: ArgumentParser) -> None:
    """What a machine must be told to join."""
    parser.add_argument(
        "--server",
        type=flags.server_url,
        metavar="URL",
        help="where the API server is (default: $KEDGE_SERVER, else the server that was joined,"
        " else where the cluster in --state was last seen)",
    )
    parser.add_argument(
        "--token",
        type=flags.bootstrap_token,
        metavar="ID.SECRET",
        help="join the cluster with this token (default: $KEDGE_TOKEN)",
    )
    parser.add_argument(
        "--ca-cert-hash",
        type=flags.key_digest,
        metavar="sha256:HEX",
        help="when joining, the digest of the public key of the cluster's authority"
        " (default: $KEDGE_CA_CERT_HASH)",
    )
    parser.add_argument(
        "--ca-cert",
        type=flags.file,
        metavar="FILE",
        help="when joining, the certificate of the cluster's authority, instead of its digest"
        " (default: $KEDGE_CA_CERT)",
    )


def arguments(config: "NodeConfig", state: Path) -> list[str]:
    """The flags that make `kedge node` run with this very configuration."""
    return [
        f"--name={config.cluster}",
        f"--state={state}",
        f"--node-name={config.name}",
        f"--node-address={config.address}",
        f"--node-port={config.port}",
        f"--node-labels={_pairs(config.labels)}",
        f"--expose-node-labels={','.join(config.exposed_labels)}",
        f"--reserved={_pairs(config.reserved)}",
        f"--max-pods={config.max_pods}",
        f"--pod-max-pids={config.max_pids}",
        f"--metrics-resolution={config.metrics_resolution}s",
        *(f"--image-map={rule}" for rule in config.image_map),
        *(f"--hide={path}" for path in config.hidden[1:]),
        *(f"--host-image-show={path}" for path in config.host_image_shown),
        "--host-image" if config.host_image else "--no-host-image",
        f"--device-plugin-dir={config.plugins or config.own_plugins}",
        *([f"--devices={_pairs(config.devices)}"] if config.devices else ()),
    ]


def _pairs(values: object) -> str:
    assert hasattr(values, "items")
    return ",".join(f"{name}={value}" for name, value in values.items())


def run(
    config: "NodeConfig",
    invitation: "Invitation | None",
    find_server: Callable[[], str],
    ready: Callable[[], None],
    check: Callable[[], None] = lambda: None,
) -> int:
    """Run the agent until a signal ends it; `ready` is called once the node is ready, `check`
    raises if the starter is gone."""
    from kedge.cli import process
    from kedge.node.runtime import spawn

    if invitation is not None:
        prepare(config)
    check()
    process.claim(config.state, NAME)
    check()
    if invitation is not None:
        accept(config, invitation)
    os.chdir(config.state)
    # It comes up while the agent is imported, of which nothing is garbage; that turns it on again.
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
    from kedge.cli import state
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
        asyncio.run(join.join(config.state, config.name, invitation, clock))
    except join.JoinFailure as error:
        raise Failure(str(error)) from error


def told(descriptor: int) -> Callable[[], str]:
    """The server's URL is what somebody writes to a pipe."""

    def find() -> str:
        from kedge.cli.failure import Failure

        with open(descriptor, "rb") as pipe:
            if line := pipe.readline().decode().strip():
                return line
        raise Failure("nobody has said where the server is")

    return find


def tell(descriptor: int) -> Callable[[], None]:
    """Say that the node is ready to whoever reads at the other end of a pipe."""

    def ready() -> None:
        from kedge.cli import announcement

        announcement.say(descriptor, b"ready\n")

    return ready


def say(config: "NodeConfig") -> Callable[[], None]:
    def ready() -> None:
        print(f'Node "{config.name}" is ready.', file=sys.stderr, flush=True)

    return ready
