"""The HTTPS side of an issuer: certificates, size and status of its documents."""

from datetime import timedelta
from pathlib import Path

import pytest

from kedge.apiserver.authentication.openid_connect import issuer_keys
from kedge.apiserver.authentication.openid_connect.configuration import Issuer
from kedge.apiserver.authentication.openid_connect.issuer_keys import (
    HttpsFetch,
    IssuerKeys,
    IssuerUnavailable,
    expiry,
)
from kedge.testing.clock import FakeClock
from kedge.testing.oidc_provider import oidc_provider
from kedge.web.message import Response


async def test_keys_come_over_https_from_a_trusted_issuer_only(tmp_path: Path) -> None:
    async with oidc_provider(tmp_path / "pki") as provider:
        issuer = Issuer(url=provider.url)
        keys = IssuerKeys(issuer, HttpsFetch(provider.ca_pem.decode()), FakeClock())
        await keys.find()
        assert keys.keys is not None
        assert [key.id for key in keys.keys] == ["first"]
        untrusting = IssuerKeys(issuer, HttpsFetch(""), FakeClock())
        with pytest.raises(IssuerUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await untrusting.find()


async def test_a_document_that_never_ends_or_is_none_is_refused(tmp_path: Path) -> None:
    async with oidc_provider(tmp_path / "pki") as provider:
        fetch = HttpsFetch(provider.ca_pem.decode())

        async def huge() -> Response:
            return Response(200, body=b"x" * (issuer_keys.ANSWER_BYTES + 1))

        provider.jwks = huge
        with pytest.raises(IssuerUnavailable, match="more than 1048576 bytes"):
            await fetch(f"{provider.url}/keys")
        with pytest.raises(IssuerUnavailable, match="status 404"):
            await fetch(f"{provider.url}/nothing")


async def test_a_slow_issuer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "ANSWER_SECONDS", 0.2)
    clock = FakeClock()
    async with oidc_provider(tmp_path / "pki") as provider:

        async def slow() -> Response:
            await clock.sleep(3600)
            return Response(200)

        provider.jwks = slow
        with pytest.raises(IssuerUnavailable, match="context deadline exceeded"):
            await HttpsFetch(provider.ca_pem.decode())(f"{provider.url}/keys")


@pytest.mark.parametrize(
    ("control", "seconds"),
    [
        ("", 0),
        ("max-age=60", 60),
        ("public, max-age=300, must-revalidate", 300),
        ("no-cache, max-age=60", 0),
        ("no-store", 0),
        ("s-max-age=5", 0),
    ],
)
def test_keys_are_kept_as_long_as_the_issuer_allows(control: str, seconds: int) -> None:
    now = FakeClock().now()
    assert expiry({"cache-control": control}, now) == now + timedelta(seconds=seconds)
