"""`kedge node`: one node agent in the foreground."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.cli import flags

if TYPE_CHECKING:
    from kedge.node.config import NodeConfig

NAME: Final = "node"
HELP: Final = "Run a node agent in the foreground"
DESCRIPTION: Final = """\
Run the agent of one node in the foreground, until SIGTERM or SIGINT. It registers the node and
runs the pods that are bound to it; its containers run on when the agent ends, and the next agent
takes them over.

'kedge up' starts the nodes of a cluster itself; this is for starting one of them again by hand."""
EXAMPLES: Final = """\
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
        help="name of the node in the cluster (default: $KEDGE_NODE_NAME, else node-1)",
    )
    parser.add_argument(
        "--server",
        metavar="URL",
        help="where the API server is (default: $KEDGE_SERVER, else where the cluster in --state"
        " was last seen)",
    )
    flags.add_node(parser)
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


def arguments(config: "NodeConfig", state: Path) -> list[str]:
    """The flags that make `kedge node` run with this very configuration."""
    return [
        f"--name={config.cluster}",
        f"--state={state}",
        f"--node-name={config.name}",
        f"--node-address={config.address}",
        f"--node-port={config.port}",
        f"--node-labels={_pairs(config.labels)}",
        f"--reserved={_pairs(config.reserved)}",
        f"--max-pods={config.max_pods}",
        f"--pod-max-pids={config.max_pids}",
        *(f"--image-map={rule}" for rule in config.image_map),
    ]


def _pairs(values: object) -> str:
    assert hasattr(values, "items")
    return ",".join(f"{name}={value}" for name, value in values.items())


def run(config: "NodeConfig", find_server: Callable[[], str], ready: Callable[[], None]) -> int:
    """Run the agent till it is told to end; `ready` is called once the node is."""
    from kedge.cli import process
    from kedge.cli.failure import Failure
    from kedge.node import agent
    from kedge.node.access import Access

    if not (config.pki / "node.key").exists():
        raise Failure(
            f"there is no node \"{config.name}\" in {config.state.parent}: 'kedge up --nodes K'"
            " makes nodes"
        )
    process.claim(config.state, NAME)
    os.chdir(config.state)
    agent.run(config, lambda: Access(url=find_server(), pki=config.pki), ready)
    return 0


def told(descriptor: int) -> Callable[[], str]:
    """The server's URL is what somebody writes to a pipe."""

    def find() -> str:
        with open(descriptor, "rb") as pipe:
            return pipe.readline().decode().strip()

    return find


def tell(descriptor: int) -> Callable[[], None]:
    """Say that the node is ready to whoever reads at the other end of a pipe."""

    def ready() -> None:
        os.write(descriptor, b"ready\n")
        os.close(descriptor)

    return ready


def say(config: "NodeConfig") -> Callable[[], None]:
    def ready() -> None:
        print(f'Node "{config.name}" is ready.', file=sys.stderr, flush=True)

    return ready
