"""DaemonSets on a server whose nodes only say that they are there."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.controllers.workloads.daemon_set import DaemonSetController
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]

SETS = "/apis/apps/v1/namespaces/default/daemonsets"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


def daemon_set(pod: Json | None = None, **spec: Any) -> Json:
    return {
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "main", "image": "one"}], **(pod or {})},
            },
            **spec,
        },
    }


def image(name: str) -> Json:
    return {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}}


def pace(**amounts: int | str) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": amounts}


@pytest.fixture
async def shop() -> AsyncIterator[ControllerHarness]:
    async with workshop(DaemonSetController) as place:
        for name in ("a", "b", "c"):
            await place.create(NODES, {"metadata": {"name": name, "labels": {"is": name}}})
        yield place


def target(pod: Json) -> str:
    """The node that a pod is meant for."""
    required = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    (term,) = required["nodeSelectorTerms"]
    (name,) = term["matchFields"]
    assert (name["key"], name["operator"]) == ("metadata.name", "In")
    found: str = name["values"][0]
    return found


async def staying(shop: ControllerHarness) -> list[Json]:
    return [each for each in await shop.pods() if "deletionTimestamp" not in each["metadata"]]


async def leaving(shop: ControllerHarness) -> list[Json]:
    return [each for each in await shop.pods() if "deletionTimestamp" in each["metadata"]]


async def images(shop: ControllerHarness) -> list[tuple[str, str]]:
    """Node and image of every pod that is not leaving."""
    pods = await staying(shop)
    return sorted((target(each), each["spec"]["containers"][0]["image"]) for each in pods)


async def run_all(shop: ControllerHarness) -> None:
    """Let every pod run on the node that it is meant for."""
    for each in await staying(shop):
        if each["status"].get("phase") == "Pending":
            await shop.run_pod(each, node=target(each))


async def bury_all(shop: ControllerHarness) -> None:
    for each in await leaving(shop):
        await shop.bury(each)


async def counts(shop: ControllerHarness) -> Json:
    found: Json = (await shop.server.get(f"{SETS}/agent"))["status"]
    return found


async def test_every_node_gets_a_pod_that_can_go_nowhere_else(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set())
    pods = await shop.pods()
    assert sorted(map(target, pods)) == ["a", "b", "c"]
    tolerated = [each["key"].partition("/")[2] for each in pods[0]["spec"]["tolerations"]]
    assert tolerated == [
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
    ]
    (revision,) = await shop.below(REVISIONS)
    label = pods[0]["metadata"]["labels"]["controller-revision-hash"]
    assert revision["metadata"]["labels"]["controller-revision-hash"] == label
    assert revision["metadata"]["name"] == f"agent-{label}"
    assert pods[0]["metadata"]["labels"]["pod-template-generation"] == "1"
    await run_all(shop)
    found = await counts(shop)
    assert found == {
        "desiredNumberScheduled": 3,
        "currentNumberScheduled": 3,
        "numberReady": 3,
        "numberAvailable": 3,
        "updatedNumberScheduled": 3,
        "numberMisscheduled": 0,
        "observedGeneration": 1,
    }


async def test_a_daemon_on_the_host_network_needs_no_other(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set({"hostNetwork": True}))
    last = (await shop.pods())[0]["spec"]["tolerations"][-1]
    assert last["key"] == "node.kubernetes.io/network-unavailable"


async def test_the_template_chooses_its_nodes(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set({"nodeSelector": {"is": "b"}}))
    assert await images(shop) == [("b", "one")]
    await shop.change(f"{NODES}/c", {"metadata": {"labels": {"is": "b"}}})
    assert await images(shop) == [("b", "one"), ("c", "one")]
    await run_all(shop)
    await shop.change(f"{NODES}/b", {"metadata": {"labels": {"is": "other"}}})
    assert await images(shop) == [("c", "one")]
    found = await counts(shop)
    assert (found["desiredNumberScheduled"], found["numberMisscheduled"]) == (1, 1)


async def test_a_taint_keeps_new_pods_away_and_drives_old_ones_out_if_it_is_meant_to(
    shop: ControllerHarness,
) -> None:
    await shop.change(f"{NODES}/a", {"spec": {"taints": [{"key": "full", "effect": "NoSchedule"}]}})
    await shop.create(SETS, daemon_set())
    assert [node for node, _ in await images(shop)] == ["b", "c"]
    await run_all(shop)
    taint = {"key": "full", "effect": "NoSchedule"}
    await shop.change(f"{NODES}/b", {"spec": {"taints": [taint]}})
    assert [node for node, _ in await images(shop)] == ["b", "c"]
    assert (await counts(shop))["numberMisscheduled"] == 1
    await shop.change(f"{NODES}/b", {"spec": {"taints": [taint | {"effect": "NoExecute"}]}})
    assert [node for node, _ in await images(shop)] == ["c"]


async def test_nodes_that_come_get_a_pod_and_pods_do_not_wait_for_nodes_that_went(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, daemon_set())
    await shop.create(NODES, {"metadata": {"name": "d"}})
    assert [node for node, _ in await images(shop)] == ["a", "b", "c", "d"]
    await shop.remove(f"{NODES}/d")
    assert [node for node, _ in await images(shop)] == ["a", "b", "c"]
    assert (await counts(shop))["desiredNumberScheduled"] == 3


async def test_a_rollout_replaces_one_after_the_other(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set())
    await run_all(shop)
    await shop.change(f"{SETS}/agent", image("two"))
    for done in range(3):
        assert len(await leaving(shop)) == 1
        assert (await counts(shop)).get("updatedNumberScheduled", 0) == done
        await bury_all(shop)
        assert len(await staying(shop)) == 3
        await run_all(shop)
    assert await images(shop) == [("a", "two"), ("b", "two"), ("c", "two")]
    assert (await counts(shop))["numberAvailable"] == 3


async def test_several_may_be_missing_at_a_time(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set(updateStrategy=pace(maxUnavailable="50%")))
    await run_all(shop)
    await shop.change(f"{SETS}/agent", image("two"))
    assert len(await leaving(shop)) == 2


async def test_old_pods_that_are_no_use_are_replaced_at_once(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set())
    for each in await shop.pods():
        await shop.run_pod(each, node=target(each), ready=False)
    await shop.change(f"{SETS}/agent", image("two"))
    assert len(await leaving(shop)) == 3


async def test_a_rollout_waits_where_the_new_pod_is_not_available(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set(minReadySeconds=10))
    await run_all(shop)
    await shop.pass_time(11)
    await shop.change(f"{SETS}/agent", image("two"))
    await bury_all(shop)
    await run_all(shop)
    assert len(await leaving(shop)) == 0
    await shop.pass_time(11)
    assert len(await leaving(shop)) == 1


async def test_with_surge_the_new_pod_comes_before_the_old_one_goes(
    shop: ControllerHarness,
) -> None:
    strategy = pace(maxSurge=1, maxUnavailable=0)
    await shop.create(SETS, daemon_set(updateStrategy=strategy))
    await run_all(shop)
    await shop.change(f"{SETS}/agent", image("two"))
    assert len(await staying(shop)) == 4
    assert len(await leaving(shop)) == 0
    await run_all(shop)
    assert [target(each) for each in await leaving(shop)] == ["a"]
    for _ in range(3):
        await bury_all(shop)
        await run_all(shop)
    await bury_all(shop)
    assert await images(shop) == [("a", "two"), ("b", "two"), ("c", "two")]


async def test_on_delete_a_pod_is_replaced_when_it_is_deleted_and_not_before(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, daemon_set(updateStrategy={"type": "OnDelete"}))
    await run_all(shop)
    await shop.change(f"{SETS}/agent", image("two"))
    assert {found for _, found in await images(shop)} == {"one"}
    on_a = next(each for each in await shop.pods() if target(each) == "a")
    await shop.remove(f"{PODS}/{on_a['metadata']['name']}")
    await bury_all(shop)
    assert await images(shop) == [("a", "two"), ("b", "one"), ("c", "one")]


async def test_failed_pods_are_replaced_less_and_less_often(shop: ControllerHarness) -> None:
    await shop.remove(f"{NODES}/b")
    await shop.remove(f"{NODES}/c")
    await shop.create(SETS, daemon_set())
    await run_all(shop)

    async def fail() -> str:
        (each,) = await staying(shop)
        await shop.end_pod(each, exit_code=1, reason="OutOfcpu")
        return str(each["metadata"]["name"])

    first = await fail()
    await bury_all(shop)
    message = f"Found failed daemon pod default/{first} on node a, will try to kill it"
    assert ("FailedDaemonPod", message) in await shop.events()
    await run_all(shop)
    await fail()
    assert len(await leaving(shop)) == 0, "the second one is left alone for a second"
    await shop.pass_time(1.1)
    await bury_all(shop)
    await run_all(shop)
    await fail()
    await shop.pass_time(1.1)
    assert len(await staying(shop)) == 1
    await shop.pass_time(1.1)
    await bury_all(shop)
    (each,) = await staying(shop)
    assert each["status"]["phase"] == "Pending"


async def test_a_pod_that_succeeded_is_replaced(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set({"nodeSelector": {"is": "a"}}))
    await run_all(shop)
    (first,) = await shop.pods()
    await shop.end_pod(first)
    await bury_all(shop)
    (second,) = await shop.pods()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert "SucceededDaemonPod" in [reason for reason, _ in await shop.events()]


async def test_going_back_restarts_only_what_had_changed(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set())
    await run_all(shop)
    before = {target(each): each["metadata"]["uid"] for each in await shop.pods()}
    await shop.change(f"{SETS}/agent", image("broken"))
    await bury_all(shop)
    await shop.change(f"{SETS}/agent", image("one"))
    await bury_all(shop)
    await run_all(shop)
    after = {target(each): each["metadata"]["uid"] for each in await shop.pods()}
    assert sum(before[node] != uid for node, uid in after.items()) == 1
    assert sorted(each["revision"] for each in await shop.below(REVISIONS)) == [2, 3]


async def test_no_more_of_the_past_is_kept_than_asked_for(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set({"nodeSelector": {"is": "a"}}, revisionHistoryLimit=1))
    await run_all(shop)
    for name in ("two", "three", "four"):
        await shop.change(f"{SETS}/agent", image(name))
        await bury_all(shop)
        await run_all(shop)
    assert sorted(each["revision"] for each in await shop.below(REVISIONS)) == [3, 4]


async def test_a_revision_of_an_earlier_set_of_that_name_is_not_used(
    shop: ControllerHarness,
) -> None:
    await shop.create(SETS, daemon_set())
    await shop.remove(f"{SETS}/agent")
    await shop.create(SETS, daemon_set())
    first, second = await shop.below(REVISIONS)
    assert first["data"] == second["data"]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert (await counts(shop))["collisionCount"] == 1


async def test_a_second_pod_on_a_node_is_removed(shop: ControllerHarness) -> None:
    await shop.create(SETS, daemon_set({"nodeSelector": {"is": "a"}}))
    await run_all(shop)
    (first,) = await shop.pods()
    double = {
        "metadata": {"name": "double", "labels": first["metadata"]["labels"]},
        "spec": {"containers": [{"name": "main", "image": "one"}], "nodeName": "a"},
    }
    await shop.pass_time(1)
    await shop.create(PODS, double)
    assert [each["metadata"]["name"] for each in await leaving(shop)] == ["double"]
