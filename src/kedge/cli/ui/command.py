"""`kedge ui`: the dashboard of the cluster, signed in, in a browser if there is a desktop."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Print the address of the dashboard, and open it in the browser if there is a desktop. You are signed
in as the user of the kubeconfig: the address ends in a code that works once, within a minute. No
password or token is in it. The browser stays signed in for at most eight hours, or half an hour
without use, or until you sign out.

The server's certificate is that of the cluster's own authority. A browser that does not know the
authority warns: compare the fingerprint, which is printed here, before you go on, or let it
trust the authority (--ca prints its certificate)."""
EXAMPLES: Final = """\
  kedge ui

  # Only print the address
  kedge ui --no-browser

  # The cluster's authority, for the trusted certificates of a browser
  kedge ui --ca > kedge-ca.crt"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--ca", action="store_true", help="only print the certificate of the cluster's authority"
    )
    client_flags.add_cluster(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.ui import sign_in

    settings = Settings(flags)
    if flags.ca:
        return visit(client_config(settings), sign_in.print_authority)
    environment = None if flags.no_browser else settings.environment
    return visit(client_config(settings), lambda there: sign_in.open_page(there, environment))
