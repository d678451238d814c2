"""Tokens that hold, and everything that only looks like one."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.apiserver.authentication import jwt
from kedge.apiserver.authentication.keys import SigningKey
from kedge.apiserver.authentication.refusals import CredentialRefused

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class PretendKey:
    """Signs by repeating a hash until it is as long as a signature: enough to test around it."""

    id = "pretend"
    signature_bytes = 256

    def sign(self, message: bytes) -> bytes:
        return hashlib.sha256(message).digest() * 8

    def signed(self, message: bytes, signature: bytes) -> bool:
        return signature == self.sign(message)


def holds(token: bytes, key: jwt.TokenKey) -> bool:
    parsed = jwt.parse(token)
    if parsed is None:
        return False
    try:
        parsed.check(key)
    except CredentialRefused:
        return False
    return True


def with_header(token: str, key: jwt.TokenKey, **header: Any) -> str:
    """The token under another header, signed properly."""
    head = jwt.to_base64(msgspec.json.encode(header))
    signed = head + b"." + token.split(".")[1].encode()
    return (signed + b"." + jwt.to_base64(key.sign(signed))).decode()


def test_what_was_signed_can_be_read_again(key: SigningKey) -> None:
    token = jwt.sign(key, {"iss": "me", "n": 1})
    parsed = jwt.parse(token.encode())
    assert parsed is not None
    parsed.check(key)
    assert msgspec.json.decode(parsed.payload) == {"iss": "me", "n": 1}


def test_the_header_names_algorithm_and_key_as_upstream_spells_it(key: SigningKey) -> None:
    header = jwt.from_base64(jwt.sign(key, {}).split(".")[0].encode())
    assert header == b'{"alg":"RS256","kid":"%b"}' % key.id.encode()


def test_no_signature_is_no_token(key: SigningKey) -> None:
    token = jwt.sign(key, {})
    none = with_header(token, key, alg="none", kid=key.id)
    assert not holds(none.encode(), key)
    assert not holds(none.rpartition(".")[0].encode() + b".", key)
    assert not holds(none.rpartition(".")[0].encode(), key)


def test_the_public_key_is_no_secret_to_sign_with(key: SigningKey) -> None:
    head = jwt.to_base64(msgspec.json.encode({"alg": "HS256", "kid": key.id}))
    signed = head + b"." + jwt.to_base64(b"{}")
    for secret in (key.published()["n"].encode(), key._public.read_bytes()):
        forged = signed + b"." + jwt.to_base64(hmac.digest(secret, signed, "sha256"))
        assert not holds(forged, key)


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "RS512"},
        {"alg": "rs256"},
        {"alg": "RS256", "crit": ["b64"], "b64": False},
        {"alg": "RS256", "jwk": {"kty": "RSA"}},
        {"alg": "RS256", "jku": "https://evil.example"},
        {"alg": "RS256", "typ": "JOSE+JSON"},
        {"alg": "RS256", "kid": 5},
        {"alg": None},
    ],
)
def test_a_header_may_ask_for_nothing_else(key: SigningKey, header: dict[str, Any]) -> None:
    token = with_header(jwt.sign(key, {}), key, **({"kid": key.id} | header))
    assert not holds(token.encode(), key)


def test_another_key_is_named_before_anything_is_computed(key: SigningKey) -> None:
    token = with_header(jwt.sign(key, {}), key, alg="RS256", kid="other")
    parsed = jwt.parse(token.encode())
    assert parsed is not None
    with pytest.raises(CredentialRefused, match="no keys found"):
        parsed.check(key)


def test_a_token_of_another_cluster_is_refused(key: SigningKey, tmp_path: Any) -> None:
    other = SigningKey(tmp_path)
    other.prepare()
    assert not holds(jwt.sign(other, {}).encode(), key)
    stolen_name = with_header(jwt.sign(other, {}), other, alg="RS256", kid=key.id)
    assert not holds(stolen_name.encode(), key)


def test_nothing_holds_before_a_key_was_made(key: SigningKey, tmp_path: Any) -> None:
    unmade = SigningKey(tmp_path / "none")
    assert not holds(jwt.sign(key, {}).encode(), unmade)
    assert not unmade.ready


def test_a_huge_token_is_not_even_looked_at(key: SigningKey) -> None:
    token = jwt.sign(key, {"aud": ["x" * jwt.LONGEST]})
    assert jwt.parse(token.encode()) is None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_token_with_one_character_changed_does_not_hold(data: st.DataObject) -> None:
    key = PretendKey()
    token = jwt.sign(key, {"iss": "me", "sub": "you", "aud": ["them"]}).encode()
    assert holds(token, key)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != token[at]))
    assert not holds(token[:at] + bytes([other]) + token[at + 1 :], key)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 400))
def test_a_truncated_token_does_not_hold(left_out: int) -> None:
    key = PretendKey()
    token = jwt.sign(key, {"iss": "me"}).encode()
    assert holds(token[: len(token) - left_out], key) == (left_out == 0)


@given(st.binary(max_size=100))
def test_base64url_comes_back_as_it_was(data: bytes) -> None:
    assert jwt.from_base64(jwt.to_base64(data)) == data


@pytest.mark.parametrize("text", [b"YQ==", b"YR", b"Y", b"Y Q", b"+/+/", b"YQ\n"])
def test_there_is_one_spelling_of_everything(text: bytes) -> None:
    with pytest.raises(ValueError, match="base64url"):
        jwt.from_base64(text)


@pytest.mark.parametrize(
    ("exp", "nbf", "iat", "why"),
    [
        (10, -10, -10, ""),
        (-60, -70, -70, ""),
        (-61, -70, -70, "has expired"),
        (100, 60, 60, ""),
        (100, 61, 0, "not valid yet"),
        (100, 0, 61, "issued in the future"),
    ],
)
def test_clocks_may_be_a_minute_apart(exp: int, nbf: int, iat: int, why: str) -> None:
    at = [int((NOW + timedelta(seconds=seconds)).timestamp()) for seconds in (exp, nbf, iat)]
    if not why:
        jwt.check_times(NOW, expires=at[0], begins=at[1], issued=at[2])
        return
    with pytest.raises(CredentialRefused, match=why):
        jwt.check_times(NOW, expires=at[0], begins=at[1], issued=at[2])


def test_a_time_beyond_all_calendars_is_refused() -> None:
    with pytest.raises(CredentialRefused):
        jwt.check_times(NOW, expires=10**20, begins=0, issued=0)
