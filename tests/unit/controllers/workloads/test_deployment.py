"""Deployments at work on a server in this process, their pods only saying that they run."""

from typing import Any

from kedge.controllers.workloads.deployment import DeploymentController
from kedge.controllers.workloads.replica_set import ReplicaSetController
from kedge.testing.controllers import ControllerHarness, workshop
from kedge.testing.workloads import workload_document

Json = dict[str, Any]

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
WEB = f"{DEPLOYMENTS}/web"
CONTROLLERS = (ReplicaSetController, DeploymentController)


def deployment(**spec: Any) -> Json:
    document = workload_document({"spec": {"replicas": 3, **spec}})
    return {"apiVersion": "apps/v1", "kind": "Deployment", **document}


def image(name: str) -> Json:
    return {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": name}]}}}}


async def sizes(place: ControllerHarness) -> dict[str, int]:
    """Wanted pods by the image of the ReplicaSet that wants them."""
    return {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: each["spec"]["replicas"]
        for each in await place.below(SETS)
    }


async def said(place: ControllerHarness, type_: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    conditions = (await place.server.get(WEB))["status"]["conditions"]
    return next((each["status"], each["reason"]) for each in conditions if each["type"] == type_)


async def test_deployment_becomes_available_through_one_replica_set() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment())
        assert await said(place, "Available") == ("False", "MinimumReplicasUnavailable")
        await run_all(place)
        [only] = await place.below(SETS)
        hash_ = only["metadata"]["labels"]["pod-template-hash"]
        assert only["metadata"]["name"] == f"web-{hash_}"
        assert only["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": hash_}
        assert only["metadata"]["annotations"] == {
            "deployment.kubernetes.io/revision": "1",
            "deployment.kubernetes.io/desired-replicas": "3",
            "deployment.kubernetes.io/max-replicas": "4",
        }
        found = await place.server.get(WEB)
        assert found["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "1"}
        status = found["status"]
        del status["conditions"]
        assert status == {
            "observedGeneration": 1,
            "replicas": 3,
            "updatedReplicas": 3,
            "readyReplicas": 3,
            "availableReplicas": 3,
            "terminatingReplicas": 0,
        }
        assert await said(place, "Available") == ("True", "MinimumReplicasAvailable")
        assert await said(place, "Progressing") == ("True", "NewReplicaSetAvailable")
        scaled = f"Scaled up replica set web-{hash_} from 0 to 3"
        assert ("ScalingReplicaSet", scaled) in await place.events()


async def test_rolling_update_never_has_too_many_pods_nor_too_few() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment())
        await run_all(place)
        await place.change(WEB, image("httpd"))
        assert await sizes(place) == {"nginx": 3, "httpd": 1}
        [fresh] = [pod for pod in await place.pods() if pod["status"]["phase"] == "Pending"]
        await place.run_pod(fresh)
        assert await sizes(place) == {"nginx": 2, "httpd": 2}
        await run_all(place)
        assert await sizes(place) == {"nginx": 0, "httpd": 3}
        assert await said(place, "Progressing") == ("True", "NewReplicaSetAvailable")
        annotations = (await place.server.get(WEB))["metadata"]["annotations"]
        assert annotations["deployment.kubernetes.io/revision"] == "2"


async def test_going_back_reuses_the_old_replica_set() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment())
        await run_all(place)
        for name in ("httpd", "nginx"):
            await place.change(WEB, image(name))
            await run_all(place)
        assert await sizes(place) == {"nginx": 3, "httpd": 0}
        found = {
            each["spec"]["replicas"]: each["metadata"]["annotations"]
            for each in await place.below(SETS)
        }
        assert found[0]["deployment.kubernetes.io/revision"] == "2"
        assert found[3]["deployment.kubernetes.io/revision"] == "3"
        assert found[3]["deployment.kubernetes.io/revision-history"] == "1"


async def test_recreate_waits_until_the_last_old_pod_is_gone() -> None:
    async with workshop(*CONTROLLERS) as place:
        made = deployment(replicas=2, strategy={"type": "Recreate"})
        await place.create(DEPLOYMENTS, made)
        await bind_and_run_all(place)
        await place.change(WEB, image("httpd"))
        assert await sizes(place) == {"nginx": 0}
        first, last = await place.pods()
        assert "deletionTimestamp" in last["metadata"]
        await place.bury(first)
        assert await sizes(place) == {"nginx": 0}
        await place.bury(last)
        assert await sizes(place) == {"nginx": 0, "httpd": 2}
        await run_all(place)
        assert await said(place, "Progressing") == ("True", "NewReplicaSetAvailable")


