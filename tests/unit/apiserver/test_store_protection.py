"""Keys that are replaced while the server runs."""

import base64
import os
from pathlib import Path
from typing import Any

import msgspec

from kedge.apiserver.store_protection import ConfiguredStore
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

HEAD = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
KEY = "/registry/secrets/default/a"
IDENTITY: dict[str, Any] = {"identity": {}}


def provider(kind: str, name: str) -> dict[str, Any]:
    secret = base64.b64encode(name[:1].encode() * 32).decode()
    return {kind: {"keys": [{"name": name, "secret": secret}]}}


ONE, TWO = provider("aesgcm", "one"), provider("secretbox", "two")


class Rotation:
    """A store whose file changes."""

    def __init__(self, directory: Path, *providers: Any) -> None:
        self.path = directory / "keys.json"
        self.write(*providers)
        self.inner = MemoryStore(FakeClock())
        self.store = ConfiguredStore(self.inner, self.path, FakeClock())

    def write(self, *providers: Any) -> None:
        entry = {"resources": ["secrets"], "providers": list(providers)}
        other = self.path.with_suffix(".new")
        other.write_bytes(msgspec.json.encode(HEAD | {"resources": [entry]}))
        os.replace(other, self.path)

    async def replace(self, *providers: Any) -> bool:
        """Return whether the new keys are in force."""
        before = self.store.log.counts["success"]
        self.write(*providers)
        assert await self.store._replace()
        return self.store.log.counts["success"] > before

    async def below(self) -> bytes:
        entry = await self.inner.get(KEY)
        assert entry is not None
        return entry.value


async def test_keys_are_rotated_without_a_restart(tmp_path: Path) -> None:
    rotation = Rotation(tmp_path, ONE)
    entry = await rotation.store.put(KEY, b"a", expect=0)
    assert await rotation.replace(ONE, TWO)
    assert await rotation.replace(TWO, ONE)
    assert await rotation.store.get(KEY) == entry
    changed = await rotation.store.put(KEY, b"b", expect=entry.revision)
    assert (await rotation.below()).startswith(b"k8s:enc:secretbox:v1:two:")
    assert await rotation.replace(TWO)
    assert await rotation.store.get(KEY) == changed
    assert rotation.store.log.counts == {"success": 3}


async def test_a_write_that_changes_nothing_gives_an_object_the_new_key(tmp_path: Path) -> None:
    """`kubectl get secrets -o json | kubectl replace -f -` is how keys are rotated."""
    rotation = Rotation(tmp_path, ONE)
    path = "/api/v1/namespaces/default/secrets"
    async with LocalServer.running(rotation.store) as server:  # type: ignore[arg-type]
        made = await server.post(path, {"metadata": {"name": "a"}})
        same = await server.put(f"{path}/a", made)
        assert same == made
        assert await rotation.replace(TWO, ONE)
        dry = await server.call("PUT", f"{path}/a?dryRun=All", made)
        assert dry.document == made
        again = await server.put(f"{path}/a", made)
        assert (await rotation.below()).startswith(b"k8s:enc:secretbox:v1:two:")
        assert again["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        assert again["metadata"]["uid"] == made["metadata"]["uid"]
        assert await server.put(f"{path}/a", again) == again


async def test_a_key_that_values_need_is_not_taken_away(tmp_path: Path) -> None:
    rotation = Rotation(tmp_path, TWO, ONE)
    await rotation.store.put(KEY, b"a", expect=0)
    assert not await rotation.replace(ONE)
    await rotation.store.put("/registry/secrets/default/b", b"a", expect=0)
    assert (await rotation.below()).startswith(b"k8s:enc:secretbox:v1:two:")
    assert rotation.store.log.counts == {"failure": 1}


async def test_the_key_that_writes_is_not_taken_away_at_once(tmp_path: Path) -> None:
    """A value that is written at the same time could not be read after a restart."""
    rotation = Rotation(tmp_path, IDENTITY)
    await rotation.inner.put(KEY, b"{}", expect=0)
    assert not await rotation.replace(ONE)
    assert await rotation.replace(ONE, IDENTITY)


async def test_the_history_is_read_with_former_keys(tmp_path: Path) -> None:
    rotation = Rotation(tmp_path, ONE)
    entry = await rotation.store.put(KEY, b"a", expect=0)
    assert await rotation.replace(TWO, ONE)
    await rotation.store.put(KEY, b"b", expect=entry.revision)
    assert await rotation.replace(TWO)
    events = rotation.store.watch("", since=1)
    first, second = await anext(events), await anext(events)
    await events.aclose()
    assert [first.entry.value, second.entry.value] == [b"a", b"b"]
    assert second.previous == first.entry


async def test_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    rotation = Rotation(tmp_path, ONE)
    entry = await rotation.store.put(KEY, b"a", expect=0)
    assert not await rotation.replace({"secretbox": {"keys": [{"name": "x", "secret": "AAAA"}]}})
    rotation.path.write_bytes(b"resources: [")
    assert await rotation.store._replace()
    assert await rotation.store.get(KEY) == entry
    assert rotation.store.log.counts == {"failure": 2}
