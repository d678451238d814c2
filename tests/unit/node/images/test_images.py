"""Images behind names: pull policies, mapping, and what is said when there is none."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from kedge.api.core_v1.secret import Secret
from kedge.node.images import archive
from kedge.node.images.credentials import CredentialSource, RegistryCredential
from kedge.node.images.garbage import GarbageThresholds
from kedge.node.images.image import HOST_IMAGE, LocalImage
from kedge.node.images.images import ImageService
from kedge.node.images.mapping import ImageMapping
from kedge.node.images.oci import InvalidImage
from kedge.node.images.reference import ImageReference
from kedge.node.images.registry import RegistryClient
from kedge.node.images.store import ImageStore
from kedge.node.images.unpack import ImageLimits
from kedge.node.pod import dependencies
from kedge.node.pod.dependencies import ImageFailure
from kedge.testing.clock import FakeClock
from kedge.testing.images import BuiltImage, build, layout_files, write_files
from kedge.testing.registry import FakeRegistry, registry

ONE = build({"bin/app": b"1"}, config={"User": "7", "StopSignal": "SIGINT"})
TWO = build({"bin/app": b"2"})


@pytest.fixture
async def served() -> AsyncIterator[FakeRegistry]:
    async with registry() as running:
        yield running


class Room:
    """Images with a store, and how often they were told to begin fetching."""

    def __init__(
        self,
        directory: Path,
        rules: Sequence[str] = (),
        own_credentials: CredentialSource | None = None,
    ) -> None:
        self.store = ImageStore(directory / "images", FakeClock())
        self.images = ImageService(
            self.store,
            RegistryClient(),
            ImageMapping.parse(rules),
            own_credentials=own_credentials,
        )
        self._as_pods_see_it: dependencies.ImageResolver = self.images
        self.fetches = 0
        self._directory = directory

    async def resolve(
        self, name: str, policy: str = "IfNotPresent", secrets: Sequence[Secret] = ()
    ) -> LocalImage:
        def began() -> None:
            self.fetches += 1

        found = await self._as_pods_see_it.resolve(name, policy, secrets, began)
        assert isinstance(found, LocalImage)
        return found

    def load(self, image: BuiltImage, name: str) -> None:
        path = write_files(self._directory / image.id[7:], layout_files((image, [])))
        (packed,) = archive.read(archive.DirectoryArchive(path), ImageLimits())
        self.store.add(packed, [ImageReference.parse(name)], loaded=True)


async def refusal(room: Room, name: str, policy: str = "IfNotPresent") -> ImageFailure:
    with pytest.raises(ImageFailure) as failed:
        await room.resolve(name, policy)
    return failed.value


async def test_an_image_is_pulled_once_if_not_present(served: FakeRegistry, tmp_path: Path) -> None:
    room = Room(tmp_path)
    name = served.push("app:1", ONE)
    image = await room.resolve(name)
    assert (image.id, image.user, image.stop_signal) == (ONE.id, "7", "SIGINT")
    assert (image.name, image.reference) == (name, f"{served.host}/app@{ONE.digest}")
    served.push("app:1", TWO)
    assert (await room.resolve(name)).id == ONE.id
    assert (await room.resolve(name, "Never")).id == ONE.id
    assert room.fetches == 1
    assert list((tmp_path / "images" / "incoming").iterdir()) == []


async def test_always_asks_the_registry_and_fetches_what_has_changed(
    served: FakeRegistry, tmp_path: Path
) -> None:
    room = Room(tmp_path)
    name = served.push("app:1", ONE)
    await room.resolve(name, "Always")
    served.asked.clear()
    assert (await room.resolve(name, "Always")).id == ONE.id
    assert served.asked == ["/v2/app/manifests/1"]
    served.push("app:1", TWO)
    assert (await room.resolve(name, "Always")).id == TWO.id
    assert room.fetches == 3
    served.tags.clear()
    assert (await refusal(room, name, "Always")).reason == "ErrImagePull"


async def test_a_tag_may_mean_what_was_pulled_by_digest(
    served: FakeRegistry, tmp_path: Path
) -> None:
    room = Room(tmp_path)
    name = served.push("app:1", ONE)
    await room.resolve(f"{served.host}/app@{ONE.digest}")
    served.asked.clear()
    assert (await room.resolve(name)).id == ONE.id
    assert not any("blobs" in path for path in served.asked)


async def test_a_name_given_by_hand_is_never_asked_of_a_registry(
    served: FakeRegistry, tmp_path: Path
) -> None:
    room = Room(tmp_path)
    name = served.push("app:latest", TWO)
    room.load(ONE, name)
    assert (await room.resolve(name, "Always")).id == ONE.id
    assert (served.asked, room.fetches) == ([], 0)


async def test_the_machine_is_always_there(tmp_path: Path) -> None:
    room = Room(tmp_path, ["busybox:*=host", "old/*=me/new:1"])
    for name in ("host", "busybox", "docker.io/library/busybox:1.36"):
        assert await room.resolve(name, "Always") is HOST_IMAGE
    room.load(ONE, "me/new:1")
    image = await room.resolve("old/thing:7", "Never")
    assert (image.id, image.name) == (ONE.id, "docker.io/me/new:1")
    assert room.images.get("host") is HOST_IMAGE
    assert room.images.get(ONE.id) == room.store.get(ONE.id)


async def test_what_is_missing_is_said_with_what_to_do(
    served: FakeRegistry, tmp_path: Path
) -> None:
    room = Room(tmp_path)
    never = await refusal(room, "app:1", "Never")
    assert never.reason == "ErrImageNeverPull"
    assert never.message.startswith(
        'Container image "app:1" is not present with pull policy of Never'
    )
    missing = await refusal(room, f"{served.host}/none")
    assert missing.reason == "ErrImagePull"
    assert missing.message == (
        f'failed to pull image "{served.host}/none:latest": not found in the registry (404): check'
        " the name and the tag of the image, or load it with 'kedge image load FILE', or have it"
        " mean the machine's own files with"
        f" 'kedge up --image-map {served.host}/none=host'"
    )
    invalid = await refusal(room, "Bad Name")
    assert invalid.reason == "InvalidImageName"
    assert invalid.message == (
        'Failed to apply default image tag "Bad Name": couldn\'t parse image name "Bad Name":'
        " invalid reference format: repository name (library/Bad Name) must be lowercase"
    )


async def test_a_pods_secrets_open_the_registry(served: FakeRegistry, tmp_path: Path) -> None:
    served.account = ("me", "secret")
    name = served.push("app:1", ONE)
    auths = {"auths": {served.host: {"username": "me", "password": "secret"}}}
    data = {".dockerconfigjson": base64.b64encode(msgspec.json.encode(auths)).decode()}
    secret = Secret(type="kubernetes.io/dockerconfigjson", data=data)
    room = Room(tmp_path)
    assert (await refusal(room, name)).reason == "ErrImagePull"
    assert (await room.resolve(name, secrets=[secret])).id == ONE.id


def pull_secret(host: str, username: str, password: str) -> Secret:
    auths = {"auths": {host: {"username": username, "password": password}}}
    data = {".dockerconfigjson": base64.b64encode(msgspec.json.encode(auths)).decode()}
    return Secret(type="kubernetes.io/dockerconfigjson", data=data)


@pytest.mark.parametrize("by", ["app:1", "app@{digest}"])
async def test_a_private_image_is_not_there_for_pods_that_cannot_pull_it(
    served: FakeRegistry, tmp_path: Path, by: str
) -> None:
    served.account = ("me", "secret")
    served.push("app:1", ONE)
    name = f"{served.host}/{by.format(digest=ONE.digest)}"
    mine, theirs = (pull_secret(served.host, "me", each) for each in ("secret", "guess"))
    room = Room(tmp_path)
    await room.resolve(name, secrets=[mine])
    for others in ([], [theirs]):
        with pytest.raises(ImageFailure) as failed:
            await room.resolve(name, secrets=others)
        assert failed.value.reason == "ErrImagePull"
    never = await refusal(room, name, "Never")
    assert (never.reason, never.message) == (
        "ErrImageNeverPull",
        f'image "{name}" is present with pull policy of "Never" but does not have the proper'
        " credentials to access the image",
    )
    served.asked.clear()
    assert (await room.resolve(name, secrets=[mine])).id == ONE.id
    assert (await room.resolve(name, "Never", secrets=[theirs, mine])).id == ONE.id
    assert served.asked == []


async def test_a_pod_that_the_registry_admits_joins_those_that_may_use_the_image(
    served: FakeRegistry, tmp_path: Path
) -> None:
    served.account = ("me", "secret")
    name = served.push("app:1", ONE)
    room = Room(tmp_path)
    await room.resolve(name, secrets=[pull_secret(served.host, "me", "secret")])
    served.account = ("you", "other")
    yours = pull_secret(served.host, "you", "other")
    assert (await room.resolve(name, secrets=[yours])).id == ONE.id
    served.asked.clear()
    assert (await room.resolve(name, "Never", secrets=[yours])).id == ONE.id
    assert served.asked == []


async def test_the_image_host_can_be_switched_off(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images", FakeClock())
    images = ImageService(store, RegistryClient(), ImageMapping.parse(["old=host"]), has_host=False)
    for name in ("host", "old"):
        with pytest.raises(ImageFailure, match="--no-host-image"):
            await images.resolve(name, "IfNotPresent", [], lambda: None)


async def test_many_who_want_the_same_image_fetch_it_once(
    served: FakeRegistry, tmp_path: Path
) -> None:
    room = Room(tmp_path)
    name = served.push("app:1", ONE)
    found = await asyncio.gather(*(room.resolve(name) for _ in range(10)))
    assert {image.id for image in found} == {ONE.id}
    assert room.fetches == 1


async def test_a_damaged_layer_is_an_error_of_the_pull(
    served: FakeRegistry, tmp_path: Path
) -> None:
    name = served.push("app:1", ONE)
    layer = next(key for key in ONE.blobs if key not in (ONE.id, ONE.digest))
    served.blobs[layer] = bytes(len(ONE.blobs[layer]))
    room = Room(tmp_path)
    failed = await refusal(room, name)
    assert failed.reason == "ErrImagePull"
    assert list((tmp_path / "images" / "incoming").iterdir()) == []
    served.push("app:1", ONE)
    assert (await room.resolve(name)).id == ONE.id


async def test_held_images_survive_collection_until_they_are_let_go(
    served: FakeRegistry, tmp_path: Path
) -> None:
    room = Room(tmp_path)
    image = await room.resolve(served.push("app:1", ONE))
    room.images.hold(image.id, "c1")
    room.images.hold("host", "c2")
    everything = GarbageThresholds(high_percent=1, low_percent=0, min_age=0)
    assert (await room.images.collect(everything)).images == ()
    room.images.release("c1")
    assert (await room.images.collect(everything)).images == (ONE.id,)


async def test_a_node_that_comes_back_lets_go_for_its_lost_containers_and_no_others(
    served: FakeRegistry, tmp_path: Path
) -> None:
    room = Room(tmp_path)
    image = await room.resolve(served.push("app:1", ONE))
    mine, other = (
        ImageService(room.store, RegistryClient(), ImageMapping.parse([]), node=each)
        for each in ("mine", "other")
    )
    mine.hold(image.id, "lost")
    other.hold(image.id, "theirs")
    everything = GarbageThresholds(high_percent=1, low_percent=0, min_age=0)
    mine.release_others(["kept"])
    assert (await mine.collect(everything)).images == ()
    other.release_others([])
    assert (await mine.collect(everything)).images == (ONE.id,)


async def test_a_volume_holds_its_image_as_long_as_the_directory_of_its_pod(
    served: FakeRegistry, tmp_path: Path
) -> None:
    room = Room(tmp_path)
    image = await room.resolve(served.push("app:1", ONE))
    pod = tmp_path / "pods" / "1f0c"
    pod.mkdir(parents=True)
    everything = GarbageThresholds(high_percent=1, low_percent=0, min_age=0)
    room.images.hold_volume(image.id, pod, "tools")
    room.images.release_others([])
    assert (await room.images.collect(everything)).images == ()
    pod.rmdir()
    room.images.release_others([])
    assert (await room.images.collect(everything)).images == (ONE.id,)


async def test_the_images_of_a_pods_volumes_are_released_together(
    served: FakeRegistry, tmp_path: Path
) -> None:
    room = Room(tmp_path)
    image = await room.resolve(served.push("app:1", ONE))
    for uid, volume in (("1f0c", "a"), ("1f0c", "b"), ("77", "a")):
        room.images.hold_volume(image.id, tmp_path / uid, volume)
    room.images.release_volumes("1f0c")
    assert [each.holders for each in room.store.listed()] == [("77-a",)]


class OwnCredentials:
    """Credentials of a node, which break if there are none."""

    def __init__(self, *known: RegistryCredential) -> None:
        self._known = known
        self.asked = 0

    def find(self, repository: str) -> Sequence[RegistryCredential]:
        self.asked += 1
        if not self._known:
            raise InvalidImage("docker-credential-own failed")
        return self._known


async def test_a_broken_helper_of_the_node_leaves_the_pods_credentials(
    served: FakeRegistry, tmp_path: Path
) -> None:
    served.account = ("me", "secret")
    name = served.push("app:1", ONE)
    room = Room(tmp_path, own_credentials=OwnCredentials())
    failed = await refusal(room, name)
    assert "the registry denies access (401)" in failed.message
    assert "own credentials cannot be used: docker-credential-own failed: " in failed.message
    mine = pull_secret(served.host, "me", "secret")
    assert (await room.resolve(name, secrets=[mine])).id == ONE.id
    never = await refusal(room, name, "Never")
    assert never.reason == "ErrImageNeverPull"
    assert never.message.endswith("cannot be used: docker-credential-own failed")


async def test_the_nodes_credentials_are_asked_for_only_if_they_can_help(
    served: FakeRegistry, tmp_path: Path
) -> None:
    served.account = ("me", "secret")
    name = served.push("app:1", ONE)
    own = OwnCredentials(RegistryCredential("me", "secret"))
    room = Room(tmp_path, own_credentials=own)
    assert (await refusal(room, name, "Never")).reason == "ErrImageNeverPull"
    assert own.asked == 0
    assert (await room.resolve(name)).id == ONE.id
    assert own.asked == 1
    # The image is private, and only the node's credentials have pulled it.
    assert (await room.resolve(name, "Never")).id == ONE.id
