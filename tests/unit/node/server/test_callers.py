"""Who may ask something of a node."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.machinery.errors import StatusError
from kedge.node.server.callers import (
    LONGEST_TOKEN,
    NO_SECONDS,
    YES_SECONDS,
    CallerReview,
    NodeCaller,
    of_certificate,
    parts,
    verb,
)
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest

SERVER = {"subject": ((("organizationName", "system:masters"),), (("commonName", "apiserver"),))}
NODE = {"subject": ((("organizationName", "system:nodes"),), (("commonName", "system:node:n"),))}
UPGRADE = {"connection": "Upgrade", "upgrade": "websocket"}


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as server:
        yield server


@pytest.fixture
def callers(server: LocalServer) -> CallerReview:
    return CallerReview(server.client, "here", server.clock)


def asking(path: str, *, method: str = "GET", **given: Any) -> HttpRequest:
    return HttpRequest(method, path, "", given.pop("headers", {}), b"", given.get("certificate"))


def bearing(token: str, path: str = "/pods", **headers: str) -> HttpRequest:
    return asking(path, headers={"authorization": f"Bearer {token}", **headers})


async def refused(callers: CallerReview, request: HttpRequest) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await callers.admit(request)
    return caught.value


async def account_token(server: LocalServer) -> str:
    made = "/api/v1/namespaces/default/serviceaccounts"
    await server.post(made, {"metadata": {"name": "sa"}})
    answer = await server.post(f"{made}/sa/token", {"spec": {}})
    return str(answer["status"]["token"])


async def allow(server: LocalServer, *verbs: str, resource: str = "nodes/proxy") -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}]
    await server.post(f"{rbac}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "default"}],
    }
    await server.post(f"{rbac}/clusterrolebindings", binding)


async def test_the_api_server_is_let_in_without_being_asked_about(callers: CallerReview) -> None:
    await callers.admit(asking("/exec/n/p/c", method="POST", certificate=SERVER))


async def test_nobody_in_particular_is_not_let_in(callers: CallerReview) -> None:
    for request in (asking("/healthz"), bearing("made-up"), bearing("")):
        assert (await refused(callers, request)).code == 401
    basic = base64.b64encode(b"a:b").decode()
    request = asking("/pods", headers={"authorization": f"Basic {basic}"})
    assert (await refused(callers, request)).code == 401


async def test_another_node_has_no_rights_here(callers: CallerReview) -> None:
    error = await refused(callers, asking("/exec/n/p/c", certificate=NODE))
    assert error.code == 403
    assert error.message == (
        "Forbidden (user=system:node:n, verb=get, resource=nodes, subresource(s)=[proxy])"
    )


async def test_roles_decide_about_others(server: LocalServer, callers: CallerReview) -> None:
    token = await account_token(server)
    assert (await refused(callers, bearing(token))).code == 403
    await allow(server, "get")
    await server.clock.advance(NO_SECONDS + 1)
    await callers.admit(bearing(token))


async def test_reading_gives_no_right_to_enter_a_container(
    server: LocalServer, callers: CallerReview
) -> None:
    token = await account_token(server)
    await allow(server, "get")
    await callers.admit(bearing(token, "/containerLogs/n/p/c"))
    error = await refused(callers, bearing(token, "/exec/n/p/c", **UPGRADE))
    assert "verb=create" in error.message


async def test_answers_are_remembered_for_a_while(
    server: LocalServer, callers: CallerReview
) -> None:
    token = await account_token(server)
    await allow(server, "get", resource="nodes/pods")
    await callers.admit(bearing(token))
    await server.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/r")
    await callers.admit(bearing(token))
    await server.clock.advance(YES_SECONDS + 1)
    assert (await refused(callers, bearing(token))).code == 403


async def test_tokens_are_neither_kept_nor_reviewed_if_they_are_too_long(
    server: LocalServer, callers: CallerReview, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    reviewed = callers._reviewed

    async def counted(token: str) -> NodeCaller | None:
        asked.append(token)
        return await reviewed(token)

    monkeypatch.setattr(callers, "_reviewed", counted)
    token = await account_token(server)
    for _ in range(2):
        assert (await refused(callers, bearing(token))).code == 403
        assert (await refused(callers, bearing("x" * (LONGEST_TOKEN + 1)))).code == 401
    assert asked == [token]
    assert [len(key) for key in callers._known._answers] == [32]


def test_paths_belong_to_parts_of_the_node() -> None:
    assert parts("/pods") == ["pods", "proxy"]
    assert parts("/runningpods/") == ["pods", "proxy"]
    assert parts("/healthz") == ["healthz", "proxy"]
    assert parts("/stats/summary") == ["stats"]
    assert parts("/metrics/resource") == ["metrics"]
    assert parts("/logs/x") == ["log"]
    assert parts("/exec/n/p/c") == ["proxy"]
    assert parts("/podsandmore") == ["proxy"]


def test_methods_are_verbs() -> None:
    assert verb(asking("/x", method="POST")) == "create"
    assert verb(asking("/x", headers=UPGRADE)) == "create"
    assert verb(asking("/x", method="DELETE")) == "delete"


def test_a_certificate_without_a_name_is_nobodys() -> None:
    assert of_certificate({"subject": ()}) is None
    assert of_certificate(None) is None


@pytest.mark.parametrize("path", ["/apis/metrics/v1alpha1", "/apis/metrics/v1alpha1/pods"])
def test_windows_need_the_rights_of_samples(path: str) -> None:
    assert parts(path) == ["metrics", "stats"]
    assert parts(f"/apis/metrics/v1alpha1x{path}") == ["proxy"]
