"""`kedge admission-webhook`: kedge's rules for pods and claims on a cluster that is not kedge's."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kedge.cli import flags
from kedge.cli.objects import client_flags
from kedge.settings import cluster
from kedge.settings.setting import bound_settings

if TYPE_CHECKING:
    from kedge.admission_webhook.config import AdmissionWebhookConfig
    from kedge.client.login import Login

DESCRIPTION: Final = """\
Serve a webhook for any Kubernetes cluster, in the foreground, until SIGTERM or SIGINT.

It enforces LimitRanges of the group kedge.dev, whose items may have a selector, and translates
kedge's selectors of the downward API for stock kubelets. --print-manifests prints the objects that
the cluster needs: with --url for a webhook outside of the cluster, with --image for a Deployment.
Without a kubeconfig it logs in as the service account of its pod."""

EXAMPLES: Final = """\
  # Beside an API server of this machine
  kedge admission-webhook --print-manifests --url https://127.0.0.1:9443 | kubectl apply -f -
  kedge admission-webhook

  # As a Deployment of the cluster
  kedge admission-webhook --print-manifests --image registry.example/kedge:1 | kubectl apply -f -"""


def add_flags(parser: ArgumentParser) -> None:
    from kedge.admission_webhook.config import AdmissionWebhookConfig

    client_flags.add_context(parser)
    parser.add_argument(
        "--print-manifests",
        action="store_true",
        help="print the objects that the cluster needs as YAML, and exit",
    )
    parser.add_argument(
        "--url",
        default="",
        metavar="URL",
        help="where the API server reaches the webhook, for --print-manifests",
    )
    parser.add_argument(
        "--image",
        default="",
        metavar="IMAGE",
        help="an image with kedge for a Deployment, for --print-manifests",
    )
    flags.add_settings(parser, bound_settings(AdmissionWebhookConfig))
    flags.add_setting(parser, cluster.CONFIG, cluster.CONFIG.default)


def run(flags: Namespace) -> int:
    from kedge.cli.config.kubeconfig import login
    from kedge.cli.config.server import admission_webhook_config
    from kedge.cli.config.settings import Settings
    from kedge.cli.failure import Failure

    source = Settings(flags)
    config = admission_webhook_config(source)
    if flags.print_manifests:
        return print_manifests(config, flags.url, flags.image)
    if flags.url or flags.image:
        raise Failure("--url and --image are for --print-manifests")
    return serve(config, login(source))


def print_manifests(config: "AdmissionWebhookConfig", url: str, image: str) -> int:
    """Print the objects for the webhook at a URL, or for a Deployment of an image."""
    from urllib.parse import urlsplit

    from kedge.admission_webhook import manifests
    from kedge.admission_webhook.server import certificate_of
    from kedge.cli.cluster import state
    from kedge.cli.failure import Failure
    from kedge.machinery import yaml_text

    if bool(url) == bool(image):
        raise Failure(
            "say where the webhook runs: --url https://ADDRESS:9443 outside of the cluster, or"
            " --image IMAGE as a Deployment of it"
        )
    if url and (urlsplit(url).scheme != "https" or not urlsplit(url).hostname):
        raise Failure(f"an API server calls webhooks by https://ADDRESS:PORT only, not {url}")
    if config.certificate is None:
        # The keys of its authority are there. A volume of a pod may be open to everybody.
        state.check_owner(config.state)
    if url:
        host = str(urlsplit(url).hostname)
        if config.certificate is None and not _is_own(config, host):
            print(
                f"Start the webhook with --cert-hosts={host}: its certificate gets no other names"
                " when it is renewed.",
                file=sys.stderr,
            )
        config = _reachable_at(config, host)
    certificate = certificate_of(config)
    identity = certificate.identity()
    ca_pem = identity.ca_pem if identity else b""
    if url:
        documents = manifests.outside(url, ca_pem)
    else:
        files = (
            config.certificate or config.pki / "server.crt",
            config.key or config.pki / "server.key",
        )
        placement = manifests.ClusterPlacement(image, *(path.read_bytes() for path in files))
        documents = manifests.inside(placement, ca_pem)
    print("---\n".join(yaml_text.write(each) for each in documents), end="")
    return 0


def _is_own(config: "AdmissionWebhookConfig", host: str) -> bool:
    """Return whether a webhook with these settings has the host in its certificate."""
    from kedge.apiserver.pki import OWN_HOSTS

    return host in (*OWN_HOSTS, config.host, *config.hosts)


def _reachable_at(config: "AdmissionWebhookConfig", host: str) -> "AdmissionWebhookConfig":
    from msgspec.structs import replace

    return replace(config, hosts=(*config.hosts, host))


def serve(config: "AdmissionWebhookConfig", read: "Callable[[], Login]") -> int:
    """Run the webhook until a signal ends it."""
    from kedge.admission_webhook import server as admission_webhook
    from kedge.admission_webhook.server import AdmissionWebhookAddress
    from kedge.apiserver.startup import innermost
    from kedge.cli.cluster import state
    from kedge.cli.failure import Failure
    from kedge.client.kubeconfig import KubeconfigError

    if config.certificate is None:
        # The keys of its authority are there. A volume of a pod may be open to everybody.
        state.check_owner(config.state)

    def say(ready: AdmissionWebhookAddress) -> None:
        print(f"The admission webhook is ready at {ready.url}.", file=sys.stderr, flush=True)

    try:
        admission_webhook.run(config, read, say)
    except Exception as error:
        cause = innermost(error)
        if isinstance(cause, KubeconfigError | OSError):
            raise Failure(str(cause)) from error
        raise cause from None
    return 0
