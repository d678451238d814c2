"""status: what controllers report, kept apart from what users want."""

from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.subresources import part
from kedge.apiserver.verbs.write import STATUS
from kedge.web.message import Response


async def serve(api: Api, request: Request) -> Response:
    return await part.serve(api, request, STATUS)
