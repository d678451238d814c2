"""The ConfigMap by which tools find the registry of the machine."""

import yaml

from kedge.apiserver import local_registry
from kedge.testing.local_server import LocalServer

PATH = "/api/v1/namespaces/kube-public/configmaps/local-registry-hosting"


async def test_the_registry_is_announced_and_changes(server: LocalServer) -> None:
    for host in ("localhost:5000", "localhost:5001"):
        await local_registry.ensure(server.app.api, host)
        await server.settle()
        data = (await server.get(PATH))["data"]
        assert yaml.safe_load(data["localRegistryHosting.v1"]) == {
            "host": host,
            "hostFromContainerRuntime": host,
        }
