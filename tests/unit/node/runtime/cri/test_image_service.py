import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from kedge.api.core_v1.secret import Secret
from kedge.node.images.credentials import RegistryCredential
from kedge.node.images.garbage import DiskSpace, GarbageThresholds
from kedge.node.images.mapping import ImageMapping
from kedge.node.images.oci import InvalidImage
from kedge.node.pod.dependencies import ImageFailure, VolumeFailure
from kedge.node.runtime.cri import image_service
from kedge.node.runtime.cri import messages as m
from kedge.node.runtime.cri.image_service import CriImageService
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.testing.clock import FakeClock

THEIRS = m.CriImage(id="sha256:1", repo_tags=["docker.io/library/theirs:1"], size=100)
APP = m.CriImage(
    id="sha256:2",
    repo_tags=["registry.example/app:1"],
    repo_digests=["registry.example/app@sha256:9"],
    size=200,
    uid=m.CriInt64(value=1000),
)


class FakeRuntimeImages:
    """A runtime with one image on the machine and one in a private registry."""

    def __init__(self) -> None:
        self.images = [THEIRS]
        self.used: list[str] = []
        self.removed: list[str] = []
        self.users: list[str] = []
        self.has_image_ids = False

    def _container(self, image: str) -> m.CriContainer:
        """A container that uses an image. CRI-O gives names with digests as references."""
        if self.has_image_ids:
            return m.CriContainer(id="c", image_ref=APP.repo_digests[0], image_id=image)
        return m.CriContainer(id="c", image_ref=image)

    async def call(self, method: Any, request: Any, seconds: float = 0) -> Any:
        name = request.image.image if getattr(request, "image", None) else ""
        match method.name:
            case "ImageStatus":
                found = [each for each in self.images if name in (each.id, *each.repo_tags)]
                return m.CriImageStatus(image=found[0] if found else None)
            case "PullImage":
                self.users.append(request.auth.username if request.auth else "")
                if self.users[-1] != "me":
                    raise RuntimeFailure("401 Unauthorized")
                if APP not in self.images:
                    self.images.append(APP)
                return m.CriPullResponse(image_ref=APP.id)
            case "ListImages":
                return m.CriImages(images=self.images)
            case "ListContainers":
                return m.CriContainers(containers=[self._container(each) for each in self.used])
            case "ImageFsInfo":
                place = m.CriFilesystemId(mountpoint="/nowhere/images")
                return m.CriImageFilesystems(image_filesystems=[m.CriFilesystem(fs_id=place)])
            case "RemoveImage":
                self.removed.append(name)
                return None
        raise AssertionError(method.name)


class Pod:
    """A pod that wants images."""

    def __init__(self, service: CriImageService, *secrets: Secret) -> None:
        self.service, self.secrets = service, secrets
        self.pulls = 0

    async def image(self, name: str, policy: str = "IfNotPresent") -> str:
        found = await self.service.resolve(name, policy, self.secrets, self._progress)
        return found.id

    def _progress(self) -> None:
        self.pulls += 1


def secret(username: str) -> Secret:
    auths = {"auths": {"registry.example": {"username": username, "password": "p"}}}
    data = {".dockerconfigjson": base64.b64encode(msgspec.json.encode(auths)).decode()}
    return Secret(type="kubernetes.io/dockerconfigjson", data=data)


@pytest.fixture
def runtime() -> FakeRuntimeImages:
    return FakeRuntimeImages()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def service(runtime: FakeRuntimeImages, clock: FakeClock, tmp_path: Path) -> CriImageService:
    mapping = ImageMapping.parse(("old=theirs:1", "mine=host"))
    return CriImageService(cast(Any, runtime), mapping, tmp_path / "pulls", clock)


async def test_an_image_on_the_machine_is_for_all(service: CriImageService) -> None:
    pod = Pod(service)
    assert await pod.image("theirs:1") == THEIRS.id
    assert await pod.image("old", "Never") == THEIRS.id
    assert pod.pulls == 0


