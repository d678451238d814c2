"""A machine that has only a token and a digest, at a real server over TLS."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.api.core_v1.config_map import RESOURCE as CONFIG_MAPS
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import (
    DaemonEndpoint,
    Node,
    NodeAddress,
    NodeDaemonEndpoints,
    NodeStatus,
)
from kedge.api.core_v1.secret import RESOURCE as SECRETS
from kedge.api.model import ObjectMeta
from kedge.api.rbac_v1.role_binding import RESOURCE as BINDINGS
from kedge.apiserver import pki
from kedge.apiserver.joining import kubeconfig
from kedge.apiserver.server import ApiServer
from kedge.cli.token import NewToken, secret_of
from kedge.controllers.access.certificate_signing import CertificateSigningController
from kedge.controllers.access.cluster_info import binding
from kedge.machinery.certificates import key_hash
from kedge.machinery.clock import SystemClock
from kedge.machinery.detached_jws import signature
from kedge.node.config import Invitation
from kedge.node.host import node_record
from kedge.node.host.api_access import ApiAccess
from kedge.node.host.join import JoinFailure, cluster_authority, has_valid_certificate, join
from kedge.testing.server import local_client, memory_server

ID, CODE = "abcdef", "0123456789abcdef"
CLOCK = SystemClock()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """A server that knows the token, with a controller that signs."""
    async with memory_server(tmp_path / "server") as server:
        client = local_client(server)
        new = NewToken(3600.0, ("authentication",), (), "")
        await client.create(SECRETS, secret_of(ID, CODE, new, CLOCK.now()))
        # As a controller does that sees the token.
        await client.create(BINDINGS, binding())
        controller = CertificateSigningController(client, server.sign_request, CLOCK)
        async with asyncio.TaskGroup() as tasks:
            signing = tasks.create_task(controller.run())
            yield server
            signing.cancel()


def invitation(running: ApiServer, **changes: object) -> Invitation:
    told = {
        "url": running.url,
        "token": f"{ID}.{CODE}",
        "ca_hash": key_hash(running.ca_pem),
    } | changes
    return Invitation(**told)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["digest", "file"])
async def test_a_machine_becomes_a_node(running: ApiServer, tmp_path: Path, how: str) -> None:
    changes = {} if how == "digest" else {"ca_hash": "", "ca_pem": running.ca_pem}
    asked = invitation(running, **changes)
    directory = tmp_path / "far"
    await join(directory, "far", asked, CLOCK)
    assert node_record.read_server(directory) == running.url
    access = ApiAccess(url=running.url, pki=directory / "pki")
    client = access.client("test")
    try:
        reply = await client.send(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            body=b'{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}',
        )
    finally:
        await client.close()
    assert b'"username":"system:node:far"' in reply.body
    assert has_valid_certificate(directory / "pki", asked, CLOCK)
    elsewhere = invitation(running, ca_hash=f"sha256:{'0' * 64}")
    assert not has_valid_certificate(directory / "pki", elsewhere, CLOCK)


def node_at(name: str, port: int) -> Node:
    endpoints = NodeDaemonEndpoints(kubeletEndpoint=DaemonEndpoint(Port=port))
    addresses = [NodeAddress(type="InternalIP", address="127.0.0.1")]
    status = NodeStatus(addresses=addresses, daemonEndpoints=endpoints)
    return Node(metadata=ObjectMeta(name=name), status=status)


async def test_a_machine_does_not_become_a_node_that_another_one_is(
    running: ApiServer, tmp_path: Path
) -> None:
    client = local_client(running)
    with socket.create_server(("127.0.0.1", 0)) as agent:
        port = agent.getsockname()[1]
        await client.create(NODES, node_at("far", port))
        with pytest.raises(JoinFailure, match=f'node "far" already.* at 127.0.0.1:{port}: choose'):
            await join(tmp_path / "far", "far", invitation(running), CLOCK)
        assert [each.name for each in (tmp_path / "far" / "pki").glob("*.crt")] == ["ca.crt"]
        await join(tmp_path / "near", "near", invitation(running), CLOCK)
    # Its agent has gone, so it may well be this machine that comes back with nothing left.
    await join(tmp_path / "far", "far", invitation(running), CLOCK)
    assert node_record.read_server(tmp_path / "far") == running.url


async def test_a_server_of_another_cluster_is_told_nothing(
    running: ApiServer, tmp_path: Path
) -> None:
    asked = invitation(running, ca_hash=f"sha256:{'0' * 64}")
    with pytest.raises(
        JoinFailure, match="does not belong to the cluster with the authority sha256:0000"
    ):
        await join(tmp_path / "far", "far", asked, CLOCK)
    assert list((tmp_path / "far" / "pki").iterdir()) == []


async def test_a_server_that_has_another_authority_is_told_nothing(
    running: ApiServer, tmp_path: Path
) -> None:
    other = pki.ensure(tmp_path / "other", ()).ca_pem
    asked = invitation(running, ca_hash="", ca_pem=other)
    with pytest.raises(JoinFailure, match="certificate verify failed"):
        await join(tmp_path / "far", "far", asked, CLOCK)
    assert not (tmp_path / "far" / "pki" / "node.crt").exists()


async def test_without_a_digest_only_what_the_machine_trusts_is_trusted(running: ApiServer) -> None:
    with pytest.raises(JoinFailure, match=r"cannot be verified: pass --ca-cert-hash"):
        await cluster_authority(invitation(running, ca_hash=""))


async def test_a_machine_that_trusts_the_server_already_needs_no_digest(
    running: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "roots").write_bytes(running.ca_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "roots"))
    assert await cluster_authority(invitation(running, ca_hash="")) == running.ca_pem


async def test_a_token_that_is_not_known_is_said_to_be(running: ApiServer, tmp_path: Path) -> None:
    asked = invitation(running, token=f"{ID}.{'0' * 16}")
    with pytest.raises(JoinFailure, match="token is unknown or has expired"):
        await join(tmp_path / "far", "far", asked, CLOCK)


async def test_a_server_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    ca_pem = pki.ensure(tmp_path / "pki", ()).ca_pem
    asked = Invitation(url="https://127.0.0.1:1", token=f"{ID}.{CODE}", ca_pem=ca_pem)
    with pytest.raises(JoinFailure, match="cannot connect to"):
        await join(tmp_path / "far", "far", asked, CLOCK)


async def test_an_authority_that_brings_another_one_along_is_not_trusted(
    running: ApiServer, tmp_path: Path
) -> None:
    both = running.ca_pem + pki.ensure(tmp_path / "other", ()).ca_pem
    client = local_client(running)
    told = {"kubeconfig": kubeconfig(running.url, both)}
    await client.patch(CONFIG_MAPS, "cluster-info", {"data": told}, "kube-public")
    with pytest.raises(JoinFailure, match="does not belong to the cluster"):
        await cluster_authority(invitation(running))


async def test_a_cluster_info_that_another_token_signed_is_refused(running: ApiServer) -> None:
    client = local_client(running)
    text = (await client.get(CONFIG_MAPS, "cluster-info", "kube-public")).data["kubeconfig"]
    signed = {f"jws-kubeconfig-{ID}": signature(text, ID, CODE)}
    await client.patch(CONFIG_MAPS, "cluster-info", {"data": signed}, "kube-public")
    assert await cluster_authority(invitation(running)) == running.ca_pem
    with pytest.raises(JoinFailure, match="was not signed with this token"):
        await cluster_authority(invitation(running, token=f"{ID}.fedcba9876543210"))
