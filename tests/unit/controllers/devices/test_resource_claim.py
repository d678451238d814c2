"""Claims that are made for pods, and claims that no pod uses."""

from typing import Any

from kedge.controllers.devices.resource_claim import ResourceClaimController, name_prefix
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]
CORE = "/api/v1/namespaces/default"
DEVICES = "/apis/resource.k8s.io/v1/namespaces/default"
FINALIZER = "resource.kubernetes.io/delete-protection"
REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "gpus"}}
SPEC = {"devices": {"requests": [REQUEST]}}
RESULT = {"request": "gpu", "driver": "d.example", "pool": "n", "device": "gpu-0"}


async def template(place: ControllerHarness) -> None:
    metadata = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    spec = {"metadata": metadata, "spec": SPEC}
    await place.create(
        f"{DEVICES}/resourceclaimtemplates", {"metadata": {"name": "t"}, "spec": spec}
    )


async def pod(place: ControllerHarness, name: str = "p", **entry: str) -> Json:
    entry = entry or {"resourceClaimTemplateName": "t"}
    container = {"name": "main", "image": "host", "resources": {"claims": [{"name": "device"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "device", **entry}]}
    return await place.create(f"{CORE}/pods", {"metadata": {"name": name}, "spec": spec})


async def allocated(place: ControllerHarness, *users: Json, name: str = "c") -> None:
    """A claim that the scheduler has allocated."""
    document = {"metadata": {"name": name, "finalizers": [FINALIZER]}, "spec": SPEC}
    await place.create(f"{DEVICES}/resourceclaims", document)
    await reserve(place, name, *users)


async def reserve(place: ControllerHarness, name: str, *users: Json) -> None:
    reserved = [
        {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
        for each in users
    ]
    allocation = {"devices": {"results": [RESULT]}}
    status = {"status": {"allocation": allocation, "reservedFor": reserved}}
    await place.change(f"{DEVICES}/resourceclaims/{name}/status", status)


async def claims(place: ControllerHarness) -> list[Json]:
    return await place.below(f"{DEVICES}/resourceclaims")


async def test_a_claim_is_made_from_the_template() -> None:
    async with workshop(ResourceClaimController) as place:
        await template(place)
        made = await pod(place)
        [claim] = await claims(place)
        meta = claim["metadata"]
        assert meta["name"].startswith("p-device-")
        assert meta["generateName"] == "p-device-"
        assert meta["labels"] == {"a": "b"}
        assert meta["annotations"] == {"c": "d", "resource.kubernetes.io/pod-claim-name": "device"}
        assert meta["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p",
                "uid": made["metadata"]["uid"],
                "controller": True,
            }
        ]
        [now] = await place.pods()
        statuses = [{"name": "device", "resourceClaimName": meta["name"]}]
        assert now["status"]["resourceClaimStatuses"] == statuses


async def test_a_pod_waits_for_its_template() -> None:
    async with workshop(ResourceClaimController) as place:
        await pod(place)
        assert await claims(place) == []
        message = (
            'PodResourceClaim device: resource claim template "t": '
            'resourceclaimtemplate.resource.k8s.io "t" not found'
        )
        assert ("FailedResourceClaimCreation", message) in await place.events()
        await template(place)
        assert len(await claims(place)) == 1


async def test_a_claim_that_was_deleted_is_made_again() -> None:
    async with workshop(ResourceClaimController) as place:
        await template(place)
        await pod(place)
        [first] = await claims(place)
        await place.remove(f"{DEVICES}/resourceclaims/{first['metadata']['name']}")
        [second] = await claims(place)
        assert second["metadata"]["name"] != first["metadata"]["name"]
        [now] = await place.pods()
        [status] = now["status"]["resourceClaimStatuses"]
        assert status["resourceClaimName"] == second["metadata"]["name"]


async def test_a_claim_without_users_is_deallocated() -> None:
    async with workshop(ResourceClaimController) as place:
        first, second = [await pod(place, name, resourceClaimName="c") for name in ("p", "q")]
        await allocated(place, first, second)
        await place.remove(f"{CORE}/pods/p?gracePeriodSeconds=0")
        [claim] = await claims(place)
        assert [each["name"] for each in claim["status"]["reservedFor"]] == ["q"]
        assert "allocation" in claim["status"]
        await place.remove(f"{CORE}/pods/q?gracePeriodSeconds=0")
        [claim] = await claims(place)
        assert claim["status"] == {}
        assert "finalizers" not in claim["metadata"]


async def test_a_claim_of_a_pod_that_is_not_known_yet_stays_allocated() -> None:
    def blind(*arguments: Any) -> ResourceClaimController:
        """A controller whose pods have not arrived."""
        made = ResourceClaimController(*arguments)
        made._pods.get = lambda name, namespace="": None  # type: ignore[method-assign]
        return made

    async with workshop(blind) as place:
        made = await pod(place, resourceClaimName="c")
        await allocated(place, made)
        [claim] = await claims(place)
        assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p"]
        assert "allocation" in claim["status"]
        await place.remove(f"{CORE}/pods/p?gracePeriodSeconds=0")
        [claim] = await claims(place)
        assert claim["status"] == {}


async def test_a_claim_in_use_is_deleted_after_its_last_pod() -> None:
    async with workshop(ResourceClaimController) as place:
        made = await pod(place, resourceClaimName="c")
        await allocated(place, made)
        await place.remove(f"{DEVICES}/resourceclaims/c")
        [claim] = await claims(place)
        assert claim["metadata"]["deletionTimestamp"]
        await place.end_pod((await place.pods())[0])
        assert await claims(place) == []


async def test_an_allocated_claim_that_is_not_used_can_be_deleted() -> None:
    async with workshop(ResourceClaimController) as place:
        await allocated(place)
        await place.remove(f"{DEVICES}/resourceclaims/c")
        assert await claims(place) == []


async def test_a_generated_claim_goes_when_its_pod_has_ended() -> None:
    async with workshop(ResourceClaimController) as place:
        await template(place)
        made = await pod(place)
        [claim] = await claims(place)
        name = claim["metadata"]["name"]
        await place.change(
            f"{DEVICES}/resourceclaims/{name}", {"metadata": {"finalizers": [FINALIZER]}}
        )
        await reserve(place, name, made)
        await place.end_pod((await place.pods())[0])
        assert await claims(place) == []


async def test_the_claim_for_extended_resources_goes_when_its_pod_has_ended() -> None:
    async with workshop(ResourceClaimController) as place:
        amounts = {"a.example/gpu": "1"}
        resources = {"requests": amounts, "limits": amounts}
        container = {"name": "main", "image": "host", "resources": resources}
        made = await place.create(
            f"{CORE}/pods", {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
        )
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
        meta = {
            "name": "c",
            "finalizers": [FINALIZER],
            "ownerReferences": [{**owner, "uid": made["metadata"]["uid"]}],
        }
        await place.create(f"{DEVICES}/resourceclaims", {"metadata": meta, "spec": SPEC})
        await reserve(place, "c", made)
        mapping = {"containerName": "main", "resourceName": "a.example/gpu", "requestName": "r"}
        status = {"resourceClaimName": "c", "requestMappings": [mapping]}
        await place.change(
            f"{CORE}/pods/p/status", {"status": {"extendedResourceClaimStatus": status}}
        )
        assert len(await claims(place)) == 1
        await place.end_pod((await place.pods())[0])
        assert await claims(place) == []


async def test_a_claim_is_reserved_for_a_pod_that_comes_with_its_node() -> None:
    async with workshop(ResourceClaimController) as place:
        await allocated(place)
        made = await pod(place, resourceClaimName="c")
        await place.run_pod(made, node="n")
        await place.settle()
        [claim] = await claims(place)
        [user] = claim["status"]["reservedFor"]
        assert (user["name"], user["uid"]) == ("p", made["metadata"]["uid"])


def test_long_names_lose_in_proportion() -> None:
    assert name_prefix("pod", "claim") == "pod-claim-"
    prefix = name_prefix("p" * 60, "c" * 30)
    assert prefix == "p" * 37 + "-" + "c" * 18
    assert len(prefix) < 58
