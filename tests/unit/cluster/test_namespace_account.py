from pathlib import Path

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.client import login
from kedge.client.discovery import Discovery
from kedge.client.login import Login
from kedge.cluster import namespace_account
from kedge.cluster.errors import ClusterError
from kedge.testing.local_server import LocalServer


def session_of(server: LocalServer, ca_pem: bytes) -> ApiSession:
    client = server.client
    where = Login(context="", file=Path("mine"), server="https://127.0.0.1:6443", ca_pem=ca_pem)
    return ApiSession(where, client, Discovery(client))


async def test_a_namespace_has_an_account_with_a_kubeconfig() -> None:
    async with LocalServer.running() as server:
        session = session_of(server, b"authority")
        name = await namespace_account.make(session, "shop")
        assert name.startswith("shop-")
        file = await namespace_account.write_kubeconfig(session, name)
        found = login.read([file])
        assert (found.server, found.namespace) == ("https://127.0.0.1:6443", name)
        account = f"system:serviceaccount:{name}:tester"
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": found.token},
        }
        answer = await server.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
        assert answer["status"]["user"]["username"] == account
        namespace_account.remove_kubeconfig(file)
        assert not file.parent.exists()


async def test_a_server_without_an_authority_is_refused() -> None:
    async with LocalServer.running() as server:
        with pytest.raises(ClusterError, match="mine does not say which authority"):
            await namespace_account.write_kubeconfig(session_of(server, b""), "default")
