"""Nodes of one machine have addresses of their own, and pods find the API server there."""

from __future__ import annotations

import json
import ssl
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.conftest import Api, OwnCluster
    from tests.e2e.pods.conftest import Pods

ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICES = (
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    "?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes"
)


def addresses(api: Api) -> list[str]:
    return [
        each["address"]
        for node in api.get("/api/v1/nodes")["items"]
        for each in node["status"]["addresses"]
        if each["type"] == "InternalIP"
    ]


def older(api: Api) -> set[tuple[str, int]]:
    """Return the addresses and ports of the API server in its Endpoints."""
    if not api.exists(ENDPOINTS):
        return set()
    return {
        (address["ip"], port["port"])
        for subset in api.get(ENDPOINTS)["subsets"]
        for address in subset["addresses"]
        for port in subset["ports"]
    }


def newer(api: Api) -> set[tuple[str, int]]:
    """Return the same in its EndpointSlices."""
    return {
        (address, port["port"])
        for each in api.get(SLICES)["items"]
        for endpoint in each["endpoints"]
        for address in endpoint["addresses"]
        for port in each["ports"]
    }


def test_nodes_and_endpoints_of_one_machine(
    own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up("--nodes=2").api
    found = addresses(api)
    if "127.0.0.1" in found:
        pytest.skip("this user may not create network links, so nodes have no networks")
    assert len(set(found)) == 2
    eventually(lambda: {host for host, _ in newer(api)} == {*found})
    eventually(lambda: older(api) == newer(api))
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    for host, port in newer(api):
        with urllib.request.urlopen(f"https://{host}:{port}/version", context=tls) as answer:
            assert json.loads(answer.read())["major"] == "1"


def test_a_pod_reaches_the_api_server_at_its_endpoint(
    api: Api, pods: Pods, eventually: Callable[..., Any]
) -> None:
    if "127.0.0.1" in addresses(api):
        pytest.skip("this user may not create network links, so nodes have no networks")
    host, port = min(eventually(lambda: newer(api)))
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    said = pods.says(
        "asks",
        f"curl -s -m 10 --cacert {account}/ca.crt"
        f" --connect-to kubernetes.default:443:{host}:{port} https://kubernetes.default/version",
    )
    assert '"gitVersion"' in said
