"""`kedge edit`: its flags."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Open an object in an editor and write the result, as 'kubectl edit' does. The editor is
$KUBE_EDITOR, else $EDITOR, else vi. If the server refuses the result, the editor opens again with
the reason in comments. Leave the text as it is, or empty it, to change nothing."""
EXAMPLES: Final = """\
  # Change a Deployment
  kedge edit deploy/web

  # With another editor
  KUBE_EDITOR=nano kedge edit configmap settings"""


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_words(parser, required=True)
    client_flags.add_cluster(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.objects.edit.editing import edit

    source = Settings(flags)
    environment = source.environment
    editor = environment.get("KUBE_EDITOR") or environment.get("EDITOR") or "vi"
    return visit(client_config(source), lambda there: edit(there, flags.words, editor))
