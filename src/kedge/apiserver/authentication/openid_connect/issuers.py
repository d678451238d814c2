"""The issuers of an AuthenticationConfiguration as an authenticator of tokens."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

from kedge.apiserver.authentication.openid_connect import id_token, json_web_keys
from kedge.apiserver.authentication.openid_connect.claim_mapping import ClaimsToUser
from kedge.apiserver.authentication.openid_connect.configuration import (
    AuthenticationConfiguration,
    Issuer,
    JwtIssuer,
)
from kedge.apiserver.authentication.openid_connect.id_token import Claims, IdToken
from kedge.apiserver.authentication.openid_connect.issuer_keys import (
    Fetch,
    HttpsFetch,
    IssuerKeys,
    IssuerUnavailable,
)
from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.authentication.service_accounts import AUDIENCES, Verified
from kedge.apiserver.pending import AnswerPending, remember, remembered
from kedge.apiserver.request import User
from kedge.apiserver.webhooks.answer_budget import AnswerBudget
from kedge.machinery import cel
from kedge.machinery.clock import Clock
from kedge.machinery.tenant import tenant

log = logging.getLogger(__name__)

CACHED: Final = timedelta(seconds=10)
"""How long a verified token is remembered, as in Kubernetes."""
_UNREADY: Final = "oidc: authenticator not initialized"
_SIGNATURE: Final = "oidc: verify token: failed to verify signature"
_FORGED: Final = "failed to verify id token signature"

MakeFetch = Callable[[Issuer], Fetch]


def https_fetch(budget: AnswerBudget) -> MakeFetch:
    """Return what makes fetches whose answers share memory with others."""
    return lambda issuer: HttpsFetch(issuer.certificate_authority, budget)


class JwtAuthenticator:
    """One issuer."""

    def __init__(self, entry: JwtIssuer, fetch: Fetch, clock: Clock) -> None:
        self.entry = entry
        self.keys = IssuerKeys(entry.issuer, fetch, clock)
        self._clock = clock
        self._to_user = ClaimsToUser(entry)

    def verified(self, token: bytes) -> Verified:
        """Return the holder of a token of this issuer; CredentialRefused if it does not hold."""
        parsed = id_token.parse(token)
        self._check_signature(parsed)
        claims = id_token.claims_of(parsed)
        now = self._clock.now()
        ends = id_token.check(claims, self.entry.issuer.audiences, now)
        user = self._user(token, claims)
        return Verified(user, AUDIENCES, min(ends, now + CACHED), ())

    def _check_signature(self, token: IdToken) -> None:
        keys = self.keys.keys
        if keys is None:
            raise CredentialRefused(_UNREADY)
        name = token.key_id, token.algorithm
        if json_web_keys.verifies(keys, *name, token.signed, token.signature):
            return
        failure = remembered(self)
        if failure is not None or not self.keys.may_have_changed:
            raise CredentialRefused(f"{_SIGNATURE}: {failure or _FORGED}")
        raise AnswerPending(self._newer_keys(self.keys.fetches))

    def _newer_keys(self, known: int) -> Callable[[], Awaitable[None]]:
        """Return the work that fetches keys, once for all requests that know the same ones."""

        async def ask() -> None:
            failure = _FORGED
            try:
                await self.keys.refresh(known)
            except IssuerUnavailable as error:
                failure = f"fetching keys {error}"
                log.error("keys not fetched issuer=%s error=%s", self.entry.issuer.url, error)
            remember(self, failure)

        return ask

    def _user(self, token: bytes, claims: Claims) -> User:
        known = remembered(("user", token))
        if isinstance(known, User):
            return known
        if isinstance(known, CredentialRefused):
            raise known
        try:
            return self._to_user.user(claims, cel.LOOP_PATIENCE)
        except cel.CelPatienceError:

            async def ask() -> None:
                try:
                    # The signature was verified, so a holder cannot be several tenants.
                    with tenant(f"{self.entry.issuer.url}#{claims.get('sub')}"):
                        answer: object = await asyncio.to_thread(self._to_user.user, claims)
                except CredentialRefused as refusal:
                    answer = refusal
                remember(("user", token), answer)

            raise AnswerPending(ask) from None


class Issuers:
    """All issuers of a configuration."""

    def __init__(self, file: AuthenticationConfiguration, clock: Clock, fetch: MakeFetch) -> None:
        self.file = file
        made = [JwtAuthenticator(entry, fetch(entry.issuer), clock) for entry in file.jwt]
        self._by_url = {each.entry.issuer.url: each for each in made}

    def verified(self, token: bytes, audiences: Sequence[str]) -> Verified | None:
        """Return the holder of a token; None if no issuer here is the one that it names."""
        issuer = self._by_url.get(id_token.untrusted_issuer(token))
        if issuer is None or not any(audience in audiences for audience in AUDIENCES):
            return None
        return issuer.verified(token)

    async def find(self) -> None:
        """Find every issuer once; IssuerUnavailable if one cannot be found."""
        await asyncio.gather(*(each.keys.find() for each in self._by_url.values()))

    async def keep_trying(self) -> None:
        """Find every issuer, however long it takes."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._by_url.values():
                tasks.create_task(each.keys.keep_trying())
