"""Nodes that fall silent and come back, on a server."""

from typing import Any

from kedge.client.client import Client
from kedge.controllers.nodes.node_lifecycle import NodeLifecycleController
from kedge.controllers.nodes.taint_eviction import TaintEvictionController
from kedge.controllers.shared_informers import SharedInformers
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_micro_time, format_time
from kedge.machinery.travel_clock import TravelClock
from kedge.testing.controllers import ControllerHarness, workshop

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PODS = "/api/v1/namespaces/default/pods"


async def report(shop: ControllerHarness, name: str, ready: str = "True") -> None:
    """What an agent says of its node."""
    now = format_time(shop.clock.now())
    said = {"type": "Ready", "status": ready, "reason": "KubeletReady"}
    said |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
    await shop.change(f"{NODES}/{name}/status", {"status": {"conditions": [said]}})


async def node(shop: ControllerHarness, name: str, **labels: str) -> None:
    await shop.create(NODES, {"metadata": {"name": name, "labels": labels}})
    await report(shop, name)
    await shop.create(LEASES, {"metadata": {"name": name}, "spec": {}})
    await beat(shop, name)


async def beat(shop: ControllerHarness, *names: str) -> None:
    now = format_micro_time(shop.clock.now())
    for name in names:
        await shop.change(f"{LEASES}/{name}", {"spec": {"renewTime": now}})


async def live(shop: ControllerHarness, seconds: int, *names: str) -> None:
    """Let time pass while these nodes are alive."""
    for _ in range(seconds // 10):
        await shop.pass_time(10)
        await beat(shop, *names)


async def conditions(shop: ControllerHarness, name: str) -> dict[str, tuple[str, str]]:
    found = (await shop.server.get(f"{NODES}/{name}"))["status"]["conditions"]
    return {each["type"]: (each["status"], each["reason"]) for each in found}


async def taints(shop: ControllerHarness, name: str) -> list[str]:
    spec = (await shop.server.get(f"{NODES}/{name}"))["spec"]
    return sorted(
        f"{each['key'].rpartition('/')[2]}:{each['effect']}" for each in spec.get("taints", [])
    )


async def pod(shop: ControllerHarness, name: str, on: str, seconds: int = 300) -> None:
    patient = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": seconds}
        | {"effect": "NoExecute"}
        for key in ("not-ready", "unreachable")
    ]
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": on, "tolerations": patient}
    await shop.run_pod(await shop.create(PODS, {"metadata": {"name": name}, "spec": spec}))


async def ready(shop: ControllerHarness, name: str) -> str:
    found = (await shop.server.get(f"{PODS}/{name}"))["status"]["conditions"]
    return next(str(each["status"]) for each in found if each["type"] == "Ready")


GONE = ["unreachable:NoExecute", "unreachable:NoSchedule"]


async def test_a_silent_node_is_unknown_tainted_and_its_pods_are_not_ready() -> None:
    async with workshop(NodeLifecycleController) as shop:
        await node(shop, "a")
        await node(shop, "b")
        await pod(shop, "p", "b")
        await live(shop, 40, "a")
        assert await taints(shop, "b") == []
        await live(shop, 20, "a")
        assert await conditions(shop, "b") == {
            "Ready": ("Unknown", "NodeStatusUnknown"),
            "MemoryPressure": ("Unknown", "NodeStatusNeverUpdated"),
            "DiskPressure": ("Unknown", "NodeStatusNeverUpdated"),
            "PIDPressure": ("Unknown", "NodeStatusNeverUpdated"),
        }
        assert await taints(shop, "b") == GONE
        assert await ready(shop, "p") == "False"
        assert await conditions(shop, "a") == {"Ready": ("True", "KubeletReady")}
        events = await shop.events()
        assert ("NodeNotReady", "Node b status is now: NodeNotReady") in events
        assert ("NodeNotReady", "Node is not ready") in events
        assert ("RegisteredNode", "Node a event: Registered Node a in Controller") in events


async def test_a_node_that_returns_is_tainted_no_more() -> None:
    async with workshop(NodeLifecycleController, TaintEvictionController) as shop:
        await node(shop, "a")
        await node(shop, "b")
        await pod(shop, "p", "b")
        await live(shop, 100, "a")
        assert await taints(shop, "b") == GONE
        await beat(shop, "b")
        await report(shop, "b")
        assert await taints(shop, "b") == []
        await live(shop, 400, "a", "b")
        assert "deletionTimestamp" not in (await shop.server.get(f"{PODS}/p"))["metadata"]


async def test_pods_of_a_lost_node_go_after_their_time() -> None:
    async with workshop(NodeLifecycleController, TaintEvictionController) as shop:
        await node(shop, "a")
        await node(shop, "b")
        await pod(shop, "p", "b", seconds=300)
        await live(shop, 340, "a")
        assert "deletionTimestamp" not in (await shop.server.get(f"{PODS}/p"))["metadata"]
        await live(shop, 20, "a")
        assert "deletionTimestamp" in (await shop.server.get(f"{PODS}/p"))["metadata"]


