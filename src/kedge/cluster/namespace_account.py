"""A new namespace with a service account, and a kubeconfig for that account."""

import shutil
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from kedge.cli.objects.connection import ApiSession, document_in
from kedge.client import kubeconfig
from kedge.cluster.errors import ClusterError
from kedge.cluster.objects import KubeObject

ACCOUNT: Final = "tester"
ROLE: Final = "cluster-admin"
"""The rights of the account, in its namespace only."""
TOKEN_SECONDS: Final = 24 * 3600


async def make(session: ApiSession, prefix: str) -> str:
    """Create the namespace with its account, and return its name."""
    made = await _post(session, "/api/v1/namespaces", _namespace(prefix))
    name = str(made["metadata"]["name"])
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    await _post(session, f"/api/v1/namespaces/{name}/serviceaccounts", account)
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings"
    await _post(session, bindings, _binding(name))
    return name


async def write_kubeconfig(session: ApiSession, namespace: str) -> Path:
    """Write a kubeconfig for the account of a namespace, in a directory of its own."""
    login = session.login
    if not login.ca_pem:
        raise ClusterError(f"{login.file} does not say which authority the server has")
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
    answer = await _post(session, path, _token_request())
    file = Path(tempfile.mkdtemp(prefix="kedge-namespace-")) / "kubeconfig"
    token = answer["status"]["token"]
    access = kubeconfig.ClusterAccess(namespace, login.server, login.ca_pem, token)
    kubeconfig.merge(file, access)
    kubeconfig.set_namespace(file, namespace, namespace)
    return file


def remove_kubeconfig(file: Path) -> None:
    shutil.rmtree(file.parent, ignore_errors=True)


def _namespace(prefix: str) -> KubeObject:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"generateName": f"{prefix}-"},
    }


def _token_request() -> KubeObject:
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }


def _binding(namespace: str) -> KubeObject:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    }


async def _post(session: ApiSession, path: str, body: KubeObject) -> KubeObject:
    reply = await session.client.send("POST", path, body=msgspec.json.encode(body))
    return document_in(reply.body)
