"""OpenAPI documents: made beside the event loop, once for all who ask."""

import asyncio
import threading
from typing import Any

import pytest

from kedge.api import openapi
from kedge.api.apps_v1.deployment import RESOURCE as DEPLOYMENTS
from kedge.api.catalog import Catalog
from kedge.api.core_v1.config_map import RESOURCE as CONFIG_MAPS
from kedge.apiserver.documents import Documents
from kedge.apiserver.long_work import LongWork
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest, Response


async def test_a_document_is_made_once_and_by_a_thread(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[int] = []
    make = openapi.v2_document

    def noted(*given: Any, **named: Any) -> Any:
        makers.append(threading.get_ident())
        return make(*given, **named)

    monkeypatch.setattr(openapi, "v2_document", noted)
    asked = [asyncio.ensure_future(server.call("GET", "/openapi/v2")) for _ in range(5)]
    answers = [await each for each in asked]
    assert [answer.status for answer in answers] == [200] * 5
    assert len(makers) == 1
    assert makers[0] != threading.get_ident()


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/api/v1"])
async def test_documents_are_only_read(server: LocalServer, path: str) -> None:
    assert (await server.call("POST", path, {})).status == 405


async def test_documents_of_a_version_that_is_gone_are_not_kept() -> None:
    catalog = Catalog([CONFIG_MAPS, DEPLOYMENTS])
    documents = Documents(catalog, str, FakeClock(), LongWork(FakeClock()))

    async def get(path: str) -> int:
        answer = documents.answer(HttpRequest("GET", path))
        found = answer if isinstance(answer, Response) or answer is None else await answer
        return 404 if found is None else found.status

    paths = ("/apis/apps/v1", "/apis/apps", "/openapi/v3/apis/apps/v1", "/openapi/v2")
    assert [await get(path) for path in paths] == [200] * 4
    assert await get("/openapi/v3/api/v1") == 200
    catalog.remove(DEPLOYMENTS)
    assert [await get(path) for path in paths[:3]] == [404] * 3
    assert await get("/openapi/v2") == 200
    assert sorted(documents.kept) == ["v2", "v3/api/v1"]
