"""Authors of policies learn which nodes let all packets pass."""

from typing import Any

from kedge.testing.local_server import LocalServer

POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"


def node(name: str, enforcement: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {"kedge.dev/network-policy": enforcement}}}


async def warnings(server: LocalServer, name: str) -> list[str]:
    body = {"metadata": {"name": name}, "spec": {"podSelector": {}}}
    return (await server.call("POST", POLICIES, body)).warnings


async def test_a_warning_names_the_nodes_that_do_not_enforce() -> None:
    async with LocalServer.running() as server:
        assert await warnings(server, "a") == []
        await server.post("/api/v1/nodes", node("one", "nftables"))
        assert await warnings(server, "b") == []
        for name in ("two", "three", "four", "five"):
            await server.post("/api/v1/nodes", node(name, "none: no addresses"))
        (told,) = await warnings(server, "c")
        assert "4 of 5 nodes do not enforce NetworkPolicies" in told
        assert "two, three, four, ..." in told


PODS = "/api/v1/namespaces/default/pods"


def machine(name: str, *, users: bool) -> dict[str, Any]:
    handlers = [{"features": {"userNamespaces": users}}]
    return {"metadata": {"name": name}, "status": {"runtimeHandlers": handlers}}


async def test_users_of_pods_that_no_node_supports_are_told() -> None:
    async with LocalServer.running() as server:

        async def told(name: str) -> list[str]:
            written = {"containers": [{"name": "c", "image": "host"}], "hostUsers": False}
            return (
                await server.call("POST", PODS, {"metadata": {"name": name}, "spec": written})
            ).warnings

        await server.post("/api/v1/nodes", machine("one", users=False))
        (users,) = await told("waits")
        assert "spec.hostUsers: no node supports user namespaces of pods" in users
        await server.post("/api/v1/nodes", machine("two", users=True))
        assert await told("runs") == []
