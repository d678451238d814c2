"""The keys of an issuer: found by discovery, kept, and fetched again when they may have changed."""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from kedge.apiserver.authentication.openid_connect import json_web_keys
from kedge.apiserver.authentication.openid_connect.configuration import Issuer
from kedge.apiserver.authentication.openid_connect.json_web_keys import JsonWebKey
from kedge.apiserver.webhooks.answer_budget import Answer, AnswerBudget, NoMemoryForAnswer
from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Unreachable
from kedge.machinery.clock import Clock

log = logging.getLogger(__name__)

WELL_KNOWN: Final = "/.well-known/openid-configuration"
ANSWER_BYTES: Final = 1 << 20
"""The longest document that is read from an issuer."""
ANSWER_SECONDS: Final = 30.0
"""The time of an issuer for one document."""
RETRY_SECONDS: Final = 10.0
"""Time between two attempts to find an issuer."""
BETWEEN_FETCHES: Final = 1.0
"""Time between two fetches of keys: forged tokens must not make the server flood an issuer."""
EARLY: Final = timedelta(seconds=30)
"""How long before they expire keys are fetched again if none fits."""

_max_age = re.compile(r"(?:^|[,\s])max-age=(\d{1,9})").search
_uncached = re.compile(r"(?:^|[,\s])no-(?:store|cache)\b").search


class IssuerUnavailable(Exception):
    """An issuer did not answer, or not as it must; the text says why."""


class Fetched(msgspec.Struct, frozen=True):
    """A document of an issuer."""

    body: bytes
    headers: Mapping[str, str]


class Fetch(Protocol):
    """Gets a document; IssuerUnavailable if that fails."""

    async def __call__(self, url: str) -> Fetched: ...


class _Discovered(msgspec.Struct):
    issuer: str = ""
    jwks_uri: str = ""


class IssuerKeys:
    """The keys of one issuer."""

    def __init__(self, issuer: Issuer, fetch: Fetch, clock: Clock) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._clock = clock
        self._keys: Sequence[JsonWebKey] | None = None
        self._jwks_uri = ""
        self._expires: datetime | None = None
        self._fetched_at: float | None = None
        self._busy: asyncio.Lock = asyncio.Lock()
        self.fetches = 0
        """How often the keys were fetched."""

    @property
    def keys(self) -> Sequence[JsonWebKey] | None:
        """The keys as they were fetched last; None before the issuer was found."""
        return self._keys

    @property
    def may_have_changed(self) -> bool:
        """Whether the issuer allows to ask again."""
        return self._expires is None or self._clock.now() + EARLY > self._expires

    async def find(self) -> None:
        """Discover the issuer and fetch its keys; IssuerUnavailable if that fails."""
        url = self._issuer.discovery_url or f"{self._issuer.url.rstrip('/')}{WELL_KNOWN}"
        found = await self._fetch(url)
        try:
            described = msgspec.json.decode(found.body, type=_Discovered)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            why = f"oidc: failed to decode provider discovery object: {error}"
            raise IssuerUnavailable(why) from None
        if described.issuer != self._issuer.url:
            raise IssuerUnavailable(
                "oidc: issuer did not match the issuer returned by provider, expected"
                f' "{self._issuer.url}" got "{described.issuer[:256]}"'
            )
        if urlsplit(described.jwks_uri).scheme != "https":
            raise IssuerUnavailable("provider did not return JWKS URL with scheme https")
        self._jwks_uri = described.jwks_uri
        await self.refresh(0)

    async def keep_trying(self) -> None:
        """Find the issuer, however long it takes."""
        while self._keys is None:
            try:
                await self.find()
            except IssuerUnavailable as error:
                log.error("issuer not found issuer=%s error=%s", self._issuer.url, error)
                await self._clock.sleep(RETRY_SECONDS)

    async def refresh(self, known: int) -> None:
        """Fetch the keys, unless that happened after fetch number `known`; requests that wait
        share one fetch."""
        async with self._busy:
            if self.fetches > known:
                return
            await self._pause()
            try:
                fetched = await self._fetch(self._jwks_uri)
                self._keys = await asyncio.to_thread(json_web_keys.parse, fetched.body)
            except ValueError as error:
                raise IssuerUnavailable(str(error)) from None
            finally:
                self._fetched_at = self._clock.monotonic()
            self.fetches += 1
            self._expires = expiry(fetched.headers, self._clock.now())

    async def _pause(self) -> None:
        if self._fetched_at is not None:
            wait = self._fetched_at + BETWEEN_FETCHES - self._clock.monotonic()
            if wait > 0:
                await self._clock.sleep(wait)


def expiry(headers: Mapping[str, str], now: datetime) -> datetime:
    """Return until when a document may be kept; `now` if the issuer does not say."""
    control = headers.get("cache-control", "").lower()
    age = None if _uncached(control) else _max_age(control)
    return now if age is None else now + timedelta(seconds=int(age[1]))


class HttpsFetch:
    """Gets documents over HTTPS, trusting one authority or those of the machine."""

    def __init__(self, ca_pem: str, budget: AnswerBudget | None = None) -> None:
        self._ca_pem = ca_pem.encode()
        self._budget = budget or AnswerBudget()

    async def __call__(self, url: str) -> Fetched:
        parts = urlsplit(url)
        transport = HttpTransport(f"https://{parts.netloc}", ca_pem=self._ca_pem)
        call = Call("GET", parts.path or "/", parts.query, {"accept": "application/json"})
        try:
            with self._budget.answer() as answer:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await _document(transport, call, url, answer)
        except TimeoutError:
            raise IssuerUnavailable(f'Get "{url}": context deadline exceeded') from None
        except (Unreachable, NoMemoryForAnswer) as error:
            raise IssuerUnavailable(f'Get "{url}": {error}') from None
        finally:
            await transport.close()


async def _document(transport: HttpTransport, call: Call, url: str, answer: Answer) -> Fetched:
    async with transport.stream(call) as stream:
        body = await answer.read(stream.pieces, ANSWER_BYTES)
        if body is None:
            raise IssuerUnavailable(f'Get "{url}": more than {ANSWER_BYTES} bytes')
        if stream.status != 200:
            raise IssuerUnavailable(f'Get "{url}": status {stream.status}')
        return Fetched(body, stream.headers)
