"""Reviews of access: may I, may they, what may I. Answered and not stored."""

from collections.abc import Iterator
from typing import Any, Final

from kedge.apiserver import managed, render
from kedge.apiserver.api import Api
from kedge.apiserver.authorization.attributes import of_review
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.request import Request, User, dry_run, field_manager
from kedge.apiserver.verbs import decode
from kedge.machinery.errors import FieldError, bad_request, invalid
from kedge.web.message import Response

Spec = dict[str, Any]

_SELECTED: Final = "spec.resourceAttributes"


def serve_self(api: Api, request: Request) -> Response:
    """SelfSubjectAccessReview: whether the user may do something."""
    document = _posted(request)
    spec = document.get("spec") or {}
    _check(request, _problems(spec))
    return _answer(api, request, document, _decided(api.authorizer, request.user, spec))


def serve_subject(api: Api, request: Request) -> Response:
    """SubjectAccessReview: whether any user may do something."""
    document = _posted(request)
    spec = document.get("spec") or {}
    _check(request, [*_problems(spec), *_nobody(spec)])
    return _answer(api, request, document, _decided(api.authorizer, subject(spec), spec))


def serve_local(api: Api, request: Request) -> Response:
    """LocalSubjectAccessReview: whether any user may do something in the request's namespace."""
    document = _posted(request)
    spec = document.get("spec") or {}
    _check(request, [*_problems(spec), *_nobody(spec), *_elsewhere(spec, request.namespace)])
    document.setdefault("metadata", {})["namespace"] = request.namespace
    return _answer(api, request, document, _decided(api.authorizer, subject(spec), spec))


def serve_rules(api: Api, request: Request) -> Response:
    """SelfSubjectRulesReview: everything that the user may do in a namespace."""
    namespace = (_posted(request).get("spec") or {}).get("namespace")
    if not namespace:
        raise bad_request("no namespace on request")
    # Upstream's answer repeats neither the spec nor the metadata.
    status = api.authorizer.rules_for(request.user, namespace)
    return _written(request, {"metadata": {}, "spec": {}, "status": status})


def _posted(request: Request) -> dict[str, Any]:
    render.response_form(request, render.PLAIN)
    document = decode.posted_small(request, "CreateOptions")
    dry_run(request, "CreateOptions")
    return document


def _answer(api: Api, request: Request, document: dict[str, Any], rest: dict[str, Any]) -> Response:
    """Return the posted review with its status filled in."""
    meta = (document.get("metadata") or {}) | _owned(api, request, document)
    return _written(request, {"metadata": meta} | rest)


def _written(request: Request, rest: dict[str, Any]) -> Response:
    resource = request.resource
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    return render.plain(request, head | rest, 201)


def _owned(api: Api, request: Request, document: dict[str, Any]) -> dict[str, Any]:
    entries = managed.after_update(
        request.resource.schema,
        None,
        document,
        manager=field_manager(request, "CreateOptions"),
        api_version=request.resource.api_version,
        now=api.timestamp(),
    )
    return {"managedFields": entries} if entries else {}


def _decided(authorizer: Authorizer, user: User, spec: Spec) -> dict[str, Any]:
    decision = authorizer.decide(of_review(user, spec))
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return {"spec": spec, "status": status}


def subject(spec: Spec) -> User:
    """Return the user that a review is about."""
    extra = tuple((key, tuple(values)) for key, values in (spec.get("extra") or {}).items())
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)


def _check(request: Request, problems: Iterator[FieldError] | list[FieldError]) -> None:
    errors = list(problems)
    if errors:
        # Without a kind, as upstream has it.
        raise invalid(request.resource.group, "", "", errors)


def _problems(spec: Spec) -> Iterator[FieldError]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        yield FieldError.invalid("spec.nonResourceAttributes", _shown(path), why)
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield FieldError.invalid("spec.resourceAttributes", None, why)
    for field in ("fieldSelector", "labelSelector"):
        selector = (resource or {}).get(field)
        if selector is not None:
            yield from _selector_problems(selector, f"{_SELECTED}.{field}")


def _selector_problems(selector: dict[str, Any], at: str) -> Iterator[FieldError]:
    raw, requirements = selector.get("rawSelector"), selector.get("requirements")
    if raw and requirements:
        why = "may not specified at the same time as requirements"
        yield FieldError.invalid(f"{at}.rawSelector", raw, why)
    if not raw and not requirements:
        why = f"when {at} is specified, requirements or rawSelector is required"
        yield FieldError.required(f"{at}.requirements", why)
    for i, each in enumerate(requirements or ()):
        place = f"{at}.requirements[{i}]"
        if not each.get("key"):
            yield FieldError.required(f"{place}.key", "must be specified")
        if each.get("operator") in ("In", "NotIn") and not each.get("values"):
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            yield FieldError.required(f"{place}.values", why)
        if each.get("operator") in ("Exists", "DoesNotExist") and each.get("values"):
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield FieldError.forbidden(f"{place}.values", why)


def _nobody(spec: Spec) -> Iterator[FieldError]:
    if not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        yield FieldError.invalid("spec.user", "", why)


def _elsewhere(spec: Spec, namespace: str) -> Iterator[FieldError]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and resource.get("namespace", "") != namespace:
        why = "must match metadata.namespace"
        asked = resource.get("namespace", "")
        yield FieldError.invalid("spec.resourceAttributes.namespace", asked, why)
    if path is not None:
        why = "disallowed on this kind of request"
        yield FieldError.invalid("spec.nonResourceAttributes", _shown(path), why)


def _shown(path: dict[str, Any]) -> dict[str, str]:
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
