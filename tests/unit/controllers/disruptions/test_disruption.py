"""PodDisruptionBudgets, their pods and evictions, on a server."""

from typing import Any

from kedge.controllers.disruptions.disruption import DisruptionController
from kedge.testing.controllers import ControllerHarness, workshop

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
SELECTOR = {"matchLabels": {"app": "web"}}
TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def budget(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "b"}, "spec": {"selector": SELECTOR, **spec}}


async def pods(shop: ControllerHarness, count: int, owner: dict[str, Any] | None = None) -> None:
    """Pods that run, perhaps in the name of an owner."""
    for i in range(count):
        meta: dict[str, Any] = {"name": f"p{i}", "labels": {"app": "web"}}
        if owner is not None:
            reference = {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
            meta["ownerReferences"] = [reference]
        pod = await shop.create(PODS, {"metadata": meta, "spec": TEMPLATE["spec"]})
        await shop.run_pod(pod, node="n")


async def status(shop: ControllerHarness) -> dict[str, Any]:
    found: dict[str, Any] = (await shop.server.get(f"{BUDGETS}/b"))["status"]
    return found


async def evict(shop: ControllerHarness, name: str) -> int:
    answer = await shop.server.call("POST", f"{PODS}/{name}/eviction", {"metadata": {"name": name}})
    await shop.settle()
    return answer.status


async def test_a_budget_by_number_counts_the_pods_there_are() -> None:
    async with workshop(DisruptionController) as shop:
        await shop.create(BUDGETS, budget(minAvailable=2))
        assert (await status(shop))["disruptionsAllowed"] == 0
        assert ("NoPods", "No matching pods found") in await shop.events()
        await pods(shop, 3)
        found = await status(shop)
        keys = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")
        assert [found[key] for key in keys] == [3, 3, 2, 1]
        assert found["observedGeneration"] == 1


async def test_evictions_stop_where_the_budget_ends() -> None:
    async with workshop(DisruptionController) as shop:
        await shop.create(BUDGETS, budget(minAvailable=1))
        await pods(shop, 2)
        assert await evict(shop, "p0") == 201
        assert await evict(shop, "p1") == 429
        found = await status(shop)
        # The pod that leaves is seen to leave, so nothing has to be kept in mind of it.
        assert "disruptedPods" not in found
        assert (found["currentHealthy"], found["expectedPods"]) == (1, 2)


async def test_percentages_are_of_what_the_owner_wants() -> None:
    async with workshop(DisruptionController) as shop:
        made = await shop.create(
            SETS,
            {
                "metadata": {"name": "s"},
                "spec": {"replicas": 10, "selector": SELECTOR, "template": TEMPLATE},
            },
        )
        await pods(shop, 4, made | {"apiVersion": "apps/v1", "kind": "ReplicaSet"})
        await shop.create(BUDGETS, budget(maxUnavailable="70%"))
        found = await status(shop)
        assert (found["expectedPods"], found["desiredHealthy"]) == (10, 3)
        assert found["disruptionsAllowed"] == 1


async def test_an_owner_of_a_custom_kind_is_asked_for_its_scale() -> None:
    async with workshop(DisruptionController) as shop:
        await shop.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
        made = await shop.create(
            "/apis/example.com/v1/namespaces/default/herds",
            {
                "apiVersion": "example.com/v1",
                "kind": "Herd",
                "metadata": {"name": "h"},
                "spec": {"replicas": 4},
            },
        )
        await pods(shop, 2, made)
        await shop.create(BUDGETS, budget(maxUnavailable=3))
        assert (await status(shop))["expectedPods"] == 4
        assert (await status(shop))["disruptionsAllowed"] == 1


async def test_an_owner_without_scale_fails_the_budget_safely() -> None:
    async with workshop(DisruptionController) as shop:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
        made = await shop.create("/api/v1/namespaces/default/configmaps", owner)
        await pods(shop, 2, made)
        await shop.create(BUDGETS, budget(maxUnavailable=1))
        found = await status(shop)
        assert found.get("disruptionsAllowed", 0) == 0
        [condition] = found["conditions"]
        assert condition["reason"] == "SyncFailed"
        why = "configmaps does not implement the scale subresource"
        assert condition["message"] == why
        message = f"Failed to calculate the number of expected pods: {why}"
        assert ("CalculateExpectedPodCountFailed", message) in await shop.events()


async def test_pods_of_nobody_are_told_about() -> None:
    async with workshop(DisruptionController) as shop:
        await pods(shop, 1)
        await shop.create(BUDGETS, budget(minAvailable="50%"))
        assert "UnmanagedPods" in [reason for reason, _ in await shop.events()]
        assert (await status(shop))["expectedPods"] == 0


async def test_an_eviction_that_did_not_come_about_is_forgotten_in_time() -> None:
    async with workshop(DisruptionController) as shop:
        await shop.create(BUDGETS, budget(minAvailable=1))
        await pods(shop, 2)
        now = (await shop.server.get(f"{PODS}/p0"))["metadata"]["creationTimestamp"]
        await shop.change(f"{BUDGETS}/b/status", {"status": {"disruptedPods": {"p0": now}}})
        assert (await status(shop))["currentHealthy"] == 1
        await shop.pass_time(121)
        assert (await status(shop))["currentHealthy"] == 2
        assert "disruptedPods" not in await status(shop)
        message = "Pod was expected by PDB default/b to be deleted but it wasn't"
        assert ("NotDeleted", message) in await shop.events()


async def test_a_stale_disruption_target_is_taken_back() -> None:
    async with workshop(DisruptionController) as shop:
        await pods(shop, 1)
        now = (await shop.server.get(f"{PODS}/p0"))["metadata"]["creationTimestamp"]
        said = {"type": "DisruptionTarget", "status": "True", "reason": "X", "message": "y"}
        before = (await shop.server.get(f"{PODS}/p0"))["status"]["conditions"]
        conditions = [*before, said | {"lastTransitionTime": now}]
        await shop.change(f"{PODS}/p0/status", {"status": {"conditions": conditions}})
        await shop.pass_time(119)
        assert await target(shop) == "True"
        await shop.pass_time(2)
        assert await target(shop) == "False"


async def target(shop: ControllerHarness) -> str:
    conditions = (await shop.server.get(f"{PODS}/p0"))["status"]["conditions"]
    [found] = [each for each in conditions if each["type"] == "DisruptionTarget"]
    return str(found["status"])


CRD = {
    "metadata": {"name": "herds.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "herds", "kind": "Herd"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
                "subresources": {
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    }
                },
            }
        ],
    },
}
