"""Volumes as pods and containers see them, made of real objects of a server."""

import asyncio
import base64
import contextlib
import json
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.node.config import NodeConfig
from kedge.node.host.kubelet_directory import KubeletDirectory
from kedge.node.images import archive
from kedge.node.images.images import ImageService
from kedge.node.images.mapping import ImageMapping
from kedge.node.images.reference import ImageReference
from kedge.node.images.registry import RegistryClient
from kedge.node.images.store import ImageStore
from kedge.node.images.unpack import ImageLimits
from kedge.node.pod.dependencies import ConfigFailure, ImageFailure, VolumeFailure
from kedge.node.pod.referenced_objects import ConfigObjectWatches, ReferencedObjects
from kedge.node.storage.csi_registry import CsiRegistry
from kedge.node.storage.node_storage import NodeStorage
from kedge.node.volumes import mounts
from kedge.node.volumes.empty_dir import MemoryMounter
from kedge.node.volumes.volumes import PodVolumes
from kedge.testing.images import build, layout_files, write_files
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.testing.node import FakeNodeFacts, NoSecrets, RecordedEvents
from kedge.web.message import HttpRequest, Response

MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


class Box:
    """A node's volumes, on a server in the same process."""

    def __init__(self, server: LocalServer, directory: Path, *, may_mount: bool = False) -> None:
        self.server = server
        self.directory = directory
        self.events = RecordedEvents()
        self.calls: list[str] = []
        """What the server was asked."""
        self.broken = False
        """Whether the server does not answer."""
        self.gate: Callable[[str], Awaitable[None]] | None = None
        self._may_mount = may_mount
        self.mounter: MemoryMounter | None = None
        self.kubelet = KubeletDirectory(
            directory / "kubelet", directory / "own", directory / "device-plugins"
        )
        self.store = ImageStore(directory / "image-store", server.clock)
        self.images = ImageService(self.store, RegistryClient(), ImageMapping.parse(()))
        self.volumes: PodVolumes
        self.restart()

    def restart(self) -> None:
        """An agent that knows nothing of those before it."""
        client, clock = Client(LocalTransport(self._handle)), self.server.clock
        following = ConfigObjectWatches(client, clock)
        sources, facts = ReferencedObjects(client, clock), FakeNodeFacts()
        config = NodeConfig(
            cluster="c", name="here", state=self.directory, images=self.directory / "images"
        )
        self.storage = NodeStorage(
            config,
            self.kubelet,
            client,
            sources,
            facts,
            self.events,
            clock,
            registered=CsiRegistry(clock),
            may_mount=self._may_mount,
        )
        self.volumes = PodVolumes(
            self.directory / "pods",
            self.directory / "memory",
            sources,
            following,
            facts,
            self.events,
            clock,
            storage=self.storage.pods,
            kubelet=self.kubelet,
            images=self.images,
            pull_secrets=NoSecrets(),
            may_mount=self._may_mount,
            mounter=self.mounter,
        )
        self.volumes.open()
        self.server.start(following.run())
        self.server.start(self.volumes.run())

    async def _handle(self, call: Call) -> Response:
        self.calls.append(f"{call.method} {call.path}")
        if self.broken:
            raise ConnectionResetError("the server is gone")
        if self.gate is not None:
            await self.gate(call.path)
        headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
        request = HttpRequest(call.method, call.path, call.query, headers, call.body)
        answer = self.server.app.handle(request)
        return answer if isinstance(answer, Response) else await answer

    async def settled(self) -> None:
        """Everybody has done what there was to do, on the disk as well."""
        for _ in range(5):
            await self.server.settle()
            await asyncio.to_thread(lambda: None)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while True:
                # Files go while they are read.
                with contextlib.suppress(FileNotFoundError):
                    if condition():
                        return
                await self.settled()

    def read(self, pod: Pod, name: str) -> dict[str, str]:
        """The files of a volume."""
        place = self.volumes.place(pod, name)
        return {
            str(path.relative_to(place)): path.read_text()
            for top in place.iterdir()
            if not top.name.startswith("..")
            for path in (top, *top.rglob("*"))
            if path.is_file()
        }

    def mode(self, pod: Pod, name: str, path: str) -> int:
        return stat.S_IMODE((self.volumes.place(pod, name) / path).stat().st_mode)


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


