"""`kedge namespace`: the namespace that other commands mean if none is named."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.api.core_v1 import namespace
from kedge.api.model import ObjectMeta
from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.objects import client_flags
from kedge.cli.objects.connection import ApiSession, visit
from kedge.client import kubeconfig, login
from kedge.client.kubeconfig import KubeconfigError
from kedge.machinery.errors import StatusError
from kedge.machinery.names import dns_label

DESCRIPTION: Final = """\
Make a namespace the one that commands mean if none is named: those of kedge and of kubectl alike,
for it is written into the current context of the kubeconfig. A namespace that does not exist yet
is created. Without a name, print the current one."""
EXAMPLES: Final = """\
  kedge namespace myspace
  kedge create -f limit-range.json

  # Which one is it?
  kedge namespace"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the namespace to change to")
    client_flags.add_context(parser)


def run(flags: Namespace) -> int:
    name: str | None = flags.name
    if name is not None:
        if problems := dns_label(name):
            raise Failure(f'"{name}" is no name for a namespace: {problems[0]}')
        return visit(client_config(Settings(flags)), lambda there: change(there, name))
    asked = client_config(Settings(flags))
    try:
        print(login.read(asked.files, asked.context).namespace or "default")
    except KubeconfigError as error:
        raise Failure(str(error)) from error
    return 0


async def change(there: "ApiSession", name: str) -> int:
    """Have the context mean the namespace, which is created if it is missing."""
    if await _created(there, name):
        print(f"namespace/{name} created")
    try:
        kubeconfig.set_namespace(there.login.file, there.login.context, name)
    except kubeconfig.KubeconfigError as error:
        raise Failure(str(error)) from error
    print(f'Context "{there.login.context}" now uses the namespace "{name}".')
    return 0


async def _created(there: "ApiSession", name: str) -> bool:
    """Whether the namespace had to be created."""
    try:
        await there.client.get(namespace.RESOURCE, name)
    except StatusError as error:
        if error.code == 403:
            # A user of a namespace is not always allowed to read the Namespace object.
            return False
        if error.code != 404:
            raise
        new = namespace.Namespace(metadata=ObjectMeta(name=name))
        await there.client.create(namespace.RESOURCE, new)
        return True
    return False
