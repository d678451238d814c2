"""Where nodes leave their frames: POST /kedge/metrics/v1/nodes/{node}, each for itself."""

from urllib.parse import unquote

import msgspec

from kedge.api.metrics_v1alpha1.frame import CONTENT_TYPE, MOST_BYTES, PREFIX, Malformed
from kedge.apiserver.authorization.node import node_name
from kedge.apiserver.media import body_type
from kedge.apiserver.metrics.latest import Latest
from kedge.apiserver.request import User
from kedge.machinery.errors import (
    StatusError,
    bad_request,
    method_not_allowed,
    too_large,
    unauthorized,
    unsupported_media_type,
)
from kedge.web.message import HttpRequest, Response


def answer(latest: Latest, http: HttpRequest) -> Response:
    """Take a frame in; raises what it is refused with. Its sender was checked before."""
    name = unquote(http.path.removeprefix(PREFIX))
    if http.method != "POST":
        raise method_not_allowed()
    given = http.headers.get("content-type", "")
    if given != CONTENT_TYPE and body_type(given) != CONTENT_TYPE:
        raise latest.refused("malformed", unsupported_media_type(given, [CONTENT_TYPE]))
    if len(http.body) > MOST_BYTES:
        raise latest.refused("oversized", too_large(MOST_BYTES))
    try:
        frame = latest.reader(name).read(http.body)
    except Malformed as error:
        raise latest.refused("malformed", bad_request(f"this is no frame: {error}")) from None
    return Response(200, msgspec.json.encode(latest.take(name, frame)))


def check_sender(latest: Latest, user: User, http: HttpRequest) -> None:
    """Nobody speaks for a node but the node, whatever rights anybody was given."""
    name = unquote(http.path.removeprefix(PREFIX))
    if "system:unauthenticated" in user.groups:
        raise latest.refused("not-the-node", unauthorized())
    if not name or node_name(user) != name:
        why = f'User "{user.name}" cannot report what node "{name}" uses: only the node itself can'
        raise latest.refused("not-the-node", StatusError(403, "Forbidden", f"forbidden: {why}"))
