"""serviceaccounts/token: issues a new token of an account."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any, Final

import msgspec

from kedge.api.builtin import schemas
from kedge.api.core_v1 import node, secret
from kedge.api.core_v1.pod import pod
from kedge.api.model import Document
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.apiserver import managed, render
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.api import Api, gone
from kedge.apiserver.authentication import jwt
from kedge.apiserver.authentication.keys import SigningKey
from kedge.apiserver.authentication.service_accounts import (
    AUDIENCES,
    TOKEN_SECONDS,
    Bound,
    Ref,
    TokenClaims,
    identity,
    user_name,
)
from kedge.apiserver.request import Request, dry_run, field_manager
from kedge.apiserver.verbs import decode
from kedge.apiserver.watchcache import Item
from kedge.machinery.durations import format_time
from kedge.machinery.errors import (
    FieldError,
    StatusError,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from kedge.web.message import Response

RESOURCE: Final = Resource(
    type=Document,
    group="authentication.k8s.io",
    kind="TokenRequest",
    plural="tokenrequests",
    verbs=("create",),
    schema_source=lambda: schemas.schema("io.k8s.api.authentication.v1.TokenRequest"),
    strategy=Strategy(counts_generation=False),
)
"""How a request is read; it is answered and never stored."""

DEFAULT_SECONDS: Final = 3600
LEAST_SECONDS: Final = 600
MOST_SECONDS: Final = 1 << 32
EXTENDED_SECONDS: Final = 365 * 24 * 3600
"""The lifetime of the default tokens of pods: programs that do not read them again go on."""


class TokenRequests:
    """Signs tokens with the cluster's key."""

    def __init__(self, key: SigningKey, *, extends: bool = True) -> None:
        """`extends`: whether the default tokens of pods live for a year."""
        self._key = key
        self._extends = extends

    async def serve(self, api: Api, request: Request) -> Response:
        """POST to an account's token."""
        posted = Request(
            request.http,
            request.user,
            RESOURCE,
            "create",
            request.namespace,
            request.name,
            request.subresource,
            request.warnings,
        )
        render.response_form(posted, render.PLAIN)
        document = decode.posted_small(posted, "CreateOptions")
        dry_run(posted, "CreateOptions")
        wanted = await _admitted(api, request, _prepared(api, posted, document))
        spec = wanted["spec"]
        bound = _bound(api, request, spec.get("boundObjectRef"), wanted["metadata"]["uid"])
        if not self._key.ready:
            await asyncio.to_thread(self._key.prepare)
        now = api.clock.now()
        claims = _claims(api, bound, spec, int(now.timestamp()))
        if self._extends:
            claims = extended(claims, spec["expirationSeconds"])
        token = jwt.sign(self._key, claims)
        ends = now + timedelta(seconds=spec["expirationSeconds"])
        answer = wanted | {"status": {"token": token, "expirationTimestamp": format_time(ends)}}
        return render.plain(posted, answer, 201)


def _prepared(api: Api, request: Request, document: dict[str, Any]) -> dict[str, Any]:
    """The request with all that was left out, once it fits the account in the URL."""
    sent = document.get("metadata") or {}
    name, namespace = sent.get("name") or request.name, sent.get("namespace") or request.namespace
    if namespace != request.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if name != request.name:
        error = FieldError.invalid(
            "metadata.name", name, "must match the service account name if specified"
        )
        raise invalid(RESOURCE.group, RESOURCE.kind, request.name, [error])
    now = api.timestamp()
    spec = {"expirationSeconds": DEFAULT_SECONDS} | (document.get("spec") or {})
    head = {"kind": RESOURCE.kind, "apiVersion": RESOURCE.api_version}
    owned = managed.after_update(
        RESOURCE.schema,
        None,
        head | {"metadata": sent, "spec": spec},
        manager=field_manager(request, "CreateOptions"),
        api_version=RESOURCE.api_version,
        now=now,
        subresource="token",
    )
    meta = sent | {"name": name, "namespace": namespace, "creationTimestamp": now}
    return head | {"metadata": meta | {"managedFields": owned}, "spec": spec}


