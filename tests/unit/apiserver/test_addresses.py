"""Service addresses and node ports, seen from outside."""

from typing import Any

from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

SERVICES = "/api/v1/namespaces/default/services"


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
        ("fd00::1", "is not in the valid range"),
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