@pytest.fixture
async def box(server: LocalServer, tmp_path: Path) -> Box:
    """At a level where nothing can be mounted."""
    return Box(server, tmp_path)


@pytest.fixture
async def root_box(server: LocalServer, mountable: Path) -> Box:
    return Box(server, mountable, may_mount=True)


def volume_pod(
    *volumes: dict[str, Any], uid: str = "uid-1", labels: Any = None, **spec: Any
) -> Pod:
    given = [{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)]
    containers = spec.pop("containers", [{"name": "c", "image": "i"}])
    metadata = {"name": "p", "namespace": "default", "uid": uid, "labels": labels or {}}
    return RESOURCE.from_document(
        {"metadata": metadata, "spec": {"containers": containers, "volumes": given, **spec}}
    )


def config(name: str, **source: Any) -> dict[str, Any]:
    return {"configMap": {"name": name, **source}}


async def post_map(server: LocalServer, name: str, **data: str) -> None:
    await server.post(MAPS, {"metadata": {"name": name}, "data": data})


@contextlib.contextmanager
def refused(text: str) -> Iterator[None]:
    with pytest.raises(VolumeFailure) as failure:
        yield
    assert failure.value.message == text
    assert failure.value.reason == "FailedMount"


# Config maps and secrets.


async def test_every_key_is_a_file(box: Box, server: LocalServer) -> None:
    raw = base64.b64encode(b"\x00\xff").decode()
    body = {"metadata": {"name": "m"}, "data": {"a": "1", "B_b": ""}, "binaryData": {"raw": raw}}
    await server.post(MAPS, body)
    pod = volume_pod(config("m"))
    await box.volumes.mount(pod)
    place = box.volumes.place(pod, "v0")
    assert (place / "a").read_text() == "1"
    assert (place / "B_b").read_text() == ""
    assert (place / "raw").read_bytes() == b"\x00\xff"
    assert box.mode(pod, "v0", "a") == 0o644


async def test_only_the_keys_that_are_listed_are_files_where_they_are_listed(
    box: Box, server: LocalServer
) -> None:
    await server.post(SECRETS, {"metadata": {"name": "s"}, "stringData": {"a": "1", "b": "2"}})
    items = [{"key": "a", "path": "deep/down/a"}, {"key": "b", "path": "b", "mode": 0o400}]
    pod = volume_pod({"secret": {"secretName": "s", "items": items, "defaultMode": 0o440}})
    await box.volumes.mount(pod)
    assert box.read(pod, "v0") == {"deep/down/a": "1", "b": "2"}
    assert box.mode(pod, "v0", "deep/down/a") == 0o440
    assert box.mode(pod, "v0", "b") == 0o400


async def test_a_map_as_large_as_maps_get_is_shown(box: Box, server: LocalServer) -> None:
    await post_map(server, "m", large="x" * 1_000_000)
    pod = volume_pod(config("m"))
    await box.volumes.mount(pod)
    assert len(box.read(pod, "v0")["large"]) == 1_000_000


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        (config("none"), 'configmap "none" not found'),
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        (
            config("m", items=[{"key": "k", "path": "k"}]),
            "configmap references non-existent config key: k",
        ),
        (
            {"secret": {"secretName": "s", "items": [{"key": "k", "path": "k"}]}},
            "references non-existent secret key: k",
        ),
        (
            {
                "projected": {
                    "sources": [{"configMap": {"name": "none"}}, {"secret": {"name": "nor"}}]
                }
            },
            '[configmap "none" not found, secret "nor" not found]',
        ),
    ],
)
async def test_what_is_missing_is_named(
    volume: dict[str, Any], text: str, box: Box, server: LocalServer
) -> None:
    await post_map(server, "m", a="1")
    await server.post(SECRETS, {"metadata": {"name": "s"}, "stringData": {"a": "1"}})
    with refused(f'MountVolume.SetUp failed for volume "v0" : {text}'):
        await box.volumes.mount(volume_pod(volume))


async def test_everything_that_is_missing_is_named_at_once(box: Box) -> None:
    prefix = "MountVolume.SetUp failed for volume"
    with refused(
        f'[{prefix} "v0" : configmap "a" not found, {prefix} "v2" : configmap "b" not found]'
    ):
        await box.volumes.mount(volume_pod(config("a"), {"emptyDir": {}}, config("b")))


