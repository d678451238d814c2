"""ReplicaSets at work on a server in this process."""

from datetime import timedelta
from typing import Any

import pytest

from kedge.controllers.loop import LONGEST_PAUSE
from kedge.controllers.pod_control import MOST_WAITING
from kedge.controllers.workloads import replicas
from kedge.controllers.workloads.replica_set import ReplicaSetController
from kedge.controllers.workloads.replicas import MANY, ReplicaCounts
from kedge.testing.controllers import ControllerHarness, workshop
from kedge.testing.workloads import workload_document

Json = dict[str, Any]

SETS = "/apis/apps/v1/namespaces/default/replicasets"
PODS = "/api/v1/namespaces/default/pods"
WEB = f"{SETS}/web"


def replica_set(**spec: Any) -> Json:
    document = workload_document({"spec": {"replicas": 3, **spec}})
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", **document}


def bare_pod(name: str, **labels: str) -> Json:
    container = {"name": "c", "image": "i"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}


def names(pods: list[Json]) -> set[str]:
    return {each["metadata"]["name"] for each in pods}


async def status(place: ControllerHarness) -> Json:
    found: Json = (await place.server.get(WEB))["status"]
    return found


async def test_missing_pods_are_made_from_the_template() -> None:
    async with workshop(ReplicaSetController) as place:
        made = await place.create(SETS, replica_set())
        pods = await place.pods()
        assert len(pods) == 3
        for pod in pods:
            assert pod["metadata"]["generateName"] == "web-"
            assert pod["metadata"]["labels"] == {"app": "web"}
            [owner] = pod["metadata"]["ownerReferences"]
            assert (owner["uid"], owner["controller"]) == (made["metadata"]["uid"], True)
        assert await status(place) == {
            "replicas": 3,
            "fullyLabeledReplicas": 3,
            "terminatingReplicas": 0,
            "observedGeneration": 1,
        }
        reasons = [reason for reason, _ in await place.events()]
        assert reasons == ["SuccessfulCreate"] * 3


