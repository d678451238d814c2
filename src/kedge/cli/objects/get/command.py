"""`kedge get`: objects of the cluster, as tables or in full."""

import gc
from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Show objects of the cluster that the kubeconfig leads to, as 'kubectl get' does: as a table, or in
full with -o yaml. Name a type by its plural, singular or short name, with its group after a dot if
needed, and separate several types by commas. Custom resources work too."""
EXAMPLES: Final = """\
  # The pods of the current namespace, and of all
  kedge get pods
  kedge get pods -A -o wide

  # Two objects of different types
  kedge get deployment/web service/web

  # One object in full, or just a part of it
  kedge get pod web -o yaml
  kedge get pods -l app=web -o jsonpath='{.items[*].metadata.name}'

  # What happens to them, until Ctrl-C
  kedge get pods -w"""


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_words(parser, required=True)
    client_flags.add_cluster(parser)
    client_flags.add_everywhere(parser)
    client_flags.add_selectors(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=client_flags.output("wide", "yaml", "json", "name", "jsonpath=TEMPLATE"),
        default="",
        metavar="FORMAT",
        help="wide (more columns), yaml, json, name, or jsonpath=TEMPLATE",
    )
    parser.add_argument(
        "-w", "--watch", action="store_true", help="watch, and show changes until Ctrl-C"
    )
    parser.add_argument("--no-headers", action="store_true", help="leave out the headings")
    parser.add_argument("--show-labels", action="store_true", help="show labels as last column")
    client_flags.add_ignore_not_found(parser)


def run(flags: Namespace) -> int:
    if not flags.watch:
        # The command ends before there is garbage worth collecting.
        gc.disable()
    from kedge.cli.objects.connection import visit, visit_briefly
    from kedge.cli.objects.get.show import GetOptions, show

    asked = GetOptions(
        words=flags.words,
        everywhere=flags.all_namespaces,
        labels=flags.selector,
        fields=flags.field_selector,
        output=flags.output,
        watch=flags.watch,
        headings=not flags.no_headers,
        show_labels=flags.show_labels,
        ignore_missing=flags.ignore_not_found,
    )
    go = visit if asked.watch else visit_briefly
    return go(client_config(Settings(flags)), lambda there: show(there, asked))
