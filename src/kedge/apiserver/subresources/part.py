"""Endpoints that read the whole object and write one part of it."""

from kedge.apiserver import render
from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.verbs import decode, read, write
from kedge.apiserver.verbs.write import Part
from kedge.web.message import Response


async def serve(api: Api, request: Request, part: Part) -> Response:
    """GET, PUT or PATCH of a part."""
    if request.verb == "get":
        return read.get(api, request)
    if request.verb == "update":
        document = await decode.posted(api, request, "UpdateOptions")
        item, _ = await write.update_document(api, request, document, part)
    else:
        item, _ = await write.patch_part(api, request, part)
    return render.one(request, item, api.clock)
