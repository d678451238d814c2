"""The default roles and bindings: created at the first start, repaired at every later one.

As in Kubernetes, a deleted one stays away until the server restarts, and one whose autoupdate
annotation is `false` is left alone.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from kedge.api.model import ObjectMeta
from kedge.api.rbac_v1 import cluster_role, cluster_role_binding, role, role_binding
from kedge.api.rbac_v1.cluster_role import AggregationRule, ClusterRole
from kedge.api.rbac_v1.cluster_role_binding import ClusterRoleBinding
from kedge.api.rbac_v1.role import Role
from kedge.api.rbac_v1.role_binding import RoleBinding
from kedge.api.resource import Resource
from kedge.apiserver.api import Api
from kedge.apiserver.authorization import defaults
from kedge.apiserver.authorization.defaults import AUTOUPDATE, AnyBinding, AnyRole
from kedge.apiserver.authorization.rights import Rights, uncovered
from kedge.apiserver.own_writes import unless_refused
from kedge.apiserver.request import Request, User
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.web.message import HttpRequest

SERVER: Final = User("system:apiserver", ("system:masters", "system:authenticated"))
"""As whom the server writes them."""
USER_AGENT: Final = "kube-apiserver"

Default = TypeVar("Default", Role, ClusterRole, RoleBinding, ClusterRoleBinding)


# The repaired objects.


def reconcile(existing: Default | None, wanted: Default) -> Default | None:
    """Return the object to write so that all of `wanted` is there; None if nothing is missing.

    Additions of others stay. A binding cannot be changed to another role, only replaced: then the
    wanted one is returned as it is, without a uid.
    """
    if existing is None:
        return wanted
    if existing.metadata.annotations.get(AUTOUPDATE) == "false":
        return None
    if isinstance(wanted, RoleBinding | ClusterRoleBinding):
        mended = _mended_binding(existing, wanted)
    else:
        mended = _mended_role(existing, wanted)
    return None if mended == existing else mended


def _mended_role(existing: Any, wanted: AnyRole) -> Any:
    mended = replace(existing, metadata=_mended_meta(existing.metadata, wanted.metadata))
    if existing.rules != wanted.rules:
        missing = uncovered([Rights(existing.rules)], wanted.rules)
        mended = replace(mended, rules=[*existing.rules, *missing])
    if not isinstance(wanted, ClusterRole):
        return mended
    if wanted.aggregationRule is None or existing.aggregationRule is None:
        return replace(mended, aggregationRule=wanted.aggregationRule)
    selectors = existing.aggregationRule.clusterRoleSelectors
    more = [e for e in wanted.aggregationRule.clusterRoleSelectors if e not in selectors]
    if more:
        rule = AggregationRule(clusterRoleSelectors=[*selectors, *more])
        return replace(mended, aggregationRule=rule)
    return mended


def _mended_binding(existing: Any, wanted: AnyBinding) -> Any:
    if existing.roleRef != wanted.roleRef:
        return wanted
    mended = replace(existing, metadata=_mended_meta(existing.metadata, wanted.metadata))
    missing = [each for each in wanted.subjects if each not in existing.subjects]
    if missing:
        return replace(mended, subjects=[*existing.subjects, *missing])
    return mended


def _mended_meta(existing: ObjectMeta, wanted: ObjectMeta) -> ObjectMeta:
    return replace(
        existing,
        labels={**wanted.labels, **existing.labels},
        annotations={**wanted.annotations, **existing.annotations},
    )


# The writing.


async def ensure(api: Api) -> None:
    """Make and mend all of it; to be called once at start, when the namespaces are there."""
    async with asyncio.TaskGroup() as tasks:
        for wanted in (*defaults.roles(), *defaults.bindings()):
            tasks.create_task(unless_refused(_ensure(api, wanted)))


async def _ensure(api: Api, wanted: AnyRole | AnyBinding) -> None:
    resource = _RESOURCES[type(wanted)]
    item = api.cache_of(resource).get(resource.key(wanted.metadata.namespace, wanted.metadata.name))
    if item is None:
        await _create(api, resource, wanted)
        return
    mended = reconcile(resource.decode(item.body), wanted)
    if mended is wanted:
        assert isinstance(wanted, RoleBinding | ClusterRoleBinding)
        await _replace(api, resource, item.key, wanted)
    elif mended is not None:
        await _mend(api, resource, wanted)


async def _create(api: Api, resource: Resource[Any], wanted: AnyRole | AnyBinding) -> None:
    document = _plain(document_of(wanted))
    await write.create_object(api, _request(resource, wanted, "create"), DesiredDocument(document))


async def _replace(api: Api, resource: Resource[Any], key: str, wanted: AnyBinding) -> None:
    """Put a binding in the place of one to another role, which no update may do.

    In one write: Kubernetes deletes the old one first, and a server that dies then has neither.
    """
    async with api.locked(key):
        item = api.cache_of(resource).get(key)
        if item is None:
            return
        meta = _mended_meta(resource.decode(item.body).metadata, wanted.metadata)
        document = _plain(resource.to_document(replace(wanted, metadata=meta)))
        await api.put(resource, document, item, len(item.body))


async def _mend(api: Api, resource: Resource[Any], wanted: Any) -> None:
    def mended(live: dict[str, Any]) -> DesiredDocument:
        found = reconcile(resource.from_document(live), wanted)
        return DesiredDocument(live if found is None else _plain(resource.to_document(found)))

    request = _request(resource, wanted, "update")
    await write.modify(api, request, mended, write.MAIN, "UpdateOptions")


def document_of(wanted: AnyRole | AnyBinding) -> dict[str, Any]:
    """Return a default role or binding as a document."""
    return _RESOURCES[type(wanted)].to_document(wanted)


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """Return a deep copy of a document."""
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return copied


def _request(resource: Resource[Any], wanted: AnyRole | AnyBinding, verb: str) -> Request:
    http = HttpRequest("POST", "/", headers={"user-agent": USER_AGENT})
    meta = wanted.metadata
    return Request(http, SERVER, resource, verb, meta.namespace, meta.name)


_RESOURCES: Final[Mapping[type, Resource[Any]]] = {
    Role: role.RESOURCE,
    ClusterRole: cluster_role.RESOURCE,
    RoleBinding: role_binding.RESOURCE,
    ClusterRoleBinding: cluster_role_binding.RESOURCE,
}