async def test_what_may_be_missing_is_left_out(box: Box, server: LocalServer) -> None:
    await post_map(server, "m", a="1")
    items = [{"key": "a", "path": "a"}, {"key": "none", "path": "none"}]
    pod = volume_pod(
        config("m", items=items, optional=True), {"secret": {"secretName": "s", "optional": True}}
    )
    await box.volumes.mount(pod)
    assert box.read(pod, "v0") == {"a": "1"}
    assert box.read(pod, "v1") == {}


# Updates.


async def test_files_follow_the_map_they_are_made_of(box: Box, server: LocalServer) -> None:
    await post_map(server, "m", a="1", b="2")
    pod = volume_pod(config("m"))
    await box.volumes.mount(pod)
    await server.merge(f"{MAPS}/m", {"data": {"a": "new", "b": None, "c": "3"}})
    await box.until(lambda: box.read(pod, "v0") == {"a": "new", "c": "3"})


async def test_files_stay_while_their_map_is_gone_and_follow_the_next(
    box: Box, server: LocalServer
) -> None:
    await post_map(server, "m", a="1")
    pod = volume_pod(config("m"))
    await box.volumes.mount(pod)
    await server.delete(f"{MAPS}/m")
    await box.settled()
    assert box.read(pod, "v0") == {"a": "1"}
    await post_map(server, "m", a="again")
    await box.until(lambda: box.read(pod, "v0") == {"a": "again"})


async def test_a_map_that_stays_away_is_told_of_once(
    box: Box, server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kedge.node.volumes.volumes")
    await post_map(server, "m", a="1")
    pod = volume_pod(config("m"))
    await box.volumes.mount(pod)
    await server.delete(f"{MAPS}/m")
    for _ in range(10):
        await server.clock.advance(30)
        await box.settled()
    [told] = [each.getMessage() for each in caplog.records]
    assert told.startswith("volume not refreshed pod=uid-1 ")
    assert 'configmap "m" not found' in told


async def test_what_may_be_missing_comes_and_goes(box: Box, server: LocalServer) -> None:
    pod = volume_pod(config("m", optional=True))
    await box.volumes.mount(pod)
    await box.settled()
    await post_map(server, "m", a="1")
    await box.until(lambda: box.read(pod, "v0") == {"a": "1"})
    await server.delete(f"{MAPS}/m")
    await box.until(lambda: box.read(pod, "v0") == {})


async def test_no_change_is_lost_however_it_meets_what_is_under_way(
    box: Box, server: LocalServer
) -> None:
    pod = await with_account(
        server,
        volume_pod(
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "m", "optional": True}},
                        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3601}},
                    ]
                }
            }
        ),
    )
    asked, answer = asyncio.Event(), asyncio.Event()

    async def gate(path: str) -> None:
        """The map is read at once, the token takes its time."""
        if path.endswith("/token"):
            asked.set()
            await answer.wait()

    await box.volumes.mount(pod)
    first = box.read(pod, "v0")["token"]
    # The token is old, but nobody has looked yet.
    await server.clock.advance(2900)
    box.gate = gate
    await post_map(server, "m", a="1")
    await box.until(asked.is_set)
    # By now the map has been read, and what is shown is still that there was none.
    await server.delete(f"{MAPS}/m")
    await box.settled()
    answer.set()
    await box.until(
        lambda: box.read(pod, "v0")["token"] != first and "a" not in box.read(pod, "v0")
    )


async def test_what_changes_before_the_watch_begins_is_not_missed(
    box: Box, server: LocalServer
) -> None:
    await post_map(server, "m", a="1")
    begin = asyncio.Event()

    async def gate(path: str) -> None:
        """Watches wait, reads do not."""
        if path == MAPS:
            await begin.wait()

    box.gate = gate
    pod = volume_pod(config("m", optional=True))
    await box.volumes.mount(pod)
    assert box.read(pod, "v0") == {"a": "1"}
    await server.delete(f"{MAPS}/m")
    begin.set()
    await box.until(lambda: box.read(pod, "v0") == {})


async def test_a_map_that_cannot_change_is_not_watched(box: Box, server: LocalServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}, "immutable": True})
    pod = volume_pod(config("m"))
    await box.volumes.mount(pod)
    await box.settled()
    box.calls.clear()
    for number in range(3):
        other = volume_pod(config("m"), uid=f"other-{number}")
        await box.volumes.mount(other)
        assert box.read(other, "v0") == {"a": "1"}
    assert box.calls == []


