"""Pulling from a registry that is as strict as real ones are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.apiserver import pki
from kedge.node.images.credentials import FoundCredentials, RegistryCredential
from kedge.node.images.oci import OCI_MANIFEST, InvalidImage, this_machine
from kedge.node.images.pull_failures import PullFailure, PullUnauthorized
from kedge.node.images.reference import ImageReference
from kedge.node.images.registry import ImagePull, RegistryClient
from kedge.node.images.registry_hosts import RegistrySettings
from kedge.node.images.unpack import ImageLimits
from kedge.settings.registries import RegistryAuthority
from kedge.testing.images import build, descriptor, index, sha256
from kedge.testing.registry import FakeRegistry, registry

IMAGE = build({"a": b"1"}, {"b": b"2" * 100_000})
ME = RegistryCredential("me", "secret")
NONE = FoundCredentials()


def held(name: str, *credentials: RegistryCredential) -> FoundCredentials:
    """The credentials of a pod for the repository of an image."""
    return FoundCredentials({ImageReference.parse(name).repository: credentials})


@pytest.fixture
async def served() -> AsyncIterator[FakeRegistry]:
    async with registry() as running:
        yield running


def fetched(scratch: Path) -> dict[str, bytes]:
    """The layers that were put there, by digest."""
    return {
        sha256(content): content for path in scratch.iterdir() if (content := path.read_bytes())
    }


def wanted(name: str, scratch: Path, progress: dict[str, int] | None = None) -> ImagePull:
    def told(digest: str, done: int, size: int) -> None:
        assert done <= size
        if progress is not None:
            progress[digest] = done

    return ImagePull(ImageReference.parse(name), scratch, lambda chain: False, ImageLimits(), told)


async def test_an_image_comes_whole(served: FakeRegistry, tmp_path: Path) -> None:
    name = served.push("me/app:1", IMAGE)
    told: dict[str, int] = {}
    packed, used = await RegistryClient().pull(wanted(name, tmp_path, told), NONE)
    assert used is None
    assert packed.id == IMAGE.id
    assert packed.digests == (IMAGE.digest,)
    assert [blob.diff_id for blob in packed.blobs] == [sha256(tar) for tar in IMAGE.tars]
    layers = fetched(tmp_path)
    assert [layers[blob.digest] for blob in packed.blobs] == [
        IMAGE.blobs[blob.digest] for blob in packed.blobs
    ]
    assert told == {digest: len(content) for digest, content in layers.items()}


async def test_layers_that_are_here_are_not_fetched(served: FakeRegistry, tmp_path: Path) -> None:
    name = ImageReference.parse(served.push("app:1", IMAGE))
    first = sha256(IMAGE.tars[0])
    await RegistryClient().pull(
        ImagePull(name, tmp_path, lambda chain: chain == first, ImageLimits()), NONE
    )
    assert len(fetched(tmp_path)) == 1


async def test_of_an_index_this_machines_image_is_taken(
    served: FakeRegistry, tmp_path: Path
) -> None:
    machine = {"os": "linux", "architecture": this_machine().architecture}
    listed = index(
        descriptor(b"", OCI_MANIFEST, platform={"os": "linux", "architecture": "other"}),
        descriptor(IMAGE.manifest, OCI_MANIFEST, platform=machine),
    )
    name = served.push("app:1", IMAGE, listed)
    packed, _ = await RegistryClient().pull(wanted(name, tmp_path), NONE)
    assert packed.digests == (sha256(listed), IMAGE.digest)
    assert await RegistryClient().digest(ImageReference.parse(name), NONE) == (sha256(listed), None)


@pytest.mark.parametrize("auth", ["bearer", "basic"])
async def test_credentials_are_tried_one_after_the_other(
    served: FakeRegistry, tmp_path: Path, auth: str
) -> None:
    served.account, served.auth = ("me", "secret"), auth
    name = served.push("app:1", IMAGE)
    packed, used = await RegistryClient().pull(
        wanted(name, tmp_path), held(name, RegistryCredential("x", "y"), ME)
    )
    assert (packed.id, used) == (IMAGE.id, ME)
    with pytest.raises(PullUnauthorized, match="pull secret"):
        await RegistryClient().pull(wanted(name, tmp_path), NONE)
    with pytest.raises(PullUnauthorized):
        await RegistryClient().pull(
            wanted(name, tmp_path), held(name, RegistryCredential("x", "y"))
        )


async def test_an_image_that_needs_no_credential_is_pulled_without_one(
    served: FakeRegistry, tmp_path: Path
) -> None:
    name = served.push("app:1", IMAGE)
    _, used = await RegistryClient().pull(wanted(name, tmp_path), held(name, ME))
    assert used is None


async def test_another_host_that_gives_out_layers_sees_no_credentials(
    served: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.account = ("me", "secret")
    name = served.push("app:1", IMAGE)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with registry(tmp_path / "keys") as store:
        (tmp_path / "ca.crt").write_bytes(store.ca_pem)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
        store.blobs |= IMAGE.blobs
        served.elsewhere = f"https://{store.host}"
        packed, _ = await RegistryClient().pull(wanted(name, scratch), held(name, ME))
        assert packed.id == IMAGE.id
        assert set(store.seen) == {""}


async def test_no_registry_leads_to_plain_http_on_loopback(
    served: FakeRegistry, tmp_path: Path
) -> None:
    name = served.push("app:1", IMAGE)
    async with registry() as other:
        served.elsewhere = f"http://{other.host}"
        with pytest.raises(PullFailure, match="not HTTPS"):
            await RegistryClient().pull(wanted(name, tmp_path), NONE)
        assert other.asked == []


async def test_nothing_leads_to_where_everybody_can_listen(
    served: FakeRegistry, tmp_path: Path
) -> None:
    name = served.push("app:1", IMAGE)
    served.elsewhere = "http://example.com"
    with pytest.raises(PullFailure, match="not HTTPS"):
        await RegistryClient().pull(wanted(name, tmp_path), NONE)
    served.elsewhere = f"http://{served.host}"
    with pytest.raises(PullFailure, match="too many redirects"):
        await RegistryClient().pull(wanted(name, tmp_path), NONE)


async def test_what_is_not_what_its_digest_says_is_refused(
    served: FakeRegistry, tmp_path: Path
) -> None:
    name = served.push("app:1", IMAGE)
    served.blobs[IMAGE.id] = b"{}"
    with pytest.raises(InvalidImage, match="damaged"):
        await RegistryClient().pull(wanted(name, tmp_path), NONE)
    served.blobs[IMAGE.digest] = IMAGE.manifest + b" "
    by_digest = str(ImageReference.parse(name).at(IMAGE.digest))
    with pytest.raises(InvalidImage, match="damaged"):
        await RegistryClient().pull(wanted(by_digest, tmp_path), NONE)


async def test_a_layer_of_another_size_is_refused(served: FakeRegistry, tmp_path: Path) -> None:
    name = served.push("app:1", IMAGE)
    layer = next(key for key in IMAGE.blobs if key not in (IMAGE.id, IMAGE.digest))
    served.blobs[layer] = IMAGE.blobs[layer] + b"more"
    with pytest.raises(InvalidImage, match="larger than its manifest says"):
        await RegistryClient().pull(wanted(name, tmp_path), NONE)
    served.blobs[layer] = b""
    with pytest.raises(PullFailure, match="ended after 0 of"):
        await RegistryClient().pull(wanted(name, tmp_path), NONE)


async def test_what_is_not_there_is_said(served: FakeRegistry, tmp_path: Path) -> None:
    with pytest.raises(PullFailure, match="not found in the registry"):
        await RegistryClient().pull(wanted(f"{served.host}/none", tmp_path), NONE)
    with pytest.raises(PullFailure, match="cannot connect to localhost:1"):
        await RegistryClient().pull(wanted("localhost:1/none", tmp_path), NONE)


async def test_a_registry_may_have_an_authority_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "other.crt").write_bytes(pki.ensure(tmp_path / "other", ()).ca_pem)
    async with registry(tmp_path / "keys") as served:
        name = served.push("app:1", IMAGE)
        authority = tmp_path / "ca.crt"
        authority.write_bytes(served.ca_pem)
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        known = RegistryClient(
            RegistrySettings(authorities=(RegistryAuthority(served.host, authority),))
        )
        packed, _ = await known.pull(wanted(name, scratch), NONE)
        assert packed.id == IMAGE.id
        authority.write_bytes((tmp_path / "other.crt").read_bytes())
        with pytest.raises(PullFailure, match="not trusted"):
            await known.pull(wanted(name, scratch), NONE)
        authority.unlink()
        with pytest.raises(PullFailure, match="cannot be read"):
            await known.pull(wanted(name, scratch), NONE)
