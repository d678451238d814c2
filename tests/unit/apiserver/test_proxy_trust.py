"""The flags about authenticating proxies."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from kedge.apiserver import pki, proxy_trust
from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.config import RequestHeaderTrust
from kedge.apiserver.configuration_file import ConfigurationFileError
from kedge.apiserver.followed_file import CHECK_SECONDS
from kedge.apiserver.request import User
from kedge.machinery.certificates import fingerprint
from kedge.testing.clock import FakeClock
from kedge.web.message import HttpRequest

NOW = datetime.now(UTC)  # noqa: TID251


def refusal(trust: RequestHeaderTrust, directory: Path) -> str:
    with pytest.raises(ConfigurationFileError) as refused:
        proxy_trust.read(trust, pki.ensure(directory / "pki", ()), FakeClock())
    return str(refused.value)


def test_a_proxy_of_the_authority_in_the_file_is_believed(tmp_path: Path) -> None:
    identity = pki.ensure(tmp_path / "pki", ())
    authority = pki.ensure_front_proxy(tmp_path / "proxy", NOW)
    file = tmp_path / "proxies.pem"
    file.write_bytes(b"Comments are skipped.\n" + authority)
    trust = RequestHeaderTrust(authority=file, allowed_names=("p",), users=("X-Name",))
    proxies, published = proxy_trust.read(trust, identity, FakeClock())
    shown = {
        "subject": ((("commonName", "p"),),),
        "notAfter": "Jan  1 00:00:00 2040 GMT",
        "authority": fingerprint(authority),
    }
    asked = HttpRequest("GET", "/", headers={"x-name": "ann"}, peer_certificate=shown)
    assert proxies.user(asked) == User("ann")
    assert published.users == ("X-Name",)
    assert published.allowed_names == ("p",)
    assert fingerprint(published.authorities) == fingerprint(authority)
    assert len(identity.context.get_ca_certs()) == 2


async def test_the_authorities_of_a_changed_file_count(tmp_path: Path) -> None:
    identity, clock = pki.ensure(tmp_path / "pki", ()), FakeClock()
    first = pki.ensure_front_proxy(tmp_path / "first", NOW)
    second = pki.ensure_front_proxy(tmp_path / "second", NOW)
    file = tmp_path / "proxies.pem"
    file.write_bytes(first)
    followed = proxy_trust.FollowedProxies(RequestHeaderTrust(authority=file), identity, clock)

    def user(authority: bytes) -> User | None:
        shown = {
            "subject": ((("commonName", "p"),),),
            "notAfter": "Jan  1 00:00:00 2040 GMT",
            "authority": fingerprint(authority),
        }
        headers = {"x-remote-user": "ann"}
        return followed.proxies.user(
            HttpRequest("GET", "/", headers=headers, peer_certificate=shown)
        )

    assert user(first) == User("ann")
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(followed.follow())
        await clock.advance(0)
        file.write_bytes(second + b"\n")
        await clock.advance(CHECK_SECONDS)
        assert user(second) == User("ann")
        assert followed.published.authorities.strip() == second.strip()
        with pytest.raises(CredentialRefused):
            user(first)
        file.write_bytes(b"no certificate")
        await clock.advance(CHECK_SECONDS)
        assert user(second) == User("ann")
        following.cancel()


def test_flags_without_an_authority_are_refused(tmp_path: Path) -> None:
    trust = RequestHeaderTrust(allowed_names=("p",))
    assert "have no effect without --requestheader-client-ca-file" in refusal(trust, tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a certificate", None])
def test_a_file_without_a_certificate_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    assert "cannot be used" in refusal(RequestHeaderTrust(authority=file), tmp_path)


@pytest.mark.parametrize(
    ("flags", "why"),
    [({"users": ()}, "names no header"), ({"uids": ("X-Uid",)}, "standard X-Remote-Uid")],
)
def test_headers_that_cannot_work_are_refused(
    tmp_path: Path, flags: dict[str, tuple[str, ...]], why: str
) -> None:
    trust = RequestHeaderTrust(authority=tmp_path / "ca.pem")
    assert why in refusal(msgspec.structs.replace(trust, **flags), tmp_path)
