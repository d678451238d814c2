"""Credentials: which of a pod's pull secrets are tried for which repository."""

import base64
from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.secret import Secret
from kedge.api.model import ObjectMeta
from kedge.node.images.credentials import keyring
from kedge.node.images.oci import InvalidImage


def secret(auths: Any, *, old: bool = False) -> Secret:
    kind, key = (
        ("kubernetes.io/dockercfg", ".dockercfg")
        if old
        else ("kubernetes.io/dockerconfigjson", ".dockerconfigjson")
    )
    document = auths if old else {"auths": auths}
    content = document if isinstance(document, bytes) else msgspec.json.encode(document)
    data = {key: base64.b64encode(content).decode()}
    return Secret(metadata=ObjectMeta(name="pull"), type=kind, data=data)


def user(name: str) -> dict[str, str]:
    return {"username": name, "password": "p"}


def found(secrets: list[Secret], repository: str) -> list[str]:
    return [each.username for each in keyring(secrets).find(repository)]


def test_the_most_specific_comes_first() -> None:
    auths = {"quay.io": user("all"), "quay.io/team": user("team"), "ghcr.io": user("other")}
    assert found([secret(auths)], "quay.io/team/app") == ["team", "all"]
    assert found([secret(auths)], "quay.io/else/app") == ["all"]
    assert found([secret(auths)], "example.com/app") == []


def test_stars_stand_for_one_label_each() -> None:
    auths = {"*.example.com": user("star")}
    assert found([secret(auths)], "eu.example.com/app") == ["star"]
    assert found([secret(auths)], "a.eu.example.com/app") == []
    assert found([secret(auths)], "eu.example.com:5000/app") == []


@pytest.mark.parametrize(
    "place",
    ["https://index.docker.io/v1/", "index.docker.io", "docker.io", "https://docker.io/v2/"],
)
def test_the_hub_has_several_names(place: str) -> None:
    assert found([secret({place: user("me")})], "docker.io/library/app") == ["me"]


def test_both_forms_of_secrets_are_read() -> None:
    auth = {"auth": base64.b64encode(b"me:se:cret").decode()}
    for old in (True, False):
        (credential,) = keyring([secret({"quay.io": auth}, old=old)]).find("quay.io/a")
        assert (credential.username, credential.password) == ("me", "se:cret")
        assert credential.basic == "Basic " + base64.b64encode(b"me:se:cret").decode()


def test_other_secrets_are_passed_over() -> None:
    assert found([Secret(type="Opaque", data={"a": "b"})], "quay.io/a") == []
    assert found([secret({"quay.io": {}})], "quay.io/a") == []


@pytest.mark.parametrize(
    "auths", [{"quay.io": {"auth": "!"}}, {"quay.io": {"auth": "aGVsbG8="}}, 5]
)
def test_a_broken_secret_is_named_but_not_quoted(auths: Any) -> None:
    with pytest.raises(InvalidImage, match=r'^the pull secret "pull" cannot be read$'):
        keyring([secret(auths)])
