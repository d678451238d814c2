"""`kedge metrics-server`: the metrics API in front of a cluster that is not kedge's."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kedge.cli import flags
from kedge.cli.objects import client_flags
from kedge.settings import cluster
from kedge.settings.setting import bound_settings

if TYPE_CHECKING:
    from kedge.client.login import Login
    from kedge.metrics_server.config import MetricsServerConfig

DESCRIPTION: Final = """\
Serve the metrics API for any Kubernetes cluster, in the foreground, until SIGTERM or SIGINT.

It reads the usage from the cluster's kubelets, computes the windows, and serves metrics/v1alpha1
and metrics.k8s.io as an aggregated API, for which the cluster needs APIService objects
(examples/aggregated-metrics). The cluster's API server decides about access. Without a kubeconfig
it uses the service account of the pod in which it runs."""
EXAMPLES: Final = """\
  # For the cluster of the current context
  kedge metrics-server --state /var/lib/kedge-metrics --host 0.0.0.0

  # Kubelets with self-signed certificates
  kedge metrics-server --state /tmp/metrics --kubelet-insecure-tls"""


def add_flags(parser: ArgumentParser) -> None:
    from kedge.metrics_server.config import MetricsServerConfig

    client_flags.add_context(parser)
    flags.add_settings(parser, bound_settings(MetricsServerConfig))
    flags.add_setting(parser, cluster.CONFIG, cluster.CONFIG.default)


def run(flags: Namespace) -> int:
    from kedge.cli.config.kubeconfig import login
    from kedge.cli.config.server import metrics_server_config
    from kedge.cli.config.settings import Settings

    source = Settings(flags)
    return serve(metrics_server_config(source), login(source))


def serve(config: "MetricsServerConfig", read: "Callable[[], Login]") -> int:
    """Run the server until a signal ends it."""
    from kedge.apiserver.startup import innermost
    from kedge.cli.cluster import state
    from kedge.cli.failure import Failure
    from kedge.client.kubeconfig import KubeconfigError
    from kedge.client.transport import Unreachable
    from kedge.machinery.errors import StatusError
    from kedge.metrics_server import run as metrics_server
    from kedge.metrics_server.front_proxy import FrontProxyError as UnknownProxy
    from kedge.metrics_server.server import MetricsServerAddress

    if config.certificate is None:
        # The keys of its authority are there. A volume of a pod may be open to everybody.
        state.check_owner(config.state)

    def say(ready: MetricsServerAddress) -> None:
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
