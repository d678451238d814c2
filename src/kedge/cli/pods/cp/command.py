"""`kedge cp`: its flags."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Copy files and directories into a container or out of it, as 'kubectl cp' does. The container needs
the program tar. One of the two paths is POD:PATH or NAMESPACE/POD:PATH. Links and special files in
a container are not copied out of it."""
EXAMPLES: Final = """\
  # A file into a container, and a directory out of it
  kedge cp page.html web:/srv/index.html
  kedge cp web:/var/log ./logs

  # Another namespace, another container
  kedge cp shop/web:/etc/nginx.conf nginx.conf -c proxy"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="PATH or [NAMESPACE/]POD:PATH")
    parser.add_argument("target", metavar="TARGET", help="PATH or [NAMESPACE/]POD:PATH")
    client_flags.add_cluster(parser)
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="which container")


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.pods.cp.copying import copy
    from kedge.cli.pods.cp.places import direction

    source, target = direction(flags.source, flags.target)
    config = client_config(Settings(flags))
    return visit(config, lambda there: copy(there, source, target, flags.container))
