"""The key services of one EncryptionConfiguration."""

import logging
from pathlib import Path
from typing import Final

from kedge.apiserver.encryption_configuration import KmsConfiguration
from kedge.apiserver.kms.envelope import EnvelopeCipher
from kedge.apiserver.kms.plugin import GrpcKeyPlugin
from kedge.machinery.clock import Clock
from kedge.storage.store import KeyServiceError

log = logging.getLogger(__name__)

START_SECONDS: Final = 20.0
"""The time for key services to answer at a start."""
RETRY_SECONDS: Final = 0.5
POLL_SECONDS: Final = 60.0
"""How often a service that is well is looked at."""


class KeyServices:
    """Starts the services, and looks whether they are well."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ciphers: list[EnvelopeCipher] = []
        self._due: dict[EnvelopeCipher, float] = {}
        """When each one is to be looked at."""

    def add(self, kms: KmsConfiguration) -> EnvelopeCipher:
        plugin = GrpcKeyPlugin(kms.name, Path(kms.socket), kms.seconds)
        cipher = EnvelopeCipher(kms.name, plugin, self._clock)
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
        await cipher.refresh()
        self._due[cipher] = self._clock.monotonic() + POLL_SECONDS
