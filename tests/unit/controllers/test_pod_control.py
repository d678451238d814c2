from typing import Any

import pytest

from kedge.api.apps_v1 import replica_set
from kedge.api.core_v1.pod import pod as pods
from kedge.api.core_v1.pod.pod import Pod
from kedge.client.client import Client
from kedge.client.events import Recorder
from kedge.controllers.adoption import Adoption
from kedge.controllers.pod_control import PodControl, Shortfall, in_growing_batches, pod_of
from kedge.controllers.shared_informers import ObjectCache, SharedInformers, controller_of
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.testing.controllers import ControllerHarness, workshop
from kedge.testing.workloads import workload_document

SETS = "/apis/apps/v1/namespaces/default/replicasets"
PODS = "/api/v1/namespaces/default/pods"


class Hands:
    """What a controller works with, without a will of its own."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self.client = client
        self.pods: ObjectCache[Pod] = shared.of(pods.RESOURCE)
        self.recorder = Recorder(client, clock, "test")
        self.control = PodControl(client, self.pods, self.recorder)
        self.claims = Adoption(client, replica_set.RESOURCE, pods.RESOURCE, self.pods)

    async def run(self) -> None:
        await self.recorder.run()


class Scene:
    def __init__(self, place: ControllerHarness, hands: Hands) -> None:
        self.place = place
        self.hands = hands

    async def owner(self, name: str = "web") -> replica_set.ReplicaSet:
        await self.place.create(SETS, workload_document({"metadata": {"name": name}}))
        return await self.hands.client.get(replica_set.RESOURCE, name, "default")

    async def stray(self, name: str, **meta: Any) -> None:
        container = {"name": "c", "image": "i"}
        body = {"metadata": {"name": name, **meta}, "spec": {"containers": [container]}}
        await self.place.create(PODS, body)


@pytest.fixture
async def scene() -> Any:
    made: list[Hands] = []

    def maker(client: Client, shared: SharedInformers, clock: Clock) -> Hands:
        made.append(Hands(client, shared, clock))
        return made[0]

    async with workshop(maker, admission=("ResourceQuota",)) as place:
        yield Scene(place, made[0])


async def test_a_pod_of_an_owner_is_known_when_its_creation_returns(scene: Scene) -> None:
    owner = await scene.owner()
    pod = pod_of(replica_set.RESOURCE, owner, owner.spec.template)
    made = await scene.hands.control.create(owner, pod)
    assert made.metadata.name.startswith("web-")
    known = scene.hands.pods.owned(owner.metadata.uid)
    assert [each.metadata.name for each in known] == [made.metadata.name]
    reference = controller_of(known[0])
    assert reference is not None
    assert (reference.kind, reference.apiVersion) == ("ReplicaSet", "apps/v1")
    assert reference.blockOwnerDeletion
    await scene.hands.control.delete(owner, made)
    assert scene.hands.pods.owned(owner.metadata.uid) == []
    await scene.hands.control.delete(owner, made)
    await scene.place.settle()
    name = made.metadata.name
    assert set(await scene.place.events()) == {
        ("SuccessfulCreate", f"Created pod: {name}"),
        ("SuccessfulDelete", f"Deleted pod: {name}"),
    }


async def test_a_pod_that_is_refused_is_told_with_the_reason(scene: Scene) -> None:
    owner = await scene.owner()
    await scene.place.create(
        "/api/v1/namespaces/default/resourcequotas",
        {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}},
    )
    quota = "/api/v1/namespaces/default/resourcequotas/none/status"
    await scene.place.change(quota, {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}})
    pod = pod_of(replica_set.RESOURCE, owner, owner.spec.template)
    with pytest.raises(StatusError):
        await scene.hands.control.create(owner, pod)
    await scene.place.settle()
    [(reason, message)] = await scene.place.events()
    assert reason == "FailedCreate"
    assert message.startswith("Error creating: pods ")
    assert "exceeded quota: none" in message


async def test_owners_take_what_nobody_manages_and_let_go_of_what_they_do_not_select(
    scene: Scene,
) -> None:
    owner = await scene.owner()
    other = await scene.owner("other")
    mine = {"app": "web"}
    await scene.stray("orphan", labels=mine)
    await scene.stray("stranger", labels={"app": "else"})
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
    theirs = reference | {"name": "other", "uid": other.metadata.uid}
    await scene.stray("taken", labels=mine, ownerReferences=[theirs])
    lost = reference | {"name": "web", "uid": owner.metadata.uid}
    await scene.stray("relabelled", labels={"app": "else"}, ownerReferences=[lost])

    kept = await scene.hands.claims.settle(
        owner,
        lambda pod: pod.metadata.labels.get("app") == "web",
        scene.hands.pods.within("default"),
    )
    assert [each.metadata.name for each in kept] == ["orphan"]
    managers = {
        pod["metadata"]["name"]: [
            each["name"] for each in pod["metadata"].get("ownerReferences", [])
        ]
        for pod in await scene.place.pods()
    }
    assert managers == {"orphan": ["web"], "stranger": [], "taken": ["other"], "relabelled": []}
    assert [each.metadata.name for each in scene.hands.pods.owned(owner.metadata.uid)] == ["orphan"]


async def test_an_owner_that_is_gone_adopts_nothing(scene: Scene) -> None:
    owner = await scene.owner()
    await scene.stray("orphan", labels={"app": "web"})
    await scene.place.remove(f"{SETS}/web")
    with pytest.raises(StatusError):
        await scene.hands.claims.settle(owner, lambda pod: True, scene.hands.pods.within("default"))
    [orphan] = await scene.place.pods()
    assert "ownerReferences" not in orphan["metadata"]


async def test_batches_grow_while_all_goes_well() -> None:
    done: list[int] = []

    async def act(number: int) -> None:
        done.append(number)

    await in_growing_batches(11, act)
    assert done == list(range(11))


async def test_batches_end_with_the_first_that_fails() -> None:
    tried: list[int] = []

    async def act(number: int) -> None:
        tried.append(number)
        if number == 2:
            raise ValueError("full")

    with pytest.raises(Shortfall, match="full") as caught:
        await in_growing_batches(500, act)
    assert tried == [0, 1, 2]
    assert caught.value.done == 2
