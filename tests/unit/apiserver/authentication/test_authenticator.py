"""Requests to users: every sort of credential, and every way in which one can be wrong."""

import base64
import logging
from typing import Any

import msgspec
import pytest

from kedge.apiserver.authentication import jwt
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.authentication.service_accounts import ISSUER
from kedge.apiserver.request import ANONYMOUS, User
from kedge.machinery.errors import StatusError
from kedge.testing.identities import ACCOUNTS, ClusterIdentities, claims_of
from kedge.web.message import HttpRequest

PODS = "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/default/secrets"
JANE = User("jane", ("devs", "system:authenticated"), "7")
CREDENTIAL = "authentication.kubernetes.io/credential-id"


def pod(name: str = "p", account: str = "bob", node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "serviceAccountName": account,
        "containers": [{"name": "c", "image": "i"}],
    }
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name}, "spec": spec}


def bound_to(kind: str, name: str) -> dict[str, str]:
    return {"kind": kind, "apiVersion": "v1", "name": name}


def refused(identities: ClusterIdentities, token: str) -> bool:
    try:
        identities.user(token)
    except StatusError as error:
        return (error.code, error.message) == (401, "Unauthorized")
    return False


def certificate(name: str, *groups: str, ends: str = "Jan  1 00:01:00 2030 GMT") -> dict[str, Any]:
    subject = [(("organizationName", group),) for group in groups]
    if name:
        subject.append((("commonName", name),))
    return {"subject": tuple(subject), "notAfter": ends, "serialNumber": "1"}


# Headers.


@pytest.mark.parametrize(
    ("header", "user"),
    [
        ("Bearer jane-token", JANE),
        ("bearer jane-token", JANE),
        ("  Bearer jane-token  ", JANE),
        ("Bearer jane-token and more", JANE),
        ("Bearer admin-token", ADMIN),
        ("", ANONYMOUS),
        ("Bearer", ANONYMOUS),
        ("Bearer ", ANONYMOUS),
        ("Bearer  jane-token", ANONYMOUS),
        ("Basic amFuZTo3", ANONYMOUS),
        ("Bearer jane-toke", None),
        ("Bearer jane-token2", None),
        ("Bearer JANE-TOKEN", None),
        ("Bearer jane-token,Bearer jane-token", None),
        ("Bearer \xff\xfe", None),
        ("Bearer a.b.c", None),
        ("Bearer ..", None),
        ("Bearer " + "a" * 60000, None),
        ("Bearer " + "a." * 20000, None),
    ],
)
async def test_the_authorization_header_is_read_as_upstream_reads_it(
    identities: ClusterIdentities, header: str, user: User | None
) -> None:
    http = HttpRequest("GET", "/", headers={"authorization": header})
    if user is not None:
        assert identities.authenticator.user(http) == user
        return
    with pytest.raises(StatusError, match="Unauthorized"):
        identities.authenticator.user(http)


@pytest.mark.parametrize("part", ["header", "payload"])
async def test_a_token_of_thousands_of_brackets_is_refused(
    identities: ClusterIdentities, part: str
) -> None:
    deep = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b',"alg":"RS256","typ":"JWT"}'
    plain = b'{"alg":"RS256","typ":"JWT"}'
    parts = (deep, plain) if part == "header" else (plain, deep)
    assert refused(identities, ".".join(jwt.to_base64(each).decode() for each in (*parts, b"x")))


async def test_who_sends_nothing_is_anonymous(identities: ClusterIdentities) -> None:
    assert identities.authenticator.user(HttpRequest("GET", "/")) == ANONYMOUS