async def test_terminating_pods_are_counted_until_they_are_gone() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment(replicas=2))
        await bind_and_run_all(place)
        await place.change(f"{WEB}/scale", {"spec": {"replicas": 1}})
        status = (await place.server.get(WEB))["status"]
        assert (status["replicas"], status["terminatingReplicas"]) == (1, 1)
        [gone] = [pod for pod in await place.pods() if "deletionTimestamp" in pod["metadata"]]
        await place.bury(gone)
        assert (await place.server.get(WEB))["status"]["terminatingReplicas"] == 0


async def test_paused_deployment_scales_but_does_not_roll() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment())
        await run_all(place)
        await place.change(WEB, {"spec": {"paused": True}})
        assert await said(place, "Progressing") == ("Unknown", "DeploymentPaused")
        await place.change(WEB, image("httpd"))
        await place.change(WEB, {"spec": {"replicas": 5}})
        assert await sizes(place) == {"nginx": 5}
        await place.change(WEB, {"spec": {"paused": False}})
        await run_all(place)
        assert await sizes(place) == {"nginx": 0, "httpd": 5}
        assert await said(place, "Progressing") == ("True", "NewReplicaSetAvailable")


async def test_scaling_in_the_middle_of_a_rollout_is_shared_in_proportion() -> None:
    async with workshop(*CONTROLLERS) as place:
        pace = {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
        await place.create(DEPLOYMENTS, deployment(replicas=10, strategy=pace))
        await run_all(place)
        await place.change(WEB, image("httpd"))
        assert await sizes(place) == {"nginx": 8, "httpd": 5}
        await place.change(WEB, {"spec": {"replicas": 30}})
        assert await sizes(place) == {"nginx": 20, "httpd": 13}
        await run_all(place)
        assert await sizes(place) == {"nginx": 0, "httpd": 30}


async def test_rollout_without_progress_times_out_and_recovers() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment(progressDeadlineSeconds=60))
        await run_all(place)
        await place.change(WEB, image("broken"))
        assert (await said(place, "Progressing"))[1] == "ReplicaSetUpdated"
        await place.pass_time(50)
        assert (await said(place, "Progressing"))[1] == "ReplicaSetUpdated"
        await place.pass_time(15)
        assert await said(place, "Progressing") == ("False", "ProgressDeadlineExceeded")
        assert await said(place, "Available") == ("True", "MinimumReplicasAvailable")
        await place.change(WEB, image("nginx"))
        await run_all(place)
        assert await said(place, "Progressing") == ("True", "NewReplicaSetAvailable")
        assert await sizes(place) == {"nginx": 3, "broken": 0}


async def test_resumed_rollout_has_its_whole_deadline_before_it() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment(progressDeadlineSeconds=60))
        await place.change(WEB, {"spec": {"paused": True}})
        await place.pass_time(600)
        await place.change(WEB, {"spec": {"paused": False}})
        assert await said(place, "Progressing") == ("Unknown", "DeploymentResumed")
        await place.pass_time(50)
        assert (await said(place, "Progressing"))[1] == "DeploymentResumed"
        await place.pass_time(12)
        assert (await said(place, "Progressing"))[1] == "ProgressDeadlineExceeded"


async def test_history_is_kept_within_its_limit() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment(replicas=1, revisionHistoryLimit=1))
        await run_all(place)
        for name in ("one", "two", "three"):
            await place.change(WEB, image(name))
            await run_all(place)
        assert await sizes(place) == {"two": 0, "three": 1}


async def test_pods_count_as_available_only_after_min_ready_seconds() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment(replicas=2, minReadySeconds=10))
        await run_all(place)
        status = (await place.server.get(WEB))["status"]
        assert (status["readyReplicas"], status["unavailableReplicas"]) == (2, 2)
        await place.pass_time(10)
        assert (await place.server.get(WEB))["status"]["availableReplicas"] == 2
        await place.change(WEB, {"spec": {"minReadySeconds": 20}})
        [only] = await place.below(SETS)
        assert only["spec"]["minReadySeconds"] == 20