async def test_a_pod_that_becomes_available_while_pods_are_counted_is_counted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A timer may fire a moment early, and the moment may be over when the count is."""
    async with workshop(ReplicaSetController) as place:
        await place.create(SETS, replica_set(replicas=1, minReadySeconds=10))
        await place.run_all()
        early, now = timedelta(milliseconds=1), place.clock.now
        monkeypatch.setattr(place.clock, "now", lambda: now() - early)

        def tally(*arguments: Any) -> ReplicaCounts:
            nonlocal early
            counts = count_pods(*arguments)
            early = timedelta()
            return counts

        count_pods = replicas.tally
        monkeypatch.setattr(replicas, "tally", tally)
        await place.pass_time(60)
        assert (await status(place))["availableReplicas"] == 1


async def test_pod_that_ends_is_replaced_but_kept() -> None:
    async with workshop(ReplicaSetController) as place:
        await place.create(SETS, replica_set(replicas=2))
        await place.run_all()
        first, _ = await place.pods()
        await place.end_pod(first, exit_code=1)
        assert len(await place.pods()) == 3
        assert (await status(place))["replicas"] == 2
        assert (await status(place))["readyReplicas"] == 1


async def test_pod_that_is_deleted_is_replaced_before_it_is_gone() -> None:
    async with workshop(ReplicaSetController) as place:
        await place.create(SETS, replica_set(replicas=1))
        [only] = await place.pods()
        await place.run_pod(only, node="node-1")
        await place.remove(f"{PODS}/{only['metadata']['name']}")
        assert len(await place.pods()) == 2
        assert (await status(place))["terminatingReplicas"] == 1
        await place.bury(only)
        assert len(await place.pods()) == 1
        assert (await status(place))["terminatingReplicas"] == 0


async def test_scaling_down_keeps_the_pods_that_are_ready() -> None:
    async with workshop(ReplicaSetController) as place:
        await place.create(SETS, replica_set())
        ready = (await place.pods())[1]
        await place.run_pod(ready)
        await place.change(f"{WEB}/scale", {"spec": {"replicas": 1}})
        assert names(await place.pods()) == names([ready])
        told = [message for reason, message in await place.events() if reason == "SuccessfulDelete"]
        assert len(told) == 2


async def test_matching_orphan_is_adopted_instead_of_making_a_pod() -> None:
    async with workshop(ReplicaSetController) as place:
        await place.create(PODS, bare_pod("stray", app="web"))
        await place.create(SETS, replica_set(replicas=1))
        [only] = await place.pods()
        assert only["metadata"]["name"] == "stray"
        assert only["metadata"]["ownerReferences"][0]["name"] == "web"


async def test_orphan_that_comes_later_is_one_too_many() -> None:
    async with workshop(ReplicaSetController) as place:
        await place.create(SETS, replica_set(replicas=1))
        await place.run_all()
        kept = names(await place.pods())
        await place.create(PODS, bare_pod("stray", app="web"))
        assert names(await place.pods()) == kept


async def test_pod_whose_labels_change_is_released_and_replaced() -> None:
    async with workshop(ReplicaSetController) as place:
        await place.create(SETS, replica_set(replicas=1))
        [only] = await place.pods()
        path = f"{PODS}/{only['metadata']['name']}"
        await place.change(path, {"metadata": {"labels": {"app": "debug"}}})
        assert "ownerReferences" not in (await place.server.get(path))["metadata"]
        assert len(await place.pods()) == 2


async def test_template_labels_beyond_the_selector_are_counted_apart() -> None:
    async with workshop(ReplicaSetController) as place:
        labels = {"metadata": {"labels": {"app": "web", "tier": "front"}}}
        await place.create(SETS, replica_set(replicas=2, template=labels))
        assert (await status(place))["fullyLabeledReplicas"] == 2
        first, _ = await place.pods()
        path = f"{PODS}/{first['metadata']['name']}"
        await place.change(path, {"metadata": {"labels": {"tier": None}}})
        found = await status(place)
        assert (found["replicas"], found["fullyLabeledReplicas"]) == (2, 1)


async def test_set_in_a_leaving_namespace_is_left_alone() -> None:
    async with workshop(ReplicaSetController) as place:
        await place.create("/api/v1/namespaces", {"metadata": {"name": "short"}})
        sets = "/apis/apps/v1/namespaces/short/replicasets"
        made = replica_set(replicas=1)
        made["metadata"] = {"name": "web"}
        await place.create(sets, made)
        await place.remove("/api/v1/namespaces/short")
        [only] = await place.pods("short")
        await place.remove(f"/api/v1/namespaces/short/pods/{only['metadata']['name']}")
        assert await place.pods("short") == []
        found = await place.server.get(f"{sets}/web")
        assert "conditions" not in found["status"]


async def test_quota_that_is_used_up_is_told_and_overcome() -> None:
    async with workshop(ReplicaSetController, admission=("ResourceQuota",)) as place:
        quotas = "/api/v1/namespaces/default/resourcequotas"
        hard = {"hard": {"pods": "1"}}
        await place.create(quotas, {"metadata": {"name": "few"}, "spec": hard})
        await place.change(f"{quotas}/few/status", {"status": {**hard, "used": {"pods": "0"}}})
        await place.create(SETS, replica_set(replicas=50))
        assert len(await place.pods()) == 1
        [failure] = (await status(place))["conditions"]
        assert (failure["type"], failure["reason"]) == ("ReplicaFailure", "FailedCreate")
        assert "exceeded quota: few" in failure["message"]
        assert "FailedCreate" in [reason for reason, _ in await place.events()]
        await place.remove(f"{quotas}/few")
        await place.pass_time(60)
        assert len(await place.pods()) == 50
        assert "conditions" not in await status(place)


async def test_pods_that_were_held_back_are_made_when_many_have_a_node() -> None:
    async with workshop(ReplicaSetController) as place:
        await place.create(SETS, replica_set(replicas=MOST_WAITING + MANY))
        pods = await place.pods()
        assert len(pods) == MOST_WAITING
        for each in pods[:MANY]:
            await place.run_pod(each, node="n")
        assert len(await place.pods()) == MOST_WAITING + MANY


async def test_status_of_a_large_set_follows_after_a_pause() -> None:
    async with workshop(ReplicaSetController) as place:
        await place.create(SETS, replica_set(replicas=120))
        await place.clock.advance(LONGEST_PAUSE)
        for each in (await place.pods())[:2]:
            await place.run_pod(each)
        assert (await status(place)).get("readyReplicas") == 1
        await place.clock.advance(LONGEST_PAUSE)
        assert (await status(place))["readyReplicas"] == 2


async def test_a_changed_number_does_not_wait_for_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "BURST", 50)
    async with workshop(ReplicaSetController) as place:
        await place.create(SETS, replica_set(replicas=120))
        await place.change(f"{WEB}/scale", {"spec": {"replicas": 1}})
        assert len(await place.pods()) == 1
