"""`kedge metrics-server`: the metrics API in front of a cluster that is not kedge's."""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kedge.cli import client_flags, flags

if TYPE_CHECKING:
    from kedge.apiserver.metrics.aggregated.config import MetricsServerConfig
    from kedge.client.login import Login

NAME: Final = "metrics-server"
HELP: Final = "Serve the metrics API in front of another cluster"
DESCRIPTION: Final = """\
Serve the metrics API in front of any Kubernetes cluster, in the foreground, until SIGTERM or
SIGINT.

It reads what the cluster's kubelets say of themselves, computes the windows, and serves
metrics/v1alpha1 and metrics.k8s.io behind the cluster's API server, which is told to by APIService
objects (examples/aggregated-metrics). Who may read what is the cluster's decision. Without a
kubeconfig it takes itself for a pod of the cluster."""
EXAMPLES: Final = """\
  # For the cluster of the current context
  kedge metrics-server --state /var/lib/kedge-metrics --host 0.0.0.0

  # Kubelets whose certificates they have signed themselves
  kedge metrics-server --state /tmp/metrics --kubelet-insecure-tls"""


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_context(parser)
    parser.add_argument(
        "--state",
        type=flags.directory,
        metavar="DIR",
        help="directory for certificates and for windows, which outlive the server there"
        " (default: kedge-metrics under $XDG_STATE_HOME, for root under /var/lib)",
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        help="address to listen on (default: $KEDGE_HOST, else 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        type=flags.port_number,
        metavar="PORT",
        help="port to listen on, 0 for any free one (default: $KEDGE_PORT, else 4443)",
    )
    parser.add_argument(
        "--cert-hosts",
        type=flags.items,
        metavar="LIST",
        help="further names and addresses for the serving certificate, comma-separated"
        " (default: $KEDGE_CERT_HOSTS); that of the example's service is always there",
    )
    parser.add_argument(
        "--tls-cert-file",
        type=flags.file,
        metavar="FILE",
        help="serving certificate (default: $KEDGE_TLS_CERT_FILE, else one of its own making)",
    )
    parser.add_argument(
        "--tls-private-key-file",
        type=flags.file,
        metavar="FILE",
        help="key of that certificate (default: $KEDGE_TLS_PRIVATE_KEY_FILE)",
    )
    flags.add_kubelet_trust(parser)
    parser.add_argument(
        "--metrics-resolution",
        type=flags.resolution_seconds,
        metavar="DURATION",
        help="how often kubelets are read, from 10s on (default: $KEDGE_METRICS_RESOLUTION,"
        " else 15s)",
    )
    flags.add_metrics_window(parser)


def run(config: "MetricsServerConfig", read: "Callable[[], Login]") -> int:
    """Run the server till it is told to end."""
    from kedge import metrics_server
    from kedge.apiserver.metrics.aggregated.front_proxy import Unusable as UnknownProxy
    from kedge.apiserver.metrics.aggregated.server import Running
    from kedge.apiserver.startup import innermost
    from kedge.cli import state
    from kedge.cli.failure import Failure
    from kedge.client.kubeconfig import KubeconfigError
    from kedge.client.transport import Unreachable
    from kedge.machinery.errors import StatusError

    state.check_owner(config.state)

    def say(ready: Running) -> None:
        print(f"The metrics API is ready at {ready.url}.", file=sys.stderr)
        if ready.ca_pem:
            where = config.pki / "ca.crt"
            print(f"Its certificate is signed by {where}.", file=sys.stderr, flush=True)

    try:
        metrics_server.run(config, read, say)
    except Exception as error:
        cause = innermost(error)
        if isinstance(cause, KubeconfigError | UnknownProxy | Unreachable | OSError):
            raise Failure(str(cause)) from error
        if isinstance(cause, StatusError):
            raise Failure(f"the cluster refused: {cause.message}") from error
        raise cause from None
    return 0
