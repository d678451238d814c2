"""The controllers on a real server, over both transports: what users of the cluster see."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kedge.api.apiextensions_v1 import custom_resource_definition
from kedge.api.core_v1 import config_map, namespace, node, service_account
from kedge.api.core_v1.claim import PersistentVolumeClaimSpec, VolumeResourceRequirements
from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.core_v1.namespace import Namespace
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod import pod
from kedge.api.model import Document, Object, ObjectMeta, OwnerReference
from kedge.api.resource import Resource, T
from kedge.api.storage_v1.local_volumes import LOCAL_FINALIZER
from kedge.api.storage_v1.persistent_volume import VOLUMES
from kedge.api.storage_v1.storage_class import CLASSES
from kedge.apiserver.server import ApiServer
from kedge.client.client import Client, DeletionOptions
from kedge.controllers.controllers import Controllers
from kedge.machinery.clock import SystemClock
from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Quantity
from kedge.testing.server import http_client, local_client, memory_server

CONFIG_MAPS, NAMESPACES, PODS = config_map.RESOURCE, namespace.RESOURCE, pod.RESOURCE
DEFINITIONS = custom_resource_definition.RESOURCE
WIDGETS = Resource(type=Document, group="example.com", plural="widgets", kind="Widget")
Connect = Callable[[ApiServer], Client]


@pytest.fixture(params=[local_client, http_client], ids=["local", "http"])
def connect(request: pytest.FixtureRequest) -> Connect:
    chosen: Connect = request.param
    return chosen


@asynccontextmanager
async def cluster(connect: Connect, state: Path) -> AsyncIterator[Client]:
    async with memory_server(state) as running:
        client = connect(running)
        try:
            async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
                controllers = Controllers(
                    client, SystemClock(), running.ca_pem, running.sign, running.sign_request
                )
                run = tasks.create_task(controllers.run())
                yield client
                run.cancel()
        finally:
            await client.close()


async def until(
    client: Client,
    resource: Resource[T],
    holds: Callable[[dict[str, T]], bool],
    namespace: str = "default",
) -> dict[str, T]:
    """Follow the objects of a namespace, by name, until something holds of them."""
    listing = await client.list(resource, namespace)
    objects = {obj.metadata.name: obj for obj in listing.items}
    if holds(objects):
        return objects
    async with client.watch(resource, namespace, version=listing.version) as events:
        async for event in events:
            obj = event.object
            if event.type == "DELETED":
                objects.pop(obj.metadata.name, None)
            elif event.type != "BOOKMARK":
                objects[obj.metadata.name] = obj
            if holds(objects):
                return objects
    raise AssertionError("the watch has ended")


def settings(name: str, *owners: Object, namespace: str = "default", **meta: Any) -> ConfigMap:
    references = [owned_by(owner) for owner in owners]
    return ConfigMap(
        metadata=ObjectMeta(name=name, namespace=namespace, ownerReferences=references, **meta)
    )


def owned_by(owner: Object) -> OwnerReference:
    return OwnerReference(
        apiVersion=owner.apiVersion,
        kind=owner.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        blockOwnerDeletion=True,
    )


async def new_namespace(client: Client, name: str) -> None:
    """A namespace that has what every namespace gets."""
    await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name=name)))
    await until(client, service_account.RESOURCE, lambda found: "default" in found, name)
    await until(client, CONFIG_MAPS, lambda found: "kube-root-ca.crt" in found, name)


# What every namespace has.


async def test_a_new_namespace_gets_an_account_and_the_certificate(
    connect: Connect, tmp_path: Path
) -> None:
    async with cluster(connect, tmp_path) as client:
        await new_namespace(client, "fresh")
        found = await client.get(CONFIG_MAPS, "kube-root-ca.crt", "fresh")
        assert found.data["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
        assert found.metadata.annotations["kubernetes.io/description"]


async def test_what_is_deleted_comes_back_and_what_is_changed_is_mended(
    connect: Connect, tmp_path: Path
) -> None:
    async with cluster(connect, tmp_path) as client:
        await new_namespace(client, "fresh")
        right = (await client.get(CONFIG_MAPS, "kube-root-ca.crt", "fresh")).data
        old = await client.get(service_account.RESOURCE, "default", "fresh")
        await client.delete(service_account.RESOURCE, "default", "fresh")
        await client.patch(
            CONFIG_MAPS, "kube-root-ca.crt", {"data": {"ca.crt": "forged", "more": "x"}}, "fresh"
        )
        await until(
            client, CONFIG_MAPS, lambda found: found["kube-root-ca.crt"].data == right, "fresh"
        )
        new = await until(client, service_account.RESOURCE, lambda found: bool(found), "fresh")
        assert new["default"].metadata.uid != old.metadata.uid


# The end of a namespace.


async def test_a_deleted_namespace_goes_with_all_that_is_in_it(
    connect: Connect, tmp_path: Path
) -> None:
    async with cluster(connect, tmp_path) as client:
        await new_namespace(client, "doomed")
        await client.create(CONFIG_MAPS, settings("a", namespace="doomed"))
        await client.delete(NAMESPACES, "doomed")
        await until(client, NAMESPACES, lambda found: "doomed" not in found, "")
        assert (await client.list(CONFIG_MAPS, "doomed")).items == []


async def test_a_namespace_says_what_holds_it_and_waits_for_it(
    connect: Connect, tmp_path: Path
) -> None:
    async with cluster(connect, tmp_path) as client:
        await new_namespace(client, "doomed")
        stubborn = settings("stubborn", namespace="doomed", finalizers=["example.com/hold"])
        await client.create(CONFIG_MAPS, stubborn)
        await client.delete(NAMESPACES, "doomed")
        found = await until(
            client, NAMESPACES, lambda found: bool(found["doomed"].status.conditions), ""
        )
        told = {each.type: each for each in found["doomed"].status.conditions}
        assert found["doomed"].status.phase == "Terminating"
        assert told["NamespaceContentRemaining"].status == "True"
        assert "example.com/hold in 1 resource" in told["NamespaceFinalizersRemaining"].message
        assert told["NamespaceDeletionContentFailure"].status == "False"
        await client.patch(CONFIG_MAPS, "stubborn", {"metadata": {"finalizers": None}}, "doomed")
        await until(client, NAMESPACES, lambda found: "doomed" not in found, "")


async def test_pods_go_before_anything_they_may_be_using(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        await new_namespace(client, "doomed")
        await client.create(CONFIG_MAPS, settings("used", namespace="doomed"))
        await client.create(PODS, held_pod("doomed"))
        await client.delete(NAMESPACES, "doomed")
        await until(client, NAMESPACES, lambda found: bool(found["doomed"].status.conditions), "")
        assert (await client.get(CONFIG_MAPS, "used", "doomed")).metadata.deletionTimestamp == ""
        await client.patch(PODS, "busy", {"metadata": {"finalizers": None}}, "doomed")
        await until(client, NAMESPACES, lambda found: "doomed" not in found, "")


def held_pod(namespace: str) -> pod.Pod:
    document = {
        "metadata": {"name": "busy", "namespace": namespace, "finalizers": ["example.com/x"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return PODS.from_document(document)


# Garbage.


async def test_dependents_follow_their_owner(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        owner = await client.create(CONFIG_MAPS, settings("owner"))
        for i in range(100):
            await client.create(CONFIG_MAPS, settings(f"child{i}", owner))
        await client.delete(CONFIG_MAPS, "owner", "default")
        await until(client, CONFIG_MAPS, lambda found: found.keys() == {"kube-root-ca.crt"})


async def test_in_the_foreground_the_owner_goes_last(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        owner = await client.create(CONFIG_MAPS, settings("owner"))
        child = await client.create(CONFIG_MAPS, settings("child", owner))
        held = settings("grandchild", child, finalizers=["example.com/hold"])
        await client.create(CONFIG_MAPS, held)
        foreground = DeletionOptions(propagation_policy="Foreground")
        await client.delete(CONFIG_MAPS, "owner", "default", options=foreground)
        await until(
            client,
            CONFIG_MAPS,
            lambda found: bool(found["grandchild"].metadata.deletionTimestamp),
        )
        assert (await client.get(CONFIG_MAPS, "owner", "default")).metadata.finalizers
        await client.patch(CONFIG_MAPS, "grandchild", {"metadata": {"finalizers": None}}, "default")
        await until(client, CONFIG_MAPS, lambda found: found.keys() == {"kube-root-ca.crt"})


async def test_orphans_stay_and_lose_their_reference(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        owner = await client.create(CONFIG_MAPS, settings("owner"))
        for name in ("a", "b"):
            await client.create(CONFIG_MAPS, settings(name, owner))
        orphan = DeletionOptions(propagation_policy="Orphan")
        await client.delete(CONFIG_MAPS, "owner", "default", options=orphan)
        found = await until(client, CONFIG_MAPS, lambda found: "owner" not in found)
        assert [list(found[name].metadata.ownerReferences) for name in ("a", "b")] == [[], []]


async def test_a_circle_of_owners_can_be_deleted(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        a = await client.create(CONFIG_MAPS, settings("a"))
        b = await client.create(CONFIG_MAPS, settings("b", a))
        closed = replace(a, metadata=replace(a.metadata, ownerReferences=[owned_by(b)]))
        await client.update(CONFIG_MAPS, closed)
        foreground = DeletionOptions(propagation_policy="Foreground")
        await client.delete(CONFIG_MAPS, "a", "default", options=foreground)
        await until(client, CONFIG_MAPS, lambda found: found.keys() == {"kube-root-ca.crt"})


async def test_a_dependent_of_two_stays_for_the_other(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        one = await client.create(CONFIG_MAPS, settings("one"))
        two = await client.create(CONFIG_MAPS, settings("two"))
        await client.create(CONFIG_MAPS, settings("child", one, two))
        await client.delete(CONFIG_MAPS, "one", "default")
        found = await until(
            client, CONFIG_MAPS, lambda found: len(found["child"].metadata.ownerReferences) == 1
        )
        assert found["child"].metadata.ownerReferences[0].name == "two"


async def test_owners_that_are_not_who_they_are_said_to_be_do_not_count(
    connect: Connect, tmp_path: Path
) -> None:
    async with cluster(connect, tmp_path) as client:
        await new_namespace(client, "other")
        owner = await client.create(CONFIG_MAPS, settings("owner"))
        namesake = replace(owner, metadata=replace(owner.metadata, uid="another"))
        await client.create(CONFIG_MAPS, settings("mistaken", namesake))
        await client.create(CONFIG_MAPS, settings("abroad", owner, namespace="other"))
        await client.create(CONFIG_MAPS, settings("right", owner))
        await until(client, CONFIG_MAPS, lambda found: "mistaken" not in found)
        await until(client, CONFIG_MAPS, lambda found: "abroad" not in found, "other")
        assert await client.get(CONFIG_MAPS, "right", "default")


async def test_an_owner_outside_namespaces_owns_inside(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        owner = await client.create(node.RESOURCE, Node(metadata=ObjectMeta(name="n")))
        await client.create(CONFIG_MAPS, settings("child", owner))
        await client.delete(node.RESOURCE, "n")
        await until(client, CONFIG_MAPS, lambda found: "child" not in found)


async def test_custom_kinds_own_and_are_owned(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        await define_widgets(client)
        owner = await client.create(WIDGETS, widget("owner"))
        await client.create(CONFIG_MAPS, settings("child", owner))
        base = await client.create(CONFIG_MAPS, settings("base"))
        await client.create(WIDGETS, widget("owned", base))
        await client.delete(WIDGETS, "owner", "default")
        await client.delete(CONFIG_MAPS, "base", "default")
        await until(client, CONFIG_MAPS, lambda found: "child" not in found)
        await until(client, WIDGETS, lambda found: not found)


async def test_dependents_of_a_kind_that_is_abolished_go(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        await define_widgets(client)
        await collector_at_work(client)
        owner = await client.create(WIDGETS, widget("owner"))
        await client.create(CONFIG_MAPS, settings("child", owner))
        await client.delete(DEFINITIONS, "widgets.example.com")
        await until(client, CONFIG_MAPS, lambda found: "child" not in found)


async def test_owners_survive_a_new_version_of_their_kind(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        await define_widgets(client)
        owner = await client.create(WIDGETS, widget("owner"))
        await client.create(CONFIG_MAPS, settings("child", owner))
        await collector_at_work(client)
        versions = [version("v2", storage=False), version("v1", storage=True)]
        change = {"spec": {"versions": versions}}
        await client.patch(DEFINITIONS, "widgets.example.com", change)
        await served(client, replace(WIDGETS, version="v2"))
        await collector_at_work(client)
        assert await client.get(CONFIG_MAPS, "child", "default")
        await client.delete(WIDGETS, "owner", "default")
        await until(client, CONFIG_MAPS, lambda found: "child" not in found)


# Storage.


async def test_a_claim_gets_a_volume_and_both_go_together(connect: Connect, tmp_path: Path) -> None:
    async with cluster(connect, tmp_path) as client:
        labels = {"kubernetes.io/hostname": "n1"}
        await client.create(node.RESOURCE, Node(metadata=ObjectMeta(name="n1", labels=labels)))
        content = {"provisioner": "kedge.dev/local", "volumeBindingMode": "Immediate"}
        await client.create(CLASSES, Document(metadata=ObjectMeta(name="now"), content=content))
        claim = PersistentVolumeClaim(
            metadata=ObjectMeta(name="data", namespace="default"),
            spec=PersistentVolumeClaimSpec(
                accessModes=["ReadWriteOnce"],
                storageClassName="now",
                resources=VolumeResourceRequirements(requests={"storage": Quantity.of("1Gi")}),
            ),
        )
        made = await client.create(CLAIMS, claim)
        await until(client, CLAIMS, lambda found: found["data"].status.phase == "Bound", "default")
        name = f"pvc-{made.metadata.uid}"
        bound = await client.get(VOLUMES, name)
        assert bound.content["spec"]["claimRef"]["uid"] == made.metadata.uid
        await client.delete(CLAIMS, "data", "default")
        await until(
            client,
            VOLUMES,
            lambda found: (
                bool(found[name].metadata.deletionTimestamp)
                and list(found[name].metadata.finalizers) == [LOCAL_FINALIZER]
            ),
            "",
        )
        await client.delete(node.RESOURCE, "n1")
        await until(client, VOLUMES, lambda found: name not in found, "")


async def collector_at_work(client: Client) -> None:
    """Return when what was there before the collector began has been collected."""
    stranger = Namespace(
        apiVersion="v1", kind="Namespace", metadata=ObjectMeta(name="nobody", uid="u")
    )
    await client.create(CONFIG_MAPS, settings("foundling", stranger))
    await until(client, CONFIG_MAPS, lambda found: "foundling" not in found)


def widget(name: str, *owners: Object) -> Document:
    references = [owned_by(owner) for owner in owners]
    meta = ObjectMeta(name=name, namespace="default", ownerReferences=references)
    return Document(apiVersion="example.com/v1", kind="Widget", metadata=meta)


async def define_widgets(client: Client) -> None:
    document = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "singular": "widget"},
            "versions": [version("v1", storage=True)],
        },
    }
    definition = DEFINITIONS.decode(msgspec.json.encode(document))
    await client.create(DEFINITIONS, definition)
    await served(client, WIDGETS)


def version(name: str, *, storage: bool) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {"name": name, "served": True, "storage": storage, "schema": schema}


async def served(client: Client, resource: Resource[Document]) -> None:
    """Return when a custom kind can be used; nothing tells of that moment but trying."""
    for _ in range(200):
        try:
            await client.list(resource)
            return
        except StatusError:
            await SystemClock().sleep(0.01)
    raise AssertionError("the kind is not served")
