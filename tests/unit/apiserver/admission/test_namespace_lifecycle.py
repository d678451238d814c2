import gc

import pytest

from kedge.api.core_v1.namespace import RESOURCE
from kedge.testing.local_server import LocalServer

NAMESPACES = "/api/v1/namespaces"
MAP = {"metadata": {"name": "m"}}


async def test_nothing_is_created_where_no_namespace_is(server: LocalServer) -> None:
    answer = await server.call("POST", f"{NAMESPACES}/none/configmaps", MAP)
    assert (answer.status, answer.message) == (404, 'namespaces "none" not found')


async def test_nothing_is_created_in_a_namespace_that_is_being_deleted(server: LocalServer) -> None:
    await server.post(NAMESPACES, {"metadata": {"name": "red"}})
    first = await server.post(f"{NAMESPACES}/red/configmaps", MAP)
    await server.delete(f"{NAMESPACES}/red")
    answer = await server.call("POST", f"{NAMESPACES}/red/configmaps", {"metadata": {"name": "n"}})
    assert (answer.status, answer.message) == (
        403,
        'configmaps "n" is forbidden: unable to create new content in namespace red because it is'
        " being terminated",
    )
    assert answer.document["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace red is being terminated",
            "field": "metadata.namespace",
        }
    ]
    path = f"{NAMESPACES}/red/configmaps/{first['metadata']['name']}"
    assert (await server.call("PUT", path, first | {"data": {"k": "v"}})).status == 200


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_namespaces_of_the_system_cannot_be_deleted(
    server: LocalServer, name: str
) -> None:
    answer = await server.call("DELETE", f"{NAMESPACES}/{name}")
    assert (answer.status, answer.message) == (
        403,
        f'namespaces "{name}" is forbidden: this namespace may not be deleted',
    )


async def test_a_namespace_that_is_gone_is_not_kept(server: LocalServer) -> None:
    await server.post(NAMESPACES, {"metadata": {"name": "red"}})
    await server.post(f"{NAMESPACES}/red/configmaps", MAP)
    item = server.app.api.cache.of(RESOURCE).get(RESOURCE.key("", "red"))
    assert item is not None
    assert not [each for each in gc.get_referrers(item) if isinstance(each, tuple)]
