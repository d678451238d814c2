"""Pods on nodes with NoExecute taints, on a server."""

from typing import Any

from kedge.controllers.nodes.taint_eviction import TaintEvictionController
from kedge.testing.controllers import ControllerHarness, workshop

PODS = "/api/v1/namespaces/default/pods"
TAINT = {"key": "bad", "effect": "NoExecute"}


async def node(shop: ControllerHarness, name: str = "n") -> None:
    await shop.create("/api/v1/nodes", {"metadata": {"name": name}})


async def taint(shop: ControllerHarness, *taints: Any) -> None:
    await shop.change("/api/v1/nodes/n", {"spec": {"taints": list(taints)}})


async def pod(shop: ControllerHarness, name: str, *tolerations: Any) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}
    body = {"metadata": {"name": name}, "spec": spec | {"tolerations": list(tolerations)}}
    await shop.create(PODS, body)


def bears(seconds: int | None = None) -> dict[str, Any]:
    toleration = {"key": "bad", "operator": "Exists", "effect": "NoExecute"}
    return toleration if seconds is None else toleration | {"tolerationSeconds": seconds}


async def leaving(shop: ControllerHarness) -> list[str]:
    return [
        each["metadata"]["name"]
        for each in await shop.pods()
        if "deletionTimestamp" in each["metadata"]
    ]


async def test_pods_go_when_their_patience_ends() -> None:
    async with workshop(TaintEvictionController) as shop:
        await node(shop)
        await pod(shop, "at-once")
        await pod(shop, "in-time", bears(30))
        await pod(shop, "never", bears())
        assert await leaving(shop) == []
        await taint(shop, TAINT)
        assert await leaving(shop) == ["at-once"]
        await shop.pass_time(29)
        assert await leaving(shop) == ["at-once"]
        await shop.pass_time(1)
        assert await leaving(shop) == ["at-once", "in-time"]
        message = "Marking for deletion Pod default/in-time"
        assert ("TaintManagerEviction", message) in await shop.events()
        await shop.pass_time(3600)
        assert "never" not in await leaving(shop)


async def test_why_a_pod_goes_is_in_its_status() -> None:
    async with workshop(TaintEvictionController) as shop:
        await node(shop)
        await pod(shop, "p")
        await taint(shop, TAINT)
        conditions = (await shop.server.get(f"{PODS}/p"))["status"]["conditions"]
        [found] = [each for each in conditions if each["type"] == "DisruptionTarget"]
        assert (found["status"], found["reason"]) == ("True", "DeletionByTaintManager")
        assert found["message"] == "Taint manager: deleting due to NoExecute taint"


async def test_a_taint_that_is_taken_off_in_time_hurts_nobody() -> None:
    async with workshop(TaintEvictionController) as shop:
        await node(shop)
        await pod(shop, "p", bears(30))
        await taint(shop, TAINT)
        await shop.pass_time(20)
        await taint(shop)
        await shop.pass_time(60)
        assert await leaving(shop) == []
        message = "Cancelling deletion of Pod default/p"
        assert ("TaintManagerEviction", message) in await shop.events()


async def test_another_taint_does_not_begin_the_time_anew() -> None:
    async with workshop(TaintEvictionController) as shop:
        await node(shop)
        await pod(shop, "p", {"operator": "Exists", "tolerationSeconds": 30, "effect": "NoExecute"})
        await taint(shop, TAINT)
        await shop.pass_time(20)
        await taint(shop, TAINT, {"key": "worse", "effect": "NoExecute"})
        await shop.pass_time(10)
        assert await leaving(shop) == ["p"]


async def test_a_pod_that_comes_to_a_tainted_node_goes_too() -> None:
    async with workshop(TaintEvictionController) as shop:
        await node(shop)
        await taint(shop, TAINT)
        await pod(shop, "p")
        assert await leaving(shop) == ["p"]


async def test_a_new_pod_of_the_same_name_has_its_own_time() -> None:
    async with workshop(TaintEvictionController) as shop:
        await node(shop)
        await taint(shop, TAINT)
        await pod(shop, "p", bears(30))
        await shop.pass_time(20)
        await shop.remove(f"{PODS}/p", {"gracePeriodSeconds": 0})
        await pod(shop, "p", bears(30))
        await shop.pass_time(20)
        assert await leaving(shop) == []
        await shop.pass_time(10)
        assert await leaving(shop) == ["p"]
