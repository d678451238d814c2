"""`kedge port-forward`: its flags."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Forward ports of this machine to a pod, as 'kubectl port-forward' does, until Ctrl-C. For a Service
or a workload, one of its pods is chosen. 'kedge open' reaches an HTTP Service without this."""
EXAMPLES: Final = """\
  # Port 8080 of this machine to port 80 of a pod; the same port on both sides
  kedge port-forward pod/web 8080:80
  kedge port-forward web 80

  # A free port, to a pod behind a Service or of a Deployment
  kedge port-forward svc/web :80
  kedge port-forward deploy/web 8080:http"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("target", metavar="TYPE/NAME", help="a pod, Service or workload")
    parser.add_argument(
        "ports", nargs="+", metavar="[LOCAL:]PORT", help="8080:80, 80, :80 for a free local port"
    )
    parser.add_argument(
        "--address",
        default="localhost",
        metavar="ADDRESS,...",
        help="addresses of this machine to listen at (default: localhost)",
    )
    client_flags.add_cluster(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.pods.port_forward.forwarding import forward

    return visit(client_config(Settings(flags)), lambda there: forward(there, flags))
