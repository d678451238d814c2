"""People who share a cluster and are kept apart: tenants, impersonators, a node that was robbed."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kedge.api.core_v1.pod import pod_addresses

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Cluster, Kubectl, OwnCluster


class Tenant(NamedTuple):
    """A service account, at work in its namespace with a token of its own."""

    name: str
    kubectl: Kubectl
    admin: Kubectl
    """The administrator, looking at the same namespace."""


def signed_in(kubectl: Kubectl, token: str) -> Kubectl:
    """The same kubectl for whoever holds the token."""
    other = copy.copy(kubectl)
    server = kubectl.cluster.api
    path = kubectl.cluster.home / f"kubeconfig-{uuid.uuid4().hex[:8]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server.url, **authority(kubectl)}}],
        "users": [{"name": "x", "user": {"token": token}}],
    }
    path.write_text(json.dumps(config))
    other.environment = kubectl.environment | {"KUBECONFIG": str(path)}
    return other


def authority(kubectl: Kubectl) -> dict[str, str]:
    path = kubectl.cluster.home / "authority.pem"
    path.write_text(kubectl.cluster.api.ca_pem)
    return {"certificate-authority": str(path)}


@pytest.fixture
def tenants(any_kubectl: Kubectl, eventually: Callable[..., Any]) -> Iterator[list[Tenant]]:
    """Two who may edit what is in their own namespaces."""
    mark = uuid.uuid4().hex[:8]
    made: list[Tenant] = []
    for name in (f"red-{mark}", f"blue-{mark}"):
        any_kubectl(f"create namespace {name}")
        admin = copy.copy(any_kubectl)
        admin.namespace = name
        admin("create serviceaccount worker")
        account = f"--serviceaccount={name}:worker"
        admin(f"create rolebinding workers --clusterrole=edit {account}")
        admin("create configmap notes --from-literal=secret=recipe")
        made.append(Tenant(name, signed_in(admin, admin.says("create token worker")), admin))
    first = made[0].kubectl
    # At a cluster's first start the role `edit` is put together a moment later.
    eventually(lambda: first("auth can-i get secrets", check=False).returncode == 0)
    yield made
    for tenant in made:
        any_kubectl(f"delete namespace {tenant.name} --wait=false")


def test_a_tenant_is_at_home_in_its_own_namespace(tenants: list[Tenant]) -> None:
    for tenant in tenants:
        kubectl = tenant.kubectl
        kubectl("create secret generic key --from-literal=a=b")
        kubectl("create deployment front --image=nginx")
        kubectl("run web --image=nginx")
        assert "notes" in kubectl.says("get configmaps")
        assert kubectl.says("get secret key -o=jsonpath={.data.a}") == "Yg=="
        kubectl("delete secret key")


@pytest.mark.parametrize(
    "deed",
    [
        "get configmaps",
        "get configmap notes",
        "get configmaps --watch",
        "get secrets",
        "get pods",
        "get events",
        "describe configmap notes",
        "create configmap mine",
        "run mine --image=nginx",
        "label configmap notes mine=yes",
        "delete configmap notes",
        "delete configmaps --all",
        "create token worker",
        "create rolebinding mine --clusterrole=view --serviceaccount=default:default",
        "create role mine --verb=get --resource=pods",
    ],
)
def test_a_tenant_can_do_nothing_in_the_namespace_of_another(
    tenants: list[Tenant], deed: str
) -> None:
    for tenant, other in (tenants, reversed(tenants)):
        intruder = copy.copy(tenant.kubectl)
        intruder.namespace = other.name
        refused = intruder.fails(f"{deed} --request-timeout=10s")
        assert "is forbidden: User" in refused
        assert f'User "system:serviceaccount:{tenant.name}:worker" cannot' in refused
        assert f'in the namespace "{other.name}"' in refused
        assert "recipe" not in refused
        assert other.admin.says("get configmap notes -o=jsonpath={.metadata.labels}") == ""


def test_a_tenant_sees_nothing_of_the_cluster_as_a_whole(tenants: list[Tenant]) -> None:
    tenant, other = tenants
    for what in ("configmaps -A", "secrets -A", "pods -A", "namespaces", "nodes", "clusterroles"):
        assert "at the cluster scope" in tenant.kubectl.fails(f"get {what}")
    assert "is forbidden: User" in tenant.kubectl.fails(f"get namespace {other.name}")


def test_a_tenant_cannot_give_itself_more(tenants: list[Tenant]) -> None:
    tenant, _ = tenants
    account = f"--serviceaccount={tenant.name}:worker"
    for deed in (
        f"create rolebinding more --clusterrole=cluster-admin {account}",
        f"create clusterrolebinding more --clusterrole=cluster-admin {account}",
        "create role more --verb=* --resource=secrets",
        "get pods --as=kubernetes-admin --as-group=system:masters",
    ):
        assert "is forbidden: User" in tenant.kubectl.fails(deed)


def test_an_admin_of_a_namespace_grants_there_what_it_has_and_no_more(
    tenants: list[Tenant],
) -> None:
    tenant, _ = tenants
    account = f"--serviceaccount={tenant.name}:worker"
    tenant.admin(f"create rolebinding heads --clusterrole=admin {account}")
    tenant.kubectl(f"create rolebinding readers --clusterrole=view {account}")
    refused = tenant.kubectl.fails(
        f"create rolebinding rulers --clusterrole=cluster-admin {account}"
    )
    assert "is attempting to grant RBAC permissions not currently held" in refused


def test_what_is_taken_away_is_gone_with_the_next_request(tenants: list[Tenant]) -> None:
    tenant, _ = tenants
    tenant.kubectl("get configmaps")
    tenant.admin("delete rolebinding workers")
    assert "is forbidden: User" in tenant.kubectl.fails("get configmaps")


def test_a_token_ends_with_its_account(tenants: list[Tenant]) -> None:
    tenant, _ = tenants
    tenant.admin("delete serviceaccount worker")
    tenant.admin("create serviceaccount worker")
    assert "You must be logged in to the server" in tenant.kubectl.fails("get configmaps")


def test_a_token_for_others_opens_nothing_here(tenants: list[Tenant]) -> None:
    tenant, _ = tenants
    token = tenant.admin.says("create token worker --audience=https://elsewhere.example.com")
    thief = signed_in(tenant.admin, token)
    assert "You must be logged in to the server" in thief.fails("get configmaps")


def test_a_tenant_is_told_what_it_may_do(tenants: list[Tenant]) -> None:
    tenant, other = tenants
    assert tenant.kubectl.says("auth can-i create deployments") == "yes"
    for question in ("get pods -A", f"get pods -n {other.name}", "create roles", "get /metrics"):
        done = tenant.kubectl(f"auth can-i {question}", check=False)
        assert (done.stdout, done.returncode) == ("no\n", 1)
    rows = {row["Resources"]: row for row in tenant.kubectl.table("auth can-i --list")}
    assert "*.*" not in rows
    assert {"get", "list", "watch", "create", "delete"} <= words(rows["configmaps"]["Verbs"])
    assert words(rows["bindings"]["Verbs"]) == {"get", "list", "watch"}
    assert "roles.rbac.authorization.k8s.io" not in rows


def words(cell: str) -> set[str]:
    return set(cell.strip("[]").split())


def test_a_tenant_knows_its_own_name(tenants: list[Tenant]) -> None:
    tenant, _ = tenants
    user = tenant.kubectl.json("auth whoami")["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{tenant.name}:worker"
    assert set(user["groups"]) == {
        "system:serviceaccounts",
        f"system:serviceaccounts:{tenant.name}",
        "system:authenticated",
    }


def test_an_administrator_can_try_what_another_may_do(tenants: list[Tenant]) -> None:
    tenant, other = tenants
    admin = tenant.admin
    worker = f"--as=system:serviceaccount:{tenant.name}:worker"
    assert admin.says(f"auth can-i create pods {worker}") == "yes"
    assert admin(f"auth can-i create pods -n {other.name} {worker}", check=False).stdout == "no\n"
    user = admin.json("auth whoami --as=jane --as-group=readers --as-group=writers")
    assert user["status"]["userInfo"] == {
        "username": "jane",
        "groups": ["readers", "writers", "system:authenticated"],
    }
    assert 'User "jane" cannot list resource "pods"' in admin.fails("get pods --as=jane")
    admin("create rolebinding readers --clusterrole=view --group=readers")
    admin("get pods --as=jane --as-group=readers")
    assert "is forbidden: User" in admin.fails("get secrets --as=jane --as-group=readers")


def test_acting_as_others_takes_the_right_to(tenants: list[Tenant]) -> None:
    tenant, _ = tenants
    refused = tenant.kubectl.fails("get configmaps --as=jane")
    assert f'User "system:serviceaccount:{tenant.name}:worker" cannot impersonate' in refused
    name = f"{tenant.name}-actors"
    tenant.admin(
        f"create clusterrole {name} --verb=impersonate --resource=users --resource-name=jane"
    )
    tenant.admin(
        f"create clusterrolebinding {name} --clusterrole={name}"
        f" --serviceaccount={tenant.name}:worker"
    )
    try:
        assert 'User "jane" cannot list' in tenant.kubectl.fails("get configmaps --as=jane")
        assert "cannot impersonate" in tenant.kubectl.fails("get configmaps --as=joan")
    finally:
        tenant.admin(f"delete clusterrolebinding/{name} clusterrole/{name}")


NODE_MAY_LIST = {
    "certificatesigningrequests.certificates.k8s.io",
    "csidrivers.storage.k8s.io",
    "endpointslices.discovery.k8s.io",
    "namespaces",
    "networkpolicies.networking.k8s.io",
    "nodes",
    "runtimeclasses.node.k8s.io",
    "services",
    "storageclasses.storage.k8s.io",
}
"""The kinds that any node may list: as in Kubernetes, and as kube-proxy, CoreDNS, network plugins
and, for the classes of volumes, storage drivers may."""


@pytest.fixture
def robbed(own_cluster: OwnCluster) -> Cluster:
    """A cluster whose node `one` has lost its token to somebody."""
    tokens = own_cluster.home / "tokens.csv"
    tokens.write_text('stolen-from-one,system:node:one,1,"system:nodes"\n')
    cluster = own_cluster.up(f"--token-auth-file={tokens}")
    for document in (node("one"), node("two")):
        cluster.api.create("/api/v1/nodes", document)
    for name in ("used", "unused"):
        secret = {"metadata": {"name": name}, "stringData": {"key": name}}
        cluster.api.create("/api/v1/namespaces/default/secrets", secret)
    cluster.api.create("/api/v1/namespaces/default/pods", pod("here", "one", "used"))
    cluster.api.create("/api/v1/namespaces/default/pods", pod("there", "two", "unused"))
    return cluster


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def pod(name: str, node: str, secret: str) -> dict[str, Any]:
    container = {"name": "main", "image": "host", "envFrom": [{"secretRef": {"name": secret}}]}
    spec = {"nodeName": node, "automountServiceAccountToken": False, "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


def test_a_stolen_node_token_reads_what_that_node_needs_and_nothing_else(robbed: Cluster) -> None:
    thief = robbed.api.stranger()
    thief.token = "stolen-from-one"
    at = "/api/v1/namespaces/default"
    assert thief.serves("/api/v1/nodes/one")
    assert thief.serves(f"{at}/pods/here")
    assert thief.serves(f"{at}/secrets/used")
    for path in ("/api/v1/nodes/two", f"{at}/pods/there", f"{at}/secrets/unused"):
        assert robbed.api.serves(path)
        assert code(thief, path) == 403
    listed = {name for name, path in listable(robbed.api) if code(thief, path) == 200}
    assert listed == NODE_MAY_LIST
    assert code(thief, "/metrics") == 403
    shown = thief("GET", "/api/v1/pods", accept=pod_addresses.MEDIA_TYPE)
    assert {each["metadata"]["name"] for each in shown["items"]} == {"here", "there"}
    assert {name for each in shown["items"] for name in each["spec"]} <= {"containers"}
    assert b"secret" not in json.dumps(shown).encode()
    for other in ("application/json", f"{pod_addresses.MEDIA_TYPE}, application/json"):
        assert code(thief, "/api/v1/pods", accept=other) == 403


def code(api: Api, path: str, **headers: str) -> int:
    try:
        with api.open(api.request("GET", path, **headers)) as answer:
            return int(answer.status)
    except Exception as refused:
        found: int | None = getattr(refused, "code", None)
        if found is None:
            raise
        return found


def listable(api: Api) -> Iterator[tuple[str, str]]:
    """Every kind that can be listed, with the path of all there are."""
    groups = api.get("/apis")["groups"]
    roots = [("", "/api/v1")]
    roots += [(g["name"], f"/apis/{g['preferredVersion']['groupVersion']}") for g in groups]
    for group, root in roots:
        for resource in api.get(root)["resources"]:
            name = resource["name"]
            if "list" in resource["verbs"] and "/" not in name:
                yield f"{name}.{group}".rstrip("."), f"{root}/{name}"
