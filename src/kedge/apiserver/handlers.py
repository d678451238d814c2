"""The handler of each verb of each resource: subresources, reviews, tokens, metrics and decisions
alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from kedge.api.catalog import NOT_STORED
from kedge.api.resource import ObjectSource, Resource
from kedge.apiserver.api import Api
from kedge.apiserver.authentication.authenticator import Authenticator
from kedge.apiserver.authentication.token_requests import TokenRequests
from kedge.apiserver.authentication.token_review import TokenReviews, serve_self_review
from kedge.apiserver.authorization import access_review
from kedge.apiserver.context import Answer
from kedge.apiserver.metrics import serve as metrics
from kedge.apiserver.request import Request
from kedge.apiserver.scheduling_decisions import SchedulingDecisions
from kedge.apiserver.subresources import (
    approval,
    binding,
    eviction,
    finalize,
    pod_parts,
    pod_streams,
    proxy,
    scale,
)
from kedge.apiserver.subresources.part import serve_part, update_part
from kedge.apiserver.verbs import delete, read, watch, write
from kedge.machinery.errors import unknown_resource

Handler = Callable[[Api, Request], Answer]
Row = tuple[str, str, Mapping[str, Handler]]
"""Group, resource as in a role (`pods/log`), and the handler of each verb."""

ANY: Final = "*"

_GET_AND_POST: Final = ("get", "create")
"""The verbs of endpoints that a client connects to: browsers can only GET."""
_PROXY_VERBS: Final = ("", "create", "delete", "get", "patch", "update")
"""The empty verb is that of OPTIONS."""


def on(verbs: Sequence[str], handler: Handler) -> dict[str, Handler]:
    """Return the verbs, all with the same handler."""
    return dict.fromkeys(verbs, handler)


ROWS: Final[Sequence[Row]] = (
    (
        ANY,
        ANY,
        {
            "get": read.get,
            "list": read.list_,
            "watch": watch.watch,
            "create": write.create,
            "update": write.update,
            "patch": write.patch,
            "delete": delete.delete,
            "deletecollection": delete.delete_collection,
        },
    ),
    (ANY, "*/status", serve_part(write.STATUS)),
    (ANY, "*/scale", {"get": scale.get, "update": scale.update, "patch": scale.patch}),
    ("", "bindings", {"create": binding.serve_collection}),
    ("", "namespaces/finalize", {"update": update_part(finalize.FINALIZE)}),
    ("", "nodes/proxy", on(_PROXY_VERBS, proxy.to_node)),
    ("", "pods/attach", on(_GET_AND_POST, pod_streams.attach)),
    ("", "pods/binding", {"create": binding.serve}),
    ("", "pods/ephemeralcontainers", serve_part(pod_parts.EPHEMERAL)),
    ("", "pods/eviction", {"create": eviction.serve}),
    ("", "pods/exec", on(_GET_AND_POST, pod_streams.execute)),
    ("", "pods/log", {"get": pod_streams.log}),
    ("", "pods/portforward", on(_GET_AND_POST, pod_streams.forward)),
    ("", "pods/proxy", on(_PROXY_VERBS, proxy.to_pod)),
    ("", "pods/resize", serve_part(pod_parts.RESIZE)),
    ("", "services/proxy", on(_PROXY_VERBS, proxy.to_service)),
    ("authentication.k8s.io", "selfsubjectreviews", {"create": serve_self_review}),
    ("authorization.k8s.io", "localsubjectaccessreviews", {"create": access_review.serve_local}),
    ("authorization.k8s.io", "selfsubjectaccessreviews", {"create": access_review.serve_self}),
    ("authorization.k8s.io", "selfsubjectrulesreviews", {"create": access_review.serve_rules}),
    ("authorization.k8s.io", "subjectaccessreviews", {"create": access_review.serve_subject}),
    ("certificates.k8s.io", "certificatesigningrequests/approval", serve_part(approval.APPROVAL)),
)


class Handlers:
    """Finds handlers. A row with the resource's own name wins over one for any resource."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._handlers = {
            (group, resource, verb): handler
            for group, resource, handlers in rows
            for verb, handler in handlers.items()
        }
        # Custom resources come and go, so that the cache must have an end. Its keys are names: a
        # Resource would keep the schema of a deleted kind, which may have megabytes, in memory.
        self._find = lru_cache(4096)(self._find_by_name)

    def find(self, resource: Resource[Any], subresource: str, verb: str) -> Handler:
        """Return the handler; 404 if there is none."""
        return self._find(resource.group, resource.plural, subresource, verb)

    def _find_by_name(self, group: str, plural: str, subresource: str, verb: str) -> Handler:
        path = f"/{subresource}" if subresource else ""
        found = self._handlers.get((group, plural + path, verb))
        found = found or self._handlers.get((ANY, ANY + path, verb))
        if found is None:
            raise unknown_resource()
        return found


def handlers(
    authenticator: Authenticator, tokens: TokenRequests, decisions: SchedulingDecisions
) -> Handlers:
    """Return all handlers, with those that check or sign tokens or ask the scheduler."""
    sources = {
        ObjectSource.NODE_REPORTS: metrics.answer,
        ObjectSource.USAGE_AGGREGATES: metrics.answer,
        ObjectSource.SCHEDULER: decisions.serve,
    }
    return Handlers(
        [
            *ROWS,
            ("", "serviceaccounts/token", {"create": tokens.serve}),
            (
                "authentication.k8s.io",
                "tokenreviews",
                {"create": TokenReviews(authenticator).serve},
            ),
            *_not_stored(sources),
        ]
    )


def _not_stored(sources: Mapping[ObjectSource, Handler]) -> Iterator[Row]:
    """Return a row for each resource that another component than the store answers for."""
    for each in NOT_STORED:
        yield each.group, each.plural, on(each.verbs, sources[each.source])
