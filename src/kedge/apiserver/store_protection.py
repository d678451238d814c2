"""From an EncryptionConfiguration to the protection of every key of the store."""

from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from kedge.api.catalog import Catalog
from kedge.apiserver import encryption_configuration
from kedge.apiserver.config_reload import ReloadLog
from kedge.apiserver.configuration_file import ConfigurationFileError
from kedge.apiserver.encryption_configuration import (
    EncryptedResources,
    EncryptionConfiguration,
    EncryptionProvider,
    split,
)
from kedge.apiserver.followed_file import FollowedFile
from kedge.apiserver.kms.key_metrics import KeyMetrics
from kedge.apiserver.kms.services import START_SECONDS, KeyServices
from kedge.apiserver.telemetry import Telemetry
from kedge.machinery.clock import Clock
from kedge.storage.encryption import (
    MOST_RETIRED,
    PLAIN,
    AesCbc,
    AesGcm,
    EncryptedStore,
    Protect,
    Protection,
    SecretBox,
    StorageKey,
)
from kedge.storage.store import Store, StoreError

POLL_FAILED_SECONDS: Final = 10.0
"""How often key services are looked at, if one does not answer."""
MOST: Final = 4096
Name = tuple[str, str]
"""Plural and group of a resource."""


def protect(
    file: EncryptionConfiguration, names: Mapping[str, Name], services: KeyServices
) -> Protect:
    """Return what finds the protection of a key; the first entry that matches decides.

    `names` has the built-in resources by their path below /registry; `services` gets the key
    services of the file.
    """
    entries = [(entry, _protection(entry, services)) for entry in file.resources]

    @lru_cache(MOST)
    def of_resource(first: str, second: str) -> Protection:
        # Custom resources are stored below their group.
        name = names.get(first) or names.get(f"{first}/{second}") or (second, first)
        for entry, protection in entries:
            if any(_covers(*split(each), *name) for each in entry.resources):
                return protection
        return PLAIN

    def of_key(key: str) -> Protection:
        parts = key.split("/", 4)
        if len(parts) < 4 or parts[1] != "registry":
            return PLAIN
        return of_resource(parts[2], parts[3])

    return of_key


def built_in_names() -> dict[str, Name]:
    """Return the built-in resources by their path below /registry."""
    stored = (each for each in Catalog() if each.is_stored and each.store_as is None)
    return {each.registry: (each.plural, each.group) for each in stored}


class ConfiguredStore(EncryptedStore):
    """A store with the encryption that a file describes."""

    def __init__(
        self, inner: Store, path: Path, clock: Clock, *, is_followed: bool = False
    ) -> None:
        """Read the file; ConfigurationFileError if it cannot be used. `is_followed` says whether
        `follow` will be called."""
        self._is_followed = is_followed
        self._metrics = KeyMetrics(clock)
        self.log = ReloadLog("encryption", clock)
        self._clock = clock
        self._file = FollowedFile(path, clock)
        self._services = KeyServices(clock, self._metrics)
        self._former: list[KeyServices] = []
        """Services of files before, which the history may need."""
        file = encryption_configuration.read(path)
        super().__init__(inner, protect(file, built_in_names(), self._services))

    async def start(self) -> None:
        """Wait until key services can be used; KeyServiceError if one does not answer."""
        await self._services.start(START_SECONDS)

    def health(self) -> dict[str, Callable[[], Coroutine[Any, Any, str]]]:
        """Return the checks of key services by name: one for all if services come and go with the
        file, as upstream has it."""
        if self._is_followed:
            return {"kms-providers": lambda: self._services.failures()}
        names = {f"kms-provider-{i}": i for i in range(len(self._services))}
        return {name: partial(self._services.failure, i) for name, i in names.items()}

    def add_metrics(self, telemetry: Telemetry) -> None:
        """Add the metrics of key services, and of reloads if the file is followed."""
        self._metrics.add_to(telemetry)
        if self._is_followed:
            self.log.add_metrics(telemetry)

    async def keep_keys(self) -> None:
        """Look at key services again and again, until cancelled."""
        while True:
            await self._clock.sleep(POLL_FAILED_SECONDS)
            await self._services.refresh_due()

    async def follow(self) -> None:
        """Use the keys of the file as it changes, until cancelled."""
        await self._file.follow(self._replace)

    async def close(self) -> None:
        for services in (self._services, *self._former):
            await services.close()
        await super().close()

    async def _replace(self) -> bool:
        services = KeyServices(self._clock, self._metrics)
        try:
            file = self._file.read(encryption_configuration.parse)
            protection = protect(file, built_in_names(), services)
            await services.start(START_SECONDS)
            await self.replace(protection)
        except (ConfigurationFileError, StoreError) as error:
            self.log.failed(error)
            await services.close()
            return True
        self.log.succeeded()
        self._former.insert(0, self._services)
        self._services = services
        for unused in self._former[MOST_RETIRED:]:
            await unused.close()
        del self._former[MOST_RETIRED:]
        return True


def _covers(plural: str, group: str, of_plural: str, of_group: str) -> bool:
    return plural in ("*", of_plural) and group in ("*", of_group)


def _protection(entry: EncryptedResources, services: KeyServices) -> Protection:
    return Protection([key for provider in entry.providers for key in _keys(provider, services)])


def _keys(provider: EncryptionProvider, services: KeyServices) -> list[StorageKey]:
    if provider.identity is not None:
        return [StorageKey(b"", None)]
    if provider.aesgcm is not None:
        keys = provider.aesgcm.keys
        return [StorageKey(_prefix("aesgcm", key.name), AesGcm(key.material)) for key in keys]
    if provider.kms is not None:
        prefix = f"k8s:enc:kms:v2:{provider.kms.name}:".encode()
        return [StorageKey(prefix, services.add(provider.kms))]
    if provider.secretbox is not None:
        keys = provider.secretbox.keys
        return [StorageKey(_prefix("secretbox", key.name), SecretBox(key.material)) for key in keys]
    assert provider.aescbc is not None
    keys = provider.aescbc.keys
    return [StorageKey(_prefix("aescbc", key.name), AesCbc(key.material)) for key in keys]


def _prefix(scheme: str, name: str) -> bytes:
    return f"k8s:enc:{scheme}:v1:{name}:".encode()