async def test_leases_alone_keep_a_node_alive() -> None:
    async with workshop(NodeLifecycleController) as shop:
        await node(shop, "a")
        await live(shop, 1000, "a")
        assert await conditions(shop, "a") == {"Ready": ("True", "KubeletReady")}


async def test_reports_alone_keep_a_node_alive() -> None:
    async with workshop(NodeLifecycleController) as shop:
        await node(shop, "a")
        for _ in range(10):
            await shop.pass_time(40)
            await report(shop, "a")
        assert await conditions(shop, "a") == {"Ready": ("True", "KubeletReady")}


async def test_when_every_node_is_silent_none_is_given_up() -> None:
    async with workshop(NodeLifecycleController) as shop:
        await node(shop, "a")
        await shop.pass_time(20)
        await node(shop, "b")
        await shop.pass_time(35)
        assert await taints(shop, "a") == GONE
        await shop.pass_time(1000)
        assert await taints(shop, "a") == ["unreachable:NoSchedule"]
        assert await taints(shop, "b") == ["unreachable:NoSchedule"]
        # The first that returns tells that the others are gone indeed.
        await report(shop, "b")
        assert await taints(shop, "a") == GONE
        assert await taints(shop, "b") == []


async def test_nodes_are_given_up_one_after_another() -> None:
    async with workshop(NodeLifecycleController) as shop:
        for name in "abcde":
            await node(shop, name)
        await live(shop, 50, "a", "b", "c")
        lost = [await taints(shop, name) for name in "de"]
        assert sorted(lost) == [GONE, ["unreachable:NoSchedule"]]
        await live(shop, 20, "a", "b", "c")
        assert [await taints(shop, name) for name in "de"] == [GONE, GONE]


async def test_a_node_that_never_reports_is_told_so_after_a_minute() -> None:
    async with workshop(NodeLifecycleController) as shop:
        await node(shop, "a")
        await shop.create(NODES, {"metadata": {"name": "new"}})
        await live(shop, 50, "a")
        assert "conditions" not in (await shop.server.get(f"{NODES}/new"))["status"]
        await live(shop, 20, "a")
        assert set((await conditions(shop, "new")).values()) == {
            ("Unknown", "NodeStatusNeverUpdated")
        }


async def test_conditions_and_cordons_are_tainted_at_once() -> None:
    async with workshop(NodeLifecycleController) as shop:
        await node(shop, "a")
        await node(shop, "b")
        await shop.change(f"{NODES}/a", {"spec": {"unschedulable": True}})
        assert await taints(shop, "a") == ["unschedulable:NoSchedule"]
        await shop.change(f"{NODES}/a", {"spec": {"unschedulable": None}})
        assert await taints(shop, "a") == []
        await report(shop, "a", "False")
        assert await taints(shop, "a") == ["not-ready:NoExecute", "not-ready:NoSchedule"]


async def test_a_control_plane_that_was_down_begins_to_count_anew() -> None:
    async with workshop() as shop:
        await node(shop, "a")
        await node(shop, "b")
        await shop.pass_time(3600)
        server = shop.server
        # The store and its time go on, with controllers that have only just come.
        shared = SharedInformers(server.client, server.clock)
        controller = NodeLifecycleController(server.client, shared, server.clock)
        server.start(shared.run())
        await shared.synced()
        server.start(controller.run())
        await shop.pass_time(40)
        assert await conditions(shop, "a") == {"Ready": ("True", "KubeletReady")}
        await beat(shop, "a", "b")
        await live(shop, 100, "a", "b")
        assert await taints(shop, "a") == await taints(shop, "b") == []


async def test_how_long_a_node_may_be_silent_can_be_said() -> None:
    def hasty(client: Any, shared: Any, clock: Any) -> NodeLifecycleController:
        return NodeLifecycleController(client, shared, clock, grace=15.0)

    async with workshop(hasty) as shop:
        await node(shop, "a")
        await node(shop, "b")
        await live(shop, 20, "a")
        assert await taints(shop, "b") == GONE


async def test_a_node_that_renewed_its_lease_after_skipped_time_is_not_silent() -> None:
    made: list[tuple[TravelClock, NodeLifecycleController]] = []

    def travelling(
        client: Client, shared: SharedInformers, clock: Clock
    ) -> NodeLifecycleController:
        travels = TravelClock(clock)
        made.append((travels, NodeLifecycleController(client, shared, travels.heartbeats)))
        return made[0][1]

    async with workshop(travelling) as shop:
        await node(shop, "a")
        await node(shop, "b")
        await shop.pass_time(1)
        travels, controller = made[0]
        heard = dict(controller._heard)
        await beat(shop, "a")
        # As if the watch had not delivered the renewal yet when the controller judges.
        controller._heard = heard
        controller._renewals["a"] = ""
        travels.advance(3600)
        travels.release(3600)
        await shop.pass_time(1)
        assert (await conditions(shop, "a"))["Ready"][0] == "True"
        assert (await conditions(shop, "b"))["Ready"][0] == "Unknown"
