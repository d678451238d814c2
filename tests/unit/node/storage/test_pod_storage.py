"""Claims of pods, mounted with records that outlive the agent."""

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.security import PodSecurityContext
from kedge.api.storage_v1.local_volumes import LOCAL_DATA, VOLUME_NODE
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.node.config import NodeConfig
from kedge.node.host.kubelet_directory import KubeletDirectory
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.pod.referenced_objects import ReferencedObjects
from kedge.node.storage.csi_registry import CsiRegistry
from kedge.node.storage.local_store import LocalVolumeRecord, LocalVolumeStore
from kedge.node.storage.node_storage import NodeStorage
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.testing.node import FakeNodeFacts, RecordedEvents
from kedge.web.message import HttpRequest, Response

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
LOCAL = {"csi": {"driver": "local.kedge.dev", "volumeHandle": "v"}}


def kubelet_directory(top: Path) -> KubeletDirectory:
    return KubeletDirectory(top / "kubelet", top / "own", top / "device-plugins")


class StorageBox:
    """The storage of a node without the right to mount, on a server in the same process."""

    def __init__(self, server: LocalServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.events = RecordedEvents()
        self.refused: tuple[str, str] | None = None
        """Method and path of requests that do not reach the server."""
        self.restart()

    def restart(self) -> None:
        """An agent that knows nothing of the one before it."""
        client, clock = Client(LocalTransport(self._handle)), self.server.clock
        config = NodeConfig(
            cluster="c", name="here", state=self.directory, images=self.directory / "images"
        )
        self.node = NodeStorage(
            config,
            kubelet_directory(self.directory),
            client,
            ReferencedObjects(client, clock),
            FakeNodeFacts(),
            self.events,
            clock,
            registered=self.registry(),
            may_mount=False,
        )
        self.pods = self.node.pods

    def registry(self) -> CsiRegistry:
        return CsiRegistry(self.server.clock)

    async def _handle(self, call: Call) -> Response:
        headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
        if (call.method, call.path) == self.refused:
            raise OSError("connection refused")
        request = HttpRequest(call.method, call.path, call.query, headers, call.body)
        answer = self.server.app.handle(request)
        return answer if isinstance(answer, Response) else await answer

    async def mount(self, pod: Pod) -> None:
        await self.pods.mount(pod, pod.spec.volumes[0])

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await self.server.settle()
                await asyncio.to_thread(lambda: None)

    def place(self, uid: str) -> Path:
        found = self.pods.find(uid, "v")
        assert found is not None
        return Path(found.path)

    async def refusal(self, pod: Pod) -> str:
        with pytest.raises(VolumeFailure) as failure:
            await self.mount(pod)
        assert failure.value.reason == "FailedMount"
        return failure.value.message


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[StorageBox]:
    async with LocalServer.running() as server:
        yield StorageBox(server, tmp_path)


def claim_pod(uid: str = "u1", claim: str = "c", **source: Any) -> Pod:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim, **source}}
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    return RESOURCE.from_document(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": uid},
            "spec": {"containers": [container], "volumes": [volume]},
        }
    )


async def bind(
    box: StorageBox, source: dict[str, Any], *, modes: str = "ReadWriteOnce", **spec: Any
) -> None:
    """Create a claim and its volume, bound to each other."""
    amount, server = {"storage": "1Mi"}, box.server
    claim = {
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": [modes],
            "resources": {"requests": amount},
            "storageClassName": "",
            "volumeName": "pv",
        },
    }
    uid = (await server.post(CLAIMS, claim))["metadata"]["uid"]
    owner = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": uid}
    is_local = source.get("csi", {}).get("driver") == LOCAL["csi"]["driver"]
    volume = {
        "metadata": {"name": "pv", "labels": {VOLUME_NODE: "here"} if is_local else {}},
        "spec": {"capacity": amount, "accessModes": [modes], "claimRef": owner, **source, **spec},
    }
    await server.post(VOLUMES, volume)
    status = {"status": {"phase": "Bound", "capacity": amount, "accessModes": [modes]}}
    await server.merge(f"{CLAIMS}/c/status", status)


