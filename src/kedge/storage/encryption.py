"""EncryptedStore: a store whose values are encrypted, as kube-apiserver encrypts those in etcd.

A value is `k8s:enc:aesgcm:v1:NAME:` and then nonce and ciphertext, with the key of the entry as
authenticated data: a value cannot be moved to another key. Values without a prefix are plain.
"""

import asyncio
import builtins
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from kedge.storage.store import (
    ENCRYPTED,
    RevisionConflict,
    Store,
    StoreEntry,
    StoreEvent,
    StorePage,
    UndecryptableValue,
)

_NONCE: Final = 12
_BLOCK: Final = 16
_THREAD_BYTES: Final = 1 << 20
"""More bytes than these are decrypted in a thread."""


class Cipher(Protocol):
    """Encrypts with one key."""

    def encrypt(self, value: bytes, about: bytes) -> bytes: ...

    def decrypt(self, value: bytes, about: bytes) -> bytes:
        """Return the plain value; ValueError if the key does not fit."""
        ...


class AesGcm:
    """AES-GCM with a random nonce; the key of the entry is authenticated."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aead = AESGCM(key)

    def encrypt(self, value: bytes, about: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + self._aead.encrypt(nonce, value, about)

    def decrypt(self, value: bytes, about: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._aead.decrypt(value[:_NONCE], value[_NONCE:], about)
        except InvalidTag:
            raise ValueError("the key does not fit") from None


class AesCbc:
    """AES-CBC with PKCS#7 padding, without authentication: for values that are there already."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.algorithms import AES

        self._aes = AES(key)

    def encrypt(self, value: bytes, about: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
        from cryptography.hazmat.primitives.ciphers.modes import CBC

        start = os.urandom(_BLOCK)
        padding = _BLOCK - len(value) % _BLOCK
        encryptor = BlockCipher(self._aes, CBC(start)).encryptor()
        padded = value + bytes([padding]) * padding
        return start + encryptor.update(padded) + encryptor.finalize()

    def decrypt(self, value: bytes, about: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
        from cryptography.hazmat.primitives.ciphers.modes import CBC

        if len(value) < 2 * _BLOCK or len(value) % _BLOCK:
            raise ValueError("the stored data is not a multiple of the block size")
        decryptor = BlockCipher(self._aes, CBC(value[:_BLOCK])).decryptor()
        padded = decryptor.update(value[_BLOCK:]) + decryptor.finalize()
        padding = padded[-1]
        if not 0 < padding <= _BLOCK or not padded.endswith(bytes([padding]) * padding):
            raise ValueError("invalid padding on input")
        return padded[:-padding]


class StorageKey(NamedTuple):
    """A key by the prefix of the values that it wrote; an empty prefix stands for plain values."""

    prefix: bytes
    cipher: Cipher | None


class Protection(NamedTuple):
    """The keys of a resource: the first one writes, all read."""

    keys: Sequence[StorageKey]

    def sealed(self, key: str, value: bytes) -> bytes:
        first = self.keys[0]
        if first.cipher is None:
            return value
        return first.prefix + first.cipher.encrypt(value, key.encode())

    def opened(self, key: str, value: bytes) -> bytes:
        """Return the plain value; UndecryptableValue if no key fits."""
        if not value.startswith(ENCRYPTED):
            if any(each.cipher is None for each in self.keys):
                return value
            raise UndecryptableValue(key)
        for each in self.keys:
            if each.cipher is not None and value.startswith(each.prefix):
                try:
                    return each.cipher.decrypt(value[len(each.prefix) :], key.encode())
                except ValueError:
                    continue  # names of keys may be used again
        raise UndecryptableValue(key)


PLAIN: Final = Protection((StorageKey(b"", None),))
Protect = Callable[[str], Protection]
"""Returns the protection of a key of the store."""


class EncryptedStore:
    """Implements the Store protocol on another store, whose values it encrypts."""

    def __init__(self, inner: Store, protect: Protect) -> None:
        self._inner = inner
        self._protect = protect

    @property
    def revision(self) -> int:
        return self._inner.revision

    @property
    def failure(self) -> str:
        return self._inner.failure

    async def get(self, key: str) -> StoreEntry | None:
        entry = await self._inner.get(key)
        return None if entry is None else self._opened(entry)

    async def list(self, prefix: str, *, at: int = 0, after: str = "", limit: int = 0) -> StorePage:
        page = await self._inner.list(prefix, at=at, after=after, limit=limit)
        entries = await self._all_opened(page.entries)
        return StorePage(entries, page.revision, page.more, page.remaining)

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        sealed = self._protect(key).sealed(key, value)
        try:
            entry = await self._inner.put(key, sealed, expect=expect, ttl=ttl)
        except RevisionConflict as conflict:
            raise self._conflict(conflict) from None
        return StoreEntry(key, value, entry.revision, entry.created)

    async def delete(self, key: str, *, expect: int) -> StoreEntry:
        try:
            return self._opened(await self._inner.delete(key, expect=expect))
        except RevisionConflict as conflict:
            raise self._conflict(conflict) from None

    async def watch(self, prefix: str, *, since: int) -> AsyncGenerator[StoreEvent, None]:
        events = self._inner.watch(prefix, since=since)
        try:
            async for event in events:
                previous = event.previous
                yield StoreEvent(
                    event.kind,
                    self._opened(event.entry),
                    None if previous is None else self._opened(previous),
                )
        finally:
            await events.aclose()

    async def compact(self, revision: int) -> None:
        await self._inner.compact(revision)

    async def close(self) -> None:
        await self._inner.close()

    def _opened(self, entry: StoreEntry) -> StoreEntry:
        value = self._protect(entry.key).opened(entry.key, entry.value)
        if value is entry.value:
            return entry
        return StoreEntry(entry.key, value, entry.revision, entry.created)

    async def _all_opened(self, entries: builtins.list[StoreEntry]) -> builtins.list[StoreEntry]:
        size = sum(len(entry.value) for entry in entries if entry.value.startswith(ENCRYPTED))
        if size > _THREAD_BYTES:
            return await asyncio.to_thread(lambda: [*map(self._opened, entries)])
        return [*map(self._opened, entries)]

    def _conflict(self, conflict: RevisionConflict) -> RevisionConflict:
        current = conflict.current
        return RevisionConflict(conflict.key, None if current is None else self._opened(current))
