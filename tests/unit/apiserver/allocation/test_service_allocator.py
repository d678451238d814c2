"""Service addresses and node ports, seen from outside."""

from typing import Any

import pytest

from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

SERVICES = "/api/v1/namespaces/default/services"
IP_ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
SERVICE_CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


def service(name: str = "s", **spec: Any) -> dict[str, Any]:
    body = {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec}
    return {"metadata": {"name": name}, "spec": body}


async def test_every_service_gets_an_address_of_its_own(server: LocalServer) -> None:
    one = await server.post(SERVICES, service("a"))
    other = await server.post(SERVICES, service("b"))
    assert one["spec"]["clusterIP"].startswith("10.96.")
    assert one["spec"]["clusterIPs"] == [one["spec"]["clusterIP"]]
    assert one["spec"]["clusterIP"] != other["spec"]["clusterIP"]
    assert (await server.get(f"{SERVICES}/kubernetes"))["spec"]["clusterIP"] == "10.96.0.1"


async def test_a_wanted_address_is_given_once(server: LocalServer) -> None:
    made = await server.post(SERVICES, service("a", clusterIP="10.96.7.7"))
    assert made["spec"]["clusterIP"] == "10.96.7.7"
    answer = await server.call("POST", SERVICES, service("b", clusterIP="10.96.7.7"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "provided IP is already allocated" in answer.message
    await server.delete(f"{SERVICES}/a")
    await server.post(SERVICES, service("b", clusterIP="10.96.7.7"))


async def test_addresses_that_cannot_be_given(server: LocalServer) -> None:
    for address, why in (
        ("10.1.1.1", "is not in the valid range"),
        ("10.96.0.0", "is not in the valid range"),
        ("10.96.255.255", "is not in the valid range"),
        ("fd00::1", "IPv6 is not configured on this cluster"),
        ("nonsense", "must be"),
    ):
        answer = await server.call("POST", SERVICES, service("a", clusterIP=address))
        assert (answer.status, answer.reason) == (422, "Invalid"), answer.text
        assert why in answer.message


async def test_headless_and_external_services_have_none(server: LocalServer) -> None:
    headless = await server.post(SERVICES, service("a", clusterIP="None"))
    assert headless["spec"]["clusterIP"] == "None"
    await server.post(SERVICES, service("b", clusterIP="None"))
    body = service("c", type="ExternalName", externalName="example.com")
    external = await server.post(SERVICES, body)
    assert "clusterIP" not in external["spec"]


async def test_an_update_keeps_the_address(server: LocalServer) -> None:
    made = await server.post(SERVICES, service("a"))
    put = await server.put(f"{SERVICES}/a", service("a", ports=[{"port": 81}]))
    assert put["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert await server.put(f"{SERVICES}/a", put) == put


async def test_node_ports_are_given_kept_and_freed(server: LocalServer) -> None:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    made = await server.post(SERVICES, service("a", type="NodePort", ports=ports))
    numbers = [port["nodePort"] for port in made["spec"]["ports"]]
    assert len(set(numbers)) == 2
    assert all(30000 <= number <= 32767 for number in numbers)
    put = await server.put(f"{SERVICES}/a", service("a", type="NodePort", ports=ports))
    assert [port["nodePort"] for port in put["spec"]["ports"]] == numbers
    same = [{"port": 80, "nodePort": numbers[0]}]
    taken = await server.call("POST", SERVICES, service("b", type="NodePort", ports=same))
    assert taken.status == 422
    assert "provided port is already allocated" in taken.message
    away = [{"port": 80, "nodePort": 80}]
    outside = await server.call("POST", SERVICES, service("b", type="NodePort", ports=away))
    assert "The range of valid ports is 30000-32767" in outside.message
    await server.delete(f"{SERVICES}/a")
    await server.post(SERVICES, service("b", type="NodePort", ports=same))


async def test_what_is_not_stored_takes_nothing(server: LocalServer) -> None:
    wanted = service("a", clusterIP="10.96.7.7", type="NodePort")
    wanted["spec"]["ports"][0]["nodePort"] = 30007
    await server.post(f"{SERVICES}?dryRun=All", wanted)
    broken = wanted | {"metadata": {"name": "b", "labels": {"bad label": "x"}}}
    assert (await server.call("POST", SERVICES, broken)).status == 422
    made = await server.post(SERVICES, wanted | {"metadata": {"name": "c"}})
    assert made["spec"]["clusterIP"] == "10.96.7.7"
    assert made["spec"]["ports"][0]["nodePort"] == 30007


async def test_two_at_once_do_not_get_the_same(server: LocalServer) -> None:
    answers: list[int] = []
    tasks = [server.start(_make(server, name, answers)) for name in "abcd"]
    for task in tasks:
        await task
    assert sorted(answers) == [201, 422, 422, 422]


async def _make(server: LocalServer, name: str, answers: list[int]) -> None:
    body = service(name, clusterIP="10.96.7.7")
    answers.append((await server.call("POST", SERVICES, body)).status)


async def test_a_restarted_server_knows_who_has_what() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    async with LocalServer.running(store, clock) as first:
        made = await first.post(SERVICES, service("a"))
    async with LocalServer.running(store, clock) as second:
        body = service("b", clusterIP=made["spec"]["clusterIP"])
        assert (await second.call("POST", SERVICES, body)).status == 422
        other = await second.post(SERVICES, service("b"))
        assert other["spec"]["clusterIP"] != made["spec"]["clusterIP"]


async def test_addresses_and_ports_come_from_the_upper_bands(server: LocalServer) -> None:
    for number in range(20):
        made = await server.post(SERVICES, service(f"s{number}", type="NodePort"))
        third = int(made["spec"]["clusterIP"].split(".")[2])
        assert third >= 1
        assert made["spec"]["ports"][0]["nodePort"] >= 30086


async def test_every_address_has_an_ip_address_object(server: LocalServer) -> None:
    made = await server.post(SERVICES, service("a"))
    address = made["spec"]["clusterIP"]
    found = await server.get(f"{IP_ADDRESSES}/{address}")
    assert found["spec"] == {
        "parentRef": {"resource": "services", "namespace": "default", "name": "a"}
    }
    assert found["metadata"]["labels"] == {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    assert (await server.call("GET", f"{IP_ADDRESSES}/10.96.0.1")).status == 200


async def test_the_ip_address_goes_with_its_service(server: LocalServer) -> None:
    made = await server.post(SERVICES, service("a"))
    await server.delete(f"{SERVICES}/a")
    await gone(server, made["spec"]["clusterIP"])


async def test_the_ip_address_goes_when_the_type_has_no_use_for_it(server: LocalServer) -> None:
    made = await server.post(SERVICES, service("a"))
    changed = service("a", type="ExternalName", externalName="example.com")
    put = await server.put(f"{SERVICES}/a", changed)
    assert "clusterIP" not in put["spec"]
    await gone(server, made["spec"]["clusterIP"])
    back = await server.put(f"{SERVICES}/a", service("a"))
    address = back["spec"]["clusterIP"]
    assert (await server.call("GET", f"{IP_ADDRESSES}/{address}")).status == 200


async def test_a_refused_service_leaves_no_ip_address(server: LocalServer) -> None:
    await server.post(SERVICES, service("a"))
    before = (await server.get(IP_ADDRESSES))["items"]
    assert (await server.call("POST", SERVICES, service("a"))).status == 409
    assert (await server.call("POST", f"{SERVICES}?dryRun=All", service("b"))).status == 201
    assert (await server.get(IP_ADDRESSES))["items"] == before


async def test_an_ip_address_of_somebody_else_blocks_its_address(server: LocalServer) -> None:
    parent = {"group": "example.com", "resource": "gateways", "name": "g"}
    body = {"metadata": {"name": "10.96.7.7"}, "spec": {"parentRef": parent}}
    await server.post(IP_ADDRESSES, body)
    answer = await server.call("POST", SERVICES, service("a", clusterIP="10.96.7.7"))
    assert "provided IP is already allocated" in answer.message


async def test_an_ip_address_that_was_left_by_a_killed_server_is_taken_over(
    server: LocalServer,
) -> None:
    body = {
        "metadata": {
            "name": "10.96.7.7",
            "labels": {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"},
        },
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "lost"}},
    }
    await server.post(IP_ADDRESSES, body)
    await server.post(SERVICES, service("a", clusterIP="10.96.7.7"))
    found = await server.get(f"{IP_ADDRESSES}/10.96.7.7")
    assert found["spec"]["parentRef"]["name"] == "a"


async def test_addresses_come_from_every_ready_service_cidr(server: LocalServer) -> None:
    spec = {"cidrs": ["10.200.0.0/28"]}
    await server.post(SERVICE_CIDRS, {"metadata": {"name": "more"}, "spec": spec})
    made = await server.post(SERVICES, service("a", clusterIP="10.200.0.3"))
    assert made["spec"]["clusterIP"] == "10.200.0.3"
    condition = {"type": "Ready", "status": "False", "reason": "R", "message": "m"}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    patch = {"status": {"conditions": [condition]}}
    await server.merge(f"{SERVICE_CIDRS}/more/status", patch)
    answer = await server.call("POST", SERVICES, service("b", clusterIP="10.200.0.4"))
    assert "failed to allocate IP 10.200.0.4: allocator not ready" in answer.message


async def test_a_full_range_is_an_internal_error() -> None:
    async with LocalServer.running(node_ports=range(30000, 30002)) as server:
        for name in "ab":
            await server.post(SERVICES, service(name, type="NodePort"))
        full = await server.call("POST", SERVICES, service("c", type="NodePort"))
        assert (full.status, full.reason) == (500, "InternalError")
        assert full.message == (
            "Internal error occurred: failed to allocate a nodePort: range is full"
        )


async def test_a_health_check_port_is_given_kept_and_freed(server: LocalServer) -> None:
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    made = await server.post(SERVICES, service("a", **local))
    number = made["spec"]["healthCheckNodePort"]
    assert 30000 <= number <= 32767
    put = await server.put(f"{SERVICES}/a", service("a", **local))
    assert put["spec"]["healthCheckNodePort"] == number
    taken = await server.call("POST", SERVICES, service("b", **local, healthCheckNodePort=number))
    assert taken.status == 500
    assert taken.message == (
        f"Internal error occurred: failed to allocate requested HealthCheck NodePort {number}:"
        " provided port is already allocated"
    )
    cluster = await server.put(f"{SERVICES}/a", service("a", type="LoadBalancer"))
    assert "healthCheckNodePort" not in cluster["spec"]
    await server.post(SERVICES, service("b", **local, healthCheckNodePort=number))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"ipFamilyPolicy": "RequireDualStack"}, "not configured for dual-stack services"),
        ({"ipFamilies": ["IPv6"]}, "spec.ipFamilies[0]: Invalid value"),
    ],
)
async def test_families_that_the_cluster_lacks(
    server: LocalServer, spec: dict[str, Any], why: str
) -> None:
    answer = await server.call("POST", SERVICES, service("a", **spec))
    assert answer.status == 422
    assert why in answer.message


async def test_prefer_dual_stack_gets_the_one_family_that_there_is(server: LocalServer) -> None:
    made = await server.post(SERVICES, service("a", ipFamilyPolicy="PreferDualStack"))
    assert made["spec"]["ipFamilies"] == ["IPv4"]
    assert len(made["spec"]["clusterIPs"]) == 1


async def gone(server: LocalServer, address: str) -> None:
    """Let the server work in the background; the IPAddress must be gone then."""
    await server.settle()
    assert (await server.call("GET", f"{IP_ADDRESSES}/{address}")).status == 404
