"""EndpointSlices are found by the Service that they belong to."""

from collections.abc import AsyncIterator

import pytest

from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.api.model import ObjectMeta
from kedge.client.informer import Key
from kedge.node.services.service_watch import ServiceWatch, SlicesByService
from kedge.testing.local_server import LocalServer

WEB, OTHER = Key("default", "web"), Key("default", "other")


def slice_of(service: str, name: str) -> EndpointSlice:
    labels = {"kubernetes.io/service-name": service}
    return EndpointSlice(
        metadata=ObjectMeta(namespace="default", name=name, labels=labels), addressType="IPv4"
    )


def test_slices_move_with_their_label() -> None:
    changed: list[Key] = []
    index = SlicesByService(changed.append)
    index.put(slice_of("web", "one"))
    index.put(slice_of("web", "two"))
    index.put(slice_of("other", "two"))
    assert [each.metadata.name for each in index.of(WEB)] == ["one"]
    assert [each.metadata.name for each in index.of(OTHER)] == ["two"]
    assert changed == [WEB, WEB, WEB, OTHER]
    index.remove(slice_of("other", "two"))
    index.remove(slice_of("other", "two"))
    assert index.of(OTHER) == []
    assert changed[4:] == [OTHER]


def test_a_new_list_replaces_all() -> None:
    changed: list[Key] = []
    index = SlicesByService(changed.append)
    index.put(slice_of("web", "one"))
    for _ in index.replace([slice_of("other", "two")]):
        pass
    assert (index.of(WEB), len(index.of(OTHER))) == ([], 1)
    assert changed == [WEB, WEB, OTHER]


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


async def test_listeners_hear_of_services_and_their_endpoints(server: LocalServer) -> None:
    watch = ServiceWatch(server.client, server.clock)
    heard: list[Key] = []
    watch.listen(heard.append)
    server.start(watch.run())
    await watch.synced()
    heard.clear()
    await server.post(
        "/api/v1/namespaces/default/services",
        {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}},
    )
    await server.post(
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        {
            "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [],
        },
    )
    await server.settle()
    assert heard == [WEB, WEB]
    assert watch.services.get("web", "default") is not None
    assert [each.metadata.name for each in watch.slices(WEB)] == ["s"]