async def test_a_local_volume_keeps_its_content_from_pod_to_pod(box: StorageBox) -> None:
    await bind(box, LOCAL)
    await box.mount(claim_pod())
    box.place("u1").joinpath("file").write_text("kept")
    await box.pods.unmount("u1")
    assert box.pods.find("u1", "v") is None
    await box.mount(claim_pod("u2"))
    assert box.place("u2").joinpath("file").read_text() == "kept"


async def test_data_that_are_gone_are_never_replaced_by_an_empty_volume(box: StorageBox) -> None:
    await bind(box, LOCAL)
    await box.mount(claim_pod())
    await box.pods.unmount("u1")
    place = box.directory / "volumes" / "v"
    place.rename(box.directory / "elsewhere")
    box.restart()
    said = await box.refusal(claim_pod("u2"))
    assert f"the data of the volume, made on node here, are missing: {place} does not" in said
    assert not place.exists()
    # As the message says.
    await box.pods.unmount("u2")
    (box.directory / "elsewhere").rename(place)
    await box.mount(claim_pod("u3"))
    await box.pods.unmount("u3")
    shutil.rmtree(place)
    nothing = {"metadata": {"annotations": {LOCAL_DATA: None}}}
    await box.server.merge(f"{VOLUMES}/pv", nothing)
    await box.mount(claim_pod("u4"))
    assert list(box.place("u4").iterdir()) == []


async def test_a_volume_whose_mark_was_not_written_is_marked_later(box: StorageBox) -> None:
    """The agent was killed after it had made the data."""
    await bind(box, LOCAL)
    LocalVolumeStore(box.directory / "volumes").make("v", LocalVolumeRecord(1 << 20))
    await box.mount(claim_pod())
    volume = await box.server.get(f"{VOLUMES}/pv")
    assert volume["metadata"]["annotations"][LOCAL_DATA] == "here"


async def test_no_pod_gets_a_volume_before_it_is_marked(box: StorageBox) -> None:
    await bind(box, LOCAL)
    box.refused = ("PATCH", f"{VOLUMES}/pv")
    assert "cannot record that the volume exists" in await box.refusal(claim_pod())
    assert box.pods.find("u1", "v") is None
    box.refused = None
    await box.mount(claim_pod())


async def test_the_next_agent_knows_what_is_mounted(box: StorageBox) -> None:
    await bind(box, LOCAL)
    await box.mount(claim_pod())
    before = box.pods.find("u1", "v")
    box.restart()
    assert box.pods.find("u1", "v") == before
    await box.pods.unmount("u1")
    box.restart()
    assert list(box.pods.records) == []


async def test_the_data_are_for_the_agent_alone(box: StorageBox) -> None:
    await bind(box, LOCAL)
    await box.mount(claim_pod())
    assert (box.directory / "volumes").stat().st_mode & 0o777 == 0o700


async def test_a_host_path_is_checked(box: StorageBox) -> None:
    await bind(box, {"hostPath": {"path": f"{box.directory}/none", "type": "Directory"}})
    assert await box.refusal(claim_pod()) == (
        'MountVolume.SetUp failed for volume "pv" : hostPath type check failed:'
        f" {box.directory}/none is not a directory"
    )


def export_pod() -> Pod:
    volume = {"name": "v", "nfs": {"server": "192.0.2.1", "path": "/x"}}
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    return RESOURCE.from_document(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u1"},
            "spec": {"containers": [container], "volumes": [volume]},
        }
    )


async def test_an_export_needs_the_right_to_mount(box: StorageBox) -> None:
    await bind(box, {"nfs": {"server": "192.0.2.1", "path": "/x"}})
    why = "cannot mount 192.0.2.1:/x: the agent has no right to mount"
    assert await box.refusal(claim_pod()) == f'MountVolume.SetUp failed for volume "pv" : {why}'
    assert await box.refusal(export_pod()) == f'MountVolume.SetUp failed for volume "v" : {why}'
    await box.pods.unmount("u1")
    assert list(box.pods.records) == []


async def test_a_volume_of_an_unknown_type_is_named(box: StorageBox) -> None:
    source = {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-11.com.example:a", "lun": 0}
    await bind(box, {"iscsi": source})
    assert (await box.refusal(claim_pod())).endswith(
        "no volume plugin matched: kedge does not mount volumes of the type iscsi, such as pv; a"
        " CSI driver may"
    )


async def test_a_local_path_must_exist(box: StorageBox) -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "DoesNotExist"}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    await bind(box, {"local": {"path": "/does/not/exist"}, "nodeAffinity": affinity})
    assert await box.refusal(claim_pod()) == (
        'MountVolume.NewMounter initialization failed for volume "pv" : path "/does/not/exist" does'
        " not exist"
    )


