"""All controllers together."""

from kedge.controllers.controllers import Controllers
from kedge.testing.local_server import LocalServer


async def test_controllers_fail_until_their_informers_have_synced() -> None:
    async with LocalServer.running() as server:
        controllers = Controllers(
            server.client, server.clock, b"", lambda *_: "", lambda *_: b"", enabled=()
        )
        assert controllers.failure() == "informers have not synced"
        server.start(controllers.run())
        for _ in range(5):
            await server.settle()
        assert controllers.failure() == ""
