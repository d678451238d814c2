"""Endpoints in their older form."""

from time import process_time
from typing import Any

from kedge.api.core_v1.endpoints import EndpointAddress, EndpointPort, EndpointSubset
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.service import RESOURCE as SERVICES
from kedge.api.core_v1.service_types import Service
from kedge.controllers.services.subsets import bounded, repacked, subsets_of


def service(**spec: Any) -> Service:
    common = {"clusterIP": "10.0.0.1", "ports": [{"name": "a", "port": 80, "targetPort": "http"}]}
    return SERVICES.from_document({"metadata": {"name": "web"}, "spec": common | spec})


def pod(i: int, *names: str, ready: bool = True, leaving: bool = False) -> Pod:
    meta = {"name": f"p{i}", "uid": f"u{i}"}
    if leaving:
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    numbers = {"http": 8080, "admin": 9090}
    ports = [{"name": name, "containerPort": numbers[name]} for name in names]
    status = {"phase": "Running", "podIP": f"10.1.0.{i}", "podIPs": [{"ip": f"10.1.0.{i}"}]}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return PODS.from_document(
        {
            "metadata": meta,
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": ports}]},
            "status": status | {"conditions": conditions},
        }
    )


def shown(subsets: list[EndpointSubset]) -> list[Any]:
    return [
        (
            [each.ip[-1] for each in subset.addresses],
            [each.ip[-1] for each in subset.notReadyAddresses],
            [port.port for port in subset.ports],
        )
        for subset in subsets
    ]


def test_addresses_are_ready_or_not() -> None:
    pods = [pod(2, "http"), pod(1, "http"), pod(3, "http", ready=False)]
    assert shown(subsets_of(service(), pods)) == [(["1", "2"], ["3"], [8080])]


def test_a_pod_that_leaves_is_out_unless_all_are_published() -> None:
    pods = [pod(1, "http", leaving=True), pod(2, "http", ready=False)]
    assert shown(subsets_of(service(), pods)) == [([], ["2"], [8080])]
    published = service(publishNotReadyAddresses=True)
    assert shown(subsets_of(published, pods)) == [(["1", "2"], [], [8080])]


def test_ports_that_the_same_pods_have_are_put_together() -> None:
    ports = [
        {"name": "a", "port": 80, "targetPort": "http"},
        {"name": "b", "port": 81, "targetPort": "admin"},
    ]
    both = [pod(1, "http", "admin"), pod(2, "http", "admin")]
    assert shown(subsets_of(service(ports=ports), both)) == [(["1", "2"], [], [8080, 9090])]
    one = [pod(1, "http", "admin"), pod(2, "http")]
    assert shown(subsets_of(service(ports=ports), one)) == [
        (["1", "2"], [], [8080]),
        (["1"], [], [9090]),
    ]


def test_a_headless_service_needs_no_ports() -> None:
    headless = service(clusterIP="None", ports=[])
    assert shown(subsets_of(headless, [pod(1)])) == [(["1"], [], [])]


def many(ready: int, waiting: int) -> EndpointSubset:
    return EndpointSubset(
        addresses=[EndpointAddress(ip=str(i)) for i in range(ready)],
        notReadyAddresses=[EndpointAddress(ip=str(i)) for i in range(waiting)],
    )


def test_a_thousand_addresses_are_the_most_and_ready_ones_come_first() -> None:
    assert bounded([many(900, 100)]) == ([many(900, 100)], False)
    assert bounded([many(900, 200)]) == ([many(900, 100)], True)
    [first, second], cut = bounded([many(900, 9), many(600, 9)])
    assert (len(first.addresses), len(second.addresses), cut) == (600, 400, True)
    assert not first.notReadyAddresses


def test_subsets_of_the_same_addresses_become_one() -> None:
    here = [EndpointAddress(ip="10.0.0.1")]
    written = [
        EndpointSubset(addresses=here, ports=[EndpointPort(name="b", port=2)]),
        EndpointSubset(addresses=here, ports=[EndpointPort(name="a", port=1)]),
    ]
    assert shown(repacked(written)) == [(["1"], [], [1, 2])]


def test_who_is_not_ready_at_one_port_may_be_at_another() -> None:
    here = [EndpointAddress(ip="10.0.0.1")]
    a, b = EndpointPort(name="a", port=1), EndpointPort(name="b", port=2)
    written = [
        EndpointSubset(addresses=here, ports=[a, b]),
        EndpointSubset(notReadyAddresses=here, ports=[a]),
    ]
    assert shown(repacked(written)) == [([], ["1"], [1]), (["1"], [], [2])]


def test_thousands_of_ports_are_not_walked_for_each_pod() -> None:
    ports = [{"name": f"p{i}", "port": i, "targetPort": "http"} for i in range(1, 5_000)]
    many = service(ports=ports)
    pods = [pod(i, "http") for i in range(200)]
    begun = process_time()
    [subset] = subsets_of(many, pods)
    assert (len(subset.ports), len(subset.addresses)) == (4_999, 200)
    assert process_time() - begun < 2
