"""The file is followed: a good change counts, a bad one changes nothing."""

import os
from pathlib import Path

import msgspec

from kedge.apiserver.authentication.openid_connect.issuer_keys import Fetched
from kedge.apiserver.authentication.openid_connect.reload import ConfiguredIssuers
from kedge.apiserver.authentication.service_accounts import AUDIENCES
from kedge.testing.clock import FakeClock
from kedge.testing.oidc_provider import OidcProvider, authentication_file
from kedge.web.message import HttpRequest, Response

FIRST, SECOND = OidcProvider("https://first.test"), OidcProvider("https://second.test")


async def fetch(url: str) -> Fetched:
    provider = next(each for each in (FIRST, SECOND) if url.startswith(each.url))
    answer = provider.handle(HttpRequest("GET", url.removeprefix(provider.url)))
    assert isinstance(answer, Response)
    assert isinstance(answer.body, bytes)
    return Fetched(answer.body, {})


def write(path: Path, document: object) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(document if isinstance(document, bytes) else msgspec.json.encode(document))
    os.replace(other, path)


def knows(issuers: ConfiguredIssuers, provider: OidcProvider) -> bool:
    return issuers.verified(provider.token().encode(), AUDIENCES) is not None


async def test_changes_of_the_file_count_unless_they_are_invalid(tmp_path: Path) -> None:
    path, clock = tmp_path / "authentication.json", FakeClock()
    write(path, authentication_file(FIRST.entry()))
    issuers = ConfiguredIssuers(path, clock, lambda issuer: fetch)
    await issuers._issuers.find()
    assert knows(issuers, FIRST)
    assert not knows(issuers, SECOND)

    write(path, authentication_file(FIRST.entry(), SECOND.entry()))
    assert await issuers._replace()
    assert knows(issuers, SECOND)

    write(path, b"jwt: [")
    assert await issuers._replace()
    write(path, authentication_file(anonymous={"enabled": False}))
    assert await issuers._replace()
    assert knows(issuers, FIRST)
    assert issuers.log.counts == {"success": 1, "failure": 2}


async def test_issuers_that_cannot_be_found_replace_nothing(tmp_path: Path) -> None:
    path = tmp_path / "authentication.json"
    write(path, authentication_file(FIRST.entry()))
    issuers = ConfiguredIssuers(path, FakeClock(), lambda issuer: fetch)
    await issuers._issuers.find()
    entry = SECOND.entry()
    entry["issuer"]["discoveryURL"] = "https://first.test/.well-known/openid-configuration"
    write(path, authentication_file(entry))
    assert not await issuers._replace()
    assert knows(issuers, FIRST)
