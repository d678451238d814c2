"""What a new machine finds: where the cluster is, and the right to ask for a certificate."""

import base64

import msgspec
import yaml

from kedge.apiserver import joining
from kedge.controllers.access import cluster_info
from kedge.testing.local_server import LocalServer

INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/rolebindings"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def cluster(info: dict[str, dict[str, str]]) -> dict[str, str]:
    told: dict[str, str] = yaml.safe_load(info["data"]["kubeconfig"])["clusters"][0]["cluster"]
    return told


async def test_where_the_cluster_is_may_be_known_to_who_has_a_binding_and_nothing_else(
    server: LocalServer,
) -> None:
    await joining.ensure(server.app.api, "https://192.0.2.1:6443", b"PEM")
    await server.settle()
    assert (await server.call("GET", INFO, token=None)).status == 403
    whole = msgspec.to_builtins(cluster_info.binding())
    assert (await server.call("POST", BINDINGS, whole)).status == 201
    await server.settle()
    assert cluster(await server.get(INFO, token=None)) == {
        "server": "https://192.0.2.1:6443",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
    }
    other = INFO.replace("cluster-info", "kube-root-ca.crt")
    assert (await server.call("GET", other, token=None)).status == 403
    assert (await server.call("GET", INFO.rpartition("/")[0], token=None)).status == 403


async def test_a_server_that_moved_says_so_and_leaves_the_rest_alone(server: LocalServer) -> None:
    await joining.ensure(server.app.api, "https://192.0.2.1:6443", b"PEM")
    await server.settle()
    await server.merge(INFO, {"data": {"jws-kubeconfig-abcdef": "signed"}})
    await joining.ensure(server.app.api, "https://192.0.2.2:7443", b"PEM")
    await server.settle()
    found = await server.get(INFO)
    assert cluster(found)["server"] == "https://192.0.2.2:7443"
    assert found["data"]["jws-kubeconfig-abcdef"] == "signed"
    before = server.store.revision
    await joining.ensure(server.app.api, "https://192.0.2.2:7443", b"PEM")
    assert server.store.revision == before


async def test_tokens_may_ask_for_certificates_and_see_what_becomes_of_them(
    server: LocalServer,
) -> None:
    await joining.ensure(server.app.api, "https://192.0.2.1:6443", b"PEM")
    await server.settle()
    who = {"impersonate-user": "system:bootstrap:a", "impersonate-group": "system:bootstrappers"}
    assert (await server.call("GET", REQUESTS, headers=who)).status == 200
    # Refused for what it says, not for who says it.
    assert (await server.call("POST", REQUESTS, {"spec": {}}, headers=who)).status == 422
    assert (await server.call("GET", "/api/v1/nodes", headers=who)).status == 403


CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


async def test_tokens_read_what_kubeadm_join_asks_for_and_nothing_else(server: LocalServer) -> None:
    await joining.ensure(server.app.api, "https://192.0.2.1:6443", b"PEM", name="prod")
    await server.settle()
    who = {"impersonate-user": "system:bootstrap:a", "impersonate-group": "system:bootstrappers"}

    async def content(name: str, key: str) -> dict[str, object]:
        reply = await server.call("GET", f"{CONFIG_MAPS}/{name}", headers=who)
        assert reply.status == 200
        found: dict[str, object] = yaml.safe_load(msgspec.json.decode(reply.data)["data"][key])
        return found

    cluster_configuration = await content("kubeadm-config", "ClusterConfiguration")
    assert cluster_configuration["controlPlaneEndpoint"] == "192.0.2.1:6443"
    assert cluster_configuration["clusterName"] == "prod"
    assert (await content("kubelet-config", "kubelet"))["clusterDNS"] == ["10.96.0.10"]
    other = f"{CONFIG_MAPS}/extension-apiserver-authentication"
    assert (await server.call("GET", other, headers=who)).status == 403
    assert (await server.call("GET", CONFIG_MAPS, headers=who)).status == 403
    assert (await server.call("GET", "/api/v1/nodes/new", headers=who)).status == 404
    assert (await server.call("GET", "/api/v1/nodes", headers=who)).status == 403


async def test_what_an_administrator_wrote_for_kubeadm_stays(server: LocalServer) -> None:
    await joining.ensure(server.app.api, "https://192.0.2.1:6443", b"PEM")
    await server.settle()
    await server.merge(f"{CONFIG_MAPS}/kubelet-config", {"data": {"kubelet": "mine"}})
    await joining.ensure(server.app.api, "https://192.0.2.1:6443", b"PEM")
    await server.settle()
    assert (await server.get(f"{CONFIG_MAPS}/kubelet-config"))["data"]["kubelet"] == "mine"
