"""The pages under /testing: only in clusters for tests, only for administrators."""

from kedge.testing.local_server import LocalServer

FAULTS = "/testing/faults"


async def test_other_servers_do_not_have_the_pages() -> None:
    async with LocalServer.running() as server:
        for method in ("GET", "POST", "DELETE"):
            answer = await server.call(method, FAULTS, {"code": 500})
            assert (answer.status, answer.text) == (404, "404 page not found\n")


async def test_only_administrators_may_use_them(server: LocalServer) -> None:
    joe = {"impersonate-user": "joe"}
    refused = await server.call("POST", FAULTS, {"code": 500}, headers=joe)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert (await server.call("GET", FAULTS, token=None)).status == 403
    assert (await server.get(FAULTS)) == {"items": []}


async def test_rules_come_and_go(server: LocalServer) -> None:
    made = await server.call("POST", FAULTS, {"code": 500, "verbs": ["get"]})
    assert (made.status, made.document["id"]) == (201, "fault-1")
    assert [rule["id"] for rule in (await server.get(FAULTS))["items"]] == ["fault-1"]
    assert (await server.delete(f"{FAULTS}/fault-1"))["id"] == "fault-1"
    assert (await server.call("DELETE", f"{FAULTS}/fault-1")).status == 404


async def test_mistakes_change_nothing(server: LocalServer) -> None:
    cases = {400: {"cod": 500}, 422: {"code": 1}, 413: {"message": "x" * 70_000}}
    for code, rule in cases.items():
        assert (await server.call("POST", FAULTS, rule)).status == code
    for method, path in (("PUT", FAULTS), ("GET", f"{FAULTS}/a")):
        assert (await server.call(method, path)).status == 405
    assert (await server.call("GET", "/testing/nothing")).status == 404
    assert (await server.get(FAULTS)) == {"items": []}
