"""Questions to the server that are answered and not stored: who am I, may I, may they."""

from collections.abc import Callable
from typing import Any

import msgspec

from kedge.apiserver import authz, render
from kedge.apiserver.authn import Authenticator
from kedge.apiserver.message import Response, warning_headers
from kedge.apiserver.request import Request, User
from kedge.apiserver.verbs import decode
from kedge.machinery.errors import FieldError, invalid

Answer = Callable[[Request, dict[str, Any], Authenticator], dict[str, Any]]


def serve(request: Request, authenticator: Authenticator) -> Response:
    """POST of a review: the same document with its status filled in."""
    render.wanted(request, render.PLAIN)
    document = decode.posted(request, "CreateOptions")
    answer = _ANSWERS[request.resource.kind]
    resource = request.resource
    reviewed = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}}
    reviewed |= document | {"status": answer(request, document, authenticator)}
    headers = warning_headers(request.warnings)
    return Response(201, msgspec.json.encode(reviewed), headers=headers)


def user_info(user: User) -> dict[str, Any]:
    info: dict[str, Any] = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra}
    return info


def _self(request: Request, review: dict[str, Any], tokens: Authenticator) -> dict[str, Any]:
    return {"userInfo": user_info(request.user)}


def _token(request: Request, review: dict[str, Any], tokens: Authenticator) -> dict[str, Any]:
    token = (review.get("spec") or {}).get("token", "")
    if not token:
        error = FieldError.required(
            "spec.token", "token is required for TokenReview in authentication"
        )
        raise invalid(request.resource.group, "TokenReview", "", [error])
    user = tokens.by_token(token)
    if user is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": user_info(user)}


def _access(request: Request, review: dict[str, Any], tokens: Authenticator) -> dict[str, Any]:
    spec = review.get("spec") or {}
    _check_attributes(request, spec)
    if request.resource.kind == "SelfSubjectAccessReview":
        user = request.user
    else:
        user = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
        if not user.name and not user.groups:
            error = FieldError.invalid(
                "spec.user", "", "at least one of user or group must be specified"
            )
            raise invalid(request.resource.group, request.resource.kind, "", [error])
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return {"allowed": authz.may(user, path.get("verb", ""), path.get("path", ""))}
    return {"allowed": authz.may_access(user)}


def _check_attributes(request: Request, spec: dict[str, Any]) -> None:
    kind = request.resource.kind
    both = ("resourceAttributes" in spec) == ("nonResourceAttributes" in spec)
    if both:
        error = FieldError.invalid(
            "spec.resourceAttributes",
            spec.get("resourceAttributes"),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )
        raise invalid(request.resource.group, kind, "", [error])


def _rules(request: Request, review: dict[str, Any], tokens: Authenticator) -> dict[str, Any]:
    everything = authz.may_access(request.user)
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    path = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    return {
        "resourceRules": [rule] if everything else [],
        "nonResourceRules": [path] if everything else [],
        "incomplete": False,
    }


_ANSWERS: dict[str, Answer] = {
    "SelfSubjectReview": _self,
    "TokenReview": _token,
    "SelfSubjectAccessReview": _access,
    "SubjectAccessReview": _access,
    "LocalSubjectAccessReview": _access,
    "SelfSubjectRulesReview": _rules,
}

KINDS = frozenset(_ANSWERS)
"""Kinds that are questions."""