async def test_pods_share_what_is_known_of_a_map(box: Box, server: LocalServer) -> None:
    await post_map(server, "m", a="1")
    await box.volumes.mount(volume_pod(config("m")))
    await box.settled()
    box.calls.clear()
    other = volume_pod(config("m"), uid="uid-2")
    await box.volumes.mount(other)
    await box.volumes.unmount("uid-1")
    await server.merge(f"{MAPS}/m", {"data": {"a": "2"}})
    await box.until(lambda: box.read(other, "v0") == {"a": "2"})
    assert box.calls == []


async def test_nothing_is_written_when_the_watch_tells_what_is_shown(
    box: Box, server: LocalServer
) -> None:
    await post_map(server, "m", a="1")
    pod = volume_pod(config("m"))
    await box.volumes.mount(pod)
    before = os.readlink(box.volumes.place(pod, "v0") / "..data")
    await box.settled()
    assert os.readlink(box.volumes.place(pod, "v0") / "..data") == before


async def test_labels_are_shown_as_they_are_now(box: Box) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o400},
        {
            "path": "cpu",
            "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"},
        },
    ]
    volume = {"downwardAPI": {"items": items}}
    pod = volume_pod(volume, labels={"b": "2", "a": "1"})
    await box.volumes.mount(pod)
    assert box.read(pod, "v0") == {"labels": 'a="1"\nb="2"', "name": "p", "cpu": "10000"}
    assert box.mode(pod, "v0", "name") == 0o400
    await box.volumes.mount(volume_pod(volume, labels={"a": "new"}))
    assert box.read(pod, "v0")["labels"] == 'a="new"'


async def test_a_container_that_is_not_there_has_no_limits_to_show(box: Box) -> None:
    selector = {"containerName": "nope", "resource": "limits.cpu"}
    volume = {"downwardAPI": {"items": [{"path": "cpu", "resourceFieldRef": selector}]}}
    with refused('MountVolume.SetUp failed for volume "v0" : container nope not found'):
        await box.volumes.mount(volume_pod(volume))


# Tokens.


def token_volume(**source: Any) -> dict[str, Any]:
    return {"projected": {"sources": [{"serviceAccountToken": {"path": "token", **source}}]}}


async def with_account(server: LocalServer, pod: Pod) -> Pod:
    """The pod as the API has it, so that tokens can be bound to it."""
    await server.post(ACCOUNTS, {"metadata": {"name": "default"}})
    document = RESOURCE.to_document(pod)
    document["spec"]["serviceAccountName"] = "default"
    document["metadata"].pop("uid")
    return RESOURCE.from_document(await server.post(PODS, document))


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


async def test_a_token_is_for_its_audience_and_bound_to_its_pod(
    box: Box, server: LocalServer
) -> None:
    volume = token_volume(audience="vault", expirationSeconds=600)
    pod = await with_account(server, volume_pod(volume))
    await box.volumes.mount(pod)
    said = claims(box.read(pod, "v0")["token"])
    assert said["aud"] == ["vault"]
    assert said["exp"] - said["iat"] == 600
    assert said["kubernetes.io"]["pod"] == {"name": "p", "uid": pod.metadata.uid}


async def test_a_token_is_renewed_after_four_fifths_of_its_life(
    box: Box, server: LocalServer
) -> None:
    pod = await with_account(server, volume_pod(token_volume(expirationSeconds=1000)))
    await box.volumes.mount(pod)
    first = box.read(pod, "v0")["token"]
    await server.clock.advance(790)
    await box.volumes.mount(pod)
    await box.settled()
    assert box.read(pod, "v0")["token"] == first
    await server.clock.advance(60)
    await box.until(lambda: box.read(pod, "v0")["token"] != first)


async def test_a_token_outlives_a_server_that_is_away(box: Box, server: LocalServer) -> None:
    pod = await with_account(server, volume_pod(token_volume(expirationSeconds=1000)))
    await box.volumes.mount(pod)
    first = box.read(pod, "v0")["token"]
    box.broken = True
    await server.clock.advance(900)
    await box.volumes.mount(pod)
    assert box.read(pod, "v0")["token"] == first
    box.broken = False
    await server.clock.advance(60)
    await box.until(lambda: box.read(pod, "v0")["token"] != first)


