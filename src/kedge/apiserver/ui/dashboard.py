"""Dashboard: the paths below `/ui`, and the requests of browsers that signed in there.

`kedge ui` asks for a code with the credentials of the kubeconfig. The page exchanges it for a
session. From then on the page calls the ordinary API: each of its requests gets the credentials of
the session here, before authentication, and passes all further steps like any other request.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from kedge.apiserver.authentication.authenticator import Authenticator
from kedge.apiserver.context import RequestContext
from kedge.apiserver.request import ANONYMOUS
from kedge.apiserver.ui.browser_request import (
    comes_from_here,
    cookie_name,
    proof_in,
    without_proof,
)
from kedge.apiserver.ui.credentials import Credentials
from kedge.apiserver.ui.paths import CODES, ROOT, SESSION
from kedge.apiserver.ui.sessions import SESSION_SECONDS, NewSession, Session, Sessions
from kedge.apiserver.ui.sign_in_codes import CODE_SECONDS, SignIn, SignInCodes
from kedge.apiserver.ui.static_files import SECURITY_HEADERS, StaticFiles
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import (
    StatusError,
    bad_request,
    method_not_allowed,
    too_large,
    unauthorized,
)
from kedge.web.message import HttpRequest, Response, json_response, text_response

MOST_BYTES: Final = 1024
"""The longest body that is read below `/ui`: anybody may send it."""


class CodeMessage(msgspec.Struct):
    """The body of a sign-in."""

    code: str


class Dashboard:
    """Files, codes and sessions of one server."""

    def __init__(self, authenticator: Authenticator, clock: Clock) -> None:
        headers = authenticator.proxy_headers
        self._proxy_prefixes = () if headers is None else headers.prefixes()
        self._codes = SignInCodes(clock)
        self._sessions = Sessions(clock)
        self._files = StaticFiles()
        self._clock = clock

    # Requests of the page to the API.

    def identify(self, context: RequestContext) -> None:
        """Give a request of the page the credentials of its session. A cookie without the page
        secret changes nothing; a page secret without a session is 401."""
        http = context.http
        session = self._session_of(http)
        secret = proof_in(http).page_secret
        kept = without_proof(http.headers)
        if session is not None:
            session.sign_in.credentials.give_to(http, kept)
        elif secret:
            raise unauthorized()
        else:
            http.headers = kept

    def _session_of(self, http: HttpRequest) -> Session | None:
        """Return the session of a request; None unless it has both secrets and comes from here."""
        cookies, secret = proof_in(http)
        if not secret or not comes_from_here(http):
            return None
        return self._sessions.find(cookies, secret)

    # Requests for the paths below /ui.

    def check(self, context: RequestContext) -> None:
        """Refuse codes for anonymous users, and long bodies. No role is needed: a code gives
        nothing but the rights that its user has already."""
        http = context.http
        if http.path == CODES and context.user.name == ANONYMOUS.name:
            raise unauthorized()
        length = http.headers.get("content-length", "0")
        if "transfer-encoding" in http.headers or not length.isdigit() or int(length) > MOST_BYTES:
            raise too_large(MOST_BYTES)

    def answer(self, context: RequestContext) -> None:
        """Answer a request for a path below `/ui`."""
        http = context.http
        if http.path == CODES:
            answers = {"POST": lambda: self._issue(context)}
        elif http.path == SESSION:
            answers = {
                "POST": lambda: self._sign_in(http),
                "GET": lambda: self._show(http),
                "DELETE": lambda: self._sign_out(http),
            }
        else:
            answers = dict.fromkeys(("GET", "HEAD"), lambda: self._file(http))
        context.answer = _chosen(answers, http.method)()

    def _file(self, http: HttpRequest) -> Response:
        if http.path == ROOT:
            return Response(301, b"", "", [("Location", f"{ROOT}/"), *SECURITY_HEADERS])
        found = self._files.answer(http, http.path[len(ROOT) + 1 :])
        return found or text_response("404 page not found\n", 404)

    def _issue(self, context: RequestContext) -> Response:
        if context.user is not context.authenticated:
            why = "a code is made for the user who asks, without impersonation"
            raise StatusError(403, "Forbidden", why)
        credentials = Credentials.of(context.http, self._proxy_prefixes)
        code = self._codes.issue(SignIn(context.user, credentials))
        return _private(json_response({"code": code, "expiresInSeconds": CODE_SECONDS}, 201))

    def _sign_in(self, http: HttpRequest) -> Response:
        if not comes_from_here(http):
            raise StatusError(403, "Forbidden", "the page that signs in is not of this server")
        try:
            code = msgspec.json.decode(http.body, type=CodeMessage).code
        except msgspec.MsgspecError as error:
            raise bad_request(f"the body has no code: {error}") from None
        sign_in = self._codes.redeem(code)
        if sign_in is None:
            raise StatusError(401, "Unauthorized", "the code was used already, or is too old")
        new = self._sessions.begin(sign_in)
        session = self._sessions.find([new.cookie], new.page_secret)
        assert session is not None
        document = {**_shown(session), "pageSecret": new.page_secret}
        response = _private(json_response(document, 201))
        response.headers.append(("Set-Cookie", _cookie(http, new)))
        return response

    def _show(self, http: HttpRequest) -> Response:
        session = self._session_of(http)
        if session is None:
            raise unauthorized()
        return _private(json_response(_shown(session)))

    def _sign_out(self, http: HttpRequest) -> Response:
        session = self._session_of(http)
        if session is None:
            raise unauthorized()
        self._sessions.end(session)
        response = _private(json_response({}))
        response.headers.append(("Set-Cookie", f"{cookie_name(http)}=; {_ATTRIBUTES}; Max-Age=0"))
        return response


def _chosen(answers: dict[str, Callable[[], Response]], method: str) -> Callable[[], Response]:
    found = answers.get(method)
    if found is None:
        raise method_not_allowed()
    return found


_ATTRIBUTES: Final = "Path=/; Secure; HttpOnly; SameSite=Strict"


def _cookie(http: HttpRequest, new: NewSession) -> str:
    return f"{cookie_name(http)}={new.cookie}; {_ATTRIBUTES}; Max-Age={SESSION_SECONDS}"


def _shown(session: Session) -> dict[str, object]:
    user = session.sign_in.user
    return {"user": user.name, "groups": user.groups, "ends": format_time(session.ends)}


def _private(response: Response) -> Response:
    response.headers = [("Cache-Control", "no-store"), *SECURITY_HEADERS]
    return response
