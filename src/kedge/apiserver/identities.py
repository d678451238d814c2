"""Identities that flags of the server configure, besides those of the cluster itself.

The modules behind them are imported only if their flag is given: most servers have none.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from kedge.apiserver.api import Api
from kedge.apiserver.authentication.authenticator import (
    Authenticator,
    TokenAuthenticator,
    everybody,
)
from kedge.apiserver.config import RequestHeaderTrust, ServerConfig
from kedge.apiserver.telemetry import Telemetry
from kedge.apiserver.webhooks.answer_budget import AnswerBudget
from kedge.machinery.clock import Clock
from kedge.storage.store import Store
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
    trusted_proxies: "Callable[[], TrustedProxies] | None" = None
    """Returns the same proxies, as extension servers learn about them."""
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


def configured(
    config: ServerConfig, clock: Clock, identity: "ServerIdentity", budget: AnswerBudget
) -> OutsideIdentities:
    """Return the identities of the flags; ConfigurationFileError if a file is invalid. TLS then
    accepts the certificates of proxies. `budget` is the memory for answers of other servers."""
    identities = OutsideIdentities()
    if config.request_headers != RequestHeaderTrust():
        _add_proxies(identities, config.request_headers, clock, identity)
    if config.authentication_config is not None:
        _add_issuers(identities, config, clock, budget)
    if config.token_webhook is not None:
        _add_token_webhook(identities, config, clock, budget)
    return identities


def _add_proxies(
    identities: OutsideIdentities,
    trust: RequestHeaderTrust,
    clock: Clock,
    identity: "ServerIdentity",
) -> None:
    from kedge.apiserver import proxy_trust

    followed = proxy_trust.FollowedProxies(trust, identity, clock)
    identities.proxies = followed.proxies
    identities.trusted_proxies = lambda: followed.published
    identities.tasks.append(followed.follow)


def _add_token_webhook(
    identities: OutsideIdentities, config: ServerConfig, clock: Clock, budget: AnswerBudget
) -> None:
    from kedge.apiserver.authentication.token_webhook import TokenWebhook
    from kedge.apiserver.review_webhook import ReviewWebhook

    assert config.token_webhook is not None
    webhook = ReviewWebhook(config.token_webhook, clock, WEBHOOK_SECONDS, budget)
    identities.closing.append(webhook.close)
    identities.authenticators.append(
        TokenWebhook(webhook, config.token_webhook_version, config.token_webhook_ttl, clock)
    )


def configure_authorizers(
    api: Api, identities: OutsideIdentities, config: ServerConfig, clock: Clock
) -> None:
    """Ask the authorizers of the flag, if it is given, and follow its file; ConfigurationFileError
    if the file is invalid."""
    if config.authorization_config is None:
        return
    from kedge.apiserver.authorization.reload import ConfiguredAuthorizers

    authorizers = ConfiguredAuthorizers(
        config.authorization_config, api.authorizer, clock, api.caller.budget
    )
    identities.tasks.append(authorizers.run)
    identities.metrics.append(authorizers.log.add_metrics)
    identities.closing.append(authorizers.close)


def follow_encryption(identities: OutsideIdentities, store: Store, config: ServerConfig) -> None:
    """Look after the keys of the EncryptionConfiguration, and follow its file if a flag says so."""
    if config.encryption_config is None:
        return
    from kedge.apiserver.store_protection import ConfiguredStore

    assert isinstance(store, ConfiguredStore)
    identities.tasks.append(store.keep_keys)
    identities.metrics.append(store.add_metrics)
    if config.encryption_reload:
        identities.tasks.append(store.follow)


def _add_issuers(
    identities: OutsideIdentities, config: ServerConfig, clock: Clock, budget: AnswerBudget
) -> None:
    from kedge.apiserver.authentication.openid_connect.issuers import https_fetch
    from kedge.apiserver.authentication.openid_connect.reload import ConfiguredIssuers

    assert config.authentication_config is not None
    issuers = ConfiguredIssuers(config.authentication_config, clock, https_fetch(budget))
    identities.authenticators.append(issuers)
    identities.tasks.append(issuers.run)
    access = issuers.anonymous
    if access is not None:
        identities.anonymous = lambda path: access.allows(unquote(path))
    identities.metrics.append(issuers.log.add_metrics)


def count_tokens(counts: Telemetry, authenticator: Authenticator) -> None:
    """Add the metrics about service account tokens."""

    def add(sort: str) -> None:
        name = f"serviceaccount_{sort}_tokens_total"
        what = f"Service account tokens that were verified and found {sort}."
        counts.counter(name, what, lambda: iter([("", authenticator.token_counts.get(sort, 0))]))

    add("valid")
    add("stale")
