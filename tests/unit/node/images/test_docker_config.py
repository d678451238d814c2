"""Credentials from docker's configuration file and its helpers."""

import json
from pathlib import Path
from typing import Any

import pytest

from kedge.node.images import docker_config
from kedge.node.images.credentials import RegistryCredential
from kedge.node.images.docker_config import DockerCredentials
from kedge.node.images.oci import InvalidImage

ME = RegistryCredential("me", "secret")
AUTH = {"auth": "bWU6c2VjcmV0"}


def credentials(directory: Path, config: Any, helper: str = "") -> DockerCredentials:
    """A file of this content, and the helper `docker-credential-own` with this script."""
    (directory / "config.json").write_text(json.dumps(config))
    program = directory / "docker-credential-own"
    program.write_text(f"#!/bin/sh\n{helper}\n")
    program.chmod(0o755)
    return DockerCredentials(directory / "config.json", {"PATH": f"{directory}:/bin:/usr/bin"})


def test_entries_are_found_by_host(tmp_path: Path) -> None:
    config = {"auths": {"r.example": AUTH, "https://index.docker.io/v1/": AUTH, "empty": {}}}
    found = credentials(tmp_path, config)
    assert found.find("r.example/app") == [ME]
    assert found.find("docker.io/library/busybox") == [ME]
    assert found.find("other.example/app") == found.find("empty/app") == []
    identity = {"auths": {"r.example": {"identitytoken": "refresh"}}}
    assert credentials(tmp_path, identity).find("r.example/app") == [
        RegistryCredential("", "", "refresh")
    ]


def test_no_file_has_no_credentials(tmp_path: Path) -> None:
    assert DockerCredentials(tmp_path / "none" / "config.json", {}).find("r.example/app") == []


def test_helpers_are_asked(tmp_path: Path) -> None:
    answer = '{"ServerURL":"x","Username":"me","Secret":"secret"}'
    helper = f"read server; echo $server >> {tmp_path}/asked; echo '{answer}'"
    found = credentials(tmp_path, {"credHelpers": {"r.example": "own"}}, helper)
    assert found.find("r.example/app") == [ME]
    assert found.find("other.example/app") == []
    assert credentials(tmp_path, {"credsStore": "own"}, helper).find("docker.io/library/a") == [ME]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["r.example", "https://index.docker.io/v1/"]


def test_a_helper_that_knows_nothing_leaves_the_entries(tmp_path: Path) -> None:
    config = {"credsStore": "own", "auths": {"r.example": AUTH}}
    found = credentials(tmp_path, config, "echo credentials not found; exit 1")
    assert found.find("r.example/app") == [ME]


@pytest.mark.parametrize(
    ("helper", "why"),
    [
        ("sleep 60", "did not answer within"),
        ("yes", "answered more than"),
        ("echo hello", "did not answer with credentials"),
    ],
)
def test_a_helper_has_bounds(
    tmp_path: Path, helper: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_config, "HELPER_SECONDS", 0.3)
    with pytest.raises(InvalidImage, match=why):
        credentials(tmp_path, {"credsStore": "own"}, helper).find("r.example/app")


@pytest.mark.parametrize("name", ["none", "../own", "own/../own", ""])
def test_a_helper_is_a_program_in_the_path(tmp_path: Path, name: str) -> None:
    found = credentials(tmp_path, {"credsStore": name}, "exit 1")
    if not name:
        assert found.find("r.example/app") == []
        return
    with pytest.raises(InvalidImage, match="not installed"):
        found.find("r.example/app")


def test_what_is_damaged_is_not_quoted(tmp_path: Path) -> None:
    found = credentials(tmp_path, {"auths": {"r.example": {"auth": "c2VjcmV0"}}})
    with pytest.raises(InvalidImage, match="cannot be read"):
        found.find("r.example/app")
    (tmp_path / "config.json").write_text('{"auths": "secret"')
    with pytest.raises(InvalidImage) as refused:
        found.find("r.example/app")
    assert "secret" not in str(refused.value)


def test_a_helper_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    found = credentials(tmp_path, {"credsStore": "own"})
    (tmp_path / "docker-credential-own").write_bytes(b"\0 no program")
    with pytest.raises(InvalidImage, match="docker-credential-own failed: Exec format error"):
        found.find("r.example/app")
