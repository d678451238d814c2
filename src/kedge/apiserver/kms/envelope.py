"""Envelope encryption: values have keys made from a seed, which only a plugin can decrypt."""

import hashlib
import hmac
import logging
import os
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.apiserver.kms import messages as m
from kedge.apiserver.kms.key_metrics import FROM_STORAGE, TO_STORAGE, KeyMetrics
from kedge.apiserver.kms.plugin import KeyPlugin
from kedge.deviceplugin import wire
from kedge.machinery import names
from kedge.machinery.clock import Clock
from kedge.storage.encryption import AesGcm, KeyPending
from kedge.storage.store import KeyServiceError

log = logging.getLogger(__name__)

SEED_BYTES: Final = 32
INFO_BYTES: Final = 32
"""Random bytes before each value, from which and the seed its key is made."""
MOST_SEEDS: Final = 4096
"""Decrypted seeds in memory: about one for each start of a server and each key id."""
WRITABLE: Final = timedelta(minutes=3)
"""How long a seed writes after the plugin was last found well, as upstream."""
_VERSIONS: Final = ("v2", "v2beta1")
_LONGEST_SOURCE: Final = 1024
_LONGEST_KEY_ID: Final = 1024
_KEY_ID_FAULT: Final = "the key id is empty or longer than 1 kB"
_LARGEST_ANNOTATIONS: Final = 32 << 10


