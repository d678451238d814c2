"""`kedge version`: which kedge this is, and which Kubernetes it follows."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge import KUBERNETES, __version__
from kedge.cli.flags import add_output
from kedge.cli.output.printers import document, facts

DESCRIPTION: Final = (
    "Print the version of kedge and the version of the Kubernetes API that it serves."
)
EXAMPLES: Final = """\
  kedge version
  kedge version -o json"""


def add_flags(parser: ArgumentParser) -> None:
    add_output(parser)


def run(flags: Namespace) -> int:
    if flags.output:
        print(document({"kedge": __version__, "kubernetes": KUBERNETES}, flags.output))
    else:
        print(facts([("kedge", __version__), ("Kubernetes", KUBERNETES)]))
    return 0
