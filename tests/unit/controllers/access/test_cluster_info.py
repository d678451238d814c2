import base64
from datetime import UTC, datetime, timedelta

import pytest

from kedge.api.core_v1.secret import Secret
from kedge.api.model import ObjectMeta
from kedge.client.informer import Key
from kedge.controllers.access.cluster_info import (
    NAME,
    BootstrapToken,
    ClusterInfoController,
    binding,
    changed_signatures,
    ends_of,
    seconds_left,
    token_of,
)
from kedge.machinery.detached_jws import signature
from kedge.testing.local_server import LocalServer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def token(seconds: float | None) -> BootstrapToken:
    ends = None if seconds is None else NOW + timedelta(seconds=seconds)
    return BootstrapToken(Key("kube-system", "bootstrap-token-abcdef"), ends)


def test_the_next_token_that_expires_decides_when_to_look_again() -> None:
    assert seconds_left([token(5), token(60), token(None)], NOW) == 5


def test_tokens_for_ever_need_no_look() -> None:
    assert seconds_left([token(None)], NOW) is None


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("", None),
        ("2026-01-01T00:00:00Z", NOW),
        ("tomorrow", datetime.min.replace(tzinfo=UTC)),
    ],
)
def test_a_time_that_cannot_be_read_is_over(text: str, ends: datetime | None) -> None:
    data = {"expiration": base64.b64encode(text.encode()).decode()}
    assert ends_of(Secret(data=data)) == ends


def test_strangers_are_given_the_role_of_the_same_name() -> None:
    made = binding()
    assert made.roleRef.name == made.metadata.name
    assert [subject.name for subject in made.subjects] == ["system:anonymous"]


SECRET = {
    "token-id": "abcdef",
    "token-secret": "0123456789abcdef",
    "usage-bootstrap-signing": "true",
}


def secret(**changes: str) -> Secret:
    values = SECRET | {key.replace("_", "-"): value for key, value in changes.items()}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    meta = ObjectMeta(name="bootstrap-token-abcdef", namespace="kube-system")
    return Secret(metadata=meta, data=data)


def test_a_token_signs_if_it_is_for_that_and_well_formed() -> None:
    found = token_of(secret())
    assert (found.id, found.secret) == ("abcdef", "0123456789abcdef")
    assert "0123456789abcdef" not in repr(found)
    for changes in (
        {"usage_bootstrap_signing": "false"},
        {"token_secret": "short"},
        {"token_id": "fedcba"},
    ):
        assert token_of(secret(**changes)).secret == ""


def test_signatures_are_made_corrected_and_removed() -> None:
    right = signature("text", "abcdef", "0123456789abcdef")
    tokens = [token_of(secret())]
    assert changed_signatures({"kubeconfig": "text"}, tokens) == {"jws-kubeconfig-abcdef": right}
    data = {
        "kubeconfig": "text",
        "jws-kubeconfig-abcdef": "old",
        "jws-kubeconfig-gone00": "x",
        "other": "y",
    }
    expected = {"jws-kubeconfig-abcdef": right, "jws-kubeconfig-gone00": None}
    assert changed_signatures(data, tokens) == expected
    assert changed_signatures({"kubeconfig": "text", "jws-kubeconfig-abcdef": right}, tokens) == {}
    assert changed_signatures({"jws-kubeconfig-abcdef": right}, tokens) == {
        "jws-kubeconfig-abcdef": None
    }


async def test_a_config_map_that_cannot_be_signed_is_closed_to_strangers_all_the_same() -> None:
    async with LocalServer.running() as server:
        info = {
            "metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": "text", "jws-kubeconfig-gone00": "x"},
            "immutable": True,
        }
        await server.post("/api/v1/namespaces/kube-public/configmaps", info)
        bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/rolebindings"
        made = {
            "metadata": {"name": NAME, "namespace": "kube-public"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        }
        await server.post(bindings, made)
        server.start(ClusterInfoController(server.client, server.clock).run())
        await server.settle()
        left = [each["metadata"]["name"] for each in (await server.get(bindings))["items"]]
        assert NAME not in left
