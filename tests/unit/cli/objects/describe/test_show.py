"""`kedge describe`, in front of a server in this process."""

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.describe.show import DescribeOptions, show
from kedge.testing.local_server import MERGE, LocalServer

Captured = pytest.CaptureFixture[str]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def test_an_object_is_described_with_its_own_events(
    there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    made = (await server.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})).document
    for number, uid in enumerate((made["metadata"]["uid"], "another-one")):
        involved = {"kind": "ConfigMap", "name": "a", "namespace": "default", "uid": uid}
        event = {"metadata": {"name": f"e{number}"}, "involvedObject": involved, "reason": uid}
        await server.call("POST", "/api/v1/namespaces/default/events", event)
    assert await show(there, DescribeOptions(["cm", "a"]), server.clock.now()) == 0
    said = capsys.readouterr().out
    assert said.startswith("Name:         a\nNamespace:    default\n")
    assert made["metadata"]["uid"] in said.partition("Events:")[2]
    assert "another-one" not in said
    await show(there, DescribeOptions(["cm", "a"], events=False), server.clock.now())
    assert "Events:" not in capsys.readouterr().out


async def test_a_name_stands_for_those_that_begin_with_it(
    there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    for name in ("web-1", "web-2", "db"):
        await server.call("POST", CONFIG_MAPS, {"metadata": {"name": name}})
    now = server.clock.now()
    assert await show(there, DescribeOptions(["cm", "web"]), now) == 0
    first, second = capsys.readouterr().out.split("\n\n\n")
    assert ("web-1" in first, "web-2" in second) == (True, True)
    assert await show(there, DescribeOptions(["cm", "x"]), now) == 1
    assert capsys.readouterr().err == 'Error from server (NotFound): configmaps "x" not found\n'
    assert await show(there, DescribeOptions(["pods"]), now) == 0
    assert capsys.readouterr().err == "No resources found in default namespace.\n"


async def test_a_node_is_described_with_its_pods_and_its_lease(
    there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    await server.call("POST", "/api/v1/nodes", {"metadata": {"name": "one"}})
    lease = {"metadata": {"name": "one"}, "spec": {"holderIdentity": "its-lease"}}
    await server.call(
        "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease
    )
    containers = [{"name": "c", "image": "i"}]
    for name, node in (("here", "one"), ("nowhere", "")):
        spec = {"nodeName": node, "containers": containers}
        pod = {"metadata": {"name": name}, "spec": spec}
        assert (await server.call("POST", "/api/v1/namespaces/default/pods", pod)).status == 201
    assert await show(there, DescribeOptions(["node/one"]), server.clock.now()) == 0
    said = capsys.readouterr().out
    assert "its-lease" in said
    assert "(1 in total)" in said


async def test_a_node_of_a_server_that_prints_nulls_is_described(
    go_there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    await server.call("POST", "/api/v1/nodes", {"metadata": {"name": "one"}})
    assert await show(go_there, DescribeOptions(["node/one"]), server.clock.now()) == 0
    assert "(0 in total)" in capsys.readouterr().out
    spec = {"nodeName": "one", "containers": [{"name": "c", "image": "i"}]}
    pod = {"metadata": {"name": "web"}, "spec": spec}
    assert (await server.call("POST", PODS, pod)).status == 201
    conditions = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    status = await server.call("PATCH", f"{PODS}/web/status", conditions, content_type=MERGE)
    assert status.status == 200
    assert await show(go_there, DescribeOptions(["node/one"]), server.clock.now()) == 0
    assert "(1 in total)" in capsys.readouterr().out
    assert await show(go_there, DescribeOptions(["pod/web"]), server.clock.now()) == 0
    assert "Node:" in capsys.readouterr().out
