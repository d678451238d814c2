"""The parts of a request by which a browser shows that it comes from the dashboard."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kedge.apiserver.ui.paths import SECRET_HEADER
from kedge.web import websocket
from kedge.web.message import HttpRequest

SECRET_PROTOCOL: Final = "dashboard.kedge."
"""Begins the subprotocol that carries the page secret when a WebSocket is opened, because scripts
cannot set headers then."""
COOKIE_PREFIX: Final = "__Host-kedge-ui-"
"""Browsers accept cookies of this prefix only over TLS, for this host and all of its paths."""
_PROTOCOLS: Final = "sec-websocket-protocol"


class BrowserProof(NamedTuple):
    """The secrets in a request."""

    cookies: list[str]
    page_secret: str


def cookie_name(http: HttpRequest) -> str:
    """Return the name of the cookie; clusters on one host differ in their ports."""
    port = http.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE_PREFIX}{port if port.isascii() and port.isdigit() and len(port) < 6 else 443}"


def proof_in(http: HttpRequest) -> BrowserProof:
    """Return the secrets of a request; empty ones if it has none."""
    headers = http.headers
    name = f"{cookie_name(http)}="
    pairs = map(str.strip, headers.get("cookie", "").split(";"))
    cookies = [pair[len(name) :] for pair in pairs if pair.startswith(name)]
    secret = headers.get(SECRET_HEADER, "")
    if not secret and websocket.is_wanted(headers):
        offered = (each for each in websocket.protocols(headers))
        secrets = (each for each in offered if each.startswith(SECRET_PROTOCOL))
        secret = next(secrets, "").removeprefix(SECRET_PROTOCOL)
    return BrowserProof(cookies, secret)


def without_proof(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers without the secrets: requests are forwarded to nodes, pods and extension
    servers, which must not get them."""
    kept = {name: value for name, value in headers.items() if name != SECRET_HEADER}
    if COOKIE_PREFIX in kept.get("cookie", ""):
        pairs = map(str.strip, kept.pop("cookie").split(";"))
        others = [pair for pair in pairs if not pair.startswith(COOKIE_PREFIX)]
        if others:
            kept["cookie"] = "; ".join(others)
    if SECRET_PROTOCOL in kept.get(_PROTOCOLS, ""):
        names = websocket.protocols(kept)
        kept[_PROTOCOLS] = ", ".join(n for n in names if not n.startswith(SECRET_PROTOCOL))
    return kept


def comes_from_here(http: HttpRequest) -> bool:
    """Whether the browser says that a page of this origin makes the request. Browsers name the
    origin of writes and WebSockets; of reads they say only whether it is the same."""
    headers = http.headers
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    if origin is None:
        return http.method in ("GET", "HEAD") and not websocket.is_wanted(headers)
    return origin == f"https://{headers.get('host', '')}"