async def _admitted(api: Api, request: Request, document: dict[str, Any]) -> dict[str, Any]:
    """The request as the rules of the cluster let it pass."""
    posted = decode.to_object(RESOURCE, document)
    changed = await api.admission.mutate(Attempt(request, "CREATE", posted))
    assert isinstance(changed, Document)
    spec = dict(changed.content["spec"])
    spec["audiences"] = spec.get("audiences") or list(AUDIENCES)
    spec.setdefault("boundObjectRef", None)
    account = identity(_account(api, request)).uid
    asked = changed.metadata.uid
    if asked and asked != account:
        why = (
            f"the UID in the token request ({asked}) does not match the UID of the service account"
            f" ({account})"
        )
        raise conflict(RESOURCE.group, RESOURCE.kind, request.name, why)
    errors = list(_errors(spec))
    if errors:
        raise invalid(RESOURCE.group, RESOURCE.kind, "", errors)
    whole = msgspec.structs.replace(changed, content={"spec": spec})
    await api.admission.validate(Attempt(request, "CREATE", whole))
    meta = document["metadata"] | {"uid": account}
    return document | {"metadata": meta, "spec": spec}


def _account(api: Api, request: Request) -> Item:
    item = api.find(request)
    if item is None:
        raise gone(request)
    return item


def _errors(spec: dict[str, Any]) -> list[FieldError]:
    seconds = spec["expirationSeconds"]
    at = "spec.expirationSeconds"
    if seconds < LEAST_SECONDS:
        return [FieldError.invalid(at, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > MOST_SECONDS:
        why = "may not specify a duration larger than 2^32 seconds"
        return [FieldError.invalid(at, seconds, why)]
    return []


def _bound(api: Api, request: Request, ref: dict[str, Any] | None, account: str) -> Bound:
    """The account, and the object that the token is not to outlive."""
    bound = Bound(request.namespace, Ref(request.name, account))
    if ref is None:
        return bound
    kind, version = ref.get("kind", ""), ref.get("apiVersion", "")
    group, _, _ = version.rpartition("/")
    name = ref.get("name", "")
    match group, kind:
        case "", "Pod":
            item = _find(api, pod.RESOURCE, request.namespace, name)
            extra = {"pod": Ref(name, identity(item).uid), "node": _node_of(api, request, item)}
        case "", "Node":
            item = _find(api, node.RESOURCE, "", name)
            extra = {"node": Ref(name, identity(item).uid)}
        case "", "Secret":
            item = _find(api, secret.RESOURCE, request.namespace, name)
            extra = {"secret": Ref(name, identity(item).uid)}
        case _:
            raise _unbindable(group, version, kind)
    if ref.get("uid") and ref["uid"] != identity(item).uid:
        why = (
            f"the UID in the bound object reference ({ref['uid']}) does not match the UID in"
            " record. The object might have been deleted and then recreated"
        )
        raise conflict("", kind, name, why)
    return msgspec.structs.replace(bound, **extra)


def _unbindable(group: str, version: str, kind: str) -> StatusError:
    what = f"{group}/{version.rpartition('/')[2]}, Kind={kind}"
    return bad_request(f"cannot bind token to object of type {what}")


def _find(api: Api, resource: Resource[Any], namespace: str, name: str) -> Item:
    item = api.cache_of(resource).get(resource.key(namespace, name))
    if item is None:
        raise not_found("", resource.plural, name)
    return item


def _node_of(api: Api, request: Request, item: Item) -> Ref | None:
    """Where the pod runs, which must be a pod of this account."""
    spec = pod.RESOURCE.decode(item.body).spec
    if spec.serviceAccountName != request.name:
        raise bad_request(
            f'cannot bind token for serviceaccount "{request.name}" to pod running with different'
            " serviceaccount name."
        )
    if not spec.nodeName:
        return None
    found = api.cache_of(node.RESOURCE).get(node.RESOURCE.key("", spec.nodeName))
    return Ref(spec.nodeName, identity(found).uid if found is not None else "")


def _claims(api: Api, bound: Bound, spec: dict[str, Any], now: int) -> TokenClaims:
    return TokenClaims(
        sub=user_name(bound.namespace, bound.serviceaccount.name),
        aud=tuple(spec["audiences"]),
        exp=now + spec["expirationSeconds"],
        iat=now,
        nbf=now,
        jti=str(uuid.UUID(int=api.random.getrandbits(128), version=4)),
        bound=bound,
    )


def extended(claims: TokenClaims, seconds: int) -> TokenClaims:
    """Return the claims of a pod's default token with a longer life, and the moment from which its
    use counts as stale; other claims unchanged. The request is answered with the shorter life,
    so that kubelets renew the token in time."""
    bound = claims.bound
    if bound.pod is None or seconds != TOKEN_SECONDS or claims.aud != AUDIENCES:
        return claims
    bound = msgspec.structs.replace(bound, warnafter=claims.exp)
    return msgspec.structs.replace(claims, exp=claims.iat + EXTENDED_SECONDS, bound=bound)
