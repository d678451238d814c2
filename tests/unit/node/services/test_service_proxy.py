"""Services and EndpointSlices become changes of the table."""

import asyncio
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv4Address, IPv4Network

import pytest

from kedge.node.network import conntrack
from kedge.node.network.conntrack import TrackedFlow
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.network.nftables.batch import Batch
from kedge.node.network.ruleset import ENDPOINTS, SERVICES, Ruleset, TableScope
from kedge.node.services import service_proxy
from kedge.node.services.service_ports import NodePlace
from kedge.node.services.service_proxy import ServiceProxy
from kedge.node.services.service_watch import ServiceWatch
from kedge.testing.local_server import LocalServer

SERVICES_PATH = "/api/v1/namespaces/default/services"
SLICES_PATH = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


class FakeTable:
    """A table that counts what is written, and fails on request."""

    namespace: NetworkPlace = MACHINE

    def __init__(self) -> None:
        self.scope = TableScope(
            link="kbr1",
            links="kbr",
            network=IPv4Network("10.244.0.0/24"),
            gateway=IPv4Address("10.244.0.1"),
            pods=IPv4Network("10.244.0.0/16"),
            services=(IPv4Network("10.96.0.0/16"),),
            owns_machine=True,
        )
        self.was_taken_over = False
        self.is_owner_wrong = False
        self.failures = 0
        self.rewritten: list[Ruleset] = []
        self.changes: list[Batch] = []

    async def rewrite(self, services: Callable[[], Ruleset]) -> None:
        self._fail()
        found = services()
        self.rewritten.append(Ruleset(dict(found.sets), dict(found.chains), found.elements))

    async def apply(self, change: Callable[[str], Batch]) -> None:
        self._fail()
        if len(made := change(self.scope.link)):
            self.changes.append(made)

    def must_change_owner(self) -> bool:
        return self.is_owner_wrong

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the kernel refuses")


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> list[TrackedFlow]:
    """The UDP flows of the machine."""
    found: list[TrackedFlow] = []

    def delete(stale: list[TrackedFlow], _: NetworkPlace) -> int:
        for each in stale:
            found.remove(each)
        return len(stale)

    monkeypatch.setattr(conntrack, "udp_flows", lambda _: list(found))
    monkeypatch.setattr(conntrack, "delete_flows", delete)
    return found


async def start(server: LocalServer, table: FakeTable) -> ServiceProxy:
    watch = ServiceWatch(server.client, server.clock)
    proxy = ServiceProxy(watch, table, lambda: NodePlace("node-1"), server.clock)
    proxy.pin("10.96.0.1", "TCP", 443, ("127.0.0.1", 6443))
    server.start(watch.run())
    server.start(proxy.run())
    await watch.synced()
    await server.settle()
    return proxy


async def create(server: LocalServer, protocol: str = "TCP", *addresses: str) -> None:
    port = {"port": 80, "protocol": protocol}
    spec = {"clusterIP": "10.96.0.50", "ports": [port]}
    await server.post(SERVICES_PATH, {"metadata": {"name": "web"}, "spec": spec})
    await endpoints(server, protocol, *addresses)


async def endpoints(server: LocalServer, protocol: str, *addresses: str) -> None:
    document = {
        "metadata": {"generateName": "web-", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"port": 8080, "protocol": protocol}],
        "endpoints": [{"addresses": [each]} for each in addresses],
    }
    await server.post(SLICES_PATH, document)
    await server.settle()


async def pass_time(server: LocalServer, seconds: float = 0.01) -> None:
    await server.clock.advance(seconds)
    await server.settle()


async def test_the_api_server_is_reachable_before_services_are_known(server: LocalServer) -> None:
    table = FakeTable()
    await start(server, table)
    assert len(table.rewritten) == 2
    assert len(table.rewritten[0].elements[SERVICES]) == 1


async def test_a_table_of_the_previous_agent_stays_until_services_are_known(
    server: LocalServer,
) -> None:
    await create(server, "TCP", "10.244.0.2")
    table = FakeTable()
    table.was_taken_over = True
    await start(server, table)
    (only,) = table.rewritten
    assert len(only.elements[ENDPOINTS]) == 2


async def test_changes_are_merged_for_some_milliseconds(server: LocalServer) -> None:
    table = FakeTable()
    await start(server, table)
    await create(server, "TCP", "10.244.0.2")
    await endpoints(server, "TCP", "10.244.0.3")
    assert not table.changes
    await pass_time(server)
    assert len(table.changes) == 1
    assert len(table.rewritten) == 2


async def test_a_failed_change_is_followed_by_a_rewrite(server: LocalServer) -> None:
    table = FakeTable()
    await start(server, table)
    table.failures = 2
    await create(server, "TCP", "10.244.0.2")
    await pass_time(server)
    assert len(table.rewritten) == 2
    await pass_time(server, 5)
    assert len(table.rewritten) == 3
    assert len(table.rewritten[-1].elements[ENDPOINTS]) == 2
    await endpoints(server, "TCP", "10.244.0.3")
    await pass_time(server)
    assert len(table.changes) == 1


async def test_a_service_that_cannot_be_computed_is_skipped(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = FakeTable()
    await start(server, table)

    def fail(*_: object) -> None:
        raise OverflowError("a port that is none")

    with monkeypatch.context() as patched:
        patched.setattr(service_proxy, "carried_ports", fail)
        await create(server, "TCP", "10.244.0.2")
        await pass_time(server)
    assert "service skipped service=default/web" in caplog.text
    assert not table.changes
    await endpoints(server, "TCP", "10.244.0.3")
    await pass_time(server)
    assert len(table.changes) == 1


async def test_the_table_is_rewritten_when_the_owner_of_the_machine_goes(
    server: LocalServer,
) -> None:
    table = FakeTable()
    await start(server, table)
    table.is_owner_wrong = True
    await pass_time(server, 2.1)
    async with asyncio.timeout(60):
        while len(table.rewritten) < 3:
            await pass_time(server)


async def test_flows_to_a_removed_endpoint_are_deleted(
    server: LocalServer, flows: list[TrackedFlow]
) -> None:
    await create(server, "UDP", "10.244.0.2")
    ends = (IPv4Address("10.96.0.50"), 80, IPv4Address("10.244.0.2"), 8080)
    flows.append(TrackedFlow(IPv4Address("10.244.0.9"), 5000, *ends, tuple=b"", id=b""))
    await start(server, FakeTable())
    assert flows, "its endpoint is there"
    await server.delete(f"{SERVICES_PATH}/web")
    await server.settle()
    async with asyncio.timeout(60):
        while flows:
            await pass_time(server)