async def test_no_token_is_a_volume_that_cannot_be_made(box: Box, server: LocalServer) -> None:
    pod = await with_account(server, volume_pod(token_volume()))
    await server.delete(f"{ACCOUNTS}/default")
    with refused(
        'MountVolume.SetUp failed for volume "v0" : failed to fetch token:'
        ' serviceaccounts "default" not found'
    ):
        await box.volumes.mount(pod)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    ("spec", "owner", "mode"),
    [
        ({}, 0, 0o644),
        ({"securityContext": {"runAsUser": 1000}}, 1000, 0o600),
        ({"securityContext": {"fsGroup": 2000}}, 0, 0o640),
        ({"securityContext": {"runAsUser": 1000, "fsGroup": 2000}}, 1000, 0o640),
        (
            {
                "containers": [
                    {"name": "a", "image": "i", "securityContext": {"runAsUser": 1}},
                    {"name": "b", "image": "i", "securityContext": {"runAsUser": 2}},
                ]
            },
            0,
            0o644,
        ),
    ],
)
async def test_a_token_is_for_those_who_run_in_the_pod(
    spec: dict[str, Any], owner: int, mode: int, box: Box, server: LocalServer
) -> None:
    pod = await with_account(server, volume_pod(token_volume(), **spec))
    await box.volumes.mount(pod)
    found = (box.volumes.place(pod, "v0") / "token").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (owner, mode)


# Several at once, and what there is not.


async def test_sources_are_put_together_in_order(box: Box, server: LocalServer) -> None:
    await post_map(server, "m", a="map", both="map")
    await server.post(SECRETS, {"metadata": {"name": "s"}, "stringData": {"both": "secret"}})
    field = {"path": "d/name", "fieldRef": {"fieldPath": "metadata.name"}}
    sources = [
        {"configMap": {"name": "m"}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [field]}},
    ]
    pod = volume_pod({"projected": {"sources": sources, "defaultMode": 0o400}})
    await box.volumes.mount(pod)
    assert box.read(pod, "v0") == {"a": "map", "both": "secret", "d/name": "p"}
    assert box.mode(pod, "v0", "d/name") == 0o400


async def test_the_server_is_asked_for_everything_at_once(box: Box, server: LocalServer) -> None:
    names = [f"m{number}" for number in range(10)]
    for name in names:
        await post_map(server, name, a=name)
    asked: set[str] = set()
    everything = asyncio.Event()

    async def gate(path: str) -> None:
        """Answer nobody before all have asked."""
        asked.add(path)
        if asked >= {f"{MAPS}/{name}" for name in names}:
            everything.set()
        await everything.wait()

    box.gate = gate
    pod = volume_pod(*(config(name) for name in names))
    async with asyncio.timeout(10):
        await box.volumes.mount(pod)
    assert box.read(pod, "v7") == {"a": "m7"}


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("iscsi", {"targetPortal": "x", "iqn": "iqn.2026-11.x:y", "lun": 0}),
        ("fc", {"targetWWNs": ["5"], "lun": 0}),
    ],
)
async def test_kinds_that_kedge_has_not_are_refused(
    kind: str, source: dict[str, Any], box: Box
) -> None:
    with refused(
        f'MountVolume.SetUp failed for volume "v0" : kedge has no volumes of the kind {kind};'
        " it has persistentVolumeClaim, ephemeral, csi, nfs, image, emptyDir, hostPath, configMap,"
        " secret, projected and downwardAPI"
    ):
        await box.volumes.mount(volume_pod({kind: source}))


async def test_an_image_volume_holds_its_image_until_the_pod_is_gone(
    box: Box, tmp_path: Path
) -> None:
    write_files(tmp_path / "image", layout_files((build({"file": b"1"}), [])))
    packed = archive.read(archive.DirectoryArchive(tmp_path / "image"), ImageLimits())[0]
    box.store.add(packed, [ImageReference.parse("tools:1")], loaded=True)
    pod = volume_pod({"image": {"reference": "tools:1"}}, containers=mounting({"name": "v0"}))
    (box.directory / "pods" / pod.metadata.uid).mkdir(parents=True, exist_ok=True)
    await box.volumes.mount(pod)
    assert [each.holders for each in box.store.listed()] == [()]
    [source] = await sources_of(box, pod)
    assert source.joinpath("file").read_text() == "1"
    box.restart()
    box.images.release_others([])
    assert [each.holders for each in box.store.listed()] == [(f"{pod.metadata.uid}-v0",)]
    await box.volumes.unmount(pod.metadata.uid)
    assert [each.holders for each in box.store.listed()] == [()]


