"""The documents by which others check our tokens."""

import inspect
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from kedge.apiserver.authentication import jwt
from kedge.apiserver.authentication.keys import SigningKey
from kedge.apiserver.authentication.openid import CONFIGURATION, KEYS, OpenId
from kedge.web.message import HttpRequest, Response


def page(key: SigningKey, path: str) -> Response:
    found = OpenId(key, lambda: "10.0.0.1:6443").answer(HttpRequest("GET", path))
    assert isinstance(found, Response)
    assert found.headers == [("Cache-Control", "public, max-age=3600")]
    return found


def test_discovery_says_where_the_keys_are(key: SigningKey) -> None:
    found = page(key, "/.well-known/openid-configuration")
    assert found.content_type == "application/json"
    assert msgspec.json.decode(found.body) == {  # type: ignore[arg-type]
        "issuer": "https://kubernetes.default.svc.cluster.local",
        "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }


@pytest.mark.parametrize("address", ["127.0.0.1:6443", "[::1]:6443"])
def test_pods_find_the_keys_of_a_server_at_a_loopback_address(
    key: SigningKey, address: str
) -> None:
    found = OpenId(key, lambda: address).answer(HttpRequest("GET", CONFIGURATION))
    assert isinstance(found, Response)
    keys = "https://kubernetes.default.svc.cluster.local/openid/v1/jwks"
    assert msgspec.json.decode(found.body)["jwks_uri"] == keys  # type: ignore[arg-type]


def test_a_stranger_can_check_a_token_with_the_published_key(key: SigningKey) -> None:
    found = page(key, "/openid/v1/jwks")
    assert found.content_type == "application/jwk-set+json"
    (known,) = msgspec.json.decode(found.body)["keys"]  # type: ignore[arg-type]
    assert {name: known[name] for name in ("use", "kty", "alg")} == {
        "use": "sig",
        "kty": "RSA",
        "alg": "RS256",
    }
    assert known["kid"] == key.id
    n, e = (int.from_bytes(jwt.from_base64(known[name].encode()), "big") for name in "ne")
    signed, _, signature = jwt.sign(key, {"sub": "x"}).rpartition(".")
    public = rsa.RSAPublicNumbers(e, n).public_key()
    raw = jwt.from_base64(signature.encode())
    public.verify(raw, signed.encode(), padding.PKCS1v15(), SHA256())


async def test_others_are_answered_while_the_key_is_made(tmp_path: Path) -> None:
    found = OpenId(SigningKey(tmp_path), lambda: "").answer(HttpRequest("GET", KEYS))
    assert inspect.isawaitable(found)
    (known,) = msgspec.json.decode((await found).body)["keys"]  # type: ignore[arg-type]
    assert known["kid"] == SigningKey(tmp_path).id


def test_other_paths_are_left_to_others(key: SigningKey) -> None:
    assert OpenId(key, lambda: "").answer(HttpRequest("GET", "/openid/v1")) is None
