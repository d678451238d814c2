"""The storage of a node, as the API has it."""

import pytest
from msgspec.structs import replace

from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.node.storage.driver_catalog import NodeDrivers
from kedge.node.storage.storage_report import ReportedDriver, StorageReport
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.testing.node import NODE, FakeNodeFacts
from kedge.web.message import HttpRequest, Response


def test_a_driver_without_a_limit_has_no_count() -> None:
    assert ReportedDriver("d", "n").document() == {
        "name": "d",
        "nodeID": "n",
        "topologyKeys": None,
    }
    assert ReportedDriver("d", "n", ("k",), 3).document() == {
        "name": "d",
        "nodeID": "n",
        "topologyKeys": ["k"],
        "allocatable": {"count": 3},
    }


async def test_a_node_that_registers_again_reports_again() -> None:
    async with LocalServer.running() as server:

        async def handle(call: Call) -> Response:
            headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
            request = HttpRequest(call.method, call.path, call.query, headers, call.body)
            answer = server.app.handle(request)
            return answer if isinstance(answer, Response) else await answer

        facts = FakeNodeFacts()
        drivers = NodeDrivers({"": lambda: pytest.fail("not needed")}, None)
        client = Client(LocalTransport(handle))
        report = StorageReport(client, facts, drivers, lambda: (), server.clock)
        path = f"/apis/storage.k8s.io/v1/csinodes/{NODE}"
        for uid in ("first", "second"):
            facts.node = replace(facts.node, metadata=replace(facts.node.metadata, uid=uid))
            await report.write_drivers()
            made = await server.get(path)
            assert [each["uid"] for each in made["metadata"]["ownerReferences"]] == [uid]
            assert [each["name"] for each in made["spec"]["drivers"]] == ["local.kedge.dev"]
            # The garbage collector, after the Node was deleted.
            await server.delete(path)
