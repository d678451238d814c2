"""The file with an AuthenticationConfiguration, followed while the server runs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kedge.apiserver import configuration_file
from kedge.apiserver.authentication.openid_connect import configuration
from kedge.apiserver.authentication.openid_connect.configuration import (
    AnonymousAccess,
    AuthenticationConfiguration,
)
from kedge.apiserver.authentication.openid_connect.issuer_keys import IssuerUnavailable
from kedge.apiserver.authentication.openid_connect.issuers import Issuers, MakeFetch
from kedge.apiserver.authentication.service_accounts import Verified
from kedge.apiserver.config_reload import ReloadLog
from kedge.apiserver.configuration_file import ConfigurationFileError
from kedge.apiserver.followed_file import FollowedFile
from kedge.machinery.clock import Clock

FIND_SECONDS: Final = 60.0
"""The time for new issuers to be found before the old ones are replaced."""


class ConfiguredIssuers:
    """The issuers that the file names now."""

    def __init__(self, path: Path, clock: Clock, fetch: MakeFetch) -> None:
        """Read the file; ConfigurationFileError if it is invalid."""
        self._clock = clock
        self._fetch = fetch
        self._file = FollowedFile(path, clock)
        self._issuers = Issuers(configuration.read(path), clock, fetch)
        self.log = ReloadLog("authentication", clock)

    @property
    def anonymous(self) -> AnonymousAccess | None:
        return self._issuers.file.anonymous

    def verified(self, token: bytes, audiences: Sequence[str]) -> Verified | None:
        """Return the holder of a token; None if it is of no issuer here."""
        return self._issuers.verified(token, audiences)

    async def run(self) -> None:
        """Find the issuers and follow the file until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._issuers.keep_trying())
            tasks.create_task(self._file.follow(self._replace))

    async def _replace(self) -> bool:
        """Use the file as it is now; False if that may succeed later."""
        try:
            file = self._file.read(configuration.parse)
            self._check_same_anonymous(file)
        except ConfigurationFileError as error:
            self.log.failed(error)
            return True
        issuers = Issuers(file, self._clock, self._fetch)
        try:
            async with asyncio.timeout(FIND_SECONDS):
                await issuers.find()
        except (IssuerUnavailable, TimeoutError) as error:
            self.log.failed(error)
            return False
        self._issuers = issuers
        self.log.succeeded()
        return True

    def _check_same_anonymous(self, file: AuthenticationConfiguration) -> None:
        if file.anonymous != self.anonymous:
            why = "anonymous: Forbidden: changed from initial configuration file"
            raise configuration_file.ConfigurationFileError(why)
