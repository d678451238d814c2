"""Addresses and node ports of Services: who gets which, and what `kill -9` changes about it."""

from __future__ import annotations

import json
import threading
import urllib.error
from collections import Counter
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Api, Kubectl, OwnCluster

NETWORKING = "/apis/networking.k8s.io/v1"
IP_ADDRESSES = f"{NETWORKING}/ipaddresses"
SERVICE_CIDRS = f"{NETWORKING}/servicecidrs"
WRITERS = 4
CUTS = 3
ENOUGH = 20
"""Services that are to be acknowledged before each cut."""

CUT_OFF = (urllib.error.URLError, HTTPException, OSError, ValueError)


def services(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services"


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def test_what_is_handed_out_leaves_the_lower_bands_to_people(kubectl: Kubectl) -> None:
    for number in range(12):
        kubectl(f"create service nodeport s{number} --tcp=80")
    made = kubectl.json("get services")["items"]
    addresses = [each["spec"]["clusterIP"] for each in made]
    ports = [each["spec"]["ports"][0]["nodePort"] for each in made]
    assert len(set(addresses)) == len(set(ports)) == 12
    assert not [address for address in addresses if address.startswith("10.96.0.")]
    assert min(ports) >= 30086
    fixed = kubectl.json("create service clusterip mine --tcp=80 --clusterip=10.96.0.77")
    assert fixed["spec"]["clusterIP"] == "10.96.0.77"
    said = kubectl.fails("create service clusterip yours --tcp=80 --clusterip=10.96.0.77")
    assert "failed to allocate IP 10.96.0.77: provided IP is already allocated" in said


def test_every_address_has_an_ip_address_object_for_as_long(
    kubectl: Kubectl, api: Api, namespace: str, eventually: Callable[..., Any]
) -> None:
    made = kubectl.json("create service clusterip web --tcp=80")
    address = made["spec"]["clusterIP"]
    [row] = kubectl.table(f"get ipaddress {address}")
    assert row["PARENTREF"] == f"services/{namespace}/web"
    kubectl("delete service web")
    eventually(lambda: not api.exists(f"{IP_ADDRESSES}/{address}"))


def test_addresses_that_are_refused(api: Api, namespace: str) -> None:
    for spec, expected in (
        ({"clusterIP": "10.96.0.0"}, "is not in the valid range"),
        ({"clusterIP": "192.0.2.1"}, "is not in the valid range"),
        ({"ipFamilyPolicy": "RequireDualStack"}, "not configured for dual-stack services"),
        ({"ipFamilies": ["IPv6"]}, "not configured on this cluster"),
    ):
        with pytest.raises(Exception, match=expected) as refused:
            api.create(services(namespace), service("web", **spec))
        assert getattr(refused.value, "code", 0) == 422


def test_udp_and_tcp_of_one_port_share_a_node_port(kubectl: Kubectl) -> None:
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    body = {"apiVersion": "v1", "kind": "Service", **service("dns", type="NodePort", ports=ports)}
    made = kubectl.json("create", "-f", "-", input=json.dumps(body))
    numbers = {port["nodePort"] for port in made["spec"]["ports"]}
    assert len(numbers) == 1


def external(kubectl: Kubectl, name: str) -> str:
    [row] = kubectl.table(f"get service {name}")
    return row["EXTERNAL-IP"]


def test_a_load_balancer_gets_an_address_and_gives_it_back(
    kubectl: Kubectl, api: Api, namespace: str, eventually: Callable[..., Any]
) -> None:
    kubectl("create service loadbalancer web --tcp=80")
    address = eventually(lambda: external(kubectl, "web").replace("<pending>", ""))
    assert address.startswith("10.97.0.")
    status = api.get(f"{services(namespace)}/web")["status"]
    assert status["loadBalancer"]["ingress"] == [{"ip": address, "ipMode": "VIP"}]

    def reasons() -> set[str]:
        events = api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        return {event["reason"] for event in events}

    eventually(lambda: {"EnsuringLoadBalancer", "EnsuredLoadBalancer"} <= reasons())
    same = service("asks", type="LoadBalancer", loadBalancerIP=address)
    api.create(services(namespace), same)
    eventually(lambda: "SyncLoadBalancerFailed" in reasons())
    assert external(kubectl, "asks") == "<pending>"
    kubectl("patch", "service", "web", '--patch={"spec":{"type":"ClusterIP"}}')
    assert external(kubectl, "web") == "<none>"
    eventually(lambda: external(kubectl, "asks") == address)


def test_a_load_balancer_of_another_class_is_left_alone(
    kubectl: Kubectl, api: Api, namespace: str, eventually: Callable[..., Any]
) -> None:
    other = service("other", type="LoadBalancer", loadBalancerClass="example.com/other")
    api.create(services(namespace), other)
    api.create(services(namespace), service("ours", type="LoadBalancer"))
    eventually(lambda: external(kubectl, "ours") != "<pending>")
    assert external(kubectl, "other") == "<pending>"


@pytest.fixture
def more(api: Api, namespace: str) -> Iterator[str]:
    """A second ServiceCIDR, with its own finalizer gone at the end."""
    spec = {"cidrs": ["10.111.0.0/28"]}
    api.create(SERVICE_CIDRS, {"metadata": {"name": namespace}, "spec": spec})
    yield namespace
    if api.exists(f"{SERVICE_CIDRS}/{namespace}"):
        api.delete(f"{SERVICE_CIDRS}/{namespace}")


def ready(api: Api, name: str) -> tuple[str, str]:
    status = api.get(f"{SERVICE_CIDRS}/{name}").get("status") or {}
    conditions = status.get("conditions") or [{"status": "", "reason": ""}]
    return conditions[0]["status"], conditions[0]["reason"]


def test_another_service_cidr_gives_addresses_and_stays_while_it_is_needed(
    kubectl: Kubectl, api: Api, more: str, namespace: str, eventually: Callable[..., Any]
) -> None:
    eventually(lambda: ready(api, more) == ("True", ""))
    kubectl("create service clusterip far --tcp=80 --clusterip=10.111.0.3")
    api.delete(f"{SERVICE_CIDRS}/{more}")
    eventually(lambda: ready(api, more) == ("False", "Terminating"))
    said = kubectl.fails("create service clusterip late --tcp=80 --clusterip=10.111.0.4")
    assert "allocator not ready" in said
    kubectl("delete service far")
    eventually(lambda: not api.exists(f"{SERVICE_CIDRS}/{more}"), within=30)


def test_an_ip_address_of_others_is_theirs(api: Api, namespace: str) -> None:
    """As Kubernetes' own conformance test does it."""
    names = ("255.255.255.255", "fe80::42:1dff:fe84:f9e2")
    parent = {"group": "networking.k8s.io", "resource": "gateways", "name": namespace}
    for name in names:
        meta = {"name": name, "labels": {"of": namespace}}
        api.create(IP_ADDRESSES, {"metadata": meta, "spec": {"parentRef": parent}})
    path = f"{IP_ADDRESSES}/{names[0]}"
    patched = api.merge(path, {"metadata": {"annotations": {"patched": "true"}}})
    assert patched["metadata"]["annotations"] == {"patched": "true"}
    with pytest.raises(Exception, match="field is immutable"):
        api.merge(path, {"spec": {"parentRef": {"name": "other"}}})
    selected = f"{IP_ADDRESSES}?labelSelector=of%3D{namespace}"
    assert len(api.get(selected)["items"]) == 2
    api.delete(selected)
    assert api.get(selected)["items"] == []


def test_the_default_service_cidr_can_be_annotated_and_not_changed(api: Api) -> None:
    """As Kubernetes' own conformance test does it."""
    path = f"{SERVICE_CIDRS}/kubernetes"
    patched = api.merge(path, {"metadata": {"annotations": {"patched": "true"}}})
    assert patched["spec"] == {"cidrs": ["10.96.0.0/16"]}
    condition = {
        "type": "StatusPatched",
        "status": "True",
        "reason": "Test",
        "message": "a condition of another controller",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    conditions = [*patched["status"]["conditions"], condition]
    api.merge(f"{path}/status", {"status": {"conditions": conditions}})
    types = [each["type"] for each in api.get(path)["status"]["conditions"]]
    assert types == ["Ready", "StatusPatched"]
    with pytest.raises(Exception, match="field is immutable"):
        api.merge(path, {"spec": {"cidrs": ["10.111.0.0/16"]}})


def test_the_default_service_cidr_comes_back(
    own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up().api
    path = f"{SERVICE_CIDRS}/kubernetes"
    eventually(lambda: api.exists(path) and "finalizers" in api.get(path)["metadata"])
    uid = api.get(path)["metadata"]["uid"]
    api.delete(path)
    eventually(lambda: ready(api, "kubernetes") == ("False", "Terminating"))
    api.merge(path, {"metadata": {"finalizers": None}})
    eventually(lambda: api.exists(path) and api.get(path)["metadata"]["uid"] != uid, within=30)
    eventually(lambda: ready(api, "kubernetes") == ("True", ""))
    api.create(services("default"), service("web"))


def test_an_ingress_without_a_class_gets_the_default(
    kubectl: Kubectl, api: Api, namespace: str
) -> None:
    path = f"{NETWORKING}/ingressclasses"
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
    meta = {"name": namespace, "annotations": annotations}
    api.create(path, {"metadata": meta, "spec": {"controller": "example.com/gateway"}})
    try:
        kubectl("create ingress web --rule=example.com/*=web:80")
        [row] = kubectl.table("get ingress web")
        assert row["CLASS"] == namespace
    finally:
        api.delete(f"{path}/{namespace}")


def test_ranges_can_be_chosen(own_cluster: OwnCluster, eventually: Callable[..., Any]) -> None:
    api = own_cluster.up(
        "--service-node-port-range=20000-20003", "--load-balancer-cidr=192.0.2.64/30"
    ).api
    made = api.create(services("default"), service("web", type="LoadBalancer"))
    assert 20000 <= made["spec"]["ports"][0]["nodePort"] <= 20003
    path = f"{services('default')}/web"

    def ingress() -> Any:
        return api.get(path)["status"]["loadBalancer"].get("ingress")

    assert eventually(ingress) == [{"ip": "192.0.2.65", "ipMode": "VIP"}]


class Writer(threading.Thread):
    """Creates one Service after the other until the server goes away."""

    def __init__(self, api: Api, name: str) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._prefix = name
        self.acknowledged: dict[str, str] = {}

    def run(self) -> None:
        number = 0
        try:
            while True:
                name = f"{self._prefix}-{number}"
                made = self._api.create(services("default"), service(name, type="LoadBalancer"))
                self.acknowledged[name] = made["spec"]["clusterIP"]
                number += 1
        except CUT_OFF:
            return


def test_nothing_is_handed_out_twice_by_servers_that_are_killed(
    own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up("--load-balancer-cidr=10.97.0.0/16").api
    acknowledged: dict[str, str] = {}
    for cut in range(CUTS):
        writers = [Writer(api, f"c{cut}-w{number}") for number in range(WRITERS)]
        for thread in writers:
            thread.start()
        eventually(lambda writers=writers: sum(len(w.acknowledged) for w in writers) >= ENOUGH)
        own_cluster.kill()
        for thread in writers:
            thread.join()
            acknowledged |= thread.acknowledged
        api = own_cluster.up("--load-balancer-cidr=10.97.0.0/16").api

    def all_balanced() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api.get(services("default"))["items"]
        pending = [
            each
            for each in found
            if each["spec"]["type"] == "LoadBalancer"
            and not each["status"]["loadBalancer"].get("ingress")
        ]
        return [] if pending else found

    found = eventually(all_balanced, within=60)
    addresses = {each["metadata"]["name"]: each["spec"]["clusterIP"] for each in found}
    assert acknowledged.items() <= addresses.items()
    ports = [p["nodePort"] for each in found for p in each["spec"]["ports"] if "nodePort" in p]
    balanced = [
        place["ip"] for each in found for place in each["status"]["loadBalancer"].get("ingress", [])
    ]
    for handed_out in (list(addresses.values()), ports, balanced):
        assert not [each for each, times in Counter(handed_out).items() if times > 1]
    stored = {each["metadata"]["name"] for each in api.get(IP_ADDRESSES)["items"]}
    assert {*addresses.values()} <= stored
