"""How endpoints are dealt out to slices."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.service import RESOURCE as SERVICES
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1.endpoint_slice import Endpoint, EndpointPort, EndpointSlice
from kedge.controllers.services import slicing

PORTS = (EndpointPort(name="", port=80, protocol="TCP"),)
NODE = NODES.from_document(
    {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "west"}}}
)


def service(**spec: Any) -> Service:
    meta = {"name": "web", "namespace": "default", "uid": "u", "labels": {"team": "a"}}
    common = {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]}
    return SERVICES.from_document({"metadata": meta, "spec": common | spec})


def pod(
    i: int = 1, *, ready: bool = True, leaving: bool = False, phase: str = "Running", **spec: Any
) -> Pod:
    meta = {"name": f"p{i}", "namespace": "default", "uid": f"uid-{i}"}
    if leaving:
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    address = f"10.1.{i // 250}.{i % 250 + 1}"
    status = {"phase": phase, "podIP": address, "podIPs": [{"ip": address}]}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return PODS.from_document(
        {
            "metadata": meta,
            "spec": {"nodeName": "n", **spec},
            "status": status | {"conditions": conditions},
        }
    )


def endpoint(i: int, *, ready: bool = True) -> Endpoint:
    return slicing.endpoint(service(), pod(i, ready=ready), NODE, "IPv4")


def apply(plan: slicing.SlicePlan, present: list[EndpointSlice]) -> list[EndpointSlice]:
    """The slices that a plan leaves."""
    changed = {each.metadata.name: each for each in plan.update}
    gone = {each.metadata.name for each in plan.delete}
    kept = [
        changed.pop(each.metadata.name, each) for each in present if each.metadata.name not in gone
    ]
    assert not changed
    count = len(present)
    made = [
        replace(each, metadata=replace(each.metadata, name=f"s{count + i}-{id(plan)}"))
        for i, each in enumerate(plan.create)
    ]
    return kept + made


def deal(numbers: Any, present: list[EndpointSlice], **spec: Any) -> slicing.SlicePlan:
    endpoints = [endpoint(i) for i in numbers]
    return slicing.plan(service(**spec), "IPv4", {PORTS: endpoints} if endpoints else {}, present)


def held(slices: list[EndpointSlice]) -> list[str]:
    return sorted(
        each.targetRef.name for slice_ in slices for each in slice_.endpoints if each.targetRef
    )


def test_an_endpoint_tells_all_there_is_to_know() -> None:
    found = slicing.endpoint(service(), pod(hostname="web-0", subdomain="web"), NODE, "IPv4")
    assert list(found.addresses) == ["10.1.0.2"]
    assert (found.nodeName, found.zone, found.hostname) == ("n", "west", "web-0")
    assert found.targetRef is not None
    assert (found.targetRef.kind, found.targetRef.name, found.targetRef.uid) == (
        "Pod",
        "p1",
        "uid-1",
    )
    assert found.hints is None


def test_a_hostname_counts_only_below_the_services_own_name() -> None:
    other = slicing.endpoint(service(), pod(hostname="web-0", subdomain="db"), NODE, "IPv4")
    assert other.hostname is None


def test_conditions_tell_ready_serving_and_terminating_apart() -> None:
    def said(found: Endpoint) -> tuple[bool | None, bool | None, bool | None]:
        each = found.conditions
        return each.ready, each.serving, each.terminating

    def seen(found: Pod, **spec: Any) -> tuple[bool | None, bool | None, bool | None]:
        return said(slicing.endpoint(service(**spec), found, NODE, "IPv4"))

    assert seen(pod()) == (True, True, False)
    assert seen(pod(ready=False)) == (False, False, False)
    assert seen(pod(leaving=True)) == (False, True, True)
    assert seen(pod(ready=False), publishNotReadyAddresses=True) == (True, False, False)


def test_hints_keep_traffic_near_where_that_is_wanted() -> None:
    near = slicing.endpoint(service(trafficDistribution="PreferClose"), pod(), NODE, "IPv4")
    assert near.hints is not None
    assert [each.name for each in near.hints.forZones] == ["west"]
    same = slicing.endpoint(service(trafficDistribution="PreferSameNode"), pod(), NODE, "IPv4")
    assert same.hints is not None
    assert [each.name for each in same.hints.forNodes] == ["n"]


def test_a_named_port_is_looked_up_in_each_pod() -> None:
    named = service(ports=[{"port": 80, "targetPort": "http", "protocol": "TCP"}])

    def containing(number: int, name: str = "http") -> Pod:
        ports = [{"name": name, "containerPort": number, "protocol": "TCP"}]
        return pod(number, containers=[{"name": "c", "ports": ports}])

    groups, _ = slicing.endpoints_by_ports(
        named, [containing(8080), containing(9090), containing(1, "other")], {"n": NODE}, "IPv4"
    )
    assert {tuple(port.port for port in ports): len(group) for ports, group in groups.items()} == {
        (8080,): 1,
        (9090,): 1,
        (): 1,
    }


def test_who_has_ended_or_has_no_address_is_left_out() -> None:
    homeless = PODS.from_document({"metadata": {"name": "x"}, "status": {"phase": "Pending"}})
    groups, problems = slicing.endpoints_by_ports(
        service(), [pod(phase="Failed"), homeless, pod(2)], {"n": NODE}, "IPv4"
    )
    [group] = groups.values()
    assert len(group) == 1
    assert problems == []


def test_a_pod_on_a_node_that_is_not_there_is_left_out_and_told() -> None:
    groups, problems = slicing.endpoints_by_ports(service(), [pod()], {}, "IPv4")
    assert list(groups.values()) == [[]]
    assert problems == ["skipping Pod p1 for Service default/web: Node n Not Found"]


def test_a_service_without_endpoints_has_one_empty_slice() -> None:
    plan = deal([], [])
    [slice_] = plan.create
    assert (list(slice_.endpoints), list(slice_.ports)) == ([], [])
    again = deal([], apply(plan, []))
    assert (again.create, again.update, again.delete) == ([], [], [])


def test_a_slice_is_labelled_and_owned() -> None:
    [slice_] = deal([1], []).create
    assert slice_.metadata.generateName == "web-"
    assert slice_.metadata.labels == {
        "team": "a",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    [owner] = slice_.metadata.ownerReferences
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Service", "web", "u", True)


def test_slices_of_a_headless_service_say_so() -> None:
    [slice_] = deal([1], [], clusterIP="None").create
    assert slice_.metadata.labels["service.kubernetes.io/headless"] == ""


def test_a_hundred_endpoints_fill_a_slice() -> None:
    slices = apply(deal(range(250), []), [])
    assert sorted(len(each.endpoints) for each in slices) == [50, 100, 100]


def test_a_change_of_one_endpoint_changes_one_slice() -> None:
    slices = apply(deal(range(250), []), [])
    endpoints = [endpoint(i, ready=i != 7) for i in range(250)]
    plan = slicing.plan(service(), "IPv4", {PORTS: endpoints}, slices)
    assert (len(plan.create), len(plan.update), len(plan.delete)) == (0, 1, 0)


def test_new_endpoints_go_where_there_is_room() -> None:
    slices = apply(deal(range(150), []), [])
    plan = deal(range(160), slices)
    assert (len(plan.create), len(plan.update), len(plan.delete)) == (0, 1, 0)


def test_other_ports_change_the_slice_and_do_not_replace_it() -> None:
    slices = apply(deal([1], []), [])
    ports = (EndpointPort(name="", port=81, protocol="TCP"),)
    plan = slicing.plan(service(), "IPv4", {ports: [endpoint(1)]}, slices)
    assert (plan.create, plan.delete) == ([], [])
    [slice_] = plan.update
    assert slice_.ports[0].port == 81
    assert slice_.metadata.name == slices[0].metadata.name


def test_slices_of_an_earlier_service_of_that_name_go() -> None:
    slices = apply(deal([1], []), [])
    later = replace(service(), metadata=replace(service().metadata, uid="later"))
    plan = slicing.plan(later, "IPv4", {PORTS: [endpoint(1)]}, slices)
    assert (len(plan.create), len(plan.delete)) == (1, 1)


def test_new_labels_of_the_service_reach_its_slices() -> None:
    slices = apply(deal([1], []), [])
    labelled = replace(service(), metadata=replace(service().metadata, labels={"team": "b"}))
    plan = slicing.plan(labelled, "IPv4", {PORTS: [endpoint(1)]}, slices)
    assert plan.update[0].metadata.labels["team"] == "b"


@given(st.lists(st.sets(st.integers(0, 240)), min_size=1, max_size=6))
def test_whatever_comes_and_goes_every_endpoint_is_in_one_slice(steps: list[set[int]]) -> None:
    slices: list[EndpointSlice] = []
    for step in steps:
        slices = apply(deal(sorted(step), slices), slices)
        assert held(slices) == sorted(f"p{i}" for i in step)
        assert all(len(each.endpoints) <= slicing.MOST for each in slices)
        assert slices
