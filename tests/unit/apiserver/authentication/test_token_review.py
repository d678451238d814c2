"""TokenReview and SelfSubjectReview."""

from typing import Any

import msgspec
import pytest

from kedge.api.builtin.resources import REVIEWS
from kedge.apiserver.authentication.token_review import TokenReviews, serve_self_review
from kedge.apiserver.request import Request, User
from kedge.machinery.errors import StatusError
from kedge.testing.identities import ClusterIdentities
from kedge.web.message import HttpRequest

ISSUER = "https://kubernetes.default.svc.cluster.local"


def posted(kind: str, body: object, user: User) -> Request:
    resource = next(review for review in REVIEWS if review.kind == kind)
    http = HttpRequest("POST", "/", headers={"user-agent": "t/1"}, body=msgspec.json.encode(body))
    return Request(http, user, resource, "create")


def review(identities: ClusterIdentities, token: str, *audiences: str) -> dict[str, Any]:
    spec = {"token": token, "audiences": list(audiences)} if audiences else {"token": token}
    request = posted("TokenReview", {"spec": spec}, User("asker"))
    response = TokenReviews(identities.authenticator).serve(identities.api, request)
    assert response.status == 201
    answer = msgspec.json.decode(response.body)  # type: ignore[arg-type]
    assert (answer["kind"], answer["spec"]) == ("TokenReview", spec)
    status: dict[str, Any] = answer["status"]
    return status


async def test_a_known_token_is_told_with_its_audience(identities: ClusterIdentities) -> None:
    assert review(identities, "jane-token") == {
        "authenticated": True,
        "user": {"username": "jane", "uid": "7", "groups": ["devs", "system:authenticated"]},
        "audiences": [ISSUER],
    }
    assert review(identities, "jane-token", "vault") == {
        "user": {},
        "error": "invalid bearer token",
    }
    assert review(identities, "jane-token", "vault", ISSUER)["audiences"] == [ISSUER]


async def test_a_token_for_others_can_be_reviewed_for_them(identities: ClusterIdentities) -> None:
    uid = await identities.account("bob")
    token = await identities.token("bob", audiences=["vault", "bank"])
    status = review(identities, token, "bank", "shop")
    assert status["authenticated"] is True
    assert status["audiences"] == ["bank"]
    assert status["user"]["uid"] == uid
    assert set(status["user"]["extra"]) == {"authentication.kubernetes.io/credential-id"}
    assert review(identities, token) == {
        "user": {},
        "error": '[invalid bearer token, token audiences ["vault" "bank"] is invalid for the target'
        f' audiences ["{ISSUER}"]]',
    }


async def test_to_have_been_reviewed_makes_a_token_no_better(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    token = await identities.token("bob", audiences=["vault"])
    assert review(identities, token, "vault")["authenticated"]
    with pytest.raises(StatusError, match="Unauthorized"):
        identities.user(token)
    ours = await identities.token("bob")
    assert identities.user(ours)
    assert "error" in review(identities, ours, "vault")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": 1000}, "service account token has expired"),
        ({"nbf": 10**10}, "service account token is not valid yet"),
        ({"iat": 10**10}, "service account token is issued in the future"),
        (
            {
                "sub": "system:serviceaccount:default:zed",
                "kubernetes.io": {
                    "namespace": "default",
                    "serviceaccount": {"name": "zed", "uid": "1"},
                },
            },
            'serviceaccounts "zed" not found',
        ),
        (
            {
                "kubernetes.io": {
                    "namespace": "default",
                    "serviceaccount": {"name": "bob", "uid": "1"},
                }
            },
            "service account UID (UID) does not match claim (1)",
        ),
    ],
)
async def test_why_a_token_does_not_hold_is_told(
    identities: ClusterIdentities, changes: dict[str, Any], why: str
) -> None:
    uid = await identities.account("bob")
    token = identities.forged(await identities.token("bob"), **changes)
    expected = f"[invalid bearer token, {why.replace('UID (UID)', f'UID ({uid})')}]"
    assert review(identities, token) == {"user": {}, "error": expected}


async def test_a_review_without_a_token_is_no_review(identities: ClusterIdentities) -> None:
    request = posted("TokenReview", {"spec": {}}, User("asker"))
    with pytest.raises(StatusError) as refused:
        TokenReviews(identities.authenticator).serve(identities.api, request)
    assert refused.value.code == 400
    assert refused.value.message == "token is required for TokenReview in authentication"


async def test_everybody_can_ask_who_they_are(identities: ClusterIdentities) -> None:
    user = User("jane", ("a", "b"), "7", (("k", ("v1", "v2")),))
    response = serve_self_review(identities.api, posted("SelfSubjectReview", {}, user))
    assert msgspec.json.decode(response.body) == {  # type: ignore[arg-type]
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": "2030-01-01T00:00:00Z"},
        "status": {
            "userInfo": {
                "username": "jane",
                "uid": "7",
                "groups": ["a", "b"],
                "extra": {"k": ["v1", "v2"]},
            }
        },
    }
