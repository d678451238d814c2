from kedge.apiserver.flow_control import (
    FLOWS,
    LEVELS,
    ensure_flow_control,
    report_conditions,
)
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


async def conditions(server: LocalServer, name: str) -> list[dict[str, str]]:
    await report_conditions(server.app.api)
    schema = await server.get(f"{GROUP}/flowschemas/{name}")
    found: list[dict[str, str]] = schema["status"]["conditions"]
    for each in found:
        each.pop("lastTransitionTime")
    return found


async def test_a_schema_says_whether_its_level_exists(server: LocalServer) -> None:
    await ensure_flow_control(server.app.api)
    reference = 'This FlowSchema references the PriorityLevelConfiguration object named "system"'
    assert await conditions(server, "system-nodes") == [
        {
            "type": "Dangling",
            "status": "False",
            "reason": "Found",
            "message": f"{reference} and it exists",
        }
    ]
    await server.delete(f"{GROUP}/prioritylevelconfigurations/system")
    assert await conditions(server, "system-nodes") == [
        {
            "type": "Dangling",
            "status": "True",
            "reason": "NotFound",
            "message": f"{reference} but there is no such object",
        }
    ]
