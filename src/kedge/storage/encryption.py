"""EncryptedStore: a store whose values are encrypted, as kube-apiserver encrypts those in etcd.

A value is `k8s:enc:aesgcm:v1:NAME:` and then nonce and ciphertext, with the key of the entry as
authenticated data: a value cannot be moved to another key. Values without a prefix are plain.
"""

import asyncio
import builtins
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, runtime_checkable

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
"""More bytes than these are encrypted or decrypted in a thread."""
_SLOW_THREAD_BYTES: Final = 16 << 10
"""The same for ciphers in Python, such as that of secretbox."""


class KeyPending(Exception):
    """A key has to be fetched first; another attempt then finds it."""

    def __init__(self, fetch: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.fetch = fetch
        """Fetches the key; KeyServiceError if that fails."""


class Cipher(Protocol):
    """Encrypts with one key."""

    def encrypt(self, value: bytes, about: bytes) -> bytes: ...

    def decrypt(self, value: bytes, about: bytes) -> bytes:
        """Return the plain value; ValueError if the key does not fit, KeyPending if it has to be
        fetched."""
        ...


@runtime_checkable
class KeyedCipher(Cipher, Protocol):
    """A cipher whose values name their key."""

    def is_stale(self, value: bytes) -> bool:
        """Whether a value has another key than the next one."""
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


class SecretBox:
    """XSalsa20-Poly1305 as in NaCl; the key of the entry is not authenticated, as upstream."""

    def __init__(self, key: bytes) -> None:
        from kedge.machinery import secretbox

        self._box = secretbox
        self._key = key

    def encrypt(self, value: bytes, about: bytes) -> bytes:
        nonce = os.urandom(self._box.NONCE_BYTES)
        return nonce + self._box.seal(self._key, nonce, value)

    def decrypt(self, value: bytes, about: bytes) -> bytes:
        size = self._box.NONCE_BYTES
        if len(value) < size + self._box.TAG_BYTES:
            raise ValueError("the stored data was shorter than the required size")
        return self._box.open_sealed(self._key, value[:size], value[size:])


class StorageKey(NamedTuple):
    """A key by the prefix of the values that it wrote; an empty prefix stands for plain values."""

    prefix: bytes
    cipher: Cipher | None


class Protection(NamedTuple):
    """The keys of a resource: the first one writes, all read."""

    keys: Sequence[StorageKey]

    @property
    def thread_bytes(self) -> int:
        """More bytes than these must not keep the event loop busy."""
        is_slow = any(isinstance(each.cipher, SecretBox) for each in self.keys)
        return _SLOW_THREAD_BYTES if is_slow else _THREAD_BYTES

    def sealed(self, key: str, value: bytes) -> bytes:
        first = self.keys[0]
        if first.cipher is None:
            return value
        return first.prefix + first.cipher.encrypt(value, key.encode())

    def is_stale(self, key: str, value: bytes) -> bool:
        """Whether another key than the first one wrote a value."""
        first = self.keys[0]
        if first.cipher is None:
            return value.startswith(ENCRYPTED)
        if not value.startswith(first.prefix):
            return True
        content = value[len(first.prefix) :]
        if isinstance(first.cipher, KeyedCipher):
            return first.cipher.is_stale(content)
        try:
            first.cipher.decrypt(content, key.encode())
        except ValueError:
            return True
        return False

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
MOST_RETIRED: Final = 4
"""Former protections that are tried for values of the history."""
_CHECKED_AT_ONCE: Final = 500
Protect = Callable[[str], Protection]
"""Returns the protection of a key of the store."""


class EncryptedStore:
    """Implements the Store protocol on another store, whose values it encrypts."""

    def __init__(self, inner: Store, protect: Protect) -> None:
        self._inner = inner
        self._protect = protect
        self._retired: builtins.list[Protect] = []
        """Protections of before. The history of the store may have values with their keys."""

    async def replace(self, protect: Protect) -> None:
        """Protect with these keys from now on; UndecryptableValue, and no change, if a value that
        is stored now could not be read after a restart."""
        await self._check_values(protect)
        self._retired = [self._protect, *self._retired][:MOST_RETIRED]
        self._protect = protect

    async def _check_values(self, protect: Protect) -> None:
        after, more = "", True
        while more:
            page = await self._inner.list("", after=after, limit=_CHECKED_AT_ONCE)
            checked: builtins.list[str] = []
            while len(checked) < len(page.entries):
                try:
                    await asyncio.to_thread(self._check_page, protect, page.entries, checked)
                except KeyPending as pending:
                    await pending.fetch()
            more = page.more
            after = page.entries[-1].key if page.entries else ""

    def _check_page(
        self,
        protect: Protect,
        entries: builtins.list[StoreEntry],
        checked: builtins.list[str],
    ) -> None:
        for entry in entries[len(checked) :]:
            new = protect(entry.key)
            new.opened(entry.key, entry.value)
            # Values that are written until the keys are replaced have the first key of now.
            new.opened(entry.key, self._protect(entry.key).sealed(entry.key, b"{}"))
            checked.append(entry.key)

    async def is_stale(self, key: str) -> bool:
        """Whether a stored value has another key than a write would give it now."""
        entry = await self._inner.get(key)
        return entry is not None and self._protect(key).is_stale(key, entry.value)

    @property
    def revision(self) -> int:
        return self._inner.revision

    async def newest(self) -> int:
        return await self._inner.newest()

    @property
    def failure(self) -> str:
        return self._inner.failure

    async def get(self, key: str) -> StoreEntry | None:
        entry = await self._inner.get(key)
        return None if entry is None else (await self._all_opened([entry]))[0]

    async def list(self, prefix: str, *, at: int = 0, after: str = "", limit: int = 0) -> StorePage:
        page = await self._inner.list(prefix, at=at, after=after, limit=limit)
        entries = await self._all_opened(page.entries)
        return StorePage(entries, page.revision, page.more, page.remaining)

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        protection = self._protect(key)
        if len(value) > protection.thread_bytes:
            sealed = await asyncio.to_thread(protection.sealed, key, value)
        else:
            sealed = protection.sealed(key, value)
        try:
            entry = await self._inner.put(key, sealed, expect=expect, ttl=ttl)
        except RevisionConflict as conflict:
            raise await self._conflict(conflict) from None
        return StoreEntry(key, value, entry.revision, entry.created)

    async def delete(self, key: str, *, expect: int) -> StoreEntry:
        try:
            entry = await self._inner.delete(key, expect=expect)
        except RevisionConflict as conflict:
            raise await self._conflict(conflict) from None
        return (await self._all_opened([entry]))[0]

    async def watch(self, prefix: str, *, since: int) -> AsyncGenerator[StoreEvent, None]:
        events = self._inner.watch(prefix, since=since)
        try:
            async for event in events:
                previous = event.previous
                both = [event.entry] if previous is None else [event.entry, previous]
                try:
                    entry, *before = await self._all_opened(both)
                except UndecryptableValue:
                    # One value must not end the watch of all: its reader sees that it is sealed.
                    entry, *before = both
                yield StoreEvent(event.kind, entry, before[0] if before else None, event.more)
        finally:
            await events.aclose()

    async def compact(self, revision: int) -> None:
        await self._inner.compact(revision)

    async def close(self) -> None:
        await self._inner.close()

    def _opened(self, entry: StoreEntry) -> StoreEntry:
        value = self._value(entry)
        if value is entry.value:
            return entry
        return StoreEntry(entry.key, value, entry.revision, entry.created)

    def _value(self, entry: StoreEntry) -> bytes:
        try:
            return self._protect(entry.key).opened(entry.key, entry.value)
        except UndecryptableValue:
            for protect in self._retired:
                with suppress(UndecryptableValue):
                    return protect(entry.key).opened(entry.key, entry.value)
            raise

    async def _all_opened(self, entries: builtins.list[StoreEntry]) -> builtins.list[StoreEntry]:
        sealed = [entry for entry in entries if entry.value.startswith(ENCRYPTED)]
        size = sum(len(entry.value) for entry in sealed)
        is_long = bool(sealed) and size > self._protect(sealed[0].key).thread_bytes
        opened: builtins.list[StoreEntry] = []
        while len(opened) < len(entries):
            try:
                if is_long:
                    await asyncio.to_thread(self._open_rest, entries, opened)
                else:
                    self._open_rest(entries, opened)
            except KeyPending as pending:
                await pending.fetch()
        return opened

    def _open_rest(
        self, entries: builtins.list[StoreEntry], opened: builtins.list[StoreEntry]
    ) -> None:
        for entry in entries[len(opened) :]:
            opened.append(self._opened(entry))

    async def _conflict(self, conflict: RevisionConflict) -> RevisionConflict:
        current = conflict.current
        if current is None:
            return conflict
        return RevisionConflict(conflict.key, (await self._all_opened([current]))[0])