async def test_a_flood_of_bad_tokens_is_logged_once_and_never_quoted(
    identities: ClusterIdentities, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for number in range(100):
            assert refused(identities, f"guess-{number}")
    assert len(caplog.records) == 1
    assert "guess" not in caplog.text


# Certificates.


@pytest.mark.parametrize(
    ("given", "header", "user"),
    [
        (certificate("joe", "a", "b"), "", User("joe", ("a", "b", "system:authenticated"))),
        (certificate("joe"), "Bearer jane-token", User("joe", ("system:authenticated",))),
        (certificate("joe"), "Bearer wrong", User("joe", ("system:authenticated",))),
        (certificate("", "a"), "", ANONYMOUS),
        (certificate("", "a"), "Bearer jane-token", JANE),
        (certificate("joe", ends="Jan  1 00:00:00 2029 GMT"), "Bearer jane-token", JANE),
        (certificate("joe", ends="Jan  1 00:00:00 2029 GMT"), "", None),
        (
            certificate("joe", "system:unauthenticated"),
            "",
            User("joe", ("system:unauthenticated",)),
        ),
    ],
)
async def test_a_certificate_comes_before_a_token(
    identities: ClusterIdentities, given: dict[str, Any], header: str, user: User | None
) -> None:
    headers = {"authorization": header} if header else {}
    http = HttpRequest("GET", "/", headers=headers, peer_certificate=given)
    if user is not None:
        assert identities.authenticator.user(http) == user
        return
    with pytest.raises(StatusError, match="Unauthorized"):
        identities.authenticator.user(http)


# WebSockets.


def socket(protocols: str, upgrade: str = "websocket") -> HttpRequest:
    headers = {
        "connection": "keep-alive, Upgrade",
        "upgrade": upgrade,
        "sec-websocket-protocol": protocols,
    }
    return HttpRequest("GET", PODS, headers=headers)


def as_protocol(token: str) -> str:
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return f"base64url.bearer.authorization.k8s.io.{encoded}"


async def test_a_browser_sends_its_token_as_a_protocol(identities: ClusterIdentities) -> None:
    http = socket(f"v5.channel.k8s.io, {as_protocol('jane-token')}, v4.channel.k8s.io")
    assert identities.authenticator.user(http) == JANE
    assert http.headers["sec-websocket-protocol"] == "v5.channel.k8s.io,v4.channel.k8s.io"


@pytest.mark.parametrize(
    "protocols",
    [
        as_protocol("jane-token"),
        f"v4.channel.k8s.io,{as_protocol('jane-token')},{as_protocol('jane-token')}",
        f"v4.channel.k8s.io,{as_protocol('jane-token')}=",
        f"v4.channel.k8s.io,{as_protocol('wrong')}",
        "v4.channel.k8s.io,base64url.bearer.authorization.k8s.io._w",
    ],
)
async def test_a_token_among_protocols_must_be_alone_well_formed_and_right(
    identities: ClusterIdentities, protocols: str
) -> None:
    with pytest.raises(StatusError, match="Unauthorized"):
        identities.authenticator.user(socket(protocols))


async def test_protocols_count_only_for_websockets(identities: ClusterIdentities) -> None:
    http = socket(f"v4.channel.k8s.io,{as_protocol('jane-token')}", upgrade="SPDY/3.1")
    assert identities.authenticator.user(http) == ANONYMOUS
    assert identities.authenticator.user(socket("v4.channel.k8s.io")) == ANONYMOUS


# Service accounts.


async def test_an_account_is_known_by_its_token(identities: ClusterIdentities) -> None:
    uid = await identities.account("bob")
    token = await identities.token("bob")
    expected = User(
        "system:serviceaccount:default:bob",
        ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"),
        uid,
        ((CREDENTIAL, (f"JTI={claims_of(token)['jti']}",)),),
    )
    assert identities.user(token) == expected
    assert identities.user(token) is identities.user(token)


async def test_a_token_of_a_pod_tells_the_pod_and_its_node(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    node = await identities.server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    made = await identities.server.post(PODS, pod(node="n1"))
    token = await identities.token("bob", boundObjectRef=bound_to("Pod", "p"))
    prefix = "authentication.kubernetes.io"
    extra = dict(identities.user(token).extra)
    assert extra.pop(CREDENTIAL)
    assert extra == {
        f"{prefix}/node-name": ("n1",),
        f"{prefix}/node-uid": (node["metadata"]["uid"],),
        f"{prefix}/pod-name": ("p",),
        f"{prefix}/pod-uid": (made["metadata"]["uid"],),
    }


async def test_a_token_expires_a_minute_after_its_time(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    token = await identities.token("bob", expirationSeconds=600)
    assert identities.user(token)
    await identities.clock.advance(659)
    assert identities.user(token)
    await identities.clock.advance(2)
    assert refused(identities, token)
    assert refused(identities, token)


async def test_a_token_for_others_is_not_for_us(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    assert refused(identities, await identities.token("bob", audiences=["vault"]))
    assert identities.user(await identities.token("bob", audiences=["vault", ISSUER]))


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://elsewhere.example"},
        {"iss": None},
        {"aud": "vault"},
        {"exp": 0},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"nbf": 10**10},
        {"iat": 10**10},
        {"sub": "system:serviceaccount:default:alice"},
        {"sub": "system:admin"},
        {"kubernetes.io": None},
        {"kubernetes.io": {"namespace": "default"}},
        {"kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "bob", "uid": "1"}}},
        {"kubernetes.io": {"namespace": "other", "serviceaccount": {"name": "bob", "uid": "1"}}},
    ],
)
async def test_claims_that_do_not_hold_are_refused_although_signed(
    identities: ClusterIdentities, changes: dict[str, Any]
) -> None:
    await identities.account("bob")
    token = await identities.token("bob")
    assert identities.user(identities.forged(token))
    assert refused(identities, identities.forged(token, **changes))


async def test_a_wrong_signature_is_refused(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    token = await identities.token("bob")
    head, claims, signature = token.split(".")
    other = (await identities.token("bob")).split(".")[2]
    better = jwt.to_base64(msgspec.json.encode(claims_of(token) | {"sub": "system:admin"})).decode()
    for forged in (
        f"{head}.{claims}.{other}",
        f"{head}.{better}.{signature}",
        f"{head}.{claims}.{signature[:-4]}",
        f"{head}.{claims}.{'A' * len(signature)}",
        f"{head}.{claims}",
        token + "A",
    ):
        assert refused(identities, forged)
    assert identities.user(token)


# What a token depends on.


async def test_a_token_ends_with_its_account(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    token = await identities.token("bob")
    assert identities.user(token)
    await identities.server.delete(f"{ACCOUNTS}/bob")
    assert refused(identities, token)
    await identities.account("bob")
    assert refused(identities, token)


async def test_a_token_ends_with_its_pod(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    await identities.server.post(PODS, pod())
    token = await identities.token("bob", boundObjectRef=bound_to("Pod", "p"))
    assert identities.user(token)
    await identities.server.delete(f"{PODS}/p?gracePeriodSeconds=0")
    assert refused(identities, token)
    await identities.server.post(PODS, pod())
    assert refused(identities, token)


async def test_a_pod_that_is_ending_has_its_token_till_the_end(
    identities: ClusterIdentities,
) -> None:
    await identities.account("bob")
    await identities.server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await identities.server.post(PODS, pod(node="n1"))
    token = await identities.token("bob", boundObjectRef=bound_to("Pod", "p"))
    assert identities.user(token)
    await identities.server.delete(f"{PODS}/p?gracePeriodSeconds=100")
    assert identities.user(token)
    await identities.clock.advance(159)
    assert identities.user(token)
    await identities.clock.advance(2)
    assert refused(identities, token)


async def test_a_token_ends_with_its_secret_and_with_its_node(
    identities: ClusterIdentities,
) -> None:
    await identities.account("bob")
    await identities.server.post(SECRETS, {"metadata": {"name": "s"}})
    await identities.server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    of_secret = await identities.token("bob", boundObjectRef=bound_to("Secret", "s"))
    of_node = await identities.token("bob", boundObjectRef=bound_to("Node", "n1"))
    assert identities.user(of_secret)
    assert identities.user(of_node)
    await identities.server.delete(f"{SECRETS}/s")
    await identities.server.delete("/api/v1/nodes/n1")
    assert refused(identities, of_secret)
    assert refused(identities, of_node)


async def test_the_token_of_a_pod_outlives_its_node(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    await identities.server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await identities.server.post(PODS, pod(node="n1"))
    token = await identities.token("bob", boundObjectRef=bound_to("Pod", "p"))
    await identities.server.delete("/api/v1/nodes/n1")
    assert identities.user(token)


async def test_changes_that_do_not_matter_leave_a_verified_token_alone(
    identities: ClusterIdentities,
) -> None:
    await identities.account("bob")
    await identities.server.post(PODS, pod())
    token = await identities.token("bob", boundObjectRef=bound_to("Pod", "p"))
    first = identities.user(token)
    await identities.server.merge(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    await identities.server.merge(f"{ACCOUNTS}/bob", {"metadata": {"labels": {"a": "b"}}})
    assert identities.user(token) is first


# Tokens in Secrets.


async def legacy(identities: ClusterIdentities, uid: str, name: str = "s") -> str:
    token = jwt.sign(
        identities.key,
        {
            "iss": "kubernetes/serviceaccount",
            "sub": "system:serviceaccount:default:bob",
            "kubernetes.io/serviceaccount/namespace": "default",
            "kubernetes.io/serviceaccount/secret.name": name,
            "kubernetes.io/serviceaccount/service-account.name": "bob",
            "kubernetes.io/serviceaccount/service-account.uid": uid,
        },
    )
    kept = {"metadata": {"name": name}, "stringData": {"token": token}}
    await identities.server.post(SECRETS, kept)
    return token


async def test_a_token_in_a_secret_holds_as_long_as_it_lies_there(
    identities: ClusterIdentities,
) -> None:
    uid = await identities.account("bob")
    token = await legacy(identities, uid)
    assert identities.user(token).name == "system:serviceaccount:default:bob"
    await identities.clock.advance(10 * 365 * 86400)
    assert identities.user(token).extra == ()
    await identities.server.merge(f"{SECRETS}/s", {"stringData": {"token": "another"}})
    assert refused(identities, token)
    await identities.server.merge(f"{SECRETS}/s", {"stringData": {"token": token}})
    assert identities.user(token)
    label = {"kubernetes.io/legacy-token-invalid-since": "2030-01-01"}
    await identities.server.merge(f"{SECRETS}/s", {"metadata": {"labels": label}})
    assert refused(identities, token)


async def test_a_token_in_a_secret_is_of_one_account(identities: ClusterIdentities) -> None:
    await identities.account("bob")
    assert refused(identities, await legacy(identities, "another uid"))


# Bootstrap tokens.

BOOTSTRAP = "/api/v1/namespaces/kube-system/secrets"
GOOD = {
    "token-id": "abcdef",
    "token-secret": "0123456789abcdef",
    "usage-bootstrap-authentication": "true",
}


async def keep(identities: ClusterIdentities, values: dict[str, str], **changes: Any) -> None:
    document = {
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": values,
    }
    await identities.server.post(changes.pop("url", BOOTSTRAP), document | changes)


async def test_a_machine_joins_with_a_bootstrap_token(identities: ClusterIdentities) -> None:
    await keep(
        identities, GOOD | {"auth-extra-groups": "system:bootstrappers:b,system:bootstrappers:a"}
    )
    assert identities.user("abcdef.0123456789abcdef") == User(
        "system:bootstrap:abcdef",
        (
            "system:bootstrappers",
            "system:bootstrappers:a",
            "system:bootstrappers:b",
            "system:authenticated",
        ),
    )
    for wrong in ("abcdef.0123456789abcdee", "abcdeg.0123456789abcdef", "abcdef.0123456789ABCDEF"):
        assert refused(identities, wrong)
    await identities.server.delete(f"{BOOTSTRAP}/bootstrap-token-abcdef")
    assert refused(identities, "abcdef.0123456789abcdef")


async def test_a_bootstrap_token_has_an_end(identities: ClusterIdentities) -> None:
    await keep(identities, GOOD | {"expiration": "2030-01-01T00:01:00Z"})
    assert identities.user("abcdef.0123456789abcdef")
    await identities.clock.advance(60)
    assert refused(identities, "abcdef.0123456789abcdef")


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        (GOOD | {"usage-bootstrap-authentication": "yes"}, {}),
        (GOOD | {"token-id": "abcdeg"}, {}),
        (GOOD | {"expiration": "tomorrow"}, {}),
        (GOOD | {"auth-extra-groups": "system:masters"}, {}),
        (GOOD | {"auth-extra-groups": "system:bootstrappers:a,"}, {}),
        (GOOD, {"type": "Opaque"}),
        (GOOD, {"url": SECRETS}),
        (GOOD, {"metadata": {"name": "bootstrap-token-other"}}),
    ],
)
async def test_a_bootstrap_token_must_be_as_it_should(
    identities: ClusterIdentities, values: dict[str, str], changes: dict[str, Any]
) -> None:
    await keep(identities, values, **changes)
    assert refused(identities, "abcdef.0123456789abcdef")
