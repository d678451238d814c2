from msgspec.structs import replace

from kedge.api.core_v1.pod.status import (
    ContainerExtendedResourceRequest,
    PodExtendedResourceClaimStatus,
    PodStatus,
)
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.api.resource_v1.device_class import DeviceClass, DeviceClassSpec
from kedge.api.resource_v1.extended_resources import (
    asks_for_extended,
    claimed_resources,
    classes_by_resource,
    is_made_for_resources,
    may_have_class,
)
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.testing.pods import new_pod

PREFIX = "deviceclass.resource.kubernetes.io/"


def new_class(name: str, resource: str | None = None, created: str = "") -> DeviceClass:
    meta = ObjectMeta(name=name, creationTimestamp=created)
    return DeviceClass(metadata=meta, spec=DeviceClassSpec(extendedResourceName=resource))


def names(*classes: DeviceClass) -> dict[str, str]:
    return {name: each.metadata.name for name, each in classes_by_resource(classes).items()}


def test_a_class_has_the_resource_that_it_names_and_one_of_its_own_name() -> None:
    assert names(new_class("gpus", "a.example/gpu"), new_class("plain")) == {
        "a.example/gpu": "gpus",
        PREFIX + "gpus": "gpus",
        PREFIX + "plain": "plain",
    }


def test_of_classes_with_the_same_resource_the_newest_has_it() -> None:
    old = new_class("a", "a.example/gpu", "2026-01-01T00:00:00Z")
    new = new_class("b", "a.example/gpu", "2026-01-01T00:00:01Z")
    assert names(old, new)["a.example/gpu"] == "b"
    assert names(new, old)["a.example/gpu"] == "b"


def test_of_classes_of_the_same_second_the_first_by_name_has_it() -> None:
    one, other = new_class("a", "a.example/gpu", "t"), new_class("b", "a.example/gpu", "t")
    assert names(one, other)["a.example/gpu"] == "a"
    assert names(other, one)["a.example/gpu"] == "a"


def test_only_extended_and_implicit_names_can_have_a_class() -> None:
    found = ("cpu", "a.example/gpu", PREFIX + "x", "kubernetes.io/x", "x")
    assert [each for each in found if may_have_class(each)] == ["a.example/gpu", PREFIX + "x"]


def test_a_pod_asks_by_any_of_its_containers() -> None:
    wants = {"requests": {"a.example/gpu": "1"}}
    container = {"name": "c", "image": "i"}
    assert not asks_for_extended(new_pod(spec={"containers": [container]}))
    first = [{**container, "name": "i", "resources": wants}]
    assert asks_for_extended(new_pod(spec={"containers": [container], "initContainers": first}))


def test_a_claim_is_made_for_its_owner_only() -> None:
    pod = new_pod(metadata={"name": "p", "uid": "1"})
    owner = OwnerReference(apiVersion="v1", kind="Pod", name="p", uid="1", controller=True)
    meta = ObjectMeta(
        annotations={"resource.kubernetes.io/extended-resource-claim": "true"},
        ownerReferences=[owner],
    )
    assert is_made_for_resources(ResourceClaim(metadata=meta), pod)
    other = new_pod(metadata={"name": "p", "uid": "2"})
    assert not is_made_for_resources(ResourceClaim(metadata=meta), other)
    ordinary = ObjectMeta(ownerReferences=[owner])
    assert not is_made_for_resources(ResourceClaim(metadata=ordinary), pod)


def test_the_status_names_the_resources_that_a_claim_provides() -> None:
    assert list(claimed_resources(new_pod())) == []
    mapping = ContainerExtendedResourceRequest(
        containerName="c", resourceName="a.example/gpu", requestName="r"
    )
    status = PodExtendedResourceClaimStatus(requestMappings=[mapping], resourceClaimName="x")
    pod = replace(new_pod(), status=PodStatus(extendedResourceClaimStatus=status))
    assert list(claimed_resources(pod)) == [("c", "a.example/gpu")]
