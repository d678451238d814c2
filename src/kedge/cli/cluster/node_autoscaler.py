"""`kedge node-autoscaler`: the process that adds and removes the local nodes of a cluster."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.cli import flags

if TYPE_CHECKING:
    from kedge.cli.cluster.node_pool import PoolRecord

DESCRIPTION: Final = """\
Add a local node for pods that do not fit, and remove the least used node when nodes are not needed.
'kedge up --nodes MIN..MAX' starts this command; it needs the files of such a cluster. It runs in
the foreground, until SIGTERM or SIGINT."""
EXAMPLES: Final = """\
  # Started by 'kedge up --nodes 1..5'; by hand, for a cluster of that kind
  kedge node-autoscaler --name dev"""


def add_flags(parser: ArgumentParser) -> None:
    flags.add_which(parser)
    parser.add_argument(
        "--join-fd",
        type=int,
        metavar="N",
        help="read the URL of the server from this file descriptor, once it is known",
    )
    parser.add_argument(
        "--ready-fd", type=int, metavar="N", help="write one line to this file descriptor"
    )


def run(flags: Namespace) -> int:
    from kedge.cli.cluster import node, node_pool, process, registry, state
    from kedge.cli.cluster.announcement import check_reader
    from kedge.cli.config.cluster import where
    from kedge.cli.config.settings import Settings
    from kedge.cli.failure import Failure

    location = where(Settings(flags))
    directory = location.directory or registry.resolve(location.root, location.name)
    record = node_pool.read(directory)
    if record is None:
        raise Failure(
            f"the cluster in {directory} has a fixed number of nodes: start it with"
            " 'kedge up --nodes MIN..MAX'"
        )
    check = check_reader(flags.ready_fd)
    check()
    process.claim(directory, node_pool.PART)
    check()
    if flags.join_fd is not None:
        url = node.url_from_pipe(flags.join_fd)()
    else:
        known = state.read_server(directory)
        url = known.url if known else ""
    if flags.ready_fd is not None:
        node.tell(flags.ready_fd)()
    return scale(directory, record, url)


def scale(directory: Path, record: "PoolRecord", url: str) -> int:
    """Run the autoscaler until a signal ends it."""
    import asyncio
    import contextlib
    import logging
    import signal

    from kedge.cli.cluster.node_pool import LocalNodePool
    from kedge.client.login import Login
    from kedge.machinery.clock import SystemClock
    from kedge.node_autoscaler.autoscaler import NodeAutoscaler

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    login = Login(
        context="",
        file=directory / "cluster.json",
        server=url,
        ca_pem=(directory / "pki" / "ca.crt").read_bytes(),
        token=(directory / "token").read_text().strip(),
    )

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        client = login.client("cluster-autoscaler")
        pool = LocalNodePool(directory, record, url)
        await NodeAutoscaler(client, SystemClock(), pool, record.calm_seconds).run()

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(work())
    return 0
