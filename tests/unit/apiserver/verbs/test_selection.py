import pytest

from kedge.testing.local_server import LocalServer

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def maps(server: LocalServer) -> LocalServer:
    """A server with two config maps in one namespace and one in another."""
    for namespace, name, app in (("default", "a", "web"), ("default", "b", "db")):
        meta = {"name": name, "labels": {"app": app}}
        await server.post(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": meta})
    return server


async def names(server: LocalServer, path: str) -> list[str]:
    listed = (await server.get(path))["items"]
    return [each["metadata"]["name"] for each in listed]


async def test_labels_and_fields_select_together(maps: LocalServer) -> None:
    assert await names(maps, MAPS) == ["a", "b"]
    assert await names(maps, f"{MAPS}?labelSelector=app%3Dweb") == ["a"]
    assert await names(maps, f"{MAPS}?fieldSelector=metadata.name%3Db") == ["b"]
    both = "labelSelector=app%3Dweb&fieldSelector=metadata.name%3Db"
    assert await names(maps, f"{MAPS}?{both}") == []
    assert await names(maps, f"{MAPS}?fieldSelector=metadata.namespace%3Dother") == []


async def test_a_selector_that_cannot_be_read_is_refused(server: LocalServer) -> None:
    for query in ("labelSelector=a%3D%3D%3Db", "fieldSelector=metadata.name"):
        assert (await server.call("GET", f"{MAPS}?{query}")).status == 400


async def test_a_field_that_a_kind_does_not_offer_is_refused(server: LocalServer) -> None:
    answer = await server.call("GET", f"{PODS}?fieldSelector=spec.image%3Dx")
    assert (answer.status, answer.message) == (400, "field label not supported: spec.image")
    answer = await server.call("GET", f"{MAPS}?fieldSelector=data.a%3Dx")
    assert (answer.status, answer.message) == (
        400,
        '"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"',
    )


async def test_a_field_of_the_second_view_of_events_selects_in_the_stored_one(
    server: LocalServer,
) -> None:
    regarding = {"kind": "Pod", "namespace": "default", "name": "web"}
    event = {"metadata": {"name": "e"}, "involvedObject": regarding, "reason": "Started"}
    await server.post("/api/v1/namespaces/default/events", event)
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    assert await names(server, f"{path}?fieldSelector=regarding.name%3Dweb") == ["e"]
    assert await names(server, f"{path}?fieldSelector=regarding.name%3Ddb") == []
