"""A key plugin whose calls are timed."""

from collections.abc import Awaitable
from typing import Final, TypeVar

from kedge.apiserver.histogram import LabelledMetric
from kedge.apiserver.kms import messages as m
from kedge.apiserver.kms.plugin import KeyPlugin
from kedge.machinery.clock import Clock
from kedge.storage.store import KeyServiceError

BOUNDS: Final = tuple(0.0001 * 2**n for n in range(20))
"""Upstream's buckets, from 0.1 ms to 52 s."""
_NO_CODE: Final = "unknown-non-grpc"
A = TypeVar("A")


def kms_latency() -> LabelledMetric:
    """Return the histogram of all calls to key plugins."""
    return LabelledMetric("provider_name", "method_name", "grpc_status_code", bounds=BOUNDS)


class MeasuredPlugin:
    """Passes calls on, and notes how long each took and how it ended."""

    def __init__(self, name: str, plugin: KeyPlugin, clock: Clock, latency: LabelledMetric) -> None:
        self._name = name
        self._plugin = plugin
        self._clock = clock
        self._latency = latency

    async def status(self) -> m.StatusResponse:
        return await self._timed(m.STATUS.path, self._plugin.status())

    async def encrypt(self, source: bytes) -> m.EncryptResponse:
        return await self._timed(m.ENCRYPT.path, self._plugin.encrypt(source))

    async def decrypt(self, found: m.EncryptedObject) -> bytes:
        return await self._timed(m.DECRYPT.path, self._plugin.decrypt(found))

    async def close(self) -> None:
        await self._plugin.close()

    async def _timed(self, method: str, call: Awaitable[A]) -> A:
        begun, code = self._clock.monotonic(), "OK"
        try:
            return await call
        except KeyServiceError as error:
            code = status_code(error)
            raise
        finally:
            seconds = self._clock.monotonic() - begun
            self._latency.observe(self._name, method, code, amount=seconds)


def status_code(error: KeyServiceError) -> str:
    """Return the gRPC code of a failed call as Go names it: DeadlineExceeded."""
    code = getattr(error.__cause__, "code", None)
    return _NO_CODE if code is None else str(code().name).title().replace("_", "")
