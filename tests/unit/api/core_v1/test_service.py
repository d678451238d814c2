import pytest
from msgspec.structs import replace

from kedge.api.core_v1.service import RESOURCE, external_cell, prepare_for_update
from kedge.api.core_v1.service_types import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from kedge.api.model import ObjectMeta


def made(**spec: object) -> Service:
    fields = {"ports": [ServicePort(port=80)], **spec}
    obj = Service(metadata=ObjectMeta(name="web"), spec=replace(ServiceSpec(), **fields))
    return RESOURCE.strategy.prepare_for_create(RESOURCE.strategy.default(obj))


def running(**spec: object) -> Service:
    return made(clusterIP="10.0.0.7", **spec)


def errors(obj: Service) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def cells(obj: Service) -> dict[str, object]:
    return {column.name: column.cell(obj) for column in RESOURCE.presentation.columns}


def test_defaults_are_those_of_kubernetes() -> None:
    assert RESOURCE.to_document(made())["spec"] == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }
    assert RESOURCE.to_document(made())["status"] == {"loadBalancer": {}}
    assert errors(made()) == []


def test_a_balanced_service_lets_traffic_in_from_anywhere() -> None:
    spec = made(type="LoadBalancer", sessionAffinity="ClientIP").spec
    assert spec.externalTrafficPolicy == "Cluster"
    assert spec.allocateLoadBalancerNodePorts is True
    assert spec.sessionAffinityConfig is not None
    assert spec.sessionAffinityConfig.clientIP is not None
    assert spec.sessionAffinityConfig.clientIP.timeoutSeconds == 10800


def test_a_headless_service_that_selects_nothing_promises_both_families() -> None:
    spec = made(clusterIP="None").spec
    assert (spec.ipFamilyPolicy, spec.ipFamilies) == ("RequireDualStack", ["IPv4", "IPv6"])
    assert made(clusterIP="None", selector={"a": "b"}).spec.ipFamilies == ["IPv4"]


def test_several_ports_need_distinct_names_and_numbers() -> None:
    ports = [ServicePort(name="a", port=80), ServicePort(name="a", port=80), ServicePort(port=0)]
    assert errors(made(ports=ports)) == [
        'spec.ports[1].name: Duplicate value: "a"',
        "spec.ports[2].name: Required value",
        "spec.ports[2].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        "spec.ports[2].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
        'spec.ports[1]: Duplicate value: {"name":"","protocol":"TCP","port":80}',
    ]


def test_an_external_name_has_no_address() -> None:
    obj = made(type="ExternalName", ports=(), externalName="example.com.")
    assert errors(obj) == []
    assert errors(made(type="ExternalName", ports=(), clusterIP="10.0.0.1")) == [
        "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
        "spec.externalName: Required value",
    ]


def test_cluster_addresses_must_be_addresses_of_their_family() -> None:
    assert errors(made(clusterIP="10.0.0")) == [
        'spec.clusterIPs[0]: Invalid value: "10.0.0": '
        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    ]
    assert errors(made(clusterIP="fd00::1", ipFamilies=["IPv4"])) == [
        'spec.clusterIPs[0]: Invalid value: "fd00::1": '
        "expected an IPv4 value as indicated by `ipFamilies[0]`"
    ]


def test_fields_of_load_balancers_are_for_load_balancers() -> None:
    port = ServicePort(port=80, nodePort=30080)
    found = errors(made(ports=[port], loadBalancerClass="a/b", healthCheckNodePort=3))
    assert [text.split(":")[0] for text in found] == [
        "spec.ports[0].nodePort",
        "spec.loadBalancerClass",
        "spec.healthCheckNodePort",
    ]


def test_a_manifest_that_never_knew_its_address_can_be_put_again() -> None:
    old = running(type="NodePort", ports=[ServicePort(port=80, nodePort=30080)])
    new = prepare_for_update(
        RESOURCE.strategy.default(Service(spec=made(type="NodePort").spec)), old
    )
    assert new.spec.clusterIPs == ["10.0.0.7"]
    assert new.spec.ports[0].nodePort == 30080
    assert list(RESOURCE.strategy.validate_update(new, old)) == []
    assert errors(new) == []


def test_an_address_is_kept_for_life() -> None:
    old = running()
    new = prepare_for_update(replace(old, spec=replace(old.spec, clusterIP="10.0.0.8")), old)
    found = [str(error) for error in RESOURCE.strategy.validate_update(new, old)]
    assert found == ['spec.clusterIPs[0]: Invalid value: ["10.0.0.8"]: may not change once set']


def test_what_a_new_type_cannot_use_is_dropped() -> None:
    old = running(type="NodePort", ports=[ServicePort(port=80, nodePort=30080)])
    inner = prepare_for_update(replace(old, spec=replace(old.spec, type="ClusterIP")), old)
    assert (inner.spec.ports[0].nodePort, inner.spec.externalTrafficPolicy) == (0, "")
    assert errors(inner) == []
    named = replace(old.spec, type="ExternalName", externalName="example.com")
    outer = prepare_for_update(replace(old, spec=named), old)
    assert (outer.spec.clusterIP, outer.spec.ipFamilyPolicy) == ("", None)
    assert errors(outer) == []


@pytest.mark.parametrize(
    ("spec", "external", "ports"),
    [
        ({}, "<none>", "80/TCP"),
        (
            {"type": "NodePort", "ports": [ServicePort(port=80, nodePort=30080)]},
            "<none>",
            "80:30080/TCP",
        ),
        ({"type": "LoadBalancer"}, "<pending>", "80/TCP"),
        ({"type": "ExternalName", "externalName": "e.com", "ports": ()}, "e.com", "<none>"),
        ({"externalIPs": ["1.2.3.4", "1.2.3.5"]}, "1.2.3.4,1.2.3.5", "80/TCP"),
    ],
)
def test_the_columns_say_where_it_is(spec: dict[str, object], external: str, ports: str) -> None:
    row = cells(made(**spec))
    assert (row["External-IP"], row["Port(s)"]) == (external, ports)


def test_a_long_balancer_address_is_cut() -> None:
    places = LoadBalancerStatus(ingress=[LoadBalancerIngress(hostname="balancer.example.com")])
    obj = replace(made(type="LoadBalancer"), status=ServiceStatus(loadBalancer=places))
    assert external_cell(obj) == "balancer.exam..."


def test_only_balanced_services_report_a_balancer() -> None:
    places = LoadBalancerStatus(ingress=[LoadBalancerIngress(ip="1.2.3.4")])
    status = ServiceStatus(loadBalancer=places)
    (error,) = RESOURCE.strategy.validate_status(replace(made(), status=status), made())
    assert str(error).endswith("may only be used when `spec.type` is 'LoadBalancer'")
    balanced = RESOURCE.strategy.default(replace(made(type="LoadBalancer"), status=status))
    assert list(RESOURCE.strategy.validate_status(balanced, balanced)) == []