async def test_the_image_of_a_volume_is_pulled_for_the_containers_that_mount_it(box: Box) -> None:
    volume = {"image": {"reference": "absent:1", "pullPolicy": "Never"}}
    pod = volume_pod(volume, containers=mounting({"name": "v0"}))
    await box.volumes.mount(pod)
    with pytest.raises(ImageFailure) as failure:
        await sources_of(box, pod)
    assert failure.value.reason == "ErrImageNeverPull"


async def test_projections_that_kedge_has_not_are_refused(box: Box) -> None:
    source = {"clusterTrustBundle": {"name": "x", "path": "x"}}
    with refused(
        'MountVolume.SetUp failed for volume "v0" : kedge has no projections but of config maps,'
        " secrets, service account tokens and fields of the pod"
    ):
        await box.volumes.mount(volume_pod({"projected": {"sources": [source]}}))


# What containers see.


def mounting(*mounted: dict[str, Any]) -> list[dict[str, Any]]:
    given = [{"mountPath": f"/m{index}", **each} for index, each in enumerate(mounted)]
    return [{"name": "c", "image": "i", "volumeMounts": given}]


async def sources_of(box: Box, pod: Pod, **env: str) -> list[Path]:
    found = await box.volumes.mounts_of(pod, pod.spec.containers[0], list(env.items()))
    return [Path(each.host_path, each.part) for each in found]


async def test_mounts_say_what_may_be_written(box: Box, server: LocalServer) -> None:
    await post_map(server, "m", a="1")
    containers = mounting(
        {"name": "v0"},
        {"name": "v1", "mountPath": "relative", "mountPropagation": "HostToContainer"},
        {"name": "v1", "readOnly": True, "recursiveReadOnly": "IfPossible"},
        {"name": "v2", "readOnly": True},
    )
    host = {"hostPath": {"path": str(box.directory / "made" / "here")}}
    pod = volume_pod(config("m"), {"emptyDir": {}}, host, containers=containers)
    await box.volumes.mount(pod)
    found = await box.volumes.mounts_of(pod, pod.spec.containers[0], [])
    assert [each.container_path for each in found] == ["/m0", "/relative", "/m2", "/m3"]
    assert [each.read_only for each in found] == [True, False, True, True]
    assert [each.recursive_read_only for each in found] == [False, False, True, False]
    assert found[1].propagation == "HostToContainer"
    assert (box.directory / "made" / "here").is_dir()


async def test_a_volume_that_is_not_there_cannot_be_mounted(box: Box) -> None:
    pod = volume_pod(containers=mounting({"name": "none"}))
    await box.volumes.mount(pod)
    with pytest.raises(ConfigFailure) as failure:
        await sources_of(box, pod)
    assert str(failure.value) == 'cannot find volume "none" to mount into container "c"'


async def test_parts_of_volumes_are_made(root_box: Box, server: LocalServer) -> None:
    await post_map(server, "m", a="1")
    containers = mounting(
        {"name": "v0", "subPath": "a"},
        {"name": "v1", "subPathExpr": "logs/$(WHO)"},
        {"name": "v0", "subPath": "missing"},
    )
    pod = volume_pod(config("m"), {"emptyDir": {}}, containers=containers)
    await root_box.volumes.mount(pod)
    file, logs, missing = await sources_of(root_box, pod, WHO="me")
    assert file.read_text() == "1"
    assert missing.is_dir()
    (logs / "line").touch()
    assert (root_box.volumes.place(pod, "v1") / "logs" / "me" / "line").exists()
    # A container that starts again sees what is there by then.
    await server.merge(f"{MAPS}/m", {"data": {"a": "2", "missing": "3"}})
    await root_box.until(lambda: root_box.read(pod, "v0") == {"a": "2"})
    file, _, _ = await sources_of(root_box, pod, WHO="me")
    assert file.read_text() == "2"


