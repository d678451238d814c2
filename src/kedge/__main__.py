"""The command line: what each command does, bound to its name.

Deeds import what they need themselves, so that `kedge --help` reads none of it.
"""

import gc
import sys
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from typing import Final

from kedge.cli import (
    apply,
    create,
    delete,
    describe,
    exec,
    explain,
    get,
    inheritance,
    logs,
    namespace,
    recommend,
    top,
    why,
)
from kedge.cli import main as cli


def up(flags: Namespace) -> int:
    # It ends before there is garbage worth looking for; a server in it turns this on again.
    gc.disable()
    from kedge import up
    from kedge.cli.config.source import Source
    from kedge.cli.config.up import up_config
    from kedge.cli.up import report

    wanted = up_config(Source(flags))
    start = up.foreground if flags.foreground else up.background
    if done := start(wanted, lambda text: print(text, flush=True)):
        print(report(wanted, done))
    return 0


def down(flags: Namespace) -> int:
    from kedge.cli import down
    from kedge.cli.config.cluster import where
    from kedge.cli.config.source import Source

    return down.run(where(Source(flags)), purge=flags.purge, every=flags.all)


def status(flags: Namespace) -> int:
    from kedge.cli import status
    from kedge.cli.config.cluster import where
    from kedge.cli.config.source import Source

    return status.run(where(Source(flags)), flags.output)


def list_clusters(flags: Namespace) -> int:
    from kedge.cli import list
    from kedge.cli.config.source import Source

    return list.run(Source(flags).root(), flags.output)


def server(flags: Namespace) -> int:
    from kedge.cli import server
    from kedge.cli.announcement import check_reader
    from kedge.cli.config.server import server_config
    from kedge.cli.config.source import Source

    wanted = server_config(Source(flags))
    told = server.say(wanted) if flags.ready_fd is None else server.tell(flags.ready_fd)
    return server.run(wanted, told, check_reader(flags.ready_fd))


def node(flags: Namespace) -> int:
    from kedge.cli import node
    from kedge.cli.announcement import check_reader
    from kedge.cli.config import node as config
    from kedge.cli.config.source import Source

    source = Source(flags)
    wanted = config.node_config(source)
    last_seen = partial(config.server_of_node, source, wanted)
    find = last_seen if flags.join_fd is None else node.told(flags.join_fd)
    ready = node.say(wanted) if flags.ready_fd is None else node.tell(flags.ready_fd)
    # Whoever says later where the server is has made the node, too.
    invited = config.invitation(source) if flags.join_fd is None else None
    if flags.join_fd is None and invited is None:
        node.check_made(wanted)
    return node.run(wanted, invited, find, ready, check_reader(flags.ready_fd))


def metrics_server(flags: Namespace) -> int:
    from kedge.cli import metrics_server
    from kedge.cli.config.cluster import login
    from kedge.cli.config.server import metrics_server_config
    from kedge.cli.config.source import Source

    source = Source(flags)
    return metrics_server.run(metrics_server_config(source), login(source))


def token(flags: Namespace) -> int:
    from kedge.cli import token
    from kedge.cli.config.cluster import where
    from kedge.cli.config.source import Source

    cluster = where(Source(flags))
    if flags.deed == "create":
        new = token.New(flags.ttl, flags.usages, flags.groups, flags.description)
        return token.create(cluster, new, join_command=flags.print_join_command)
    if flags.deed == "list":
        return token.list_tokens(cluster, flags.output)
    return token.delete(cluster, flags.tokens)


def image(flags: Namespace) -> int:
    from kedge.cli import image
    from kedge.cli.config.cluster import where
    from kedge.cli.config.source import Source

    cluster = where(Source(flags))
    if flags.deed == "load":
        return image.load(cluster, flags.paths, flags.names)
    if flags.deed == "list":
        if flags.image:
            return image.list_hidden(cluster, flags.output)
        return image.list_images(cluster, flags.output)
    return image.remove(cluster, flags.images, force=flags.force)


def device(flags: Namespace) -> int:
    from kedge.cli import device

    return device.run(flags)


def version(flags: Namespace) -> int:
    from kedge.cli import version

    return version.run(flags.output)


def visiting(command: cli.Visitor) -> cli.Deed:
    """What a command does that speaks to a cluster through a kubeconfig."""

    def deed(flags: Namespace) -> int:
        from kedge.cli.config.cluster import whereto
        from kedge.cli.config.source import Source

        return command.run(whereto(Source(flags)), flags)

    return deed


DEEDS: Final[Mapping[str, cli.Deed]] = {
    "up": up,
    "down": down,
    "status": status,
    "list": list_clusters,
    "get": visiting(get),
    "describe": visiting(describe),
    "create": visiting(create),
    "apply": visiting(apply),
    "delete": visiting(delete),
    "namespace": visiting(namespace),
    "explain": visiting(explain),
    "logs": visiting(logs),
    "exec": visiting(exec),
    "top": visiting(top),
    "recommend": visiting(recommend),
    "why": visiting(why),
    "image": image,
    "device": device,
    "token": token,
    "server": server,
    "node": node,
    "metrics-server": metrics_server,
    "version": version,
}


def main() -> int:
    inheritance.put_right()
    return cli.run(sys.argv[1:], DEEDS)


if __name__ == "__main__":
    sys.exit(main())
