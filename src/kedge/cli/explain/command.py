"""`kedge explain`: where the limits of a manifest's pods and the variables of a pod come from."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
'kedge explain limits -f FILE': print the source of each request and limit of each container (the
manifest, its limit, or a LimitRange of the namespace), the total of the pod, and every constraint
of a LimitRange that it violates. Files can contain pods, claims, and workloads, whose pods are
explained; other kinds are skipped. The exit code is 1 if anything would be refused.

With --existing: print the running pods of the namespace that its LimitRanges would refuse now. With
-f, LimitRanges in the files are compared as well, before you apply them.

Nothing is created. With --dry-run=server the server decides: it may run without LimitRanger, and it
checks more than LimitRanges.

'kedge explain env POD': print every variable that a container of the pod would have if it started
now, and its source. Values of secrets are not printed. The exit code is 1 if the container could
not start because a source is missing."""
EXAMPLES: Final = """\
  kedge explain limits -f pod.yaml
  kedge explain limits -n team-a -f deployment.yaml --dry-run=server
  kedge explain limits --existing -f limit-range.yaml
  kedge explain env web-0 -c main"""


TOPICS: Final = ("limits", "env")


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "topic", type=_topic, choices=TOPICS, metavar="limits|env", help="what to explain"
    )
    parser.add_argument("pod", nargs="?", default="", metavar="POD", help="for env: the pod")
    parser.add_argument(
        "-c",
        "--container",
        default="",
        metavar="NAME",
        help="for env: the container (default: the first)",
    )
    parser.add_argument(
        "--existing",
        action="store_true",
        help="for limits: the running pods that would be refused",
    )
    client_flags.add_files(parser, required=False)
    client_flags.add_cluster(parser)
    client_flags.add_dry_run(parser)


def _topic(text: str) -> str:
    """Return the topic; raises for the kinds that 'kubectl explain' would take."""
    if text not in TOPICS:
        raise ArgumentTypeError(
            f"'kedge explain' tells where limits and variables come from, not about {text!r};"
            f" the fields of a kind: 'kedge kubectl explain {text}'"
        )
    return text


def run(flags: Namespace) -> int:
    return _env(flags) if flags.topic == "env" else _limits(flags)


def _env(flags: Namespace) -> int:
    from kedge.cli.explain import env
    from kedge.cli.objects.connection import visit

    if not flags.pod or flags.filename:
        raise Failure("'kedge explain env' is about a pod that is there: kedge explain env POD")
    return visit(
        client_config(Settings(flags)),
        lambda there: env.explain(there, flags.pod, flags.container),
    )


def _limits(flags: Namespace) -> int:
    from kedge.cli.explain import limits
    from kedge.cli.objects import manifests
    from kedge.cli.objects.connection import visit

    if flags.existing:
        return _existing(flags)
    if not flags.filename or flags.pod or flags.container:
        raise Failure("'kedge explain limits' is about manifests: kedge explain limits -f FILE")
    read = manifests.read(flags.filename, sys.stdin, recursive=flags.recursive)
    ask = flags.dry_run == "server"
    return visit(client_config(Settings(flags)), lambda there: limits.explain(there, read, ask=ask))


def _existing(flags: Namespace) -> int:
    from kedge.cli.explain import limits
    from kedge.cli.objects import manifests
    from kedge.cli.objects.connection import visit

    if flags.pod or flags.container:
        raise Failure("--existing is about all running pods: kedge explain limits --existing")
    files = flags.filename
    read = manifests.read(files, sys.stdin, recursive=flags.recursive) if files else []
    written = [each for each in read if (each.api_version, each.kind) == ("v1", "LimitRange")]
    return visit(
        client_config(Settings(flags)), lambda there: limits.explain_existing(there, written)
    )