async def test_a_volume_of_another_node_is_refused(box: StorageBox) -> None:
    term = {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    await bind(box, LOCAL, nodeAffinity=affinity)
    assert await box.refusal(claim_pod()) == (
        'MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms'
    )


async def test_a_missing_claim_is_named(box: StorageBox) -> None:
    assert await box.refusal(claim_pod()) == (
        "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to"
        " process volumes=[v]: error processing PVC default/c: failed to fetch PVC from API server:"
        ' persistentvolumeclaims "c" not found'
    )


async def test_an_unbound_claim_waits(box: StorageBox) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    await box.server.post(CLAIMS, {"metadata": {"name": "c"}, "spec": spec})
    assert (await box.refusal(claim_pod())).endswith(
        "error processing PVC default/c: PVC is not bound"
    )


async def test_an_absent_driver_is_named_and_its_pod_can_go(box: StorageBox) -> None:
    await bind(box, {"csi": {"driver": "x.example.com", "volumeHandle": "h"}})
    await box.server.post(
        "/apis/storage.k8s.io/v1/csidrivers",
        {"metadata": {"name": "x.example.com"}, "spec": {"attachRequired": False}},
    )
    assert await box.refusal(claim_pod()) == (
        'MountVolume.MountDevice failed for volume "pv" : kubernetes.io/csi: attacher.MountDevice'
        " failed to create newCsiDriverClient: driver name x.example.com not found in the list of"
        " registered CSI drivers"
    )
    await box.pods.unmount("u1")
    assert list(box.pods.records) == []


async def test_a_claim_for_one_pod_has_no_second(box: StorageBox) -> None:
    await bind(box, LOCAL, modes="ReadWriteOncePod")
    await box.mount(claim_pod())
    await box.mount(claim_pod())
    assert "already in use by another pod" in await box.refusal(claim_pod("u2"))


async def test_a_block_volume_is_not_mounted(box: StorageBox) -> None:
    await bind(box, LOCAL, volumeMode="Block")
    assert (await box.refusal(claim_pod())).endswith(
        "volume v has volumeMode Block, but is specified in volumeMounts"
    )


async def test_read_only_claims_are_recorded_as_such(box: StorageBox) -> None:
    await bind(box, LOCAL)
    await box.mount(claim_pod(readOnly=True))
    found = box.pods.find("u1", "v")
    assert found is not None
    assert found.is_read_only


@pytest.mark.parametrize("read_only", [True, False])
async def test_the_group_of_a_pod_gets_no_volume_that_it_cannot_write(
    box: StorageBox, read_only: bool
) -> None:
    await bind(box, LOCAL)
    pod = claim_pod(readOnly=read_only)
    security = PodSecurityContext(fsGroup=os.getgid())
    await box.mount(replace(pod, spec=replace(pod.spec, securityContext=security)))
    assert bool(box.place("u1").stat().st_mode & stat.S_ISGID) is not read_only


@pytest.mark.parametrize("kind", ["local", "hostPath"])
async def test_a_local_path_gets_the_group_and_a_host_path_does_not(
    box: StorageBox, kind: str
) -> None:
    disk = box.directory / "disk"
    disk.mkdir()
    source: dict[str, Any] = {kind: {"path": str(disk)}}
    if kind == "local":
        term = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "DoesNotExist"}]}
        source["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    await bind(box, source)
    pod = claim_pod()
    security = PodSecurityContext(fsGroup=os.getgid())
    await box.mount(replace(pod, spec=replace(pod.spec, securityContext=security)))
    assert bool(disk.stat().st_mode & stat.S_ISGID) is (kind == "local")


async def test_a_size_that_is_not_enforced_is_an_event(box: StorageBox) -> None:
    await bind(box, LOCAL)
    await box.mount(claim_pod())
    await box.server.settle()
    [told] = box.events.messages("NotEnforced")
    assert "the agent has no right to mount" in told
