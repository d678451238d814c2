"""The requests that a server for tests remembers."""

from typing import Any

from kedge.apiserver.testing import request_log
from kedge.testing.local_server import MERGE, LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
AGENT = {"user-agent": "op/1.0"}


async def requests(server: LocalServer, query: str = "userAgent=op") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.get(f"/testing/requests?{query}"))["items"]
    return found


async def test_a_request_with_everything_about_it(server: LocalServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}})
    patch = {"data": {"k": "v"}}
    await server.merge(f"{MAPS}/a", patch, headers=AGENT)
    (found,) = await requests(server)
    assert found == {
        "number": found["number"],
        "time": "2030-01-01T00:00:00.000000Z",
        "seconds": 0.0,
        "user": "kubernetes-admin",
        "userAgent": "op/1.0",
        "verb": "patch",
        "version": "v1",
        "resource": "configmaps",
        "namespace": "default",
        "name": "a",
        "path": f"{MAPS}/a",
        "code": 200,
        "patchType": MERGE,
        "patch": '{"data":{"k":"v"}}',
    }


async def test_a_write_that_changes_nothing_is_marked(server: LocalServer) -> None:
    made = await server.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, headers=AGENT)
    await server.merge(f"{MAPS}/a", {"data": {"k": "v"}}, headers=AGENT)
    await server.put(f"{MAPS}/a", made, headers=AGENT)
    await server.merge(f"{MAPS}/a", {"data": {"k": "w"}}, headers=AGENT)
    assert [each.get("unchanged", False) for each in await requests(server)] == [
        False,
        True,
        True,
        False,
    ]


async def test_names_that_the_server_chose(server: LocalServer) -> None:
    made = await server.post(MAPS, {"metadata": {"generateName": "a-"}}, headers=AGENT)
    assert (await requests(server))[0]["name"] == made["metadata"]["name"]


async def test_lists_and_pages(server: LocalServer) -> None:
    await server.get(f"{MAPS}?resourceVersion=0", headers=AGENT)
    await server.get("/version", headers=AGENT)
    listed, page = await requests(server)
    assert (listed["verb"], listed["resourceVersion"]) == ("list", "0")
    assert (page["verb"], page["path"], page.get("resource")) == ("get", "/version", None)


async def test_patches_of_secrets_are_not_kept(server: LocalServer) -> None:
    secrets = MAPS.replace("configmaps", "secrets")
    await server.post(secrets, {"metadata": {"name": "a"}})
    await server.merge(f"{secrets}/a", {"stringData": {"k": "hidden"}}, headers=AGENT)
    assert "hidden" not in str(await requests(server))


async def test_since_a_number_or_a_time(server: LocalServer) -> None:
    await server.get(MAPS, headers=AGENT)
    page = await server.get("/testing/requests")
    await server.clock.advance(10)
    await server.get(f"{MAPS}?limit=1", headers=AGENT)
    for since in (str(page["next"]), "2030-01-01T00:00:05Z"):
        assert len(await requests(server, f"userAgent=op&since={since}")) == 1
    assert len(await requests(server)) == 2


async def test_other_selections(server: LocalServer) -> None:
    joe = {"impersonate-user": "system:serviceaccount:shop:joe"}
    await server.call("GET", MAPS, headers=joe)
    (found,) = await requests(server, "serviceAccount=shop/joe")
    assert (found["code"], found["user"]) == (403, "system:serviceaccount:shop:joe")
    assert await requests(server, "serviceAccount=shop/joe&verbs=get,watch") == []
    assert len(await requests(server, "serviceAccount=shop/joe&resource=configmaps")) == 1


async def test_faults_are_named(server: LocalServer) -> None:
    await server.post("/testing/faults", {"userAgent": "op", "code": 503})
    await server.call("GET", MAPS, headers=AGENT)
    (found,) = await requests(server)
    assert (found["code"], found["fault"]) == (503, "fault-1")


async def test_the_log_is_bounded(server: LocalServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(request_log, "MOST", 3)
    async with LocalServer.running(is_for_tests=True) as small:
        for i in range(5):
            await small.get(f"{MAPS}?limit={i + 1}", headers=AGENT)
        page = await small.get("/testing/requests?since=1")
        assert [each["number"] for each in page["items"]] == [3, 4, 5]
        assert (page["next"], page["forgotten"]) == (6, 2)
        long = {"data": {"k": "x" * 5000}}
        await small.call("PATCH", f"{MAPS}/a", long, content_type=MERGE, headers=AGENT)
        assert len((await requests(small))[-1]["patch"]) == request_log.PATCH_BYTES


async def test_mistakes(server: LocalServer) -> None:
    assert (await server.call("GET", "/testing/requests?since=yesterday")).status == 400
    assert (await server.call("GET", "/testing/requests?verbs=gets")).status == 422
    assert (await server.call("POST", "/testing/requests", {})).status == 405
