"""The gRPC client of KMS plugins, with a plugin at a socket."""

import asyncio
from pathlib import Path

import pytest

from kedge.apiserver.kms import messages as m
from kedge.apiserver.kms.plugin import GrpcKeyPlugin
from kedge.storage.store import KeyServiceError
from kedge.testing.kms_plugin import TestKeyPlugin


async def test_all_methods_reach_the_plugin(tmp_path: Path) -> None:
    plugin, path = TestKeyPlugin(), tmp_path / "kms.sock"
    await plugin.listen(path)
    client = GrpcKeyPlugin("test", path, 30.0)
    try:
        assert await client.status() == m.StatusResponse(version="v2", healthz="ok", key_id="one")
        sealed = await client.encrypt(b"seed")
        assert (sealed.key_id, sealed.annotations) == ("one", plugin.annotations)
        found = m.EncryptedObject(
            key_id="one", source=sealed.ciphertext, annotations=sealed.annotations
        )
        assert await client.decrypt(found) == b"seed"
        plugin.failure = "out of order"
        with pytest.raises(KeyServiceError, match="Status: rpc error"):
            await client.status()
    finally:
        await client.close()
        await plugin.close()


async def test_a_plugin_that_does_not_listen_is_an_error(tmp_path: Path) -> None:
    client = GrpcKeyPlugin("test", tmp_path / "kms.sock", 0.2)
    with pytest.raises(KeyServiceError, match=r'key service "test": Status: rpc error'):
        await asyncio.wait_for(client.status(), 60)
    await client.close()