async def test_a_link_out_of_the_volume_is_no_part_of_it(root_box: Box) -> None:
    pod = volume_pod({"emptyDir": {}}, containers=mounting({"name": "v0", "subPath": "link"}))
    await root_box.volumes.mount(pod)
    link = root_box.volumes.place(pod, "v0") / "link"
    link.symlink_to("/etc")
    with pytest.raises(ConfigFailure) as failure:
        await sources_of(root_box, pod)
    assert str(failure.value) == ('failed to prepare subPath for volumeMount "v0" of container "c"')
    link.unlink()
    link.symlink_to("nowhere")
    with pytest.raises(ConfigFailure) as failure:
        await sources_of(root_box, pod)
    assert str(failure.value) == (
        'failed to create subPath directory for volumeMount "v0" of container "c"'
    )


# The end.


async def test_nothing_is_left_by_an_agent_that_knows_only_the_uid(
    root_box: Box, server: LocalServer
) -> None:
    machine = root_box.directory / "machine"
    (machine / "part").mkdir(parents=True)
    (machine / "part" / "precious").touch()
    await post_map(server, "m", a="1")
    pod = volume_pod(
        config("m"),
        {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"hostPath": {"path": str(machine)}},
        {"emptyDir": {}},
        containers=mounting(
            {"name": "v0", "subPath": "a"},
            {"name": "v1", "subPath": "a/b"},
            {"name": "v2", "subPath": "part"},
            {"name": "v3"},
        ),
    )
    await root_box.volumes.mount(pod)
    for place in (await sources_of(root_box, pod))[1:]:
        (place / "written").touch()
    assert len(mounts.below(root_box.directory / "pods")) == 1
    root_box.restart()
    await root_box.volumes.unmount("uid-1")
    await root_box.volumes.unmount("uid-1")
    assert mounts.below(root_box.directory / "pods") == []
    assert os.listdir(root_box.directory / "pods" / "uid-1") == []
    assert os.listdir(root_box.directory / "memory") == []
    assert sorted(os.listdir(machine / "part")) == ["precious", "written"]


async def test_an_agent_that_comes_back_finds_volumes_as_they_were(
    root_box: Box, server: LocalServer
) -> None:
    await post_map(server, "m", a="1")
    pod = volume_pod(config("m"), {"emptyDir": {"medium": "Memory"}}, {"emptyDir": {}})
    await root_box.volumes.mount(pod)
    for name in ("v1", "v2"):
        (root_box.volumes.place(pod, name) / "kept").touch()
    root_box.restart()
    await root_box.volumes.mount(pod)
    for name in ("v1", "v2"):
        assert os.listdir(root_box.volumes.place(pod, name)) == ["kept"]
    assert len(mounts.below(root_box.directory / "pods")) == 1
    await server.merge(f"{MAPS}/m", {"data": {"a": "2"}})
    await root_box.until(lambda: root_box.read(pod, "v0") == {"a": "2"})


async def test_a_mount_that_is_given_up_does_not_come_back_after_the_end(
    box: Box, server: LocalServer
) -> None:
    for name in ("m", "n"):
        await post_map(server, name, a="x" * 500_000)
    pod = volume_pod(config("m"), config("n"), {"emptyDir": {}})
    for turns in range(12):
        work = asyncio.ensure_future(box.volumes.mount(pod))
        for _ in range(turns):
            await asyncio.to_thread(lambda: None)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await box.volumes.unmount("uid-1")
        await box.settled()
        assert not (box.directory / "memory" / "uid-1").exists()
        assert not (box.directory / "pods" / "uid-1" / "volumes").exists()


async def test_a_pod_that_ends_waits_for_no_server(box: Box, server: LocalServer) -> None:
    pod = await with_account(server, volume_pod(token_volume(expirationSeconds=600)))
    await box.volumes.mount(pod)

    async def never(path: str) -> None:
        await asyncio.Event().wait()

    box.gate = never
    await server.clock.advance(700)
    async with asyncio.timeout(10):
        await box.volumes.unmount(pod.metadata.uid)
    assert not (box.directory / "memory" / pod.metadata.uid).exists()


# What a level has not got, and what a pod uses too much of.


