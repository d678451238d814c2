"""The further arguments of drivers."""

import pytest

from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.node.pod.referenced_objects import ReferencedObjects
from kedge.node.storage.mount_context import DriverContexts, attachment_name
from kedge.node.storage.volume_driver import DriverError, DriverVolume
from kedge.node.storage.volume_lookup import FoundVolume
from kedge.node.storage.volume_objects import CsiPart, PersistentVolumePart
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.web.message import HttpRequest, Response

ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


def test_the_attachment_has_the_name_that_the_controller_gives_it() -> None:
    assert attachment_name("d", "h", "n") == (
        "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d"
    )


async def test_a_volume_that_is_being_detached_is_not_mounted() -> None:
    async with LocalServer.running() as server:

        async def handle(call: Call) -> Response:
            headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
            request = HttpRequest(call.method, call.path, call.query, headers, call.body)
            answer = server.app.handle(request)
            return answer if isinstance(answer, Response) else await answer

        client = Client(LocalTransport(handle))
        contexts = DriverContexts(client, ReferencedObjects(client, server.clock), "n")
        part = CsiPart(driver="d.example", volume_handle="h")
        found = FoundVolume("pv", part, PersistentVolumePart(csi=part))
        volume = DriverVolume("d.example", "h", "pv")
        name = attachment_name("d.example", "h", "n")
        spec = {"attacher": "d.example", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
        meta = {"name": name, "finalizers": ["example.com/attacher"]}
        await server.post(ATTACHMENTS, {"metadata": meta, "spec": spec})
        status = {"attached": True, "attachmentMetadata": {"slot": "1"}}
        await server.merge(f"{ATTACHMENTS}/{name}/status", {"status": status})
        assert (await contexts.of_stage(found, volume)).publish_context == {"slot": "1"}
        await server.delete(f"{ATTACHMENTS}/{name}")
        with pytest.raises(DriverError, match="is being deleted"):
            await contexts.of_stage(found, volume)
