"""TokenReview and SelfSubjectReview: whose token is this, and who am I."""

from typing import Any

from kedge.apiserver import managed, render
from kedge.apiserver.api import Api
from kedge.apiserver.authentication.authenticator import INVALID, Authenticator
from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.authentication.service_accounts import AUDIENCES
from kedge.apiserver.request import Request, User, dry_run, field_manager
from kedge.apiserver.verbs import decode
from kedge.machinery.errors import bad_request
from kedge.web.message import Response


class TokenReviews:
    """Answers TokenReviews from outside: an API server behind this one, or a node."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def serve(self, api: Api, request: Request) -> Response:
        """Return a posted TokenReview with its status filled in."""
        document = _posted(request)
        spec = document.get("spec") or {}
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        owned = managed.after_update(
            request.resource.schema,
            None,
            document,
            manager=field_manager(request, "CreateOptions"),
            api_version=request.resource.api_version,
            now=api.timestamp(),
        )
        meta = (document.get("metadata") or {}) | {"managedFields": owned}
        status = _status(spec, self._authenticator)
        return _answer(request, {"metadata": meta, "spec": spec, "status": status})


def serve_self_review(api: Api, request: Request) -> Response:
    """Return the user who posts a SelfSubjectReview."""
    _posted(request)
    status = {"userInfo": user_info(request.user)}
    return _answer(request, {"metadata": {"creationTimestamp": api.timestamp()}, "status": status})


def user_info(user: User) -> dict[str, Any]:
    """A user as reviews describe one."""
    info: dict[str, Any] = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra}
    return info


def _status(spec: dict[str, Any], authenticator: Authenticator) -> dict[str, Any]:
    # Of what follows a space a header would not be part of the token either.
    token = spec["token"].strip().partition(" ")[0]
    try:
        holder = authenticator.holder(token.encode(), spec.get("audiences") or AUDIENCES)
    except CredentialRefused as why:
        error = str(why)
        return {"user": {}, "error": error if error == INVALID else f"[{INVALID}, {error}]"}
    info = user_info(holder.user)
    return {"authenticated": True, "user": info, "audiences": list(holder.audiences)}


def _posted(request: Request) -> dict[str, Any]:
    render.response_form(request, render.PLAIN)
    document = decode.posted_small(request, "CreateOptions")
    dry_run(request, "CreateOptions")
    return document


def _answer(request: Request, rest: dict[str, Any]) -> Response:
    resource = request.resource
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    return render.plain(request, head | rest, 201)
