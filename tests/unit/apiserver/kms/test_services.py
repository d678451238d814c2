"""Key services of a configuration, on a store."""

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.encryption_configuration import KmsConfiguration
from kedge.apiserver.health import ServerLifecycle, server_checks
from kedge.apiserver.kms import services
from kedge.apiserver.kms.envelope import EnvelopeCipher
from kedge.apiserver.kms.services import KeyServices
from kedge.apiserver.store_protection import ConfiguredStore
from kedge.apiserver.watchcache import WatchCache
from kedge.storage.memory import MemoryStore
from kedge.storage.store import KeyServiceError, UndecryptableValue
from kedge.testing.clock import FakeClock
from kedge.testing.kms_plugin import TestKeyPlugin

KEY = "/registry/secrets/default/a"
SECRET = base64.b64encode(b"1" * 32).decode()
GCM = {"aesgcm": {"keys": [{"name": "one", "secret": SECRET}]}}
KMS = {"kms": {"apiVersion": "v2", "name": "vault", "endpoint": "unix:///vault.sock"}}


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> TestKeyPlugin:
    """The plugin behind every socket."""
    made = TestKeyPlugin()
    monkeypatch.setattr(services, "GrpcKeyPlugin", lambda name, path, seconds: made)
    return made


def write(path: Path, *providers: Any) -> Path:
    entry = {"resources": ["secrets"], "providers": list(providers)}
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    path.with_suffix(".new").write_bytes(msgspec.json.encode(head | {"resources": [entry]}))
    os.replace(path.with_suffix(".new"), path)
    return path


async def opened(inner: MemoryStore, path: Path) -> ConfiguredStore:
    store = ConfiguredStore(inner, path, FakeClock())
    await store.start()
    return store


async def test_a_value_outlives_the_server(tmp_path: Path, plugin: TestKeyPlugin) -> None:
    inner, path = MemoryStore(FakeClock()), write(tmp_path / "keys.json", KMS)
    store = await opened(inner, path)
    entry = await store.put(KEY, b"secret", expect=0)
    below = await inner.get(KEY)
    assert below is not None
    assert below.value.startswith(b"k8s:enc:kms:v2:vault:")
    assert b"secret" not in below.value
    again = await opened(inner, path)
    assert (await again.list("/registry/")).entries == [entry]
    assert await again.get(KEY) == entry
    assert plugin.calls.count("Decrypt") == 1
    events = again.watch("", since=1)
    assert (await anext(events)).entry == entry
    await events.aclose()


async def test_a_key_of_the_file_gives_way_to_a_service(
    tmp_path: Path, plugin: TestKeyPlugin
) -> None:
    inner, path = MemoryStore(FakeClock()), write(tmp_path / "keys.json", GCM)
    store = await opened(inner, path)
    entry = await store.put(KEY, b"a", expect=0)
    write(path, KMS, GCM)
    assert await store._replace()
    assert await store.is_stale(KEY)
    entry = await store.put(KEY, b"a", expect=entry.revision)
    assert not await store.is_stale(KEY)
    write(path, KMS)
    assert await store._replace()
    assert await store.get(KEY) == entry
    plugin.key_id = "two"
    await store._services._ciphers[0].refresh()
    assert await store.is_stale(KEY)
    assert store.log.counts == {"success": 2}


async def test_a_service_that_is_away_is_not_taken(tmp_path: Path, plugin: TestKeyPlugin) -> None:
    clock = FakeClock()
    path = write(tmp_path / "keys.json", KMS)
    plugin.failure = "away"
    store = ConfiguredStore(MemoryStore(clock), path, clock)
    outcome, _ = await asyncio.gather(store.start(), clock.advance(60), return_exceptions=True)
    assert isinstance(outcome, KeyServiceError)
    plugin.failure = ""
    await store.start()


async def test_a_changed_value_cannot_be_read(tmp_path: Path, plugin: TestKeyPlugin) -> None:
    inner = MemoryStore(FakeClock())
    store = await opened(inner, write(tmp_path / "keys.json", KMS))
    await store.put(KEY, b"secret", expect=0)
    below = await inner.get(KEY)
    assert below is not None
    await inner.put("/registry/secrets/default/b", below.value, expect=0)
    with pytest.raises(UndecryptableValue):
        await store.get("/registry/secrets/default/b")


async def test_services_are_looked_at_each_minute(plugin: TestKeyPlugin) -> None:
    clock = FakeClock()
    made = KeyServices(clock)
    cipher = made.add(KmsConfiguration(name="vault", endpoint="unix:///vault.sock"))
    assert isinstance(cipher, EnvelopeCipher)
    await made.start(1)
    await made.refresh_due()
    assert plugin.calls.count("Status") == 1
    await clock.advance(61)
    plugin.failure = "away"
    await made.refresh_due()
    plugin.failure = ""
    await made.refresh_due()
    await made.refresh_due()
    assert plugin.calls.count("Status") == 3


async def test_health_checks_ask_again_after_a_while(plugin: TestKeyPlugin) -> None:
    clock = FakeClock()
    made = KeyServices(clock)
    made.add(KmsConfiguration(name="vault", endpoint="unix:///vault.sock"))
    assert len(made) == 1
    assert await made.failures() == ""
    plugin.healthz = "sealed"
    assert await made.failures() == ""
    await clock.advance(20)
    why = 'key service "vault": unexpected healthz status: sealed'
    assert await made.failures() == f"kms-provider-0: {why}"
    plugin.healthz = "ok"
    assert await made.failure(0) == why
    await clock.advance(3)
    assert await made.failure(0) == ""
    assert plugin.calls.count("Status") == 3


@pytest.mark.parametrize(
    ("is_followed", "name"), [(True, "kms-providers"), (False, "kms-provider-0")]
)
async def test_key_services_are_a_part_of_health(
    tmp_path: Path, plugin: TestKeyPlugin, is_followed: bool, name: str
) -> None:
    path, clock = write(tmp_path / "keys.json", KMS), FakeClock()
    store = ConfiguredStore(MemoryStore(clock), path, clock, is_followed=is_followed)
    await store.start()
    checks = server_checks(store, WatchCache(store), ServerLifecycle(), ControlPlaneComponents(()))
    found = next(check for check in checks if check.name == name)
    assert found.endpoints == ("healthz", "readyz")
    assert await found.failure() == ""
    plugin.failure = "away"
    await clock.advance(20)
    assert "away" in await found.failure()
