"""Webhooks that answer reviews: TokenReviews and SubjectAccessReviews, by a kubeconfig."""

import asyncio
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from kedge.apiserver.configuration_file import ConfigurationFileError
from kedge.apiserver.webhooks.answer_budget import Answer, AnswerBudget, NoMemoryForAnswer
from kedge.client import login
from kedge.client.kubeconfig import KubeconfigError
from kedge.client.transport import Call, Transport, Unreachable
from kedge.machinery.clock import Clock

ANSWER_BYTES: Final = 1 << 20
"""The longest answer that is read."""
ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.5
PAUSE_FACTOR: Final = 1.5
MOST_CALLS: Final = 64
"""Reviews that are under way at once; further ones wait."""
_HEADERS: Final = {"accept": "application/json", "content-type": "application/json"}


class ReviewFailed(Exception):
    """The webhook did not answer; the text says why."""


class _Retry(ReviewFailed):
    """Another attempt may succeed."""


class ReviewWebhook:
    """A webhook that is described by a kubeconfig."""

    def __init__(
        self, kubeconfig: Path, clock: Clock, seconds: float, budget: AnswerBudget | None = None
    ) -> None:
        """Read the file; ConfigurationFileError if it cannot be used. `seconds` is the time for
        one attempt, `budget` the memory for answers."""
        try:
            found = login.read([kubeconfig])
            self._transport: Transport = found.transport()
        except (KubeconfigError, OSError) as error:
            raise ConfigurationFileError(f"webhook '{kubeconfig}': {error}") from error
        self._url = found.server
        self._path = "" if urlsplit(found.server).path.strip("/") else "/"
        self._clock = clock
        self._seconds = seconds
        self._slots = asyncio.Semaphore(MOST_CALLS)
        self._budget = budget or AnswerBudget()

    async def status(self, review: dict[str, Any]) -> dict[str, Any]:
        """Return the status that the webhook gives a review; ReviewFailed if it gives none."""
        call = Call("POST", self._path, "", _HEADERS, msgspec.json.encode(review))
        async with self._slots:
            pause = FIRST_PAUSE_SECONDS
            for attempt in range(ATTEMPTS):
                try:
                    return await self._attempt(call)
                except _Retry as error:
                    if attempt == ATTEMPTS - 1:
                        raise ReviewFailed(str(error)) from None
                await self._clock.sleep(pause)
                pause *= PAUSE_FACTOR
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self, call: Call) -> dict[str, Any]:
        with self._budget.answer() as answer:
            return await self._reviewed(call, answer)

    async def _reviewed(self, call: Call, answer: Answer) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._seconds):
                status, body = await _exchange(self._transport, call, answer)
        except TimeoutError:
            raise ReviewFailed(f'Post "{self._url}": context deadline exceeded') from None
        except (Unreachable, NoMemoryForAnswer) as error:
            raise _Retry(f'Post "{self._url}": {error}') from None
        if status == 429 or status >= 500:
            raise _Retry(f'Post "{self._url}": status {status}')
        if not 200 <= status <= 299:
            raise ReviewFailed(f'Post "{self._url}": status {status}')
        return _status_of(body)

    async def close(self) -> None:
        await self._transport.close()


async def _exchange(transport: Transport, call: Call, answer: Answer) -> tuple[int, bytes]:
    async with transport.stream(call) as stream:
        body = await answer.read(stream.pieces, ANSWER_BYTES)
        if body is None:
            raise ReviewFailed(f"the answer is longer than {ANSWER_BYTES} bytes")
        return stream.status, body


def _status_of(body: bytes) -> dict[str, Any]:
    try:
        status = msgspec.json.decode(body).get("status")
    except (msgspec.MsgspecError, UnicodeDecodeError, AttributeError, RecursionError) as error:
        raise ReviewFailed(f"the answer is not a review: {error}") from None
    if not isinstance(status, dict):
        raise ReviewFailed("the answer is not a review: it has no status")
    return status