async def test_what_cannot_be_had_is_said(box: Box) -> None:
    pod = volume_pod({"emptyDir": {"medium": "Memory"}}, securityContext={"fsGroup": os.getgid()})
    await box.volumes.mount(pod)
    await box.volumes.mount(pod)
    assert box.events.messages("NotEnforced") == [
        f"cannot change the group of volumes to {os.getgid()}: the agent is not root",
        'volume "v0" is on disk: a volume in memory needs the right to mount, which the agent does'
        " not have",
    ]
    assert box.volumes.place(pod, "v0").is_dir()


async def test_huge_pages_without_the_right_to_mount_are_refused(box: Box) -> None:
    asked = {"hugepages-2Mi": "2Mi", "memory": "1Mi"}
    containers = [{"name": "c", "image": "i", "resources": {"requests": asked, "limits": asked}}]
    with refused(
        'MountVolume.SetUp failed for volume "v0" : huge pages need the right to mount, which the'
        " agent does not have"
    ):
        await box.volumes.mount(
            volume_pod({"emptyDir": {"medium": "HugePages"}}, containers=containers)
        )


async def test_parts_of_volumes_are_found_without_the_right_to_mount(box: Box) -> None:
    pod = volume_pod({"emptyDir": {}}, containers=mounting({"name": "v0", "subPath": "a/b"}))
    await box.volumes.mount(pod)
    [place] = await sources_of(box, pod)
    assert place == box.volumes.place(pod, "v0") / "a" / "b"
    assert place.is_dir()


async def test_a_volume_that_holds_too_much_is_noticed(box: Box, tmp_path: Path) -> None:
    limits = {"ephemeral-storage": "2Mi"}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    pod = volume_pod({"emptyDir": {"sizeLimit": "1Mi"}}, containers=containers)
    await box.volumes.mount(pod)
    layer = tmp_path / "layer"
    layer.mkdir()
    assert await box.volumes.excess(pod, {"c": [layer]}, []) == ""
    (layer / "file").write_bytes(b"x" * 3_000_000)
    assert "Pod ephemeral local storage" in await box.volumes.excess(pod, {"c": [layer]}, [])
    (box.volumes.place(pod, "v0") / "file").write_bytes(b"x" * 2_000_000)
    assert await box.volumes.excess(pod, {"c": [layer]}, []) == (
        'Usage of EmptyDir volume "v0" exceeds the limit "1Mi". '
    )


class FakeMounter:
    """Remembers what it was asked to mount. Fulfils MemoryMounter."""

    def __init__(self, *, is_counted: bool) -> None:
        self.is_counted = is_counted
        self.asked: list[tuple[Path, int, int, int]] = []

    async def mount_memory(self, place: Path, *, size: int, mode: int, group: int) -> None:
        self.asked.append((place, size, mode, group))


@pytest.fixture
async def mounter(box: Box) -> FakeMounter:
    box.mounter = made = FakeMounter(is_counted=True)
    box.restart()
    return made


async def test_a_volume_in_memory_is_mounted_before_each_start(
    box: Box, mounter: FakeMounter
) -> None:
    source = {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    pod = volume_pod(source, {"emptyDir": {}}, containers=mounting({"name": "v0"}, {"name": "v1"}))
    await box.volumes.mount(pod)
    wanted = (box.volumes.place(pod, "v0"), 1 << 20, 0o1777, -1)
    assert mounter.asked == [wanted]
    await sources_of(box, pod)
    assert mounter.asked == [wanted, wanted]
    assert box.events.messages("NotEnforced") == []


async def test_a_volume_in_memory_with_a_sub_path_is_on_disk(
    box: Box, mounter: FakeMounter
) -> None:
    source = {"emptyDir": {"medium": "Memory"}}
    pod = volume_pod(source, containers=mounting({"name": "v0", "subPath": "a"}))
    await box.volumes.mount(pod)
    assert mounter.asked == []
    assert box.events.messages("NotEnforced") == [
        'volume "v0" is on disk: without root, one in memory has no subPath'
    ]


async def test_memory_that_is_not_counted_is_told(box: Box, mounter: FakeMounter) -> None:
    mounter.is_counted = False
    await box.volumes.mount(volume_pod({"emptyDir": {"medium": "Memory"}}))
    assert box.events.messages("NotEnforced") == [
        'volume "v0" does not count for the memory limits of containers: nothing enforces them'
    ]
