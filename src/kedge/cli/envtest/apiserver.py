"""The program `kube-apiserver` of `kedge envtest`: `kedge server` with the flags of Kubernetes."""

import json
import logging
import sys
import urllib.request
from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.cli.envtest.etcd import FlagError
from kedge.cli.envtest.flags import ApiServerFlags, translated
from kedge.cli.failure import Failure

if TYPE_CHECKING:
    from kedge.apiserver.config import ServerConfig, ServingFiles

ANSWER_SECONDS: Final = 5.0
DEFAULT_SERVICE_NETWORK: Final = "10.0.0.0/24"
FEWEST_SERVICES: Final = 8
NO_CONTROLLERS: Final = "-kube-scheduler"
"""A list that enables none: envtest runs none, and tests count on objects that stay."""
ADDED_BY_INSTALLERS: Final = "NodeRestriction"
"""A plugin that is on in most clusters, and not by default."""


def main(arguments: Sequence[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        flags = translated(arguments)
        for warning in flags.warnings:
            print(f"warning: {warning}", file=sys.stderr, flush=True)
        config = configuration(flags)
        from kedge.cli.cluster import server

        return server.serve(config, lambda _: None)
    except (Failure, FlagError) as failure:
        print(f"kube-apiserver of kedge envtest: {failure}", file=sys.stderr)
        return 1


def configuration(flags: ApiServerFlags) -> "ServerConfig":
    """Return the configuration of the server."""
    from msgspec.structs import replace

    from kedge.apiserver.config import UPSTREAM_ADMISSION
    from kedge.cli.cluster import server
    from kedge.cli.config.server import server_config
    from kedge.cli.config.settings import Settings
    from kedge.cli.main import CommandParser

    state = directory(flags)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    given = [
        f"--state={state}",
        "--name=envtest",
        "--upstream-only",
        f"--controllers={NO_CONTROLLERS}",
        "--dns=none",
    ]
    parser = CommandParser(prog="kube-apiserver", allow_abbrev=False)
    server.add_flags(parser)
    if "authorization-mode" in flags.given and "authorization-config" not in flags.given:
        given.append(f"--authorization-config={authorization_file(flags, state)}")
    read = parser.parse_args([*given, *flags.server])
    admission = tuple(name for name in UPSTREAM_ADMISSION if name != ADDED_BY_INSTALLERS)
    # Variables and files of settings are for clusters of people.
    config = server_config(Settings(read, {}, {}), admission=admission)
    return replace(
        config,
        serving=serving_files(flags),
        is_alone=True,
        service_network=service_network(flags),
    )


def directory(flags: ApiServerFlags) -> Path:
    """Return where the server keeps its objects: in the data directory of the etcd that envtest has
    started, so that they are back if the server alone is started again."""
    urls = flags.given.get("etcd-servers", "")
    if not urls:
        raise Failure("--etcd-servers is required")
    try:
        # Not through a proxy that the environment names: as in Go, none is used for this machine.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{urls.split(',')[0]}/kedge", timeout=ANSWER_SECONDS) as page:
            return Path(json.load(page)["dataDir"]) / "kedge"
    except (OSError, ValueError, KeyError) as error:
        why = "it must be the one beside this program, and run"
        raise Failure(f"etcd at {urls} cannot be used: {why} ({error})") from None


def service_network(flags: ApiServerFlags) -> IPv4Network:
    """Return the network of cluster IPs."""
    text = flags.given.get("service-cluster-ip-range", DEFAULT_SERVICE_NETWORK)
    try:
        network = IPv4Network(text, strict=False)
    except ValueError:
        raise Failure(f"--service-cluster-ip-range={text}: kedge has one IPv4 network") from None
    if network.num_addresses < FEWEST_SERVICES:
        why = f"it needs at least {FEWEST_SERVICES} addresses"
        raise Failure(f"--service-cluster-ip-range={text}: {why}")
    return network


def serving_files(flags: ApiServerFlags) -> "ServingFiles":
    """Return the certificate of the server, and the authority of its clients."""
    from kedge.apiserver.config import ServingFiles

    certificate, key = (flags.given.get(f"tls-{name}-file") for name in ("cert", "private-key"))
    if certificate is None or key is None:
        home = Path(flags.given.get("cert-dir", "/var/run/kubernetes"))
        made = home / "apiserver.crt", home / "apiserver.key"
        found = made if all(path.exists() for path in made) else (None, None)
    else:
        found = Path(certificate).absolute(), Path(key).absolute()
    authority = flags.given.get("client-ca-file")
    files = ServingFiles(
        certificate=found[0],
        key=found[1],
        client_authority=Path(authority).absolute() if authority else None,
    )
    for path in (files.certificate, files.key, files.client_authority):
        if path is not None and not path.is_file():
            raise Failure(f"there is no file {path}")
    return files


def authorization_file(flags: ApiServerFlags, state: Path) -> Path:
    """Write the modes as an AuthorizationConfiguration; return its path."""
    modes = flags.given["authorization-mode"].split(",")
    content = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": [{"type": mode, "name": mode.lower()} for mode in modes],
    }
    # The directory of a new server must be empty.
    path = state.with_name("kedge-authorization.json")
    path.write_text(json.dumps(content))
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
