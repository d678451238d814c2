"""`kedge open`: the address of a Service on this machine, in a browser if there is a desktop."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kedge.cli import flags as shared
from kedge.cli.failure import Failure
from kedge.cli.objects import client_flags

if TYPE_CHECKING:
    from kedge.cli.config.settings import Settings
    from kedge.gateway.listening import GatewayRecord

DESCRIPTION: Final = """\
Print an address at which an HTTP Service answers now, and open it in the browser if there is a
desktop. The address leads to the gateway of the cluster on this machine, which forwards HTTP and
WebSockets to ready pods of the Service. If the Service does not answer, the command fails and says
why."""
EXAMPLES: Final = """\
  kedge open svc/web

  # Only print it
  curl $(kedge open svc/web --no-browser)

  # Another port of the Service, by name or number
  kedge open svc/web --port metrics"""

_TYPES: Final = ("svc", "service", "services")
_PATIENCE: Final = 10.0


class OpenTarget(NamedTuple):
    """The Service to open."""

    name: str
    namespace: str
    port: str = ""

    @property
    def host(self) -> str:
        service = f"{self.name}.{self.namespace}.localhost"
        return f"{self.port}.{service}" if self.port else service


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("service", metavar="svc/NAME", help="the Service to open")
    parser.add_argument(
        "--port",
        default="",
        metavar="NAME",
        help="name or number of the port (default: the one that speaks HTTP)",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    client_flags.add_cluster(parser)
    shared.add_which(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.config.kubeconfig import client_config
    from kedge.cli.config.settings import Settings
    from kedge.gateway import listening

    settings = Settings(flags)
    context, namespace = _context(client_config(settings))
    target = target_of(flags.service, flags.namespace or namespace, flags.port)
    directory = _directory(settings, context)
    record = listening.read(directory)
    if record is None:
        raise Failure(
            "the cluster has no gateway: start it with 'kedge up' without --gateway off, or use"
            f" 'kubectl port-forward svc/{target.name} :80'"
        )
    url = check(record, target)
    print(url)
    if not flags.no_browser:
        show(url, settings.environment)
    return 0


def target_of(text: str, namespace: str, port: str) -> OpenTarget:
    """Return the Service that a word of the command line names."""
    from kedge.machinery.names import dns_label

    kind, slash, name = text.rpartition("/")
    if slash and kind not in _TYPES:
        raise Failure(f'only Services can be opened, not "{text}": give svc/NAME')
    if problems := dns_label(name):
        raise Failure(f'"{name}" is no name for a Service: {problems[0]}')
    return OpenTarget(name, namespace or "default", port)


def _context(config: client_flags.ClientConfig) -> tuple[str, str]:
    """Return the context of the kubeconfig and its namespace; empty if there is none."""
    from kedge.client import login
    from kedge.client.kubeconfig import KubeconfigError

    try:
        found = login.read(config.files, config.context)
    except KubeconfigError:
        return "", ""
    return found.context, found.namespace


def _directory(settings: "Settings", context: str) -> Path:
    """Return the directory of the cluster: the named one, else that of the context."""
    from kedge.cli.cluster import registry
    from kedge.cli.config.cluster import where
    from kedge.settings import cluster

    asked = where(settings)
    if settings.get(cluster.NAME) is None and asked.directory is None:
        named = (
            context.removeprefix(cluster.CONTEXT_PREFIX)
            if context.startswith(cluster.CONTEXT_PREFIX)
            else asked.name
        )
        asked = asked._replace(name=named)
    found = registry.find(asked)
    if found is None:
        raise registry.absent(asked)
    return found.directory


def check(record: "GatewayRecord", target: OpenTarget) -> str:
    """Return the URL of the Service, after it has answered there."""
    import http.client

    from kedge.gateway.gateway import REFUSAL

    url = record.url(target.host)
    gateway = record.ports[0]
    connection = http.client.HTTPConnection(gateway.address, gateway.port, timeout=_PATIENCE)
    try:
        connection.request("HEAD", "/", headers={"Host": target.host})
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise Failure(
            f"the gateway at {gateway.address} port {gateway.port} does not answer: {error}."
            " 'kedge status' shows whether the cluster runs"
        ) from error
    finally:
        connection.close()
    if refusal := answer.headers.get(REFUSAL):
        where = f"-n {target.namespace}"
        raise Failure(
            f"{refusal}: 'kedge get services {where}' lists the Services, and 'kedge get"
            f" endpointslices {where} -l kubernetes.io/service-name={target.name}' its ready pods"
        )
    return url


def show(url: str, environment: Mapping[str, str]) -> None:
    """Open a URL in the browser of the desktop, if there is one."""
    import shutil
    import subprocess

    has_desktop = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    program = shutil.which("xdg-open", path=environment.get("PATH")) if has_desktop else None
    if program is not None:
        subprocess.Popen(
            [program, url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