async def test_a_private_image_is_for_those_who_could_pull_it(
    service: CriImageService, runtime: FakeRuntimeImages
) -> None:
    mine, other = Pod(service, secret("me")), Pod(service, secret("other"))
    assert await mine.image("registry.example/app:1") == APP.id
    assert await mine.image("registry.example/app:1") == APP.id
    assert (mine.pulls, runtime.users) == (1, ["me"])
    with pytest.raises(ImageFailure, match="401 Unauthorized"):
        await other.image("registry.example/app:1")
    with pytest.raises(ImageFailure, match="not present"):
        await Pod(service).image("registry.example/app:1", "Never")
    await mine.image("registry.example/app:1", "Always")
    assert mine.pulls == 2


class BrokenCredentials:
    """Credentials of a node whose helper fails."""

    def __init__(self) -> None:
        self.asked = 0

    def find(self, repository: str) -> Sequence[RegistryCredential]:
        self.asked += 1
        raise InvalidImage("docker-credential-own failed")


async def test_a_broken_helper_of_the_node_leaves_the_pods_credentials(
    runtime: FakeRuntimeImages, clock: FakeClock, tmp_path: Path
) -> None:
    own = BrokenCredentials()
    service = CriImageService(
        cast(Any, runtime), ImageMapping(), tmp_path, clock, own_credentials=own
    )
    with pytest.raises(ImageFailure, match="not present"):
        await Pod(service).image("registry.example/app:1", "Never")
    assert own.asked == 0
    with pytest.raises(ImageFailure, match=r"401 .*cannot be used: docker-credential-own failed"):
        await Pod(service).image("registry.example/app:1")
    assert await Pod(service, secret("me")).image("registry.example/app:1") == APP.id


async def test_an_image_has_its_user_and_digest(service: CriImageService) -> None:
    found = await service.resolve("registry.example/app:1", "Always", [secret("me")], lambda: None)
    assert (found.user, found.reference) == ("1000", "registry.example/app@sha256:9")
    assert (found.name, found.size) == ("registry.example/app:1", 200)


@pytest.mark.parametrize("name", ["host", "mine"])
async def test_the_files_of_the_machine_are_refused(service: CriImageService, name: str) -> None:
    with pytest.raises(ImageFailure, match="needs kedge's own runtime"):
        await Pod(service).image(name)


async def test_volumes_of_images_are_refused(service: CriImageService, tmp_path: Path) -> None:
    with pytest.raises(VolumeFailure, match="need kedge's own runtime"):
        service.hold_volume("sha256:1", tmp_path, "v")


async def test_a_wrong_name_is_told(service: CriImageService) -> None:
    with pytest.raises(ImageFailure, match="couldn't parse image name"):
        await Pod(service).image("No Image")


@pytest.mark.parametrize("has_image_ids", [False, True])
async def test_only_own_unused_images_are_garbage(
    service: CriImageService,
    runtime: FakeRuntimeImages,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_image_ids: bool,
) -> None:
    runtime.has_image_ids = has_image_ids
    full = DiskSpace(capacity=1000, available=10)
    monkeypatch.setattr(image_service, "_disk", lambda _: full)
    await Pod(service, secret("me")).image("registry.example/app:1")
    await Pod(service).image("theirs:1")
    await clock.advance(1000)
    runtime.used = [APP.id]
    assert (await service.collect(GarbageThresholds())).images == ()
    runtime.used = []
    await clock.advance(1000)
    assert (await service.collect(GarbageThresholds())).images == (APP.id,)
    assert runtime.removed == [APP.id]
    assert [each.names for each in service.in_status()] == [
        ["docker.io/library/theirs:1"],
        ["registry.example/app@sha256:9", "registry.example/app:1"],
    ]


async def test_images_that_are_gone_are_forgotten(
    service: CriImageService, runtime: FakeRuntimeImages
) -> None:
    await Pod(service, secret("me")).image("registry.example/app:1")
    await Pod(service).image("theirs:1")
    runtime.images.remove(APP)
    await service.refresh()
    assert {*service._used} == {THEIRS.id}
    assert [*service._locks] == []


async def test_an_image_is_pulled_once_for_those_who_wait(
    service: CriImageService, runtime: FakeRuntimeImages
) -> None:
    pods = [Pod(service, secret("me")) for _ in range(3)]
    await asyncio.gather(*(each.image("registry.example/app:1") for each in pods))
    assert runtime.users == ["me"]
