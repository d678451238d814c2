"""`kedge completion`: the script for a shell, and the words that it asks for."""

import contextlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kedge.cli.completion.scripts import SCRIPTS

if TYPE_CHECKING:
    from kedge.cli.objects.connection import ApiSession

DESCRIPTION: Final = """\
Print the script with which a shell completes kedge's command lines: commands, flags and their
values, and types, names and namespaces of the cluster that the kubeconfig leads to."""
EXAMPLES: Final = """\
  # In ~/.bashrc
  source <(kedge completion bash)

  # In ~/.zshrc
  source <(kedge completion zsh)

  # In ~/.config/fish/config.fish
  kedge completion fish | source"""


def add_flags(parser: ArgumentParser) -> None:
    parser.set_defaults(line=())
    parser.add_argument("shell", nargs="?", choices=tuple(SCRIPTS), help=", ".join(SCRIPTS))
    parser.add_argument(
        "--words",
        action="store_true",
        help="print the words that complete the command line after --; the scripts use this",
    )


def run(flags: Namespace) -> int:
    from kedge.cli.failure import Failure

    if flags.words:
        from kedge.cli.completion.words import complete

        print("\n".join(complete(flags.line, lambda type_: _names(flags, type_))))
        return 0
    if not flags.shell:
        raise Failure(f"name a shell: kedge completion {'|'.join(SCRIPTS)}")
    print(SCRIPTS[flags.shell], end="")
    return 0


def _names(flags: Namespace, type_: str) -> list[str]:
    """Return the names of objects of a type, or all types. Without a cluster there are none: errors
    would disturb a shell that waits for words."""
    from kedge.cli.completion.words import CLUSTERS, CONTEXTS
    from kedge.cli.config.settings import Settings

    if type_ == CLUSTERS:
        from kedge.cli.cluster import registry

        return [each.cluster.name for each in registry.every(Settings(flags).root())]
    if type_ == CONTEXTS:
        return _contexts(_client_namespace(flags))
    return _remote_names(_client_namespace(flags), type_)


def _contexts(given: Namespace) -> list[str]:
    from kedge.cli.config.kubeconfig import client_config
    from kedge.cli.config.settings import Settings
    from kedge.client import kubeconfig

    found: list[str] = []
    for path in client_config(Settings(given)).files:
        with contextlib.suppress(OSError, kubeconfig.KubeconfigError):
            found += kubeconfig.contexts(path)
    return found


def _remote_names(given: Namespace, type_: str) -> list[str]:
    from kedge.cli.config.kubeconfig import client_config
    from kedge.cli.config.settings import Settings
    from kedge.cli.failure import Failure
    from kedge.cli.objects.connection import visit_briefly

    found: list[str] = []

    async def look(there: "ApiSession") -> int:
        found.extend(await _look(there, type_))
        return 0

    with contextlib.suppress(Failure):
        visit_briefly(client_config(Settings(given)), look)
    return found


def _client_namespace(flags: Namespace) -> Namespace:
    """Return the flags of the line that is completed which say what cluster and namespace it is
    about."""
    from kedge.cli.commands import COMMANDS
    from kedge.cli.main import command_first, parser

    get = [each for each in COMMANDS if each.name == "get"]
    chosen = _client_flags(command_first(flags.line[:-1]))
    return parser(get, get).parse_args(["get", "any", *chosen])


def _client_flags(line: list[str]) -> Iterable[str]:
    """Yield the flags of a command line that choose the cluster and the namespace."""
    taken = ("-n", "--namespace", "--context", "--kubeconfig")
    for number, word in enumerate(line):
        if word in taken and number + 1 < len(line):
            yield from (word, line[number + 1])
        elif word.startswith(tuple(f"{each}=" for each in taken)):
            yield word


async def _look(there: "ApiSession", type_: str) -> list[str]:
    from kedge.cli.completion.words import CONTAINERS
    from kedge.cli.pods import containers

    if type_.startswith(CONTAINERS):
        with contextlib.redirect_stderr(None):
            return containers.every(await containers.find(there, type_.removeprefix(CONTAINERS)))
    return await (_objects(there, type_) if type_ else _types(there))


async def _types(there: "ApiSession") -> list[str]:
    return [each.plural for each in (await there.discovery.served()).preferred("list")]


async def _objects(there: "ApiSession", type_: str) -> list[str]:
    [target, *_] = await there.targets([type_])
    listed = await there.list(target.resource, there.within(target.resource), {"limit": "500"})
    return [str(each["metadata"]["name"]) for each in listed]
