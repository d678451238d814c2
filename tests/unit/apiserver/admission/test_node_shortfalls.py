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
SETS = "/apis/apps/v1/namespaces/default/statefulsets"


def machine(name: str, level: str, *, users: bool = False) -> dict[str, Any]:
    handlers = [{"features": {"userNamespaces": users}}]
    meta = {"name": name, "labels": {"kedge.dev/level": level}}
    return {"metadata": meta, "status": {"runtimeHandlers": handlers}}


def spec(image: str, volume: dict[str, Any], *, times: int = 1, **more: Any) -> dict[str, Any]:
    mounts = [{"name": "data", "mountPath": "/data"}]
    containers = [
        {"name": f"c{number}", "image": image, "volumeMounts": mounts} for number in range(times)
    ]
    return {"containers": containers, "volumes": [{"name": "data", **volume}], **more}


CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
DIRECTORY: dict[str, Any] = {"emptyDir": {}}


async def test_volumes_that_a_node_without_mounts_refuses_are_told_when_a_pod_is_written() -> None:
    async with LocalServer.running() as server:

        async def told(name: str, written: dict[str, Any]) -> list[str]:
            body = {"metadata": {"name": name}, "spec": written}
            return (await server.call("POST", PODS, body)).warnings

        assert await told("without-nodes", spec("python", CLAIM)) == []
        await server.post("/api/v1/nodes", machine("one", "plain"))
        (claim,) = await told("claim", spec("python", CLAIM))
        assert r"container \"c0\": on nodes of the level plain" in claim
        assert r"the volume \"data\"" in claim
        assert "CAP_SYS_ADMIN" in claim
        assert len(await told("shared", spec("python", DIRECTORY, times=2))) == 2
        assert await told("own", spec("python", DIRECTORY)) == []
        assert await told("links", spec("host", CLAIM)) == []
        assert await told("objects", spec("python", {"configMap": {"name": "x"}})) == []
        # One node that can mount is enough.
        await server.post("/api/v1/nodes", machine("two", "userns"))
        assert await told("elsewhere", spec("python", CLAIM)) == []


async def test_claims_of_a_stateful_set_count() -> None:
    async with LocalServer.running() as server:
        await server.post("/api/v1/nodes", machine("one", "plain"))
        without_volumes = {**spec("python", CLAIM), "volumes": []}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": without_volumes}
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        written = {
            "serviceName": "x",
            "selector": {"matchLabels": {"a": "b"}},
            "template": template,
            "volumeClaimTemplates": [claim],
        }
        answer = await server.call("POST", SETS, {"metadata": {"name": "x"}, "spec": written})
        assert [each for each in answer.warnings if r"the volume \"data\"" in each]


async def test_users_of_pods_that_no_node_supports_are_told() -> None:
    async with LocalServer.running() as server:

        async def told(name: str) -> list[str]:
            written = spec("host", DIRECTORY, hostUsers=False)
            return (
                await server.call("POST", PODS, {"metadata": {"name": name}, "spec": written})
            ).warnings

        await server.post("/api/v1/nodes", machine("one", "userns"))
        (users,) = await told("waits")
        assert "spec.hostUsers: no node supports user namespaces of pods" in users
        await server.post("/api/v1/nodes", machine("two", "full", users=True))
        assert await told("runs") == []
