"""The key services of one EncryptionConfiguration."""

import asyncio
import logging
from pathlib import Path
from typing import Final, NamedTuple

from kedge.apiserver.encryption_configuration import KmsConfiguration
from kedge.apiserver.kms.envelope import EnvelopeCipher
from kedge.apiserver.kms.key_metrics import KeyMetrics
from kedge.apiserver.kms.measured_plugin import MeasuredPlugin
from kedge.apiserver.kms.plugin import GrpcKeyPlugin
from kedge.machinery.clock import Clock
from kedge.storage.store import KeyServiceError

log = logging.getLogger(__name__)

START_SECONDS: Final = 20.0
"""The time for key services to answer at a start."""
RETRY_SECONDS: Final = 0.5
POLL_SECONDS: Final = 60.0
"""How often a service that is well is looked at."""


WELL_SECONDS: Final = 20.0
FAILED_SECONDS: Final = 3.0
"""For how long a health check believes that a service is well, or not, as upstream."""


class ServiceState(NamedTuple):
    """How a service was found."""

    time: float
    failure: str = ""
    """Empty if it was well."""


class KeyServices:
    """Starts the services, and looks whether they are well."""

    def __init__(self, clock: Clock, metrics: KeyMetrics | None = None) -> None:
        self._clock = clock
        self._metrics = metrics or KeyMetrics(clock)
        self._states: dict[EnvelopeCipher, ServiceState] = {}
        self._looking = asyncio.Lock()
        self._ciphers: list[EnvelopeCipher] = []
        self._due: dict[EnvelopeCipher, float] = {}
        """When each one is to be looked at."""

    def add(self, kms: KmsConfiguration) -> EnvelopeCipher:
        plugin = GrpcKeyPlugin(kms.name, Path(kms.socket), kms.seconds)
        measured = MeasuredPlugin(kms.name, plugin, self._clock, self._metrics.latency)
        cipher = EnvelopeCipher(kms.name, measured, self._clock, self._metrics)
        self._ciphers.append(cipher)
        return cipher

    async def start(self, seconds: float) -> None:
        """Return when all services can be used; KeyServiceError if that takes too long."""
        deadline = self._clock.monotonic() + seconds
        for cipher in self._ciphers:
            await self._start(cipher, deadline)

    async def refresh_due(self) -> None:
        """Look at the services whose time has come; log those that are not well."""
        for cipher in self._ciphers:
            if self._clock.monotonic() < self._due.get(cipher, 0.0):
                continue
            try:
                await self._refresh(cipher)
            except KeyServiceError as error:
                log.error("key service is not well error=%s", error)

    def __len__(self) -> int:
        return len(self._ciphers)

    async def failure(self, number: int) -> str:
        """Return why a service is not well; empty if it is. The service is asked if the last look
        was too long ago."""
        cipher = self._ciphers[number]
        async with self._looking:
            state = self._states.get(cipher)
            patience = FAILED_SECONDS if state is not None and state.failure else WELL_SECONDS
            if state is None or self._clock.monotonic() - state.time >= patience:
                try:
                    await self._refresh(cipher)
                except KeyServiceError as error:
                    return str(error)
        return self._states[cipher].failure

    async def failures(self) -> str:
        """Return which services are not well, and why; empty if all are."""
        found = [(i, await self.failure(i)) for i in range(len(self))]
        told = [f"kms-provider-{i}: {failure}" for i, failure in found if failure]
        return f"[{', '.join(told)}]" if len(told) > 1 else "".join(told)

    async def close(self) -> None:
        for cipher in self._ciphers:
            await cipher.close()

    async def _start(self, cipher: EnvelopeCipher, deadline: float) -> None:
        while True:
            try:
                await self._refresh(cipher)
                return
            except KeyServiceError:
                if self._clock.monotonic() >= deadline:
                    raise
            await self._clock.sleep(RETRY_SECONDS)

    async def _refresh(self, cipher: EnvelopeCipher) -> None:
        try:
            await cipher.refresh()
        except KeyServiceError as error:
            self._states[cipher] = ServiceState(self._clock.monotonic(), str(error))
            raise
        now = self._clock.monotonic()
        self._states[cipher] = ServiceState(now)
        self._due[cipher] = now + POLL_SECONDS
