"""Tokens of another issuer, on a whole server: every way to hold, and every way not to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.apiserver.authentication.jwt import to_base64
from kedge.apiserver.authentication.openid_connect import (
    configuration,
    id_token,
    json_web_keys,
)
from kedge.apiserver.authentication.openid_connect.issuer_keys import Fetched, IssuerUnavailable
from kedge.apiserver.authentication.openid_connect.issuers import Issuers
from kedge.apiserver.identities import OutsideIdentities
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer
from kedge.testing.oidc_provider import OidcProvider, ProviderKey, authentication_file
from kedge.web.message import HttpRequest, Response

PUBLISHED = yaml.safe_load(Path(__file__).with_name("published_tokens.yaml").read_text())
ISSUER = "https://issuer.test"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Provided:
    """Gets documents from a provider in this process."""

    def __init__(self, provider: OidcProvider) -> None:
        self._provider = provider
        self.failure = ""

    async def __call__(self, url: str) -> Fetched:
        if self.failure:
            raise IssuerUnavailable(self.failure)
        answer = self._provider.handle(HttpRequest("GET", url.removeprefix(ISSUER)))
        assert isinstance(answer, Response)
        assert isinstance(answer.body, bytes)
        return Fetched(answer.body, {key.lower(): value for key, value in answer.headers})


class Cluster:
    """A server that trusts a provider."""

    def __init__(self, server: LocalServer, provider: OidcProvider, fetch: Provided) -> None:
        self.server = server
        self.provider = provider
        self.fetch = fetch

    async def me(self, token: str) -> Any:
        """Return the user of a token; the message of the refusal as a TokenReview tells it."""
        await self.server.clock.advance(2)  # keys are fetched once in a second at most
        answer = await self.server.call("POST", SELF, {}, token=token)
        if answer.status == 201:
            return answer.document["status"]["userInfo"]
        assert answer.status == 401
        await self.server.clock.advance(2)
        body = {"spec": {"token": token}}
        review = await self.server.post("/apis/authentication.k8s.io/v1/tokenreviews", body)
        return review["status"]["error"]


@asynccontextmanager
async def cluster(**fields: Any) -> AsyncIterator[Cluster]:
    provider = OidcProvider(ISSUER)
    clock = FakeClock()
    fetch = Provided(provider)
    file = configuration.parse(authentication_file(provider.entry(**fields)))
    issuers = Issuers(file, clock, lambda issuer: fetch)
    await issuers.find()
    await clock.advance(2)
    outside = OutsideIdentities(authenticators=[issuers])
    async with LocalServer.running(clock=clock, outside=outside) as server:
        yield Cluster(server, provider, fetch)


async def test_a_token_of_the_issuer_is_its_user() -> None:
    async with cluster() as made:
        token = made.provider.token(groups=["devs", "ops"], jti="7")
        assert await made.me(token) == {
            "username": "oidc:jane",
            "groups": ["oidc:devs", "oidc:ops", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=7"]},
        }
        assert (await made.me(made.provider.token(groups="devs")))["groups"][0] == "oidc:devs"


@pytest.mark.parametrize("algorithm", json_web_keys.ALGORITHMS)
async def test_every_algorithm_of_kubernetes_is_accepted(algorithm: str) -> None:
    async with cluster() as made:
        made.provider.keys = [ProviderKey("k", algorithm)]
        assert (await made.me(made.provider.token()))["username"] == "oidc:jane"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "others"}, 'oidc: verify token: oidc: expected audience "kedge-test" got'),
        ({"exp": 1_000_000_000}, "oidc: verify token: oidc: token is expired"),
        ({"exp": None}, "oidc: verify token: oidc: token is expired"),
        ({"exp": "soon"}, "oidc: verify token: oidc: failed to unmarshal claims"),
        ({"nbf": 3_999_999_999}, "oidc: verify token: oidc: current time before the nbf"),
        ({"sub": None}, 'oidc: parse username claims "sub": claim not present'),
        ({"sub": 7}, 'oidc: parse username claims "sub": it is not a string'),
        ({"groups": [7]}, 'oidc: parse groups claim "groups"'),
        ({"iss": "https://others.test"}, ""),
    ],
)
async def test_a_token_that_does_not_hold_is_refused(claims: dict[str, Any], why: str) -> None:
    async with cluster() as made:
        said = await made.me(made.provider.token(**claims))
    expected = f"[invalid bearer token, {why}" if why else "invalid bearer token"
    assert said.startswith(expected)


async def test_a_token_without_a_signature_is_refused() -> None:
    async with cluster() as made:
        claims = {"iss": ISSUER, "sub": "jane", "aud": "kedge-test", "exp": 4_000_000_000}
        for algorithm in ("none", "None", "HS256", ""):
            token = made.provider.keys[0].token(claims, alg=algorithm)
            assert "unsupported algorithm" in await made.me(token)
            assert await made.me(token.rpartition(".")[0] + ".") == (
                "[invalid bearer token, oidc: verify token: oidc: id token signed with unsupported"
                ' algorithm, expected ["ES256" "ES384" "ES512" "PS256" "PS384" "PS512" "RS256"'
                f' "RS384" "RS512"] got "{algorithm}"]'
            )
        critical = made.provider.keys[0].token(claims, crit=["b64"])
        assert "unsupported crit header" in await made.me(critical)


@pytest.mark.parametrize("part", [0, 1])
async def test_a_token_of_thousands_of_brackets_is_refused(part: int) -> None:
    """Anyone can send one: it must not look like a defect of the server."""
    async with cluster() as made:
        parts = [b'{"alg":"ES256"}', f'{{"iss":"{ISSUER}"}}'.encode()]
        parts[part] = parts[part][:-1] + b',"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
        token = ".".join(to_base64(each).decode() for each in (*parts, b"x"))
        assert "invalid bearer token" in await made.me(token)


async def test_the_last_of_repeated_claims_counts_everywhere() -> None:
    """Otherwise a token could be checked as that of one issuer and used as that of another."""
    payload = b'{"iss":"https://others.test","iss":"%s"}' % ISSUER.encode()
    token = b".".join(to_base64(each) for each in (b'{"alg":"ES256"}', payload, b"x"))
    assert id_token.untrusted_issuer(token) == ISSUER
    assert id_token.claims_of(id_token.parse(token))["iss"] == ISSUER


async def test_a_key_for_another_curve_or_of_the_wrong_id_is_not_used() -> None:
    async with cluster() as made:
        claims = {"iss": ISSUER, "sub": "jane", "aud": "kedge-test", "exp": 4_000_000_000}
        key = made.provider.keys[0]
        assert "failed to verify signature" in await made.me(key.token(claims, alg="ES384"))
        assert "failed to verify signature" in await made.me(key.token(claims, alg="RS256"))
        other = ProviderKey("first").token(claims)
        assert "failed to verify signature" in await made.me(other)


async def test_keys_are_rotated_without_a_restart() -> None:
    async with cluster() as made:
        provider = made.provider
        old = provider.token(sub="old")
        provider.keys = [ProviderKey("second")]
        assert (await made.me(provider.token(sub="new")))["username"] == "oidc:new"
        assert "failed to verify signature" in await made.me(old)


async def test_keys_are_not_fetched_again_while_the_issuer_says_that_they_hold() -> None:
    async with cluster() as made:
        provider, clock = made.provider, made.server.clock
        provider.cache_control = "public, max-age=600"
        provider.keys = [ProviderKey("second")]
        await made.me(provider.token())
        fetched = provider.asked.count("/keys")
        provider.keys = [ProviderKey("third")]
        assert "failed to verify signature" in await made.me(provider.token())
        assert provider.asked.count("/keys") == fetched
        await clock.advance(571)
        assert (await made.me(provider.token()))["username"] == "oidc:jane"


async def test_many_forged_tokens_cause_few_fetches() -> None:
    async with cluster() as made:
        claims = {"iss": ISSUER, "sub": "jane", "aud": "kedge-test", "exp": 4_000_000_000}
        forged = [ProviderKey(f"k{i}").token(claims) for i in range(20)]
        before = made.provider.asked.count("/keys")
        calls = [made.server.call("POST", SELF, {}, token=token) for token in forged]
        answers = await asyncio.gather(*calls)
        assert [answer.status for answer in answers] == [401] * 20
        assert made.provider.asked.count("/keys") == before + 1


async def test_known_keys_are_used_while_the_issuer_is_away() -> None:
    async with cluster() as made:
        made.fetch.failure = "no route"
        assert (await made.me(made.provider.token()))["username"] == "oidc:jane"
        made.provider.keys = [ProviderKey("second")]
        said = await made.me(made.provider.token())
        assert said.endswith("failed to verify signature: fetching keys no route]")


async def test_expressions_map_claims_and_rules_hold() -> None:
    mappings = {
        "username": {"expression": "claims.sub + '@' + claims.tenant"},
        "groups": {"expression": "claims.roles.split(',')"},
        "uid": {"expression": "claims.oid"},
        "extra": [
            {"key": "example.org/tenant", "valueExpression": "claims.tenant"},
            {"key": "example.org/none", "valueExpression": "''"},
        ],
    }
    rules = [
        {"claim": "hd", "requiredValue": "example.org"},
        {"expression": "claims.exp > 4e9", "message": "lives too long"},
    ]
    users = [{"expression": "!user.username.startsWith('system:')", "message": "reserved"}]
    fields = {"claimMappings": mappings, "claimValidationRules": rules}
    async with cluster(**fields, userValidationRules=users) as made:
        good = {
            "tenant": "t", "roles": "a,b", "oid": "7", "hd": "example.org", "exp": 4_000_000_001,
        }  # fmt: skip
        assert await made.me(made.provider.token(**good)) == {
            "username": "jane@t",
            "uid": "7",
            "groups": ["a", "b", "system:authenticated"],
            "extra": {"example.org/tenant": ["t"]},
        }
        for changes, why in (
            ({"hd": "evil.org"}, "oidc: required claim hd value does not match. Got = evil.org"),
            ({"hd": None}, "oidc: required claim hd not present in ID token"),
            ({"exp": 3_999_999_999}, "validation expression 'claims.exp > 4e9' failed: lives too"),
            ({"sub": "system:admin"}, "user info validation rule: validation expression"),
            ({"tenant": None}, "oidc: error evaluating username claim expression: expression"),
            ({"oid": 7}, "uid claim expression must return a string"),
        ):
            said = await made.me(made.provider.token(**(good | changes)))
            assert why in said, said


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case["case"])
async def test_published_tokens(case: dict[str, Any]) -> None:
    rules = {
        "claimValidationRules": case.get("rules", []),
        "userValidationRules": case.get("users", []),
    }
    async with cluster(claimMappings=case["mappings"], **rules) as made:
        found = await made.me(made.provider.token(**case["claims"]))
    if "refused" in case:
        assert case["refused"] in found
    else:
        assert found == case["user"]


async def test_mail_addresses_must_be_verified() -> None:
    mappings = {"username": {"claim": "email", "prefix": ""}}
    async with cluster(claimMappings=mappings) as made:
        token = made.provider.token
        assert (await made.me(token(email="a@b")))["username"] == "a@b"
        assert (await made.me(token(email="a@b", email_verified=True)))["username"] == "a@b"
        said = await made.me(token(email="a@b", email_verified=False))
        assert said == "[invalid bearer token, oidc: email not verified]"


async def test_a_long_expression_runs_in_a_thread() -> None:
    heavy = "[1,2,3,4,5,6,7,8].all(a, [1,2,3,4,5,6,7,8].all(b, claims.l.all(c, c != 'x')))"
    rules = [{"expression": heavy, "message": "m"}]
    async with cluster(claimValidationRules=rules) as made:
        token = made.provider.token(l=["y"] * 300)
        assert (await made.me(token))["username"] == "oidc:jane"
        said = await made.me(made.provider.token(l=["y"] * 300 + ["x"]))
        assert "failed: m" in said


async def test_before_the_issuer_is_found_its_tokens_are_refused() -> None:
    provider = OidcProvider(ISSUER)
    clock = FakeClock()
    fetch = Provided(provider)
    fetch.failure = "no route"
    file = configuration.parse(authentication_file(provider.entry()))
    issuers = Issuers(file, clock, lambda issuer: fetch)
    outside = OutsideIdentities(authenticators=[issuers])
    async with LocalServer.running(clock=clock, outside=outside) as server:
        server.start(issuers.keep_trying())
        made = Cluster(server, provider, fetch)
        said = await made.me(provider.token())
        assert said == "[invalid bearer token, oidc: authenticator not initialized]"
        fetch.failure = ""
        await clock.advance(11)
        found = await made.me(provider.token())
        while isinstance(found, str):  # the keys are read in a thread
            assert found.endswith("oidc: authenticator not initialized]")
            found = await made.me(provider.token())
        assert found["username"] == "oidc:jane"


async def test_another_issuer_behind_the_url_is_not_believed() -> None:
    provider = OidcProvider(ISSUER)
    fetch = Provided(provider)
    file = configuration.parse(authentication_file(provider.entry()))
    issuers = Issuers(file, FakeClock(), lambda issuer: fetch)
    provider.url = "https://others.test"
    with pytest.raises(IssuerUnavailable, match=r"expected .https://issuer.test. got .https://oth"):
        await issuers.find()


def test_too_many_keys_and_bad_keys_are_refused() -> None:
    import msgspec

    key = ProviderKey("a").published
    with pytest.raises(ValueError, match="the issuer has 101 keys, more than 100"):
        json_web_keys.parse(msgspec.json.encode({"keys": [key] * 101}))
    with pytest.raises(ValueError, match="failed to decode keys"):
        json_web_keys.parse(b"<html>")
    with pytest.raises(ValueError, match="invalid RSA key: 24 bits"):
        json_web_keys.parse(b'{"keys": [{"kty": "RSA", "n": "____", "e": "AQAB"}]}')
    strange = [{"kty": "oct", "k": "AAAA"}, {"kty": "OKP", "crv": "Ed25519"}, key]
    assert len(json_web_keys.parse(msgspec.json.encode({"keys": strange}))) == 1


async def test_anonymous_requests_may_be_limited_to_paths() -> None:
    access = configuration.AnonymousAccess(
        enabled=True, conditions=[configuration.AnonymousCondition(path="/livez")]
    )
    outside = OutsideIdentities(anonymous=access.allows)
    async with LocalServer.running(outside=outside) as server:
        assert (await server.call("GET", "/livez", token=None)).status == 200
        assert (await server.call("GET", "/readyz", token=None)).status == 401
        assert (await server.call("GET", "/readyz")).status == 200
