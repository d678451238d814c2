"""No node takes the pod network of another one."""

import asyncio
from typing import Any

import pytest

from kedge.testing.local_server import MERGE, LocalServer

NODES = "/api/v1/nodes"


def node(name: str, *cidrs: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"podCIDRs": list(cidrs)}}


def as_node(name: str) -> dict[str, str]:
    return {"impersonate-user": f"system:node:{name}", "impersonate-group": "system:nodes"}


async def create(server: LocalServer, name: str, *cidrs: str) -> Any:
    return await server.call("POST", NODES, node(name, *cidrs), headers=as_node(name))


async def test_a_network_belongs_to_the_node_that_claims_it_first(server: LocalServer) -> None:
    assert (await create(server, "a", "10.244.1.0/24")).status == 201
    refused = await create(server, "b", "10.244.1.0/24")
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert 'overlaps the network 10.244.1.0/24 of the node "a"' in refused.message
    assert (await create(server, "b", "10.244.2.0/24")).status == 201
    await server.delete(f"{NODES}/a")
    assert (await create(server, "c", "10.244.1.0/24")).status == 201


async def test_of_two_nodes_at_once_one_gets_the_network(server: LocalServer) -> None:
    answers = await asyncio.gather(
        *(create(server, name, "10.244.1.0/24") for name in ("a", "b", "c"))
    )
    assert sorted(each.status for each in answers) == [201, 422, 422]


@pytest.mark.parametrize(
    "cidrs",
    [
        ["10.244.0.0/16"],
        ["10.244.1.0/25"],
        ["10.0.0.0/24"],
        ["0.0.0.0/0"],
        ["fd00::/64"],
        ["10.244.1.0/24", "fd00::/64"],
    ],
)
async def test_nodes_claim_one_network_of_the_pods(server: LocalServer, cidrs: list[str]) -> None:
    refused = await create(server, "a", *cidrs)
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert "must be one /24 network of 10.244.0.0/16" in refused.message


async def test_a_network_is_claimed_later_and_never_changes(server: LocalServer) -> None:
    await create(server, "a", "10.244.1.0/24")
    await create(server, "b")

    async def patch(cidr: str) -> Any:
        body = {"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}}
        return await server.call(
            "PATCH", f"{NODES}/b", body, content_type=MERGE, headers=as_node("b")
        )

    assert "overlaps" in (await patch("10.244.1.0/24")).message
    assert (await patch("10.244.2.0/24")).status == 200
    assert "may not change podCIDR" in (await patch("10.244.3.0/24")).message


async def test_administrators_may_write_what_they_like(server: LocalServer) -> None:
    await server.post(NODES, node("a", "10.244.1.0/24"))
    await server.post(NODES, node("b", "10.244.1.0/24"))
    await server.post(NODES, node("c", "192.168.0.0/16"))
    assert "overlaps" in (await create(server, "d", "10.244.1.0/24")).message