async def test_annotations_reach_the_replica_set() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment())
        cause = {"kubernetes.io/change-cause": "because"}
        await place.change(WEB, {"metadata": {"annotations": cause}})
        [only] = await place.below(SETS)
        assert only["metadata"]["annotations"].items() >= cause.items()


async def test_orphaned_replica_set_is_adopted_with_its_pods() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment())
        await run_all(place)
        before = [pod["metadata"]["uid"] for pod in await place.pods()]
        [only] = await place.below(SETS)
        path = f"{SETS}/{only['metadata']['name']}"
        await place.remove(WEB)
        await place.change(path, {"metadata": {"ownerReferences": None}})
        made = await place.create(DEPLOYMENTS, deployment())
        [owner] = (await place.server.get(path))["metadata"]["ownerReferences"]
        assert owner["uid"] == made["metadata"]["uid"]
        assert [pod["metadata"]["uid"] for pod in await place.pods()] == before
        assert await said(place, "Progressing") == ("True", "NewReplicaSetAvailable")


async def test_name_that_is_taken_is_avoided_and_counted() -> None:
    async with workshop(*CONTROLLERS) as place:
        await place.create(DEPLOYMENTS, deployment())
        [first] = await place.below(SETS)
        name = first["metadata"]["name"]
        await place.remove(WEB, {"propagationPolicy": "Background"})
        await place.remove(f"{SETS}/{name}")
        other = {"app": "other"}
        spec = {"selector": {"matchLabels": other}, "template": {"metadata": {"labels": other}}}
        stranger = workload_document({"metadata": {"name": name}, "spec": spec})
        await place.create(SETS, {"apiVersion": "apps/v1", "kind": "ReplicaSet", **stranger})
        await place.create(DEPLOYMENTS, deployment())
        assert (await place.server.get(WEB))["status"]["collisionCount"] == 1
        owned = [each for each in await place.below(SETS) if each["metadata"]["name"] != name]
        assert len(owned) == 1


async def test_failure_of_a_replica_set_is_told_by_its_deployment() -> None:
    async with workshop(*CONTROLLERS, admission=("ResourceQuota",)) as place:
        quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
        await place.create("/api/v1/namespaces/default/resourcequotas", quota)
        await place.change(
            "/api/v1/namespaces/default/resourcequotas/few/status",
            {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}},
        )
        await place.create(DEPLOYMENTS, deployment(replicas=1))
        assert await said(place, "ReplicaFailure") == ("True", "FailedCreate")
        await place.remove("/api/v1/namespaces/default/resourcequotas/few")
        await place.pass_time(60)
        conditions = (await place.server.get(WEB))["status"]["conditions"]
        assert "ReplicaFailure" not in [each["type"] for each in conditions]
        assert len(await place.pods()) == 1


async def test_replica_set_that_cannot_be_made_is_told_and_tried_again() -> None:
    async with workshop(*CONTROLLERS, admission=("ResourceQuota",)) as place:
        quotas = "/api/v1/namespaces/default/resourcequotas"
        hard = {"hard": {"count/replicasets.apps": "0"}}
        await place.create(quotas, {"metadata": {"name": "none"}, "spec": hard})
        used = {"used": {"count/replicasets.apps": "0"}}
        await place.change(f"{quotas}/none/status", {"status": {**hard, **used}})
        await place.create(DEPLOYMENTS, deployment())
        assert await said(place, "Progressing") == ("False", "ReplicaSetCreateError")
        told = dict(await place.events())["ReplicaSetCreateError"]
        assert told.startswith('Failed to create new replica set "web-')
        assert "exceeded quota: none" in told
        await place.remove(f"{quotas}/none")
        await place.pass_time(60)
        await run_all(place)
        assert await said(place, "Progressing") == ("True", "NewReplicaSetAvailable")


async def run_all(place: ControllerHarness) -> None:
    """Let one pod after the other run: a rollout takes some away before their turn has come."""
    while waiting := [each for each in await place.pods() if each["status"]["phase"] == "Pending"]:
        await place.run_pod(waiting[0])


async def bind_and_run_all(place: ControllerHarness) -> None:
    """Let all pods run on a node: those are not gone at once when they are deleted."""
    for pod in await place.pods():
        await place.run_pod(pod, node="node-1")
