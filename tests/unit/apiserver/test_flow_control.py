from kedge.apiserver.flow_control import FLOWS, LEVELS, ensure_flow_control
from kedge.testing.local_server import LocalServer

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"


async def test_a_cluster_has_the_flows_of_kubernetes(server: LocalServer) -> None:
    await ensure_flow_control(server.app.api)
    await ensure_flow_control(server.app.api)
    schemas = (await server.get(f"{GROUP}/flowschemas"))["items"]
    levels = (await server.get(f"{GROUP}/prioritylevelconfigurations"))["items"]
    assert len(schemas) == len(FLOWS)
    assert {each["metadata"]["name"] for each in levels} == {"exempt", *(e.name for e in LEVELS)}
    named = {each["spec"]["priorityLevelConfiguration"]["name"] for each in schemas}
    assert named == {each["metadata"]["name"] for each in levels}
