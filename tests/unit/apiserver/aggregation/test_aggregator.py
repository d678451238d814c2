"""Which requests are forwarded, and how APIServices are followed."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apiserver.aggregation.test_local_api_services import until

from kedge.apiserver import route as routes
from kedge.apiserver.aggregation import aggregator as module
from kedge.apiserver.aggregation.aggregator import Aggregator
from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.context import Answer, RequestContext
from kedge.apiserver.request import User
from kedge.apiserver.webhooks.services import Resolver
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import LocalServer
from kedge.web.duplex import turn
from kedge.web.message import HttpRequest, Response

PATH = "/apis/apiregistration.k8s.io/v1/apiservices"
GROUP = "g.example.com"


def api_service(**spec: Any) -> dict[str, Any]:
    service = {"namespace": "default", "name": "sample"}
    order = {"groupPriorityMinimum": 10, "versionPriority": 20}
    whole = {"group": GROUP, "version": "v1", "service": service, **order, **spec}
    return {"metadata": {"name": f"v1.{whole['group']}"}, "spec": whole}


@pytest.fixture
async def aggregator(server: LocalServer) -> Aggregator:
    api = server.app.api
    return Aggregator(api, ExtensionServers(Resolver(api.cache), Path("/nonexistent")))


def ask(aggregator: Aggregator, path: str, method: str = "GET") -> Answer | None:
    http = HttpRequest(method, path)
    return aggregator.answer(RequestContext(http, 0.0, routes.parse(path), user=User("ann")))


async def settled(answer: Answer | None) -> Response:
    assert isinstance(answer, Awaitable)
    return await answer


async def test_only_paths_of_remote_versions_are_forwarded(
    server: LocalServer, aggregator: Aggregator
) -> None:
    assert ask(aggregator, f"/apis/{GROUP}/v1") is None
    await server.post(PATH, api_service())
    forwarded = (
        f"/apis/{GROUP}/v1",
        f"/apis/{GROUP}/v1/",
        f"/apis/{GROUP}/v1/things",
        f"/apis/{GROUP}/v1/namespaces/x/things/y",
        f"/openapi/v3/apis/{GROUP}/v1",
    )
    for path in forwarded:
        assert (await settled(ask(aggregator, path))).status == 503
    # The authorizer takes the last three for paths without a resource, which anybody may read.
    own = (
        "/apis/apps/v1/deployments",
        f"/apis/{GROUP}",
        f"/apis/{GROUP}/v2/things",
        f"/apis/{GROUP}/v1//things",
        f"//apis/{GROUP}/v1",
        f"/openapi/v3/apis/{GROUP}/v1/things",
    )
    assert [ask(aggregator, path) for path in own] == [None] * len(own)


async def test_discovery_of_a_remote_version_is_only_read(
    server: LocalServer, aggregator: Aggregator
) -> None:
    await server.post(PATH, api_service())
    with pytest.raises(StatusError) as error:
        ask(aggregator, f"/apis/{GROUP}/v1", "POST")
    assert error.value.code == 405


async def test_a_version_comes_and_goes_with_its_api_service(
    server: LocalServer, aggregator: Aggregator
) -> None:
    await server.post(PATH, api_service())
    assert aggregator.documents.get(GROUP, "v1") is not None
    await server.delete(f"{PATH}/v1.{GROUP}")
    assert aggregator.documents.get(GROUP, "v1") is None
    assert ask(aggregator, f"/apis/{GROUP}/v1") is None


async def test_the_condition_says_what_is_missing(
    server: LocalServer, aggregator: Aggregator
) -> None:
    server.start(aggregator.run())
    await server.post(PATH, api_service())
    await server.post(PATH, api_service(group="local.example.com", service=None))

    async def reason(name: str) -> str:
        status = (await server.get(f"{PATH}/{name}")).get("status", {})
        return "".join(each["reason"] for each in status.get("conditions", ()))

    async def wait(name: str, wanted: str) -> None:
        for _ in range(50):
            if await reason(name) == wanted:
                return
        raise AssertionError(f"{await reason(name)} is not {wanted}")

    await wait(f"v1.{GROUP}", "ServiceNotFound")
    await wait("v1.local.example.com", "Local")
    spec = {"ports": [{"port": 443}]}
    services = "/api/v1/namespaces/default/services"
    await server.post(services, {"metadata": {"name": "sample"}, "spec": spec})
    await wait(f"v1.{GROUP}", "EndpointsNotFound")


async def test_a_slow_server_gathers_a_bounded_number_of_requests(
    server: LocalServer, aggregator: Aggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.post(PATH, api_service())
    release = asyncio.Event()

    async def slow(*_: Any) -> Response:
        await release.wait()
        return Response(200)

    monkeypatch.setattr(module, "forward", slow)
    path = f"/apis/{GROUP}/v1/things"
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(settled(ask(aggregator, path))) for _ in range(module.WAITING)]
        await until(lambda: len(aggregator._waiting) == 1)
        await turn()
        with pytest.raises(StatusError) as error:
            await settled(ask(aggregator, path))
        assert error.value.code == 429
        release.set()
    assert {task.result().status for task in waiting} == {200}
    assert aggregator._waiting == {}
