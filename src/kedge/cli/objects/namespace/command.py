"""`kedge namespace`: the namespace that other commands use if none is named."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Set the default namespace of the current context in the kubeconfig, for kedge and kubectl. A
namespace that does not exist is created. Without a name, print the current namespace."""
EXAMPLES: Final = """\
  kedge namespace myspace
  kedge create -f limit-range.json

  # Which one is it?
  kedge namespace"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the namespace to change to")
    client_flags.add_context(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.objects.namespace import current

    config = client_config(Settings(flags))
    name: str | None = flags.name
    if name is None:
        print(current.namespace_of(config))
        return 0
    current.check_name(name)
    return visit(config, lambda there: current.change(there, name))
