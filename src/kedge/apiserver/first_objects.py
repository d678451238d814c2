"""The objects with which an empty store begins: namespaces, priorities, default roles and bindings.

They are the same in every cluster, but for uids and times. So they are encoded once in a process,
and clusters that are forked from it copy the bytes. They pass neither admission nor validation,
which would find nothing: a test compares them with objects that were created.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from kedge.api.builtin.service_networks import SERVICE_RANGE
from kedge.api.core_v1 import namespace
from kedge.api.rbac_v1 import cluster_role, cluster_role_binding, role, role_binding
from kedge.api.resource import Resource
from kedge.api.scheduling_v1 import priority_class
from kedge.apiserver import bootstrap, joining, prepare
from kedge.apiserver.api import new_stored_bytes
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.authorization import defaults, policy
from kedge.apiserver.objects_file import StoredObject
from kedge.apiserver.request import Request, User, field_manager
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.storage.bulk import carry_out
from kedge.storage.store import RevisionConflict, Store
from kedge.web.message import HttpRequest

_NO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)

_RESOURCES: Final[Mapping[str, Resource[Any]]] = {
    each.kind: each
    for each in (
        namespace.RESOURCE,
        priority_class.RESOURCE,
        role.RESOURCE,
        cluster_role.RESOURCE,
        role_binding.RESOURCE,
        cluster_role_binding.RESOURCE,
    )
}


class EncodedObject(NamedTuple):
    """An object as the store keeps it."""

    key: str
    value: bytes
    uid: str

    def begun(self, uid: str, now: str) -> bytes:
        """Return the bytes with another uid, created at another time."""
        value = self.value.replace(self.uid.encode(), uid.encode())
        return value.replace(format_time(_NO_TIME).encode(), now.encode())


async def write_first(
    store: Store, clock: Clock, random: Random, *, has_nodes: bool = True
) -> None:
    """Write the first objects to an empty store; grants for nodes that join only if it has some."""
    now = format_time(clock.now())
    writes = (
        _put(store, each.key, each.begun(prepare.random_uid(random), now))
        for each in encoded_objects(has_nodes=has_nodes)
    )
    await carry_out(writes, clock)


async def copy(store: Store, clock: Clock, objects: Sequence[StoredObject]) -> None:
    """Write the objects of another cluster to an empty store."""
    await carry_out((_put(store, each.key, bytes(each.value)) for each in objects), clock)


async def _put(store: Store, key: str, value: bytes) -> None:
    # Another server may begin with the same empty store at the same moment.
    with contextlib.suppress(RevisionConflict):
        await store.put(key, value, expect=0)


@cache
def encoded_objects(*, has_nodes: bool = True) -> Sequence[EncodedObject]:
    """Return the objects, each with a uid of its own and without a time."""
    random = Random(0)
    return [_encoded(request, document, random) for request, document in _documents(has_nodes)]


def _documents(has_nodes: bool) -> Iterator[tuple[Request, dict[str, Any]]]:
    """Yield the objects in the order in which a server would create them one by one."""
    for document in bootstrap.lasting_objects(SERVICE_RANGE):
        if document["kind"] in _RESOURCES:  # a Service needs an address
            yield _request(document, ADMIN, bootstrap.USER_AGENT), document
    for document in bootstrap.priorities():
        yield _request(document, ADMIN, bootstrap.USER_AGENT), document
    for wanted in (*defaults.roles(), *defaults.bindings()):
        document = policy.document_of(wanted)
        yield _request(document, policy.SERVER, policy.USER_AGENT), document
    for document in joining.grants() if has_nodes else ():
        yield _request(document, ADMIN, bootstrap.USER_AGENT), document


def _request(document: dict[str, Any], user: User, agent: str) -> Request:
    http = HttpRequest("POST", "/", headers={"user-agent": agent})
    meta = document["metadata"]
    resource = _RESOURCES[document["kind"]]
    return Request(http, user, resource, "create", meta.get("namespace", ""), meta["name"])


def _encoded(request: Request, document: dict[str, Any], random: Random) -> EncodedObject:
    resource = request.resource
    copied = msgspec.json.decode(msgspec.json.encode(document))
    manager = field_manager(request, "CreateOptions")
    obj, owners = write.new_object(request, DesiredDocument(copied), manager, _NO_TIME, random)
    value = new_stored_bytes(resource, resource.strategy.prepare_for_create(obj), owners)
    return EncodedObject(request.key, value, obj.metadata.uid)
