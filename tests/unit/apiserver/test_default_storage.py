"""The default StorageClass is made once."""

from kedge.apiserver import default_storage
from kedge.testing.local_server import LocalServer

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


async def test_a_class_that_was_deleted_does_not_come_back() -> None:
    async with LocalServer.running() as server:
        await default_storage.ensure(server.app.api)
        found = await server.get(f"{CLASSES}/standard")
        assert found["provisioner"] == "kedge.dev/local"
        assert found["volumeBindingMode"] == "WaitForFirstConsumer"
        await server.delete(f"{CLASSES}/standard")
        await default_storage.ensure(server.app.api)
        assert (await server.get(CLASSES))["items"] == []
