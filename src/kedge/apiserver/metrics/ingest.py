"""POST /kedge/metrics/v1/nodes/{node}: each node reports its own usage in a frame."""

from urllib.parse import unquote

import msgspec

from kedge.apiserver.authorization.node import node_name
from kedge.apiserver.media import body_type
from kedge.apiserver.request import User
from kedge.machinery.errors import (
    StatusError,
    bad_request,
    method_not_allowed,
    too_large,
    unauthorized,
    unsupported_media_type,
)
from kedge.metrics.frame_codec import CONTENT_TYPE, MOST_BYTES, PREFIX, MalformedFrame
from kedge.metrics.reports import UsageReports
from kedge.web.message import HttpRequest, Response


def answer(reports: UsageReports, http: HttpRequest) -> Response:
    """Accept a frame; raises StatusError. Its sender was checked before."""
    name = unquote(http.path.removeprefix(PREFIX))
    if http.method != "POST":
        raise method_not_allowed()
    given = http.headers.get("content-type", "")
    if given != CONTENT_TYPE and body_type(given) != CONTENT_TYPE:
        raise reports.refused("malformed", unsupported_media_type(given, [CONTENT_TYPE]))
    if len(http.body) > MOST_BYTES:
        raise reports.refused("oversized", too_large(MOST_BYTES))
    try:
        frame = reports.reader(name).read(http.body)
    except MalformedFrame as error:
        raise reports.refused("malformed", bad_request(f"this is no frame: {error}")) from None
    return Response(200, msgspec.json.encode(reports.take(name, frame)))


def check_sender(reports: UsageReports, user: User, http: HttpRequest) -> None:
    """Refuse everyone but the node itself, whatever they are authorized for."""
    name = unquote(http.path.removeprefix(PREFIX))
    if "system:unauthenticated" in user.groups:
        raise reports.refused("not-the-node", unauthorized())
    if not name or node_name(user) != name:
        why = f'User "{user.name}" cannot report what node "{name}" uses: only the node itself can'
        raise reports.refused("not-the-node", StatusError(403, "Forbidden", f"forbidden: {why}"))