class SeedCipher:
    """AES-GCM with another key for each value, so that nonces never repeat with a key."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def encrypt(self, value: bytes, about: bytes) -> bytes:
        info = os.urandom(INFO_BYTES)
        return info + self._cipher(info).encrypt(value, about)

    def decrypt(self, value: bytes, about: bytes) -> bytes:
        if len(value) < INFO_BYTES:
            raise ValueError("the stored data was shorter than the required size")
        return self._cipher(value[:INFO_BYTES]).decrypt(value[INFO_BYTES:], about)

    def _cipher(self, info: bytes) -> AesGcm:
        # The first block of HKDF-Expand is as long as the key.
        return AesGcm(hmac.digest(self._seed, info + b"\x01", hashlib.sha256))


class WritingSeed(NamedTuple):
    """The seed of values that are written now."""

    cipher: SeedCipher
    envelope: m.EncryptedObject
    """The value without its data."""
    expires: datetime


class EnvelopeCipher:
    """The cipher of one KMS provider."""

    def __init__(self, name: str, plugin: KeyPlugin, clock: Clock, metrics: KeyMetrics) -> None:
        self._name = name
        self._plugin = plugin
        self._clock = clock
        self._metrics = metrics
        self._seed: WritingSeed | None = None
        self._ciphers: dict[bytes, SeedCipher | AesGcm] = {}

    def encrypt(self, value: bytes, about: bytes) -> bytes:
        """Return the value as it is stored; KeyServiceError while the plugin is not well."""
        seed = self._seed
        if seed is None:
            raise KeyServiceError(self._name, "the plugin has not answered yet")
        if self._clock.now() > seed.expires:
            raise KeyServiceError(self._name, f"the plugin is not well since {seed.expires}")
        encrypted = seed.cipher.encrypt(value, about)
        self._metrics.used(TO_STORAGE, self._name, seed.envelope.key_id)
        return wire.encode(replace(seed.envelope, data=encrypted))

    def decrypt(self, value: bytes, about: bytes) -> bytes:
        """Return the plain value; KeyPending if the plugin has to decrypt its seed first,
        ValueError if the value was changed."""
        found = wire.decode(m.EncryptedObject, value)
        check(found)
        if not found.data:
            raise ValueError("encrypted data is empty")
        cipher = self._ciphers.get(_identity(found))
        if cipher is None:
            self._metrics.cache_misses += 1
            raise KeyPending(self._fetching(found))
        self._metrics.used(FROM_STORAGE, self._name, found.key_id)
        return cipher.decrypt(found.data, about)

    def is_stale(self, value: bytes) -> bool:
        """Whether a value has another key id than the next one."""
        found, seed = wire.decode(m.EncryptedObject, value), self._seed
        if seed is None:
            return False
        envelope = seed.envelope
        return (found.key_id, found.source_type) != (envelope.key_id, envelope.source_type)

    async def refresh(self) -> None:
        """Look at the plugin, and take another seed if its key has changed; KeyServiceError if it
        is not well."""
        expires = self._clock.now() + WRITABLE
        status = await self._plugin.status()
        self._check_status(status)
        seed = self._seed
        if seed is not None and seed.envelope.key_id == status.key_id:
            self._seed = seed._replace(expires=expires)
            return
        self._seed = await self._new_seed(status.key_id, expires)
        log.info("new encryption seed provider=%s", self._name)

    async def close(self) -> None:
        await self._plugin.close()

    def _check_status(self, status: m.StatusResponse) -> None:
        if status.healthz != "ok":
            raise KeyServiceError(self._name, f"unexpected healthz status: {status.healthz[:256]}")
        if status.version not in _VERSIONS:
            why = f"expected KMSv2 API version v2, got {status.version[:64]}"
            raise KeyServiceError(self._name, why)
        if fault := key_id_fault(status.key_id):
            self._metrics.invalid_key_ids.observe(self._name, fault)
            raise KeyServiceError(self._name, _KEY_ID_FAULT)
        self._metrics.reported(self._name, status.key_id)

    async def _new_seed(self, key_id: str, expires: datetime) -> WritingSeed:
        plain = self._random_seed()
        answer = await self._plugin.encrypt(plain)
        envelope = m.EncryptedObject(
            key_id=answer.key_id,
            source=answer.ciphertext,
            annotations=answer.annotations,
            source_type=m.SEED,
        )
        self._checked(lambda: check(envelope))
        if answer.key_id != key_id:
            raise KeyServiceError(self._name, "Encrypt used another key than Status names")
        cipher = SeedCipher(plain)
        self._keep(_identity(envelope), cipher)
        return WritingSeed(cipher, envelope, expires)

    def _random_seed(self) -> bytes:
        begun = self._clock.monotonic()
        try:
            plain = os.urandom(SEED_BYTES)
        except OSError as error:
            self._metrics.failed_generations += 1
            raise KeyServiceError(self._name, f"no random bytes for a seed: {error}") from error
        self._metrics.generations.observe(self._clock.monotonic() - begun)
        return plain

    def _checked(self, check: Callable[[], None]) -> None:
        try:
            check()
        except ValueError as error:
            raise KeyServiceError(self._name, str(error)) from None

    def _fetching(self, found: m.EncryptedObject) -> Callable[[], Awaitable[None]]:
        async def fetch() -> None:
            plain = await self._plugin.decrypt(found)
            try:
                cipher = SeedCipher(plain) if found.source_type == m.SEED else AesGcm(plain)
                if len(plain) < SEED_BYTES and found.source_type == m.SEED:
                    raise ValueError(f"invalid seed length {len(plain)} used for key generation")
            except ValueError as error:
                raise KeyServiceError(self._name, str(error)) from None
            self._keep(_identity(found), cipher)

        return fetch

    def _keep(self, identity: bytes, cipher: SeedCipher | AesGcm) -> None:
        if len(self._ciphers) >= MOST_SEEDS:
            self._ciphers.pop(next(iter(self._ciphers)))
        self._ciphers[identity] = cipher
        self._metrics.seeds[self._name] = len(self._ciphers)


def check(found: m.EncryptedObject) -> None:
    """Raise ValueError for an envelope that upstream refuses, too."""
    if found.source_type not in (m.KEY, m.SEED):
        raise ValueError(f"unknown encryptedDEKSourceType: {found.source_type}")
    if not 0 < len(found.source) <= _LONGEST_SOURCE:
        raise ValueError(f"encrypted DEK source has {len(found.source)} bytes")
    if key_id_fault(found.key_id):
        raise ValueError(_KEY_ID_FAULT)
    if any(not _is_qualified(key) for key in found.annotations):
        raise ValueError("the key of an annotation is not a fully qualified domain name")
    size = sum(len(key) + len(value) for key, value in found.annotations.items())
    if size > _LARGEST_ANNOTATIONS:
        raise ValueError(f"total size of annotations is {size}")


def key_id_fault(key_id: str) -> str:
    """Return upstream's word for what is wrong with a key id; empty if it is valid."""
    if not key_id:
        return "empty"
    return "too_long" if len(key_id.encode()) > _LONGEST_KEY_ID else ""


def _is_qualified(name: str) -> bool:
    return "." in name.rstrip(".") and not names.dns_subdomain(name.removesuffix("."))


def _identity(found: m.EncryptedObject) -> bytes:
    """Return what tells seeds apart."""
    return wire.encode(replace(found, data=b""))
