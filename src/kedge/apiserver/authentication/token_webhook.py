"""Tokens that a webhook knows: it gets a TokenReview, and its answer is remembered."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.authentication.service_accounts import AUDIENCES, Verified
from kedge.apiserver.pending import AnswerPending, remember, remembered
from kedge.apiserver.request import User
from kedge.apiserver.review_webhook import ReviewFailed
from kedge.machinery.clock import Clock

log = logging.getLogger(__name__)

MOST: Final = 4096
"""Answers that are remembered."""
_Key = tuple[bytes, tuple[str, ...]]


class Reviewer(Protocol):
    """Gives a review its status; ReviewFailed if that fails."""

    async def status(self, review: dict[str, Any]) -> dict[str, Any]: ...


class _ReviewUser(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _ReviewUser = _ReviewUser()
    audiences: list[str] | None = None
    error: str = ""


class _TokenAnswer(NamedTuple):
    """An answer of the webhook, and the time until which it holds."""

    verified: Verified | None
    refusal: str
    until: datetime


class TokenWebhook:
    """Asks a webhook about tokens."""

    def __init__(self, webhook: Reviewer, version: str, seconds: float, clock: Clock) -> None:
        """`version` is that of the reviews, `seconds` the time for which answers hold."""
        self._webhook = webhook
        self._version = f"authentication.k8s.io/{version}"
        self._lifetime = timedelta(seconds=seconds)
        self._clock = clock
        self._answers: dict[_Key, _TokenAnswer] = {}
        """By hash of the token: the tokens themselves are not kept."""

    def verified(self, token: bytes, audiences: Sequence[str]) -> Verified | None:
        """Return the holder; None if the webhook does not know the token, CredentialRefused if it
        refuses it or does not answer."""
        key = sha256(token).digest(), tuple(audiences)
        answer = self._answers.get(key)
        if answer is None or answer.until <= self._clock.now():
            found = remembered((self, key))
            if not isinstance(found, _TokenAnswer):
                raise AnswerPending(self._asking(key, token))
            answer = found
        if answer.refusal:
            raise CredentialRefused(answer.refusal)
        return answer.verified

    def _asking(self, key: _Key, token: bytes) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            spec = {"token": token.decode("latin-1"), "audiences": list(key[1])}
            review = {"apiVersion": self._version, "kind": "TokenReview", "spec": spec}
            try:
                status = msgspec.convert(await self._webhook.status(review), _ReviewStatus)
            except (ReviewFailed, msgspec.ValidationError) as error:
                # Not remembered: the next request asks again.
                log.error("token webhook failed error=%s", error)
                now = self._clock.now()
                remember((self, key), _TokenAnswer(None, f"token webhook: {error}", now))
                return
            answer = _answer(status, key[1], self._clock.now() + self._lifetime)
            remember((self, key), answer)
            self._keep(key, answer)

        return ask

    def _keep(self, key: _Key, answer: _TokenAnswer) -> None:
        if self._lifetime <= timedelta():
            return
        if len(self._answers) >= MOST:
            self._answers.pop(next(iter(self._answers)))
        self._answers[key] = answer


def _answer(status: _ReviewStatus, asked: tuple[str, ...], until: datetime) -> _TokenAnswer:
    if not status.authenticated:
        return _TokenAnswer(None, status.error[:1024], until)
    audiences = _common(status.audiences, asked)
    if not audiences:
        why = "the token is not for the requested audiences"
        return _TokenAnswer(None, why, until)
    given = status.user
    extra = tuple((key, tuple(values)) for key, values in (given.extra or {}).items())
    user = User(given.username, tuple(given.groups or ()), given.uid, extra)
    return _TokenAnswer(Verified(user, audiences, until, ()), "", until)


def _common(given: list[str] | None, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requested audiences that the token is for; a webhook that names none does not
    know audiences, and means those of this server."""
    return tuple(each for each in (given or AUDIENCES) if each in asked)
