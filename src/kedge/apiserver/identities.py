"""Identities that flags of the server configure, besides those of the cluster itself.

The modules behind them are imported only if their flag is given: most servers have none.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from kedge.apiserver.authentication.authenticator import (
    Authenticator,
    TokenAuthenticator,
    everybody,
)
from kedge.apiserver.authorization.attributes import Decision
from kedge.apiserver.authorization.authorizer import Authorizer, Decide, OwnAuthorizer
from kedge.apiserver.config import RequestHeaderTrust, ServerConfig
from kedge.apiserver.telemetry import Telemetry
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_duration
from kedge.web.request_reader import COMMA_HEADERS

if TYPE_CHECKING:
    from kedge.apiserver.aggregation.front_proxy import TrustedProxies
    from kedge.apiserver.authentication.request_headers import HeaderProxies
    from kedge.apiserver.pki import ServerIdentity


class OutsideIdentities(msgspec.Struct):
    """Users of other systems, and the work to know them while the server runs."""

    authenticators: list[TokenAuthenticator] = []
    anonymous: Callable[[str], bool] = everybody
    tasks: list[Callable[[], Coroutine[Any, Any, None]]] = []
    metrics: list[Callable[[Telemetry], None]] = []
    proxies: "HeaderProxies | None" = None
    trusted_proxies: "TrustedProxies | None" = None
    """The same proxies, as extension servers learn about them."""
    closing: list[Callable[[], Coroutine[Any, Any, None]]] = []
    """Called when the server ends."""

    @property
    def comma_headers(self) -> tuple[str, ...]:
        """The beginnings of headers that name users, whose names may contain commas."""
        more = () if self.proxies is None else self.proxies.headers.prefixes()
        return (*COMMA_HEADERS, *more)


NONE = OutsideIdentities()
WEBHOOK_SECONDS: Final = 30.0
"""The time of a token webhook for one answer."""


def configured(config: ServerConfig, clock: Clock, identity: "ServerIdentity") -> OutsideIdentities:
    """Return the identities of the flags; ConfigurationFileError if a file is invalid. TLS then
    accepts the certificates of proxies."""
    identities = OutsideIdentities()
    if config.request_headers != RequestHeaderTrust():
        _add_proxies(identities, config.request_headers, clock, identity)
    if config.authentication_config is not None:
        _add_issuers(identities, config, clock)
    if config.token_webhook is not None:
        _add_token_webhook(identities, config, clock)
    return identities


def _add_proxies(
    identities: OutsideIdentities,
    trust: RequestHeaderTrust,
    clock: Clock,
    identity: "ServerIdentity",
) -> None:
    from kedge.apiserver import proxy_trust

    proxies, others = proxy_trust.read(trust, identity, clock)
    identities.proxies, identities.trusted_proxies = proxies, others


def _add_token_webhook(identities: OutsideIdentities, config: ServerConfig, clock: Clock) -> None:
    from kedge.apiserver.authentication.token_webhook import TokenWebhook
    from kedge.apiserver.review_webhook import ReviewWebhook

    assert config.token_webhook is not None
    webhook = ReviewWebhook(config.token_webhook, clock, WEBHOOK_SECONDS)
    identities.closing.append(webhook.close)
    identities.authenticators.append(
        TokenWebhook(webhook, config.token_webhook_version, config.token_webhook_ttl, clock)
    )


def configure_authorizers(
    authorizer: Authorizer, identities: OutsideIdentities, config: ServerConfig, clock: Clock
) -> None:
    """Ask the authorizers of the flag, if it is given; ConfigurationFileError if its file is
    invalid."""
    if config.authorization_config is None:
        return
    from kedge.apiserver.authorization import configuration
    from kedge.apiserver.authorization.webhook import WebhookAuthorizer
    from kedge.apiserver.review_webhook import ReviewWebhook

    def decide(each: configuration.AuthorizerConfiguration) -> "Decide | OwnAuthorizer":
        if each.type == "Node":
            return "Node"
        if each.type == "RBAC":
            return "RBAC"
        if each.type != configuration.WEBHOOK:
            return lambda asked: Decision(each.type == "AlwaysAllow", final=True)
        hook = each.webhook
        assert hook is not None
        path = Path(hook.connection_info.kube_config_file or "")
        webhook = ReviewWebhook(path, clock, parse_duration(hook.timeout) / 1e9)
        identities.closing.append(webhook.close)
        return WebhookAuthorizer(each.name, hook, webhook, clock).decide

    file = configuration.read(config.authorization_config)
    authorizer.configure([decide(each) for each in file.authorizers])


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


def count_tokens(counts: Telemetry, authenticator: Authenticator) -> None:
    """Add the metrics about service account tokens."""

    def add(sort: str) -> None:
        name = f"serviceaccount_{sort}_tokens_total"
        what = f"Service account tokens that were verified and found {sort}."
        counts.counter(name, what, lambda: iter([("", authenticator.token_counts.get(sort, 0))]))

    add("valid")
    add("stale")
