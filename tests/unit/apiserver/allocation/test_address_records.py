"""IPAddress objects of cluster IPs, in the store."""

from random import Random
from typing import Any

import pytest

from kedge.api.builtin.service_networks import ServiceName
from kedge.apiserver.allocation.address_records import AddressInUse, AddressRecords
from kedge.testing.local_server import LocalServer

IP_ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
MANAGED = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}
IP = "10.96.7.7"
WEB = ServiceName("default", "web")


def records(server: LocalServer) -> AddressRecords:
    api = server.app.api
    resource = api.catalog.of_kind("networking.k8s.io/v1", "IPAddress")
    assert resource is not None
    return AddressRecords(api.store, api.cache, resource, server.clock, Random(1))


async def create(server: LocalServer, labels: dict[str, str], **parent: str) -> None:
    reference = {"resource": "services", "namespace": "default", "name": "other", **parent}
    body = {"metadata": {"name": IP, "labels": labels}, "spec": {"parentRef": reference}}
    await server.post(IP_ADDRESSES, body)


async def parent(server: LocalServer) -> Any:
    return (await server.get(f"{IP_ADDRESSES}/{IP}"))["spec"]["parentRef"]["name"]


async def test_an_ip_address_is_stored_as_if_it_had_been_posted(server: LocalServer) -> None:
    await records(server).store(IP, WEB, lambda: False)
    found = await server.get(f"{IP_ADDRESSES}/{IP}")
    assert found["metadata"]["uid"]
    assert found["metadata"]["creationTimestamp"]
    assert await parent(server) == "web"
    changed = {"metadata": {"annotations": {"a": "b"}}}
    assert (await server.merge(f"{IP_ADDRESSES}/{IP}", changed))["metadata"]["annotations"]


async def test_one_of_something_else_is_not_replaced(server: LocalServer) -> None:
    await create(server, MANAGED)
    with pytest.raises(AddressInUse):
        await records(server).store(IP, WEB, lambda: False)
    assert await parent(server) == "other"


async def test_one_that_is_left_over_is_replaced(server: LocalServer) -> None:
    await create(server, MANAGED)
    await records(server).store(IP, WEB, lambda: True)
    assert await parent(server) == "web"


async def test_a_writer_that_was_faster_is_seen(server: LocalServer) -> None:
    kept = records(server)
    seen = [kept.find(IP)]

    def find(address: str) -> Any:
        """The cache as it was before the other write, once."""
        return seen.pop() if seen else AddressRecords.find(kept, address)

    await create(server, {}, group="example.com", resource="gateways")
    kept.find = find  # type: ignore[method-assign]
    with pytest.raises(AddressInUse):
        await kept.store(IP, WEB, lambda: False)


@pytest.mark.parametrize(
    ("labels", "owner", "expected"),
    [
        pytest.param(MANAGED, None, False, id="left over"),
        pytest.param(MANAGED, "/registry/services/specs/default/other", False, id="its own"),
        pytest.param(MANAGED, "/registry/services/specs/default/x", True, id="another's"),
        pytest.param({}, None, True, id="not managed"),
    ],
)
async def test_which_ones_block_their_address(
    server: LocalServer, labels: dict[str, str], owner: str | None, expected: bool
) -> None:
    assert not records(server).blocks(IP, lambda _: owner, lambda _: True)
    await create(server, labels)
    assert records(server).blocks(IP, lambda _: owner, lambda _: True) is expected


@pytest.mark.parametrize(
    ("labels", "is_taken", "is_left"),
    [(MANAGED, False, False), (MANAGED, True, True), ({}, False, True)],
)
async def test_unused_ones_are_deleted(
    server: LocalServer, labels: dict[str, str], is_taken: bool, is_left: bool
) -> None:
    kept = records(server)
    await create(server, labels)
    kept.delete_soon("10.96.9.9", 1 << 40)
    kept.delete_soon(IP, 1 << 40)
    server.start(kept.run(lambda _: is_taken))
    await server.settle()
    assert ((await server.call("GET", f"{IP_ADDRESSES}/{IP}")).status == 200) is is_left
