"""From an EncryptionConfiguration to the protection of every key of the store."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

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
from kedge.machinery.clock import Clock
from kedge.storage.encryption import (
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

MOST: Final = 4096
Name = tuple[str, str]
"""Plural and group of a resource."""


def protect(file: EncryptionConfiguration, names: Mapping[str, Name]) -> Protect:
    """Return what finds the protection of a key; the first entry that matches decides.

    `names` has the built-in resources by their path below /registry.
    """
    entries = [(entry, _protection(entry)) for entry in file.resources]

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


def encrypted(inner: Store, path: Path) -> EncryptedStore:
    """Return the store with the encryption that a file describes; ConfigurationFileError if the
    file cannot be used."""
    file = encryption_configuration.read(path)
    return EncryptedStore(inner, protect(file, built_in_names()))


class EncryptionReload:
    """Follows the file, and gives the store its keys."""

    def __init__(self, store: EncryptedStore, path: Path, clock: Clock) -> None:
        self.log = ReloadLog("encryption")
        self._store = store
        self._file = FollowedFile(path, clock)

    async def run(self) -> None:
        """Follow the file until cancelled."""
        await self._file.follow(self._replace)

    async def _replace(self) -> bool:
        try:
            file = self._file.read(encryption_configuration.parse)
            await self._store.replace(protect(file, built_in_names()))
        except (ConfigurationFileError, StoreError) as error:
            self.log.failed(error)
        else:
            self.log.succeeded()
        return True


def _covers(plural: str, group: str, of_plural: str, of_group: str) -> bool:
    return plural in ("*", of_plural) and group in ("*", of_group)


def _protection(entry: EncryptedResources) -> Protection:
    return Protection([key for provider in entry.providers for key in _keys(provider)])


def _keys(provider: EncryptionProvider) -> list[StorageKey]:
    if provider.identity is not None:
        return [StorageKey(b"", None)]
    if provider.aesgcm is not None:
        keys = provider.aesgcm.keys
        return [StorageKey(_prefix("aesgcm", key.name), AesGcm(key.material)) for key in keys]
    if provider.secretbox is not None:
        keys = provider.secretbox.keys
        return [StorageKey(_prefix("secretbox", key.name), SecretBox(key.material)) for key in keys]
    assert provider.aescbc is not None
    keys = provider.aescbc.keys
    return [StorageKey(_prefix("aescbc", key.name), AesCbc(key.material)) for key in keys]


def _prefix(scheme: str, name: str) -> bytes:
    return f"k8s:enc:{scheme}:v1:{name}:".encode()
