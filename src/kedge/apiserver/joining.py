"""Objects that let machines join: the ConfigMap `cluster-info`, the ConfigMaps that `kubeadm join`
reads, and roles for bootstrap tokens.

Their names are kubeadm's. The binding that allows anonymous reads of `cluster-info` exists only
while there are bootstrap tokens: a controller makes and removes it
(`kedge.controllers.access.cluster_info`).
"""

import asyncio
import base64
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from kedge import KUBERNETES
from kedge.api.builtin.service_networks import DNS_SERVICE_ADDRESS, POD_NETWORK, SERVICE_RANGE
from kedge.apiserver import bootstrap
from kedge.apiserver.api import Api
from kedge.apiserver.own_writes import unless_refused
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.patches import DesiredDocument

NAMESPACE: Final = "kube-public"
NAME: Final = "cluster-info"
KEY: Final = "kubeconfig"

_RBAC: Final = "rbac.authorization.k8s.io"
_INFO_ROLE: Final = "kubeadm:bootstrap-signer-clusterinfo"
_REQUESTS: Final = "system:certificates.k8s.io:certificatesigningrequests"
_GRANTS: Final = {
    "kubeadm:kubelet-bootstrap": ("system:node-bootstrapper", "system:bootstrappers"),
    "kubeadm:get-nodes": ("kubeadm:get-nodes", "system:bootstrappers"),
    "kubeadm:node-autoapprove-bootstrap": (f"{_REQUESTS}:nodeclient", "system:bootstrappers"),
    "kubeadm:node-autoapprove-certificate-rotation": (
        f"{_REQUESTS}:selfnodeclient",
        "system:nodes",
    ),
}
"""Each binding's name: its cluster role, and the group that it is given to."""


CLUSTER: Final = "kubeadm-config"
KUBELET: Final = "kubelet-config"
_READERS: Final = {"kubeadm:nodes-kubeadm-config": CLUSTER, "kubeadm:kubelet-config": KUBELET}
"""Each role's name: the ConfigMap that machines may read with it."""
_SYSTEM: Final = "kube-system"


async def ensure(api: Api, server: str, ca_pem: bytes, *, name: str = "kubernetes") -> None:
    """Make whatever is missing, and say anew where the server is."""
    async with asyncio.TaskGroup() as tasks:
        for document in (*grants(), *config_maps(server, name)):
            tasks.create_task(unless_refused(bootstrap.ensure_object(api, document)))
        tasks.create_task(unless_refused(_publish(api, {KEY: kubeconfig(server, ca_pem)})))


def kubeconfig(server: str, ca_pem: bytes) -> str:
    """All that a stranger may know of the cluster."""
    authority = base64.b64encode(ca_pem).decode()
    cluster = {"certificate-authority-data": authority, "server": server}
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "", "cluster": cluster}],
        "contexts": [],
        "current-context": "",
        "preferences": {},
        "users": [],
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def grants() -> Iterator[dict[str, Any]]:
    """Yield the roles and bindings for machines that join."""
    for name, (role, group) in _GRANTS.items():
        yield {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": group}],
        }
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "kubeadm:get-nodes"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
    }
    meta = {"name": _INFO_ROLE, "namespace": NAMESPACE}
    readable = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME]}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": meta,
        "rules": [{**readable, "verbs": ["get"]}],
    }
    for role, config_map in _READERS.items():
        meta = {"name": role, "namespace": _SYSTEM}
        rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [config_map]}
        yield {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [{**rule, "verbs": ["get"]}],
        }
        yield {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
            "subjects": [
                {"apiGroup": _RBAC, "kind": "Group", "name": group}
                for group in ("system:bootstrappers", "system:nodes")
            ],
        }


def config_maps(server: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the ConfigMaps that `kubeadm join` reads.

    They are made once: like those of kubeadm, they are the administrator's from then on.
    """
    cluster = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": name,
        "controlPlaneEndpoint": urlsplit(server).netloc,
        "kubernetesVersion": f"v{KUBERNETES}",
        "networking": {
            "dnsDomain": "cluster.local",
            "podSubnet": str(POD_NETWORK),
            "serviceSubnet": str(SERVICE_RANGE),
        },
    }
    yield _config_map(CLUSTER, "ClusterConfiguration", cluster)
    authority = "/etc/kubernetes/pki/ca.crt"
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": authority},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [DNS_SERVICE_ADDRESS],
        "clusterDomain": "cluster.local",
        "rotateCertificates": True,
        "serverTLSBootstrap": True,
        "staticPodPath": "/etc/kubernetes/manifests",
    }
    yield _config_map(KUBELET, "kubelet", kubelet)


def _config_map(name: str, key: str, content: dict[str, Any]) -> dict[str, Any]:
    # JSON is YAML, and the server needs no writer of YAML for it.
    text = msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    meta = {"name": name, "namespace": _SYSTEM}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {key: text}}


async def _publish(api: Api, data: dict[str, str]) -> None:
    meta = {"name": NAME, "namespace": NAMESPACE}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    request = bootstrap.request_for(api, document, "update")
    if api.find(request) is None:
        await bootstrap.ensure_object(api, document)
        return

    def republished(live: dict[str, Any]) -> DesiredDocument:
        return DesiredDocument(live | {"data": {**(live.get("data") or {}), **data}})

    await write.modify(api, request, republished, write.MAIN, "UpdateOptions")
