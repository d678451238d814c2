"""`kedge version`: which kedge this is, and which Kubernetes it follows."""

from argparse import ArgumentParser
from typing import Final

from kedge import KUBERNETES, __version__
from kedge.cli.flags import add_output

NAME: Final = "version"
HELP: Final = "Print the version of kedge and of Kubernetes"
DESCRIPTION: Final = "Print the version of kedge, and that of the Kubernetes API it serves."
EXAMPLES: Final = """\
  kedge version
  kedge version -o json"""


def add_flags(parser: ArgumentParser) -> None:
    add_output(parser)


def run(output: str | None) -> int:
    from kedge.cli.printers import document, facts

    if output:
        print(document({"kedge": __version__, "kubernetes": KUBERNETES}, output))
    else:
        print(facts([("kedge", __version__), ("Kubernetes", KUBERNETES)]))
    return 0
