"""`kedge image pull`: settings of the nodes, the user's credentials, and the progress."""

import argparse
import asyncio
import io
import json
import sys
from pathlib import Path
from typing import cast

import pytest

from kedge.cli import image, image_pull
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.output.progress import ProgressLine
from kedge.machinery.clock import SystemClock
from kedge.node.host import node_record
from kedge.node.images.images import ImageService
from kedge.node.images.reference import ImageReference
from kedge.node.images.registry import Progress
from kedge.node.images.store import ImageStore
from kedge.settings.registries import RegistryMirror
from kedge.testing.clock import FakeClock
from kedge.testing.images import build
from kedge.testing.registry import registry

IMAGE = build({"a": b"1"}, {"b": b"2" * 100_000})


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    image.add_flags(parser)
    return parser.parse_args(["pull", "--config=", *arguments])


async def pull(directory: Path, *arguments: str) -> None:
    store = ImageStore(directory / "images", SystemClock())
    await asyncio.to_thread(image_pull.pull, parsed(*arguments), directory, store)


async def test_an_image_is_pulled_with_the_users_credentials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with registry() as served:
        served.account = ("me", "secret")
        name = served.push("app:1", IMAGE)
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        with pytest.raises(Failure, match="was not pulled: the registry denies access"):
            await pull(tmp_path, name)
        config = {"auths": {served.host: {"username": "me", "password": "secret"}}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        await pull(tmp_path, name)
        told = capsys.readouterr()
        assert told.out.startswith(f'image "{name}" pulled (')
        assert [line.split()[0] for line in told.err.splitlines()] == ["layer", "layer"]
        await pull(tmp_path, name)
        assert "is up to date" in capsys.readouterr().out
        await pull(tmp_path, "-q", name)
        assert capsys.readouterr() == ("", "")
    store = ImageStore(tmp_path / "images", SystemClock())
    reference = ImageReference.parse(name)
    found = store.find(reference)
    assert found is not None
    assert store.allows(found.id, reference, [])
    assert not store.is_loaded(reference)


def test_registries_are_those_of_the_nodes_unless_flags_say_otherwise(tmp_path: Path) -> None:
    place = tmp_path / "nodes" / "node-1"
    place.mkdir(parents=True)
    flags = ("--registry-mirror=docker.io=https://m.example", "--insecure-registry=r.lan:5000")
    record = node_record.NodeRecord(name="node-1", cluster="c", level="full", registry_flags=flags)
    node_record.write(place, record)
    environment = {"HTTPS_PROXY": "http://p:1", "HOME": "/home/me"}
    source = Settings(parsed("a", "--insecure-registry", "other:1"), environment)
    found = image_pull.registry_settings(source, tmp_path)
    assert found.mirrors == (RegistryMirror("docker.io", "https://m.example"),)
    assert found.insecure == ("other:1",)
    assert found.proxies.https.text == "http://p:1"
    assert image_pull.docker_config(source) == Path("/home/me/.docker/config.json")


def test_the_default_of_the_credentials_is_that_of_docker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")
    shown = " ".join(capsys.readouterr().out.split())
    _, _, of_credentials = shown.partition("--registry-credentials FILE")
    default = "$KEDGE_REGISTRY_CREDENTIALS, else $DOCKER_CONFIG/config.json, else"
    assert f"(default: {default} ~/.docker/config.json)" in of_credentials


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class InterruptedService:
    """A pull that shows its progress when Ctrl-C cancels it."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    async def pull(self, reference: ImageReference, progress: Progress) -> None:
        await self._clock.advance(2)
        progress("sha256:12", 1, 2)
        raise asyncio.CancelledError


async def test_an_interrupted_pull_leaves_no_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), FakeClock()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(image_pull, "SystemClock", lambda: clock)
    service = cast(ImageService, InterruptedService(clock))
    with pytest.raises(asyncio.CancelledError):
        await image_pull._pull_all(service, [ImageReference.parse("app:1")], is_quiet=False)
    before, shown, blank, after = terminal.getvalue().split("\r")
    assert (before, blank.strip(), after) == ("", "", "")
    assert len(blank) == len(shown) > 0


def test_digests_of_a_registry_cannot_control_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ProgressLine(sys.stderr, FakeClock())
    image_pull.PullDisplay("app", line).update("sha256:\x1b[2J", 2, 2)
    assert capsys.readouterr().err.startswith("layer ^[[2J: ")
