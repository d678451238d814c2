"""`kedge exec`: a command in a container."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Run a command in a container of a pod, as 'kubectl exec' does. Everything after -- is the command.
kedge exits with the command's exit code. If kedge ends, the command ends too."""
EXAMPLES: Final = """\
  # A command, and its output
  kedge exec web -- ls -l /

  # A shell, in one container of several
  kedge exec -it web -c proxy -- sh

  # Copy files into a container
  kedge exec -i web -- tar xf - < files.tar"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="name of the pod")
    parser.set_defaults(line=())
    client_flags.add_cluster(parser)
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="which container")
    parser.add_argument("-i", "--stdin", action="store_true", help="pass standard input on")
    parser.add_argument("-t", "--tty", action="store_true", help="give the command a terminal")
    parser.usage = "kedge exec POD [flags] -- COMMAND [argument ...]"


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.pods.exec.session import ExecOptions, execute

    if not flags.line:
        raise Failure(
            "you must specify at least one command for the container, after --, as in 'kedge exec"
            f" {flags.pod} -- env'"
        )
    asked = ExecOptions(
        pod=flags.pod,
        command=flags.line,
        container=flags.container,
        stdin=flags.stdin,
        tty=flags.tty,
    )
    return visit(client_config(Settings(flags)), lambda there: execute(there, asked))
