"""ReplicationControllers at work on a server in this process."""

from typing import Any

from kedge.controllers.workloads.replica_set import ReplicaSetController
from kedge.controllers.workloads.replication_controller import ReplicationControllerController
from kedge.testing.controllers import workshop

CONTROLLERS = "/api/v1/namespaces/default/replicationcontrollers"


def controller(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    container = {"name": "c", "image": "i"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "template": template}
    return {"metadata": {"name": "web"}, "spec": spec}


async def test_controller_keeps_its_pods_like_a_replica_set() -> None:
    async with workshop(ReplicationControllerController) as place:
        await place.create(CONTROLLERS, controller(2))
        await place.run_all()
        found = await place.server.get(f"{CONTROLLERS}/web")
        assert found["status"] == {
            "replicas": 2,
            "fullyLabeledReplicas": 2,
            "readyReplicas": 2,
            "availableReplicas": 2,
            "observedGeneration": 1,
        }
        await place.change(f"{CONTROLLERS}/web/scale", {"spec": {"replicas": 1}})
        [only] = await place.pods()
        assert only["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController"


async def test_kinds_do_not_take_pods_from_each_other() -> None:
    async with workshop(ReplicationControllerController, ReplicaSetController) as place:
        await place.create(CONTROLLERS, controller(1))
        template = controller(1)["spec"]["template"]
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        sets = "/apis/apps/v1/namespaces/default/replicasets"
        await place.create(sets, {"metadata": {"name": "web"}, "spec": spec})
        owners = [pod["metadata"]["ownerReferences"][0]["kind"] for pod in await place.pods()]
        assert sorted(owners) == ["ReplicaSet", "ReplicationController"]
