"""Values at rest: what lies in the store below, and what readers and watchers get."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from kedge.storage.encryption import (
    AesCbc,
    AesGcm,
    Cipher,
    EncryptedStore,
    Protection,
    SecretBox,
    StorageKey,
)
from kedge.storage.memory import MemoryStore
from kedge.storage.store import RevisionConflict, UndecryptableValue
from kedge.testing.clock import FakeClock

KEY = "/registry/secrets/default/a"
ONE, TWO = b"1" * 32, b"2" * 16
PLAIN_KEY = StorageKey(b"", None)


def gcm(name: str, key: bytes) -> StorageKey:
    return StorageKey(f"k8s:enc:aesgcm:v1:{name}:".encode(), AesGcm(key))


def store(inner: MemoryStore, *keys: StorageKey) -> EncryptedStore:
    return EncryptedStore(inner, lambda key: Protection(keys))


async def test_values_lie_encrypted_and_are_read_in_clear() -> None:
    inner = MemoryStore(FakeClock())
    sealed = store(inner, gcm("one", ONE), PLAIN_KEY)
    written = await sealed.put(KEY, b"secret", expect=0)
    assert written.value == b"secret"
    below = await inner.get(KEY)
    assert below is not None
    assert below.value.startswith(b"k8s:enc:aesgcm:v1:one:")
    assert b"secret" not in below.value
    assert await sealed.get(KEY) == written
    assert (await sealed.list("/registry/")).entries == [written]
    with pytest.raises(RevisionConflict) as conflict:
        await sealed.put(KEY, b"other", expect=0)
    assert conflict.value.current == written
    deleted = await sealed.delete(KEY, expect=written.revision)
    assert deleted.value == b"secret"


async def test_watchers_get_values_in_clear() -> None:
    sealed = store(MemoryStore(FakeClock()), gcm("one", ONE))
    first = await sealed.put(KEY, b"a", expect=0)
    await sealed.put(KEY, b"b", expect=first.revision)
    events = sealed.watch("", since=1)
    seen = [await anext(events), await anext(events)]
    await events.aclose()
    assert [event.entry.value for event in seen] == [b"a", b"b"]
    assert seen[1].previous == first


async def test_a_value_that_no_key_fits_does_not_end_a_watch() -> None:
    inner = MemoryStore(FakeClock())
    encrypted = store(inner, gcm("one", ONE))
    await inner.put("/foreign", b"k8s:enc:kms:v2:other:x", expect=0)
    await encrypted.put("/own", b"value", expect=0)
    async with aclosing(encrypted.watch("", since=1)) as watch:
        values = [(await anext(watch)).entry.value for _ in range(2)]
    assert values == [b"k8s:enc:kms:v2:other:x", b"value"]


async def test_keys_are_rotated_and_old_values_are_rewritten_by_the_next_write() -> None:
    inner = MemoryStore(FakeClock())
    entry = await inner.put(KEY, b"plain", expect=0)
    rotated = store(inner, gcm("two", TWO), gcm("one", ONE), PLAIN_KEY)
    assert await rotated.get(KEY) == entry
    old = store(inner, gcm("one", ONE))
    with pytest.raises(UndecryptableValue, match="secrets/default/a cannot be decrypted: no key"):
        await old.get(KEY)
    entry = await old.put(KEY, b"plain", expect=entry.revision)
    assert await rotated.get(KEY) == entry
    entry = await rotated.put(KEY, b"plain", expect=entry.revision)
    below = await inner.get(KEY)
    assert below is not None
    assert below.value.startswith(b"k8s:enc:aesgcm:v1:two:")
    with pytest.raises(UndecryptableValue):
        await old.get(KEY)
    with pytest.raises(UndecryptableValue):
        await old.list("/registry/")


async def test_a_value_cannot_be_moved_to_another_key_or_changed() -> None:
    inner = MemoryStore(FakeClock())
    sealed = store(inner, gcm("one", ONE))
    await sealed.put(KEY, b"secret", expect=0)
    below = await inner.get(KEY)
    assert below is not None
    await inner.put("/registry/secrets/default/b", below.value, expect=0)
    with pytest.raises(UndecryptableValue):
        await sealed.get("/registry/secrets/default/b")
    await inner.put("/registry/secrets/default/c", below.value[:-1] + b"\0", expect=0)
    with pytest.raises(UndecryptableValue):
        await sealed.get("/registry/secrets/default/c")


@pytest.mark.parametrize("make", [AesGcm, AesCbc, SecretBox])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_what_is_encrypted_can_be_decrypted(make: Callable[[bytes], Cipher], size: int) -> None:
    cipher, value = make(ONE), b"x" * size
    sealed = cipher.encrypt(value, b"key")
    assert sealed != cipher.encrypt(value, b"key")
    assert cipher.decrypt(sealed, b"key") == value


def test_a_short_or_foreign_value_of_aescbc_is_refused() -> None:
    cipher = AesCbc(ONE)
    for value in (b"", b"x" * 16, b"x" * 33):
        with pytest.raises(ValueError, match="block size"):
            cipher.decrypt(value, b"")


def test_a_short_value_of_secretbox_is_refused() -> None:
    for value in (b"", b"x" * 39, b"x" * 40):
        with pytest.raises(ValueError, match=r"shorter|does not fit"):
            SecretBox(ONE).decrypt(value, b"")


@pytest.mark.parametrize("size", [100, 100_000])
async def test_secretbox_reads_what_it_wrote(size: int) -> None:
    """Large values are encrypted and decrypted in threads."""
    box = StorageKey(b"k8s:enc:secretbox:v1:one:", SecretBox(ONE))
    sealed = store(MemoryStore(FakeClock()), box)
    entry = await sealed.put(KEY, b"x" * size, expect=0)
    assert await sealed.get(KEY) == entry
    events = sealed.watch("", since=1)
    assert (await anext(events)).entry == entry
    await events.aclose()


async def test_many_values_are_decrypted_in_a_thread() -> None:
    sealed = store(MemoryStore(FakeClock()), gcm("one", ONE))
    value = b"x" * 200_000
    for i in range(8):
        await sealed.put(f"{KEY}{i}", value, expect=0)
    page = await asyncio.wait_for(sealed.list("/registry/"), 60)
    assert [entry.value for entry in page.entries] == [value] * 8
