"""Make the configurations of `kedge server` and of the servers beside other clusters."""

from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from kedge.admission_webhook.config import AdmissionWebhookConfig
from kedge.api.builtin.service_networks import POD_NETWORK, SERVICE_RANGE
from kedge.api.core_v1.resource_names import validate_amount
from kedge.apiserver.config import (
    ADMISSION_PLUGINS,
    SERVER_ADMISSION,
    ServerConfig,
    SimulationConfig,
)
from kedge.cli.config.cluster import place
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.controllers import names as controllers
from kedge.machinery.interfaces import own_addresses
from kedge.metrics_server.config import MetricsServerConfig
from kedge.restarter.program import REASON_VARIABLE
from kedge.settings.setting import Setting, bound_settings, declared


def server_config(
    source: Settings,
    *,
    admission: tuple[str, ...] = SERVER_ADMISSION,
    defaults: Mapping[str, Any] | None = None,
) -> ServerConfig:
    """Return the configuration of a server; `admission` are the default plugins."""
    name, state = place(source)
    config = source.fill(
        ServerConfig,
        defaults,
        name=name,
        state=state,
        admission=_admission(source, admission),
        controllers=_controllers(source),
        restart_reason=source.environment.get(REASON_VARIABLE, ""),
    )
    _check_servers(config)
    _check_load_balancers(config)
    _check_simulation(config.simulation)
    return config


def _check_servers(config: ServerConfig) -> None:
    """Refuse several servers on a store of one process, and for tests."""
    if config.servers > 1 and not config.has_shared_store:
        raise Failure(
            f"--servers {config.servers} needs a store that servers can share, and"
            f" --store {config.store} is of one server: start an etcd or a PostgreSQL and use"
            " --store etcd://HOST:PORT or postgresql://USER@HOST:PORT/DATABASE ('kedge export'"
            " copies the objects of a cluster to it)"
        )
    if config.servers > 1 and config.testing:
        raise Failure(
            f"--testing is for clusters of one server, and --servers is {config.servers}: faults"
            " and times would be those of the server that a connection leads to. Leave one of them"
            " out"
        )


def metrics_server_config(source: Settings) -> MetricsServerConfig:
    """Return the configuration of a metrics server."""
    default = {"state": source.root().with_name("kedge-metrics")}
    config = source.fill(MetricsServerConfig, default)
    _check_pair(config.certificate, config.key)
    return config


def admission_webhook_config(source: Settings) -> AdmissionWebhookConfig:
    """Return the configuration of an admission webhook."""
    default = {"state": source.root().with_name("kedge-admission-webhook")}
    config = source.fill(AdmissionWebhookConfig, default)
    _check_pair(config.certificate, config.key)
    return config


def _check_pair(certificate: Path | None, key: Path | None) -> None:
    if (certificate is None) != (key is None):
        raise Failure("--tls-cert-file and --tls-private-key-file belong together")


def _check_load_balancers(config: ServerConfig) -> None:
    """Refuse addresses for load balancers that the cluster or the machine has for other uses:
    nodes refuse packets to all addresses of this network that no Service has."""
    wanted = IPv4Network(config.load_balancer_network)
    taken = {
        SERVICE_RANGE: "the network of cluster IPs",
        POD_NETWORK: "the network of pods",
        **{IPv4Network(each): "an address of this machine" for each in _own_ipv4()},
    }
    for network, what in taken.items():
        if wanted.overlaps(network):
            flag = declared(ServerConfig, "load_balancer_network").flag
            raise Failure(f"{flag} {wanted} overlaps {network}, {what}: choose another one")


def _check_simulation(config: SimulationConfig) -> None:
    """Refuse resources that no node can have."""
    for name, amount in config.resources.items():
        for error in validate_amount(name, amount, name):
            flag = declared(SimulationConfig, "resources").flag
            raise Failure(f"{flag} {name}={amount}: {error.body}")


def _own_ipv4() -> list[str]:
    return [each for each in own_addresses() if ":" not in each]


def _admission(source: Settings, default: tuple[str, ...]) -> tuple[str, ...]:
    """Return the plugins to enforce, in the order in which they run."""
    settings = [each.setting for each in bound_settings(ServerConfig) if each.field == "admission"]
    # The three belong together: a weaker source must not change what a stronger one says.
    source = source.without_weaker(settings)
    exact, more, fewer = (_plugins(source, each) for each in settings)
    if exact is not None and (more is not None or fewer is not None):
        raise Failure(
            f"{settings[0].flag} names every plugin to enforce, which leaves nothing for"
            f" {settings[1 if fewer is None else 2].flag} to change: give one of them"
        )
    if both := {*(more or ())} & {*(fewer or ())}:
        raise Failure(f'admission plugin "{min(both)}" is both enabled and disabled')
    chosen = {*default, *(more or ())} - {*(fewer or ())} if exact is None else {*exact}
    return tuple(name for name in ADMISSION_PLUGINS if name in chosen)


def _plugins(source: Settings, setting: Setting[tuple[str, ...]]) -> tuple[str, ...] | None:
    asked = source.get(setting)
    if unknown := [name for name in asked or () if name not in ADMISSION_PLUGINS]:
        raise Failure(
            f'there is no admission plugin "{unknown[0]}": {setting.flag} takes a list of'
            f" {', '.join(ADMISSION_PLUGINS)}"
        )
    return asked


def _controllers(source: Settings) -> tuple[str, ...]:
    """Return the controllers to run: all of them, unless a list says otherwise."""
    setting = declared(ServerConfig, "controllers")
    asked = source.get(setting)
    try:
        return controllers.ALL if asked is None else controllers.enabled(asked)
    except controllers.UnknownController as error:
        raise Failure(
            f'there is no controller "{error}": {setting.flag} takes a list of * for all,'
            f" NAME and -NAME, with the names {', '.join(controllers.ALL)}"
        ) from None
