"""Pulling from a registry that is as strict as real ones are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from kedge.apiserver import pki
from kedge.client import connection
from kedge.machinery.proxies import from_environment
from kedge.node.images import registry as registry_module
from kedge.node.images.credentials import FoundCredentials, RegistryCredential
from kedge.node.images.oci import OCI_MANIFEST, InvalidImage, this_machine
from kedge.node.images.pull_failures import PullFailure, PullUnauthorized, RegistryUnreachable
from kedge.node.images.reference import ImageReference
from kedge.node.images.registry import ImagePull, RegistryClient
from kedge.node.images.registry_hosts import RegistryHost, RegistrySettings
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


async def test_another_host_that_asks_for_credentials_gets_none(
    served: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = served.push("app:1", IMAGE)
    async with registry(tmp_path / "keys") as other:
        (tmp_path / "ca.crt").write_bytes(other.ca_pem)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
        other.account = ("me", "secret")
        other.blobs |= IMAGE.blobs
        served.elsewhere = f"https://{other.host}"
        with pytest.raises(PullFailure, match=f"redirects to {other.host}, which denies access"):
            await RegistryClient().pull(wanted(name, tmp_path), held(name, ME))
        assert set(other.seen) == {""}
        assert "/token" not in other.asked


async def test_a_long_digest_is_not_quoted_whole(served: FakeRegistry, tmp_path: Path) -> None:
    name = served.push("app:1", IMAGE)
    manifest = msgspec.json.decode(IMAGE.manifest)
    manifest["layers"][0]["digest"] = "sha256:" + "-" * 100_000
    served.tags["app:1"] = msgspec.json.encode(manifest)
    with pytest.raises(InvalidImage, match="is not a digest") as refused:
        await RegistryClient().pull(wanted(name, tmp_path), NONE)
    assert len(str(refused.value)) < 1000
    manifest["mediaType"] = "x" * 100_000
    served.tags["app:1"] = msgspec.json.encode(manifest)
    with pytest.raises(InvalidImage, match=r"is of the type .* which is no image's") as refused:
        await RegistryClient().pull(wanted(name, tmp_path), NONE)
    assert len(str(refused.value)) < 2000


@pytest.fixture
async def silent() -> AsyncIterator[int]:
    """The port of a server that accepts connections and says nothing."""
    clients: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: clients.append(writer), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for each in clients:
            each.close()


async def test_a_silent_proxy_is_named(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection.TUNNEL_SECONDS < registry_module._HEAD_SECONDS
    monkeypatch.setattr(connection, "TUNNEL_SECONDS", 0.05)
    rules = from_environment({"HTTPS_PROXY": f"http://127.0.0.1:{silent}"})
    client = RegistryClient(RegistrySettings(proxies=rules))
    with pytest.raises(RegistryUnreachable) as failed:
        await client.digest(ImageReference.parse("registry.example/app"), NONE)
    assert f"the proxy http://127.0.0.1:{silent} ($HTTPS_PROXY)" in str(failed.value)
    assert "set HTTPS_PROXY" in failed.value.advice


async def test_a_registry_that_never_answers_is_unreachable(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "_HEAD_SECONDS", 0.05)
    name = ImageReference.parse(f"localhost:{silent}/app")
    with pytest.raises(RegistryUnreachable, match=f"localhost:{silent} does not answer"):
        await RegistryClient().digest(name, NONE)


async def test_plain_http_is_tried_where_https_says_nothing(
    served: FakeRegistry, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "_HEAD_SECONDS", 1.0)
    served.push("app:1", IMAGE)
    host = RegistryHost(
        urls=(f"https://localhost:{silent}", f"http://{served.host}"),
        path="app",
        repository="app",
        is_verified=False,
    )
    monkeypatch.setattr(RegistrySettings, "hosts", lambda self, name: [host])
    found, _ = await RegistryClient().digest(ImageReference.parse("app:1"), NONE)
    assert found == IMAGE.digest
