"""OpenAPI documents: made beside the event loop, once for all who ask."""

import asyncio
import threading
from typing import Any

import pytest

from kedge.api import openapi
from kedge.testing.local_server import LocalServer


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
