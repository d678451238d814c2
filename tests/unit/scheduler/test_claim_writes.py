"""Pods with claims to devices, from the pending pod to the bound one, through the API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1 import node
from kedge.api.core_v1.pod import pod as pods
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.resource_v1.resource_claim import RESOURCE, ResourceClaim
from kedge.api.resource_v1.resource_claim_status import AllocationResult, ResourceClaimStatus
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.scheduler import loop
from kedge.scheduler.claim_writes import ClaimWriteFailed, ClaimWrites
from kedge.scheduler.cycle import FitError, Placement
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.devices.device_state import DeviceState
from kedge.scheduler.loop import SchedulingLoop
from kedge.scheduler.pod_writes import PodWrites
from kedge.scheduler.reservations import ClaimReservation
from kedge.scheduler.scheduler import Scheduler
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.testing.pods import new_pod, pod_document
from kedge.testing.scheduling import new_node
from kedge.web.message import HttpRequest

Json = dict[str, Any]
CORE = "/api/v1/namespaces/default"
GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"


class DeviceCluster:
    """A server with a scheduler, one node and a class of devices."""

    def __init__(self, server: LocalServer, scheduler: Scheduler) -> None:
        self.server = server
        self.scheduler = scheduler

    async def node(self, name: str, **facts: Any) -> None:
        await self.server.post("/api/v1/nodes", node.RESOURCE.to_document(new_node(name, **facts)))

    async def slice(self, name: str, *devices: str | Json, node: str = "n1") -> None:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        whole = [each if isinstance(each, dict) else {"name": each} for each in devices]
        spec = {"driver": "d.example", "pool": pool, "nodeName": node, "devices": whole}
        await self.server.post(
            f"{GROUP}/resourceslices", {"metadata": {"name": name}, "spec": spec}
        )

    async def claim(self, name: str, **wish: Any) -> None:
        request = {"name": "r", "exactly": {"deviceClassName": "gpus", **wish}}
        spec = {"devices": {"requests": [request]}}
        await self.server.post(CLAIMS, {"metadata": {"name": name}, "spec": spec})

    async def pod(self, name: str, *claims: str, **spec: Any) -> None:
        entries = [{"name": each, "resourceClaimName": each} for each in claims]
        whole = {"resourceClaims": entries, **spec}
        await self.server.post(f"{CORE}/pods", pod_document(metadata={"name": name}, spec=whole))

    async def settle(self) -> None:
        for _ in range(15):
            await self.server.settle()

    async def home(self, name: str) -> str:
        await self.settle()
        found = await self.server.get(f"{CORE}/pods/{name}")
        return str(found["spec"].get("nodeName", ""))

    async def why(self, name: str) -> str:
        """The reason why a pod waits."""
        await self.settle()
        found = await self.server.get(f"{CORE}/pods/{name}")
        conditions = found["status"].get("conditions", [])
        told = [each["message"] for each in conditions if each["type"] == "PodScheduled"]
        return str(told[0]).partition(" preemption:")[0] if told else ""

    async def status(self, name: str) -> Json:
        found: Json = (await self.server.get(f"{CLAIMS}/{name}"))["status"]
        return found


@asynccontextmanager
async def devices() -> AsyncIterator[DeviceCluster]:
    async with LocalServer.running() as server:

        def handle(call: Call) -> Any:
            headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
            return server.app.handle(
                HttpRequest(call.method, call.path, call.query, headers, call.body)
            )

        client = Client(LocalTransport(handle))
        scheduler = Scheduler(client, server.clock)
        task = server.start(scheduler.run())
        await server.settle()
        cluster = DeviceCluster(server, scheduler)
        await cluster.node("n1")
        gpus = {"metadata": {"name": "gpus"}, "spec": {}}
        await server.post(f"{GROUP}/deviceclasses", gpus)
        try:
            yield cluster
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_gets_its_device_and_then_its_node() -> None:
    async with devices() as cluster:
        await cluster.slice("pool", "gpu-0")
        await cluster.claim("c")
        await cluster.pod("p", "c")
        assert await cluster.home("p") == "n1"
        claim = await cluster.server.get(f"{CLAIMS}/c")
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        allocation, [user] = claim["status"]["allocation"], claim["status"]["reservedFor"]
        assert allocation["devices"]["results"] == [
            {"request": "r", "driver": "d.example", "pool": "pool", "device": "gpu-0"}
        ]
        fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
        assert allocation["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": fields}]}
        assert allocation["allocationTimestamp"]
        assert (user["resource"], user["name"]) == ("pods", "p")


async def test_a_pod_waits_for_its_claim_its_class_and_a_device() -> None:
    async with devices() as cluster:
        await cluster.pod("p", "c")
        missing = '0/1 nodes are available: resourceclaim.resource.k8s.io "c" not found.'
        assert await cluster.why("p") == missing
        await cluster.claim("c", deviceClassName="fast")
        await cluster.server.clock.advance(2)
        missing = "0/1 nodes are available: request r: device class fast does not exist."
        assert await cluster.why("p") == missing
        fast = {"metadata": {"name": "fast"}, "spec": {}}
        await cluster.server.post(f"{GROUP}/deviceclasses", fast)
        await cluster.server.clock.advance(5)
        missing = "0/1 nodes are available: 1 cannot allocate all claims."
        assert await cluster.why("p") == missing
        await cluster.slice("pool", "gpu-0")
        await cluster.server.clock.advance(10)
        assert await cluster.home("p") == "n1"


async def test_a_pod_waits_quietly_until_its_claim_is_made() -> None:
    async with devices() as cluster:
        await cluster.slice("pool", "gpu-0")
        entry = {"name": "x", "resourceClaimTemplateName": "t"}
        await cluster.pod("p", resourceClaims=[entry])
        assert await cluster.why("p") == ""
        await cluster.claim("made")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
        uid = (await cluster.server.get(f"{CORE}/pods/p"))["metadata"]["uid"]
        owners = [{**owner, "uid": uid}]
        await cluster.server.merge(f"{CLAIMS}/made", {"metadata": {"ownerReferences": owners}})
        statuses = [{"name": "x", "resourceClaimName": "made"}]
        status = {"status": {"resourceClaimStatuses": statuses}}
        await cluster.server.merge(f"{CORE}/pods/p/status", status)
        assert await cluster.home("p") == "n1"


async def test_pods_share_a_claim_and_others_wait_for_it() -> None:
    async with devices() as cluster:
        await cluster.node("n2")
        await cluster.slice("pool", "gpu-0", node="n2")
        await cluster.claim("c")
        await cluster.claim("d")
        for name in ("p", "q"):
            await cluster.pod(name, "c")
            await cluster.settle()
            await cluster.server.clock.advance(2)
            assert await cluster.home(name) == "n2"
        users = (await cluster.status("c"))["reservedFor"]
        assert sorted(each["name"] for each in users) == ["p", "q"]
        await cluster.pod("other", "d")
        assert await cluster.home("other") == ""
        assert "2 cannot allocate all claims" in await cluster.why("other")


async def test_an_allocated_claim_pins_pods_to_its_node() -> None:
    async with devices() as cluster:
        await cluster.node("n2")
        await cluster.slice("pool", "gpu-0", node="n1")
        await cluster.claim("c")
        await cluster.pod("p", "c")
        assert await cluster.home("p") == "n1"
        await cluster.pod("q", "c", nodeSelector={"kubernetes.io/hostname": "n2"})
        assert await cluster.home("q") == ""
        assert "1 resourceclaim not available on the node" in await cluster.why("q")
        assert "allocation" in await cluster.status("c")


async def test_an_unused_claim_is_freed_for_a_pod_that_needs_it_elsewhere() -> None:
    async with devices() as cluster:
        await cluster.node("n2")
        await cluster.slice("one", "gpu-0", node="n1")
        await cluster.slice("two", "gpu-0", node="n2")
        await cluster.claim("c")
        await cluster.pod("p", "c", nodeSelector={"kubernetes.io/hostname": "n1"})
        assert await cluster.home("p") == "n1"
        await cluster.server.merge(f"{CLAIMS}/c/status", {"status": {"reservedFor": None}})
        await cluster.pod("q", "c", nodeSelector={"kubernetes.io/hostname": "n2"})
        await cluster.settle()
        await cluster.server.clock.advance(5)
        assert await cluster.home("q") == "n2"


async def test_a_pod_waits_for_the_conditions_of_its_device() -> None:
    async with devices() as cluster:
        conditions = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
        await cluster.slice("pool", {"name": "gpu-0", **conditions})
        await cluster.claim("c")
        await cluster.pod("p", "c")
        assert await cluster.home("p") == ""
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Attached",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        device = {"driver": "d.example", "pool": "pool", "device": "gpu-0", "conditions": [ready]}
        await cluster.server.merge(f"{CLAIMS}/c/status", {"status": {"devices": [device]}})
        await cluster.settle()
        await cluster.server.clock.advance(2)
        assert await cluster.home("p") == "n1"


async def test_pods_race_for_the_last_device() -> None:
    async with devices() as cluster:
        await cluster.slice("pool", "gpu-0")
        for i in range(3):
            await cluster.claim(f"c{i}")
        for i in range(3):
            await cluster.pod(f"p{i}", f"c{i}")
        homes = [await cluster.home(f"p{i}") for i in range(3)]
        assert sorted(homes) == ["", "", "n1"]


async def test_many_selectors_take_several_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SELECTOR_SECONDS", 0.0)
    async with devices() as cluster:
        numbered = [{"name": f"d{i}", "attributes": {"n": {"int": i}}} for i in range(25)]
        await cluster.slice("pool", *numbered)
        selector = {"cel": {"expression": 'device.attributes["d.example"].n == 24'}}
        await cluster.claim("c", selectors=[selector])
        await cluster.pod("p", "c")
        assert "1 timed out trying to allocate devices" in await cluster.why("p")
        for _ in range(3):
            await cluster.server.clock.advance(10)
            await cluster.settle()
        assert await cluster.home("p") == "n1"


CONDITIONS = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}


def reported(condition: str) -> Json:
    """The status of a claim whose driver reports a condition of its device."""
    whole = {"type": condition, "status": "True", "reason": "Seen", "message": ""}
    whole["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    device = {"driver": "d.example", "pool": "pool", "device": "gpu-0", "conditions": [whole]}
    return {"status": {"devices": [device]}}


async def test_conditions_count_before_the_cache_has_the_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current = SchedulingLoop._current_claims

    def stale(self: SchedulingLoop, pod: Pod) -> list[ResourceClaim]:
        return [replace(each, status=ResourceClaimStatus()) for each in current(self, pod)]

    async with devices() as cluster:
        await cluster.slice("pool", {"name": "gpu-0", **CONDITIONS})
        await cluster.claim("c")
        with monkeypatch.context() as patch:
            patch.setattr(SchedulingLoop, "_current_claims", stale)
            await cluster.pod("p", "c")
            await cluster.settle()
            await cluster.server.clock.advance(5)
            assert await cluster.home("p") == ""
        await cluster.server.merge(f"{CLAIMS}/c/status", reported("Ready"))
        await cluster.settle()
        await cluster.server.clock.advance(2)
        assert await cluster.home("p") == "n1"


async def test_a_pod_whose_claim_is_deleted_while_it_waits_is_not_bound() -> None:
    async with devices() as cluster:
        await cluster.slice("pool", {"name": "gpu-0", **CONDITIONS})
        await cluster.claim("c")
        await cluster.pod("p", "c")
        await cluster.settle()
        await cluster.server.merge(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})
        await cluster.server.delete(f"{CLAIMS}/c")
        for _ in range(3):
            await cluster.settle()
            await cluster.server.clock.advance(5)
        assert await cluster.home("p") == ""


async def test_pods_that_share_a_broken_device_free_it() -> None:
    async with devices() as cluster:
        await cluster.slice("pool", {"name": "gpu-0", **CONDITIONS})
        await cluster.claim("c")
        for name in ("p", "q"):
            await cluster.pod(name, "c")
            await cluster.settle()
            await cluster.server.clock.advance(2)
            await cluster.settle()
        assert len((await cluster.status("c"))["reservedFor"]) == 2
        await cluster.server.merge(f"{CLAIMS}/c/status", reported("Broken"))
        for _ in range(5):
            await cluster.settle()
            await cluster.server.clock.advance(10)
        assert "devices" not in await cluster.status("c")


async def test_a_claim_that_was_replaced_is_not_written() -> None:
    async with devices() as cluster:
        await cluster.claim("c")
        old = await cluster.server.client.get(RESOURCE, "c", "default")
        await cluster.server.delete(f"{CLAIMS}/c")
        await cluster.claim("c")
        writes = ClaimWrites(cluster.server.client, DeviceState(), cluster.server.clock)
        pod = new_pod(metadata={"name": "p", "namespace": "default"})
        with pytest.raises(ClaimWriteFailed, match="claim default/c got replaced"):
            await writes.reserve(pod, [ClaimReservation(old, AllocationResult())])
        assert await cluster.status("c") == {}


async def test_a_claim_is_freed_when_its_pod_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    resting: list[bool] = []

    def free(self: SchedulingLoop, demand: PodDemand, unfit: FitError) -> None:
        resting.append(demand.uid in self._queue._resting)

    monkeypatch.setattr(SchedulingLoop, "_free_claim", free)
    async with devices() as cluster:
        await cluster.claim("c")
        await cluster.pod("p", "c")
        await cluster.settle()
        assert resting == [True]


# Extended resources.

GPU = "d.example/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpus"


def wanting(**amounts: str) -> Json:
    """The spec of a pod with a container that asks for extended resources."""
    wants = {{"gpu": GPU, "implicit": IMPLICIT}[name]: each for name, each in amounts.items()}
    resources = {"requests": wants, "limits": wants}
    return {"containers": [{"name": "c", "image": "i", "resources": resources}]}


async def name_the_resource(cluster: DeviceCluster) -> None:
    path = f"{GROUP}/deviceclasses/gpus"
    class_ = await cluster.server.get(path)
    class_["spec"]["extendedResourceName"] = GPU
    await cluster.server.put(path, class_)


async def made_claims(cluster: DeviceCluster) -> list[Json]:
    found: list[Json] = (await cluster.server.get(CLAIMS))["items"]
    return found


async def test_a_pod_gets_devices_for_its_extended_resource() -> None:
    async with devices() as cluster:
        await name_the_resource(cluster)
        await cluster.slice("pool", "gpu-0", "gpu-1")
        await cluster.pod("p", **wanting(gpu="2"))
        assert await cluster.home("p") == "n1"
        [claim] = await made_claims(cluster)
        pod = await cluster.server.get(f"{CORE}/pods/p")
        name = claim["metadata"]["name"]
        assert name.startswith("p-extended-resources-")
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        results = claim["status"]["allocation"]["devices"]["results"]
        assert [each["device"] for each in results] == ["gpu-0", "gpu-1"]
        assert claim["status"]["reservedFor"][0]["uid"] == pod["metadata"]["uid"]
        assert pod["status"]["extendedResourceClaimStatus"] == {
            "requestMappings": [
                {
                    "containerName": "c",
                    "resourceName": GPU,
                    "requestName": "container-0-request-0",
                }
            ],
            "resourceClaimName": name,
        }


async def test_a_class_provides_a_resource_of_its_own_name() -> None:
    async with devices() as cluster:
        await cluster.slice("pool", "gpu-0")
        await cluster.pod("p", **wanting(implicit="1"))
        assert await cluster.home("p") == "n1"
        await cluster.pod("q", **wanting(implicit="1"))
        missing = "0/1 nodes are available: 1 cannot allocate all claims."
        assert await cluster.why("q") == missing


async def test_a_pod_waits_for_a_class_that_provides_its_resource() -> None:
    async with devices() as cluster:
        await cluster.slice("pool", "gpu-0")
        await cluster.pod("p", **wanting(gpu="1"))
        assert await cluster.why("p") == f"0/1 nodes are available: 1 Insufficient {GPU}."
        await name_the_resource(cluster)
        await cluster.settle()
        await cluster.server.clock.advance(1.0)
        assert await cluster.home("p") == "n1"


async def test_a_device_plugin_takes_precedence_on_its_node() -> None:
    async with devices() as cluster:
        await name_the_resource(cluster)
        await cluster.node("n2", **{GPU: "1"})
        await cluster.slice("pool", "gpu-0")
        for name in ("p", "q"):
            await cluster.pod(name, **wanting(gpu="1"))
        homes = {await cluster.home(name) for name in ("p", "q")}
        assert homes == {"n1", "n2"}
        # The pod on the node with the plugin has no claim.
        [claim] = await made_claims(cluster)
        user = claim["status"]["reservedFor"][0]["name"]
        assert await cluster.home(user) == "n1"


async def test_pods_are_told_when_no_device_is_left_and_get_one_that_is_freed() -> None:
    async with devices() as cluster:
        await name_the_resource(cluster)
        await cluster.slice("pool", "gpu-0")
        await cluster.pod("p", **wanting(gpu="1"))
        await cluster.home("p")
        await cluster.pod("q", **wanting(gpu="1"))
        assert "1 cannot allocate all claims" in await cluster.why("q")
        [claim] = await made_claims(cluster)
        path = f"{CLAIMS}/{claim['metadata']['name']}"
        del claim["metadata"]["finalizers"]
        await cluster.server.put(path, claim)
        await cluster.server.delete(path)
        await cluster.settle()
        await cluster.server.clock.advance(1.0)
        assert await cluster.home("q") == "n1"


async def test_a_claim_of_an_earlier_attempt_is_deleted_first() -> None:
    async with devices() as cluster:
        await name_the_resource(cluster)
        await cluster.slice("pool", "gpu-0")
        gates = [{"name": "example.com/wait"}]
        await cluster.pod("p", schedulingGates=gates, **wanting(gpu="1"))
        pod = await cluster.server.get(f"{CORE}/pods/p")
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": pod["metadata"]["uid"],
            "controller": True,
        }
        meta = {
            "name": "left",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [owner],
        }
        request = {"name": "r", "exactly": {"deviceClassName": "gpus"}}
        spec = {"devices": {"requests": [request]}}
        await cluster.server.post(CLAIMS, {"metadata": meta, "spec": spec})
        await cluster.settle()
        pod["spec"].pop("schedulingGates")
        await cluster.server.put(f"{CORE}/pods/p", pod)
        await cluster.settle()
        await cluster.server.clock.advance(1.0)
        assert await cluster.home("p") == "n1"
        [claim] = await made_claims(cluster)
        assert claim["metadata"]["name"] != "left"


async def test_a_claim_is_deleted_again_if_the_pod_cannot_be_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: Any) -> None:
        raise OSError("no answer")

    async with devices() as cluster:
        await name_the_resource(cluster)
        await cluster.slice("pool", "gpu-0")
        with monkeypatch.context() as patch:
            patch.setattr(PodWrites, "bind", fail)
            await cluster.pod("p", **wanting(gpu="1"))
            await cluster.settle()
        assert await made_claims(cluster) == []
        pod = await cluster.server.get(f"{CORE}/pods/p")
        assert "extendedResourceClaimStatus" not in pod["status"]
        await cluster.server.clock.advance(1.0)
        assert await cluster.home("p") == "n1"
        assert len(await made_claims(cluster)) == 1


async def test_a_pod_on_its_node_is_asked_about_without_another_claim() -> None:
    async with devices() as cluster:
        await name_the_resource(cluster)
        await cluster.slice("pool", "gpu-0")
        await cluster.pod("p", **wanting(gpu="1"))
        await cluster.home("p")
        pod = pods.RESOURCE.from_document(await cluster.server.get(f"{CORE}/pods/p"))
        found = cluster.scheduler._decided_now(pod).decision
        assert isinstance(found, Placement)
        assert found.node == "n1"


async def test_an_error_of_a_selector_on_one_node_ends_the_attempt() -> None:
    async with devices() as cluster:
        await cluster.node("n2")
        known = {"name": "gpu-0", "attributes": {"known": {"bool": True}}}
        await cluster.slice("fine", known)
        await cluster.slice("unknown", "gpu-0", node="n2")
        selector = {"cel": {"expression": 'device.attributes["d.example"].known'}}
        await cluster.claim("c", selectors=[selector])
        await cluster.pod("p", "c")
        why = await cluster.why("p")
        assert why == (
            'running "DynamicResources" filter plugin: claim default/c: selector #0: '
            "CEL runtime error: no such key: known"
        )
        pod = await cluster.server.get(f"{CORE}/pods/p")
        [condition] = pod["status"]["conditions"]
        assert condition["reason"] == "SchedulerError"
        await cluster.server.delete(f"{GROUP}/resourceslices/unknown")
        await cluster.server.clock.advance(10)
        assert await cluster.home("p") == "n1"
