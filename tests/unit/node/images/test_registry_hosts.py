"""Where images are pulled from: mirrors, registries of this machine, insecure ones, by proxies."""

from argparse import ArgumentTypeError
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.machinery.proxies import from_environment
from kedge.node.images.credentials import FoundCredentials, RegistryCredential
from kedge.node.images.pull_failures import PullFailure
from kedge.node.images.reference import ImageReference
from kedge.node.images.registry import RegistryClient
from kedge.node.images.registry_hosts import RegistrySettings
from kedge.settings.registries import RegistryMirror, parse_registry, parse_registry_mirror
from kedge.testing.images import build
from kedge.testing.proxy import proxy
from kedge.testing.registry import FakeRegistry, registry

IMAGE = build({"a": b"1"})
NONE = FoundCredentials()
ME = RegistryCredential("me", "secret")
HUB_IMAGE = ImageReference.parse("busybox:1")


@pytest.fixture
async def mirror() -> AsyncIterator[FakeRegistry]:
    async with registry() as running:
        yield running


def mirrored(*urls: str, registry: str = "docker.io", **more: object) -> RegistryClient:
    mirrors = tuple(RegistryMirror(registry, each) for each in urls)
    return RegistryClient(RegistrySettings(mirrors=mirrors, **more))  # type: ignore[arg-type]


async def test_mirrors_are_tried_in_order(mirror: FakeRegistry) -> None:
    mirror.push("library/busybox:1", IMAGE)
    client = mirrored("http://localhost:1", f"http://{mirror.host}")
    assert await client.digest(HUB_IMAGE, NONE) == (IMAGE.digest, None)
    assert mirror.asked == ["/v2/library/busybox/manifests/1"]


async def test_the_path_of_a_mirror_begins_its_repositories(mirror: FakeRegistry) -> None:
    mirror.push("hub/library/busybox:1", IMAGE)
    client = mirrored(f"http://{mirror.host}/hub", registry="*")
    assert (await client.digest(HUB_IMAGE, NONE))[0] == IMAGE.digest
    assert client.repositories(HUB_IMAGE) == [
        f"{mirror.host}/hub/library/busybox",
        "docker.io/library/busybox",
    ]


async def test_the_registry_itself_comes_last(mirror: FakeRegistry) -> None:
    async with registry() as own:
        name = ImageReference.parse(own.push("app:1", IMAGE))
        client = mirrored(f"http://{mirror.host}", registry=own.host)
        assert (await client.digest(name, NONE))[0] == IMAGE.digest
        missing = ImageReference.parse(f"{own.host}/none:1")
        with pytest.raises(PullFailure, match=f"not found.*; the mirror http://{mirror.host}"):
            await client.digest(missing, NONE)


async def test_a_mirror_gets_the_credentials_of_its_own_host(mirror: FakeRegistry) -> None:
    mirror.push("library/busybox:1", IMAGE)
    mirror.account, mirror.auth = ("me", "secret"), "basic"
    client = mirrored(f"http://{mirror.host}")
    theirs = FoundCredentials({f"{mirror.host}/library/busybox": (ME,)})
    assert (await client.digest(HUB_IMAGE, theirs))[1] == ME
    mirror.seen.clear()
    hub = FoundCredentials({"docker.io/library/busybox": (ME,)})
    proxies = from_environment({"HTTPS_PROXY": "http://127.0.0.1:1"})
    client = mirrored(f"http://{mirror.host}", proxies=proxies)
    with pytest.raises(PullFailure, match=r"the proxy http://127.0.0.1:1 \(\$HTTPS_PROXY\)"):
        await client.digest(HUB_IMAGE, hub)
    assert set(mirror.seen) == {""}


async def test_a_registry_of_this_machine_may_speak_unverified_tls(tmp_path: Path) -> None:
    async with registry(tmp_path) as served:
        name = ImageReference.parse(served.push("app:1", IMAGE))
        assert (await RegistryClient().digest(name, NONE))[0] == IMAGE.digest


async def test_only_a_listed_registry_is_not_verified(tmp_path: Path) -> None:
    async with registry(tmp_path) as served, registry() as plain, proxy() as running:
        for each, host in ((served, "tls.example"), (plain, "plain.example")):
            each.push("app:1", IMAGE)
            for port in (80, 443):
                running.hosts[f"{host}:{port}"] = int(each.host.rpartition(":")[2])
            running.hosts[host] = running.hosts[f"{host}:80"]
        url = f"http://127.0.0.1:{running.port}"
        proxies = from_environment({"HTTPS_PROXY": url, "HTTP_PROXY": url})
        tls = ImageReference.parse("tls.example/app:1")
        with pytest.raises(PullFailure, match="not trusted") as refused:
            await RegistryClient(RegistrySettings(proxies=proxies)).digest(tls, NONE)
        assert "--registry-ca tls.example=FILE" in refused.value.advice
        in_the_clear = ImageReference.parse("plain.example/app:1")
        with pytest.raises(PullFailure) as refused:
            await RegistryClient(RegistrySettings(proxies=proxies)).digest(in_the_clear, NONE)
        assert "--insecure-registry plain.example" in refused.value.advice
        assert plain.asked == []
        insecure = RegistrySettings(insecure=("tls.example", "plain.example"), proxies=proxies)
        for name in (tls, in_the_clear):
            assert (await RegistryClient(insecure).digest(name, NONE))[0] == IMAGE.digest


async def test_a_name_without_an_address_is_a_matter_of_dns() -> None:
    with pytest.raises(PullFailure, match="DNS") as failed:
        await RegistryClient().digest(ImageReference.parse("registry.invalid/app:1"), NONE)
    assert "HTTPS_PROXY" in failed.value.advice


def test_what_is_not_secure_is_told() -> None:
    settings = RegistrySettings(
        mirrors=(RegistryMirror("docker.io", "http://m.example"),), insecure=("r.lan:5000",)
    )
    assert settings.described() == [
        "mirror of docker.io: http://m.example",
        "INSECURE mirror: http://m.example (plain HTTP)",
        "INSECURE registry: r.lan:5000 (not verified, or plain HTTP)",
    ]
    assert RegistrySettings().described() == []


def test_settings_of_registries_are_read() -> None:
    assert parse_registry("Index.docker.io") == "docker.io"
    assert parse_registry_mirror("docker.io=m.example:5000/") == RegistryMirror(
        "docker.io", "https://m.example:5000"
    )
    for wrong in ("https://r.lan", "r.lan/app", "10.0.0.0/8", ""):
        with pytest.raises(ArgumentTypeError):
            parse_registry(wrong)
    for wrong in ("docker.io", "docker.io=ftp://m", "a=https://me:pw@m", "a=https://m/v2/x"):
        with pytest.raises(ArgumentTypeError) as refused:
            parse_registry_mirror(wrong)
        assert "pw" not in str(refused.value)
