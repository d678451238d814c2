"""Endpoints that read the whole object and write one part of it."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.verbs import decode, read, write
from kedge.apiserver.verbs.write import ObjectPart
from kedge.web.message import Response

PartHandler = Callable[[Api, Request], Response | Coroutine[Any, Any, Response]]


def serve_part(part: ObjectPart) -> Mapping[str, PartHandler]:
    """Return the handlers of GET, PUT and PATCH of a part."""
    return {"get": read.get, "update": update_part(part), "patch": patch_part(part)}


def update_part(part: ObjectPart) -> PartHandler:
    """Return the handler of PUT."""

    async def update(api: Api, request: Request) -> Response:
        document = await decode.posted(api, request, "UpdateOptions")
        item, _ = await write.update_document(api, request, document, part)
        return await read.shown_object(api, request, item)

    return update


def patch_part(part: ObjectPart) -> PartHandler:
    """Return the handler of PATCH."""

    async def patch(api: Api, request: Request) -> Response:
        item, _ = await write.patch_part(api, request, part)
        return await read.shown_object(api, request, item)

    return patch
