"""`kedge faults`: requests that fail on purpose, in a cluster that was started for tests."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli import flags as shared_flags
from kedge.cli.objects import client_flags
from kedge.settings import parse

DESCRIPTION: Final = """\
Make requests fail on purpose, to see how a controller behaves then.

The cluster must have been started with 'kedge up --testing', and you must be its administrator.

A rule says which requests it fits, after they were authenticated: those of a user, a service
account or a user agent, of some verbs, for a resource or an object. It also says what happens to
them: an error (--code), a late answer (--latency), or no answer at all (--drop). Watches that are
open when a rule is added end, too. Paths that name no resource, such as /readyz, never fail."""
EXAMPLES: Final = """\
  # The next two updates of a pod's status by one controller are conflicts
  kedge faults add --verbs update --resource pods/status --user-agent my-op --code 409 --times 2

  # The server is slow for a service account, or asks it to wait
  kedge faults add --service-account shop/operator --latency 2s
  kedge faults add --service-account shop/operator --code 429 --retry-after 5 --times 1

  # Watches end with 410, so that clients have to list again
  kedge faults add --verbs watch --user-agent my-operator --code 410 --times 1

  # A write is stored, and its client does not learn about it
  kedge faults add --verbs create --resource jobs.batch --drop --stage after --times 1

  # A webhook hangs
  kedge faults add --verbs call --name my-webhook-service --latency 60s

  # A node goes silent
  kedge faults add --user system:node:kedge-1 --drop

  # A container runs out of memory
  kedge faults oom-kill web-1 -c main

  kedge faults list
  kedge faults remove fault-1
  kedge faults remove --all"""

_CONTAINER: Final = "the container (default: the first one)"
_TEXTS: Final = (
    ("--resource", "RESOURCE", "such as pods, pods/status or deployments.apps (default: all)"),
    ("--name", "NAME", "the name of the object; a create has none in its path (default: any)"),
    ("--user", "USER", "the user who asks; * at the end stands for any rest (default: any)"),
    ("--service-account", "NAMESPACE/NAME", "the service account that asks (default: any)"),
    ("--user-agent", "TEXT", "how the user agent of the client begins (default: any)"),
    ("--reason", "REASON", "the reason in the Status (default: that of the code)"),
    ("--message", "TEXT", "the message in the Status (default: one that names the rule)"),
)


def add_flags(parser: ArgumentParser) -> None:
    below = parser.add_subparsers(dest="deed", metavar="add|list|remove|oom-kill", required=True)
    adding = below.add_parser("add", help="add a rule", allow_abbrev=False)
    _add_rule(adding)
    listing = below.add_parser("list", help="list the rules", allow_abbrev=False)
    removing = below.add_parser("remove", help="remove rules", allow_abbrev=False)
    removing.add_argument("rules", metavar="ID", nargs="*", help="the rules to remove")
    removing.add_argument("--all", action="store_true", help="remove all rules")
    killing = below.add_parser(
        "oom-kill", help="kill a container as if it had used up its memory", allow_abbrev=False
    )
    killing.add_argument("pod", metavar="POD", help="the pod of the container")
    killing.add_argument("-c", "--container", default="", metavar="NAME", help=_CONTAINER)
    killing.add_argument("-n", "--namespace", metavar="NAMESPACE", help="of the pod")
    for each in (adding, listing):
        shared_flags.add_output(each)
    for each in (adding, listing, removing, killing):
        client_flags.add_context(each)


def _add_rule(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--verbs",
        type=parse.items,
        default=(),
        metavar="LIST",
        help="comma-separated (default: all)",
    )
    for flag, metavar, text in _TEXTS:
        parser.add_argument(flag, default="", metavar=metavar, help=text)
    parser.add_argument(
        "-n", "--namespace", default="", metavar="NAMESPACE", help="of the object (default: any)"
    )
    parser.add_argument(
        "--times", type=int, default=0, metavar="N", help="how many requests (default: all)"
    )
    parser.add_argument(
        "--code", type=int, default=0, metavar="CODE", help="the status, 400 to 599"
    )
    parser.add_argument(
        "--retry-after", type=int, default=0, metavar="SECONDS", help="for 429 and from 500 on"
    )
    parser.add_argument(
        "--latency", type=parse.seconds, default=0.0, metavar="DURATION", help="such as 500ms or 2s"
    )
    parser.add_argument(
        "--drop", action="store_true", help="close the connection without an answer"
    )
    parser.add_argument(
        "--stage",
        choices=("before", "after"),
        default="before",
        help="fail before the server does the work, or after it (default: before)",
    )


def run(flags: Namespace) -> int:
    from kedge.cli.config.kubeconfig import client_config
    from kedge.cli.config.settings import Settings
    from kedge.cli.faults import rules
    from kedge.cli.objects.connection import visit

    match flags.deed:
        case "add":
            rule = rules.rule_of(flags)
            deed = rules.adding(rule, flags.output)
            # The flag names the namespace of objects here, and not that of the context.
            flags.namespace = ""
        case "list":
            deed = rules.listing(flags.output)
        case "oom-kill":
            deed = rules.killing(flags.pod, flags.container)
        case _:
            deed = rules.removing(flags.rules, everything=flags.all)
    return visit(client_config(Settings(flags)), deed)
