"""StatefulSets on a server without nodes: the test says what becomes of the pods."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.controllers.nodes.pod_garbage_collector import QUARANTINE, PodGarbageCollector
from kedge.controllers.pod_control import MOST_WAITING
from kedge.controllers.workloads.stateful_set import StatefulSetController
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]

SETS = "/apis/apps/v1/namespaces/default/statefulsets"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS = "/api/v1/namespaces/default/pods"


def stateful_set(replicas: int = 3, name: str = "web", **spec: Any) -> Json:
    container = {"name": "main", "image": "one"}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": "nowhere",
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [container]},
            },
            **spec,
        },
    }


def image(name: str) -> Json:
    return {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}}


@pytest.fixture
async def shop() -> AsyncIterator[ControllerHarness]:
    async with workshop(StatefulSetController) as place:
        yield place


async def names(shop: ControllerHarness) -> list[str]:
    return [pod["metadata"]["name"] for pod in await shop.pods()]


async def pod(shop: ControllerHarness, name: str) -> Json:
    found: Json = await shop.server.get(f"{PODS}/{name}")
    return found


async def images(shop: ControllerHarness) -> dict[str, str]:
    """The image of every pod that is not leaving."""
    return {
        each["metadata"]["name"]: each["spec"]["containers"][0]["image"]
        for each in await shop.pods()
        if "deletionTimestamp" not in each["metadata"]
    }


async def status(shop: ControllerHarness, name: str = "web") -> Json:
    found: Json = (await shop.server.get(f"{SETS}/{name}"))["status"]
    return found


async def run_all(shop: ControllerHarness) -> None:
    """Let every pod run, until no new one appears: on a node, so that it takes time to end."""
    while waiting := [
        each for each in await shop.pods() if each["status"].get("phase") == "Pending"
    ]:
        for each in waiting:
            await shop.run_pod(each, node="n")


async def roll(shop: ControllerHarness) -> list[str]:
    """Let a rollout go on to its end; the pods in the order in which they were replaced."""
    replaced = []
    while leaving := [
        each for each in await shop.pods() if "deletionTimestamp" in each["metadata"]
    ]:
        for each in leaving:
            replaced.append(each["metadata"]["name"])
            await shop.bury(each)
        await run_all(shop)
    return replaced


async def test_pods_come_one_after_the_other(shop: ControllerHarness) -> None:
    await shop.create(SETS, stateful_set())
    assert await names(shop) == ["web-0"]
    await shop.run_pod(await pod(shop, "web-0"), node="n", ready=False)
    assert await names(shop) == ["web-0"]
    await shop.run_pod(await pod(shop, "web-0"), node="n")
    assert await names(shop) == ["web-0", "web-1"]
    await run_all(shop)
    assert await names(shop) == ["web-0", "web-1", "web-2"]
    found = await status(shop)
    assert found["replicas"] == found["readyReplicas"] == found["availableReplicas"] == 3
    assert found["currentRevision"] == found["updateRevision"]
    assert found["collisionCount"] == 0


async def test_a_parallel_set_makes_all_pods_at_once(shop: ControllerHarness) -> None:
    await shop.create(SETS, stateful_set(podManagementPolicy="Parallel"))
    assert await names(shop) == ["web-0", "web-1", "web-2"]
    await shop.change(f"{SETS}/web", {"spec": {"replicas": 1}})
    assert list(await images(shop)) == ["web-0"]


async def test_each_pod_knows_who_it_is(shop: ControllerHarness) -> None:
    await shop.create(SETS, stateful_set(2, ordinals={"start": 7}))
    await run_all(shop)
    eighth = await pod(shop, "web-8")
    meta = eighth["metadata"]
    assert meta["labels"]["statefulset.kubernetes.io/pod-name"] == "web-8"
    assert meta["labels"]["apps.kubernetes.io/pod-index"] == "8"
    assert meta["annotations"] == {
        "pod.beta.kubernetes.io/statefulset-index": "8",
        "spec.pod.beta.kubernetes.io/statefulset-index": "8",
    }
    assert meta["labels"]["controller-revision-hash"] == (await status(shop))["currentRevision"]
    assert (eighth["spec"]["hostname"], eighth["spec"]["subdomain"]) == ("web-8", "nowhere")
    assert meta["ownerReferences"][0]["kind"] == "StatefulSet"


async def test_the_highest_goes_first_when_a_set_shrinks(shop: ControllerHarness) -> None:
    await shop.create(SETS, stateful_set())
    await run_all(shop)
    await shop.change(f"{SETS}/web", {"spec": {"replicas": 0}})
    assert await roll(shop) == ["web-2", "web-1", "web-0"]
    assert (await status(shop))["replicas"] == 0


async def test_a_rollout_goes_from_the_highest_down_and_is_known_to_be_over(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, stateful_set())
    await run_all(shop)
    before = await status(shop)
    await shop.change(f"{SETS}/web", image("two"))
    during = await status(shop)
    assert during["currentRevision"] == before["currentRevision"] != during["updateRevision"]
    assert (during["currentReplicas"], during.get("updatedReplicas", 0)) == (2, 0)
    assert await roll(shop) == ["web-2", "web-1", "web-0"]
    assert set((await images(shop)).values()) == {"two"}
    after = await status(shop)
    assert after["currentRevision"] == after["updateRevision"] == during["updateRevision"]
    assert after["currentReplicas"] == after["updatedReplicas"] == 3


async def test_a_rollout_that_is_stuck_waits_until_the_broken_pod_is_removed(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, stateful_set())
    await run_all(shop)
    await shop.change(f"{SETS}/web", image("broken"))
    await shop.bury(await pod(shop, "web-2"))
    await shop.run_pod(await pod(shop, "web-2"), node="n", ready=False)
    await shop.change(f"{SETS}/web", image("good"))
    assert await images(shop) == {"web-0": "one", "web-1": "one", "web-2": "broken"}
    await shop.remove(f"{PODS}/web-2")
    await shop.bury(await pod(shop, "web-2"))
    await run_all(shop)
    await roll(shop)
    assert set((await images(shop)).values()) == {"good"}


async def test_only_pods_beyond_the_partition_are_replaced(shop: ControllerHarness) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await shop.create(SETS, stateful_set(updateStrategy=strategy))
    await run_all(shop)
    await shop.change(f"{SETS}/web", image("two"))
    assert await roll(shop) == ["web-2"]
    await shop.remove(f"{PODS}/web-1")
    await shop.bury(await pod(shop, "web-1"))
    await run_all(shop)
    assert await images(shop) == {"web-0": "one", "web-1": "one", "web-2": "two"}
    found = await status(shop)
    assert (found["currentReplicas"], found["updatedReplicas"]) == (2, 1)
    lower = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}
    await shop.change(f"{SETS}/web", lower)
    assert await roll(shop) == ["web-1", "web-0"]


async def test_on_delete_a_pod_is_replaced_when_it_is_deleted_and_not_before(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, stateful_set(2, updateStrategy={"type": "OnDelete"}))
    await run_all(shop)
    await shop.change(f"{SETS}/web", image("two"))
    assert await images(shop) == {"web-0": "one", "web-1": "one"}
    await shop.remove(f"{PODS}/web-0")
    await shop.bury(await pod(shop, "web-0"))
    await run_all(shop)
    assert await images(shop) == {"web-0": "two", "web-1": "one"}


async def test_a_pod_that_ended_is_made_again_under_its_name(shop: ControllerHarness) -> None:
    await shop.create(SETS, stateful_set(1))
    await run_all(shop)
    first = await pod(shop, "web-0")
    await shop.end_pod(first, exit_code=1, reason="Evicted")
    await shop.bury(first)
    second = await pod(shop, "web-0")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert (
        "SuccessfulDelete",
        "Delete Pod web-0 in StatefulSet web successful",
    ) in await shop.events()


async def test_the_pod_of_a_node_that_vanished_is_made_again() -> None:
    async with workshop(StatefulSetController, PodGarbageCollector) as shop:
        await shop.create("/api/v1/nodes", {"metadata": {"name": "n"}})
        await shop.create(SETS, stateful_set(1))
        await run_all(shop)
        first = await pod(shop, "web-0")
        await shop.remove("/api/v1/nodes/n")
        assert (await pod(shop, "web-0"))["metadata"]["uid"] == first["metadata"]["uid"]
        await shop.pass_time(QUARANTINE + 1)
        second = await pod(shop, "web-0")
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert second["status"]["phase"] == "Pending"


async def test_the_next_pod_waits_until_the_one_before_has_been_ready_long_enough(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, stateful_set(2, minReadySeconds=30))
    await run_all(shop)
    assert await names(shop) == ["web-0"]
    found = await status(shop)
    assert (found["readyReplicas"], found["availableReplicas"]) == (1, 0)
    await shop.pass_time(31)
    assert await names(shop) == ["web-0", "web-1"]
    assert (await status(shop))["availableReplicas"] == 1


async def test_going_back_uses_the_old_revision_under_a_new_number(shop: ControllerHarness) -> None:
    await shop.create(SETS, stateful_set(1))
    await run_all(shop)
    first = (await status(shop))["currentRevision"]
    await shop.change(f"{SETS}/web", image("two"))
    await roll(shop)
    await shop.change(f"{SETS}/web", image("one"))
    await roll(shop)
    assert (await status(shop))["currentRevision"] == first
    found = {each["metadata"]["name"]: each["revision"] for each in await shop.below(REVISIONS)}
    assert found.pop(first) == 3
    assert list(found.values()) == [2]


async def test_no_more_of_the_past_is_kept_than_asked_for(shop: ControllerHarness) -> None:
    await shop.create(SETS, stateful_set(1, revisionHistoryLimit=1))
    await run_all(shop)
    for name in ("two", "three", "four"):
        await shop.change(f"{SETS}/web", image(name))
        await roll(shop)
    numbers = [each["revision"] for each in await shop.below(REVISIONS)]
    assert sorted(numbers) == [3, 4]


async def test_an_orphan_of_the_right_name_is_adopted_and_one_relabelled_let_go(
    shop: ControllerHarness,
) -> None:
    orphan = {
        "metadata": {"name": "web-0", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "own"}]},
    }
    await shop.create(PODS, orphan)
    await run_all(shop)
    await shop.create(SETS, stateful_set(1))
    adopted = (await pod(shop, "web-0"))["metadata"]
    assert adopted["ownerReferences"][0]["name"] == "web"
    assert "deletionTimestamp" in adopted, "it is of no known revision, and so replaced"
    await roll(shop)
    await shop.change(f"{PODS}/web-0", {"metadata": {"labels": {"app": "other"}}})
    assert "ownerReferences" not in (await pod(shop, "web-0"))["metadata"]
    reasons = [reason for reason, _ in await shop.events()]
    assert "FailedCreate" not in reasons


async def test_refused_pods_are_told_and_tried_again() -> None:
    async with workshop(StatefulSetController, admission=("ResourceQuota",)) as shop:
        quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
        await shop.server.post("/api/v1/namespaces/default/resourcequotas", quota)
        path = "/api/v1/namespaces/default/resourcequotas/few/status"
        await shop.server.merge(path, {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}})
        await shop.create(SETS, stateful_set(1))
        told = [message for reason, message in await shop.events() if reason == "FailedCreate"]
        assert told[0].startswith("Create Pod web-0 in StatefulSet web failed error: ")
        assert "exceeded quota" in told[0]
        assert (await status(shop))["observedGeneration"] == 1


def with_claims(**policy: str) -> Json:
    template = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    retention = {"whenDeleted": "Retain", "whenScaled": "Retain", **policy}
    return stateful_set(
        2, volumeClaimTemplates=[template], persistentVolumeClaimRetentionPolicy=retention
    )


async def test_claims_are_made_for_each_pod(shop: ControllerHarness) -> None:
    await shop.create(SETS, with_claims())
    (claim,) = await shop.below(CLAIMS)
    assert claim["metadata"]["name"] == "data-web-0"
    assert claim["metadata"]["labels"] == {"app": "web"}
    assert "ownerReferences" not in claim["metadata"]
    (volume,) = (await pod(shop, "web-0"))["spec"]["volumes"]
    assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}
    made = "Create Claim data-web-0 Pod web-0 in StatefulSet web success"
    assert ("SuccessfulCreate", made) in await shop.events()


async def test_a_claim_that_is_missing_is_made_again_for_a_waiting_pod(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, with_claims())
    await shop.remove(f"{CLAIMS}/data-web-0")
    assert [each["metadata"]["name"] for each in await shop.below(CLAIMS)] == ["data-web-0"]


async def test_claims_go_with_the_set_or_with_the_pod_as_the_policy_says(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, with_claims(whenDeleted="Delete", whenScaled="Delete"))
    await run_all(shop)

    async def owners() -> dict[str, str]:
        return {
            each["metadata"]["name"]: each["metadata"]["ownerReferences"][0]["kind"]
            for each in await shop.below(CLAIMS)
        }

    assert await owners() == {"data-web-0": "StatefulSet", "data-web-1": "StatefulSet"}
    await shop.change(f"{SETS}/web", {"spec": {"replicas": 1}})
    assert await owners() == {"data-web-0": "StatefulSet", "data-web-1": "Pod"}
    kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    await shop.change(f"{SETS}/web", {"spec": {"persistentVolumeClaimRetentionPolicy": kept}})
    (claim, _) = await shop.below(CLAIMS)
    assert "ownerReferences" not in claim["metadata"]


async def test_a_pod_waits_for_claims_that_go_with_its_predecessor(shop: ControllerHarness) -> None:
    await shop.create(SETS, with_claims(whenScaled="Delete"))
    await run_all(shop)
    await shop.change(f"{SETS}/web", {"spec": {"replicas": 1}})
    await shop.bury(await pod(shop, "web-1"))
    await shop.change(f"{SETS}/web", {"spec": {"replicas": 2}})
    assert await names(shop) == ["web-0"]
    await shop.remove(f"{CLAIMS}/data-web-1")
    assert await names(shop) == ["web-0", "web-1"]


async def test_a_set_that_is_leaving_makes_nothing(shop: ControllerHarness) -> None:
    await shop.create(SETS, stateful_set(2))
    await run_all(shop)
    await shop.remove(f"{SETS}/web", {"propagationPolicy": "Foreground"})
    await shop.remove(f"{PODS}/web-1")
    await shop.bury(await pod(shop, "web-1"))
    assert await names(shop) == ["web-0"]
    assert (await status(shop))["replicas"] == 1


async def test_a_parallel_set_of_billions_makes_no_more_pods_than_may_wait(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, stateful_set(2**31 - 1, podManagementPolicy="Parallel"))
    await shop.pass_time(60)
    assert len(await shop.pods()) == MOST_WAITING
    told = [message for reason, message in await shop.events() if reason == "PodsHeldBack"]
    assert told == ["at most 500 pods wait for a node: more are created when these have one"]
    await shop.run_pod(await pod(shop, "web-0"), node="n")
    assert len(await shop.pods()) == MOST_WAITING + 1
