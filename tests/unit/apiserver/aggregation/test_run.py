"""The ConfigMap for extension servers."""

from kedge.apiserver.aggregation.run import publish
from kedge.testing.local_server import LocalServer

PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


async def test_the_config_map_is_made_and_kept(server: LocalServer) -> None:
    api = server.app.api
    await publish(api, {"client-ca-file": "one"})
    first = await server.get(PATH)
    assert first["data"] == {"client-ca-file": "one"}
    await publish(api, {"client-ca-file": "one"})
    assert (await server.get(PATH))["metadata"] == first["metadata"]
    await publish(api, {"client-ca-file": "two"})
    assert (await server.get(PATH))["data"] == {"client-ca-file": "two"}
