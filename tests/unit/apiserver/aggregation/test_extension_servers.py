"""How extension servers are reached and verified."""

import base64
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.apiserver.aggregation.test_availability import REMOTE

from kedge.apiserver import pki
from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.machinery.errors import StatusError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def servers(directory: Path) -> ExtensionServers:
    return ExtensionServers(lambda namespace, name, port: ("10.0.0.1", 8443), directory)


@pytest.fixture
def authority(tmp_path: Path) -> str:
    return base64.b64encode(pki.ensure_front_proxy(tmp_path, NOW)).decode()


def test_the_name_in_the_certificate_is_that_of_the_service(tmp_path: Path, authority: str) -> None:
    address = servers(tmp_path).address(replace(REMOTE, ca_bundle=authority))
    assert (address.host, address.port, address.server_name) == ("10.0.0.1", 8443, "svc.ns.svc")
    assert address.tls is not None
    assert address.tls.check_hostname
    [trusted] = address.tls.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "kedge-front-proxy-ca"),),)


def test_any_certificate_is_taken_only_if_the_api_service_says_so(
    tmp_path: Path, authority: str
) -> None:
    address = servers(tmp_path).address(replace(REMOTE, is_insecure=True))
    assert address.tls is not None
    assert address.tls.verify_mode == ssl.CERT_NONE
    public = servers(tmp_path).address(REMOTE)
    assert public.tls is not None
    assert public.tls.verify_mode == ssl.CERT_REQUIRED


def test_a_context_is_kept_until_the_certificate_is_renewed(tmp_path: Path, authority: str) -> None:
    found = servers(tmp_path)
    remote = replace(REMOTE, ca_bundle=authority)
    first = found.address(remote).tls
    assert found.address(remote).tls is first
    os.utime(tmp_path / "client.crt", (1, 1))
    assert found.address(remote).tls is not first


@pytest.mark.parametrize("bundle", ["!", base64.b64encode(b"no certificate").decode(), "/w=="])
def test_authorities_that_cannot_be_read_are_an_error(
    tmp_path: Path, authority: str, bundle: str
) -> None:
    with pytest.raises(StatusError, match="unable to load root certificates"):
        servers(tmp_path).address(replace(REMOTE, ca_bundle=bundle))


def test_without_the_front_proxys_certificate_nobody_is_asked(tmp_path: Path) -> None:
    with pytest.raises(StatusError, match="does not exist yet"):
        servers(tmp_path / "none").address(REMOTE)
