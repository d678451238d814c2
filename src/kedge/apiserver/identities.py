"""Identities that flags of the server configure, besides those of the cluster itself.

The modules behind them are imported only if their flag is given: most servers have none.
"""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import unquote

import msgspec

from kedge.apiserver.authentication.authenticator import TokenAuthenticator, everybody
from kedge.apiserver.config import ServerConfig
from kedge.apiserver.telemetry import Telemetry
from kedge.machinery.clock import Clock


class OutsideIdentities(msgspec.Struct):
    """Users of other systems, and the work to know them while the server runs."""

    authenticators: list[TokenAuthenticator] = []
    anonymous: Callable[[str], bool] = everybody
    tasks: list[Callable[[], Coroutine[Any, Any, None]]] = []
    metrics: list[Callable[[Telemetry], None]] = []


NONE = OutsideIdentities()


def configured(config: ServerConfig, clock: Clock) -> OutsideIdentities:
    """Return the identities of the flags; ConfigurationFileError if a file is invalid."""
    identities = OutsideIdentities()
    if config.authentication_config is not None:
        _add_issuers(identities, config, clock)
    return identities


def _add_issuers(identities: OutsideIdentities, config: ServerConfig, clock: Clock) -> None:
    from kedge.apiserver.authentication.openid_connect.reload import ConfiguredIssuers

    assert config.authentication_config is not None
    issuers = ConfiguredIssuers(config.authentication_config, clock)
    identities.authenticators.append(issuers)
    identities.tasks.append(issuers.run)
    access = issuers.anonymous
    if access is not None:
        identities.anonymous = lambda path: access.allows(unquote(path))
    identities.metrics.append(lambda counts: _count_reloads(counts, issuers.reloads))


def _count_reloads(counts: Telemetry, reloads: "dict[str, int]") -> None:
    name = "apiserver_authentication_config_controller_automatic_reloads_total"
    what = "Reloads of the authentication configuration, by outcome."
    counts.counter(
        name, what, lambda: ((f'status="{key}"', n) for key, n in sorted(reloads.items()))
    )
