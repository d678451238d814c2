"""serviceaccounts/token: what is asked for, what is refused, what is in the token."""

from typing import Any

import msgspec
import pytest

from kedge.api.model import Document, Object
from kedge.apiserver.admission.chain import Attempt, Chain
from kedge.machinery.errors import StatusError
from kedge.testing.identities import ClusterIdentities, claims_of
from kedge.web.message import Response

ISSUER = "https://kubernetes.default.svc.cluster.local"
PODS = "/api/v1/namespaces/default/pods"


def document(response: Response) -> dict[str, Any]:
    assert response.status == 201
    assert isinstance(response.body, bytes)
    found: dict[str, Any] = msgspec.json.decode(response.body)
    return found


async def test_all_that_was_left_out_is_filled_in(identities: ClusterIdentities) -> None:
    uid = await identities.account("bob")
    answer = document(await identities.ask("bob", **{"user-agent": "curl/8"}))
    token = answer["status"].pop("token")
    assert answer == {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": "bob",
            "namespace": "default",
            "uid": uid,
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "managedFields": [
                {
                    "manager": "curl",
                    "operation": "Update",
                    "apiVersion": "authentication.k8s.io/v1",
                    "time": "2030-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:expirationSeconds": {}}},
                    "subresource": "token",
                }
            ],
        },
        "spec": {"expirationSeconds": 3600, "audiences": [ISSUER], "boundObjectRef": None},
        "status": {"expirationTimestamp": "2030-01-01T01:00:00Z"},
    }
    claims = claims_of(token)
    assert len(claims.pop("jti")) == 36
    assert claims == {
        "aud": [ISSUER],
        "exp": 1893459600,
        "iat": 1893456000,
        "nbf": 1893456000,
        "iss": ISSUER,
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "bob", "uid": uid}},
        "sub": "system:serviceaccount:default:bob",
    }


async def test_no_two_tokens_are_alike(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    assert await identities.token("bob") != await identities.token("bob")


async def test_the_answer_may_be_wanted_as_yaml(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    answer = await identities.ask("bob", accept="application/yaml")
    assert answer.content_type == "application/yaml"
    assert b"kind: TokenRequest" in answer.body  # type: ignore[operator]


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            {"spec": {"expirationSeconds": 599}},
            422,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: '
            "Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            {"spec": {"expirationSeconds": (1 << 32) + 1}},
            422,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: '
            "Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            {"metadata": {"name": "x"}},
            422,
            'TokenRequest.authentication.k8s.io "bob" is invalid: metadata.name: Invalid value: '
            '"x": must match the service account name if specified',
        ),
        (
            {"metadata": {"namespace": "x"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {"metadata": {"uid": "x"}},
            409,
            'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "bob": the UID in'
            " the token request (x) does not match the UID of the service account (UID)",
        ),
        (
            {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}},
            404,
            'pods "none" not found',
        ),
        (
            {"spec": {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}}},
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "apps/v1", "name": "x"}}},
            400,
            "cannot bind token to object of type apps/v1, Kind=Pod",
        ),
        (
            {"spec": {"boundObjectRef": {"kind": "Node", "name": "n1", "uid": "z"}}},
            409,
            'Operation cannot be fulfilled on Node "n1": the UID in the bound object reference (z)'
            " does not match the UID in record. The object might have been deleted and then"
            " recreated",
        ),
        (
            {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}},
            400,
            'cannot bind token for serviceaccount "bob" to pod running with different'
            " serviceaccount name.",
        ),
        (
            {"kind": "Pod", "apiVersion": "v1"},
            400,
            'Pod in version "v1" cannot be handled as a TokenRequest: converting (v1.Pod) to '
            "(authentication.TokenRequest): unknown conversion",
        ),
    ],
)
async def test_refusals_are_worded_as_upstream_words_them(
    identities: ClusterIdentities, body: dict[str, Any], code: int, message: str
) -> None:
    uid = await identities.account("bob")
    await identities.server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    container = {"name": "c", "image": "i"}
    spec = {"serviceAccountName": "alice", "containers": [container]}
    await identities.server.post(PODS, {"metadata": {"name": "p"}, "spec": spec})
    with pytest.raises(StatusError) as refused:
        await identities.ask("bob", body)
    assert (refused.value.code, refused.value.message) == (code, message.replace("UID)", f"{uid})"))


async def test_an_account_that_is_not_there_has_no_tokens(identities: ClusterIdentities) -> None:
    with pytest.raises(StatusError, match='serviceaccounts "nobody" not found'):
        await identities.ask("nobody")


async def test_the_longest_life_is_granted(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    token = await identities.token("bob", expirationSeconds=1 << 32)
    assert identities.user(token)
    assert claims_of(token)["exp"] == 1893456000 + (1 << 32)


async def test_a_node_that_is_gone_is_still_named(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    container = {"name": "c", "image": "i"}
    spec = {"serviceAccountName": "bob", "nodeName": "gone", "containers": [container]}
    await identities.server.post(PODS, {"metadata": {"name": "p"}, "spec": spec})
    ref = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    claims = claims_of(await identities.token("bob", boundObjectRef=ref))
    assert claims["kubernetes.io"]["node"] == {"name": "gone"}


class Shortener:
    """An admission plugin that changes the request, and sees the result."""

    name = "Shortener"

    def __init__(self) -> None:
        self.seen: list[Attempt] = []

    async def mutate(self, attempt: Attempt) -> Object | None:
        assert isinstance(attempt.object, Document)
        spec = attempt.object.content["spec"] | {"expirationSeconds": 700}
        return msgspec.structs.replace(attempt.object, content={"spec": spec})

    async def validate(self, attempt: Attempt) -> None:
        self.seen.append(attempt)


async def test_requests_pass_admission(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    plugin = Shortener()
    identities.api.admission = Chain([plugin])
    claims = claims_of(await identities.token("bob"))
    assert claims["exp"] - claims["iat"] == 700
    (attempt,) = plugin.seen
    assert attempt.operation == "CREATE"
    assert (attempt.request.resource.plural, attempt.request.subresource) == (
        "serviceaccounts",
        "token",
    )
    assert isinstance(attempt.object, Document)
    assert attempt.object.kind == "TokenRequest"
    assert attempt.object.content["spec"]["audiences"] == [ISSUER]


async def test_the_default_token_of_a_pod_lives_for_a_year(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    spec = {"serviceAccountName": "bob", "containers": [{"name": "c", "image": "i"}]}
    pod = {"metadata": {"name": "p"}, "spec": spec}
    await identities.server.post("/api/v1/namespaces/default/pods", pod)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    response = await identities.ask("bob", {"spec": spec_of(bound, 3607)})
    assert isinstance(response.body, bytes)
    status = msgspec.json.decode(response.body)["status"]
    assert status["expirationTimestamp"] == "2030-01-01T01:00:07Z"
    claims = claims_of(status["token"])
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607
    for other in (spec_of(bound, 3608), {"expirationSeconds": 3607}):
        claims = claims_of(await identities.token("bob", **other))
        assert claims["exp"] - claims["iat"] == other["expirationSeconds"]
        assert "warnafter" not in claims["kubernetes.io"]
    identities.user(status["token"])
    assert identities.authenticator.token_counts == {"valid": 1}
    await identities.clock.advance(3700)
    identities.user(status["token"])
    identities.user(status["token"])
    assert identities.authenticator.token_counts == {"valid": 1, "stale": 1}


def spec_of(bound: dict[str, str], seconds: int) -> dict[str, Any]:
    return {"expirationSeconds": seconds, "boundObjectRef": bound}
