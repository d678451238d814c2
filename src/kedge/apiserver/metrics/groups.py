"""The groups of a pod: its controllers, its Services, its QoS class and its namespace."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_OID, uuid5

import msgspec

from kedge.api.apps_v1 import daemon_set, deployment, replica_set, stateful_set
from kedge.api.batch_v1 import cron_job, job
from kedge.api.core_v1 import namespace as core_namespace
from kedge.api.core_v1 import replication_controller, service
from kedge.api.core_v1.pod import pod
from kedge.api.metrics_v1alpha1 import aggregate
from kedge.api.resource import Resource
from kedge.apiserver.watchcache import Item, WatchCache
from kedge.metrics.aggregates import GroupIdentity

_MOST_OWNERS: Final = 2
"""Controllers between a pod and the workload that a user wrote: a ReplicaSet and a Deployment."""
MOST_SERVICES: Final = 32
"""Services in whose usage one pod counts."""
_WORKLOADS: Final[dict[tuple[str, str], tuple[Resource[Any], Resource[Any]]]] = {
    (core.api_version, core.kind): (core, usage)
    for core in (
        cron_job.RESOURCE,
        daemon_set.RESOURCE,
        deployment.RESOURCE,
        job.RESOURCE,
        replica_set.RESOURCE,
        replication_controller.RESOURCE,
        stateful_set.RESOURCE,
    )
    for usage in aggregate.WORKLOADS
    if usage.kind == core.kind
}
"""The stored resource and its aggregate, by apiVersion and kind of an owner reference."""


class GroupedOwner(msgspec.Struct, frozen=True, rename="camel"):
    """An owner reference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class GroupedMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of an object that belongs to a group or is one."""

    uid: str = ""
    labels: dict[str, str] = {}
    owner_references: list[GroupedOwner] = []


class GroupedStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The QoS class of a pod."""

    qos_class: str = ""


class GroupedPod(msgspec.Struct, frozen=True):
    """The fields of a pod or controller that say where it belongs."""

    metadata: GroupedMeta = GroupedMeta()
    status: GroupedStatus = GroupedStatus()


class SelectingSpec(msgspec.Struct, frozen=True):
    """The pods of a Service."""

    selector: dict[str, str] | None = None


class SelectingService(msgspec.Struct, frozen=True):
    """The fields of a Service that say which pods it has."""

    metadata: GroupedMeta = GroupedMeta()
    spec: SelectingSpec = SelectingSpec()


_grouped = msgspec.json.Decoder(GroupedPod)
_selecting = msgspec.json.Decoder(SelectingService)


class GroupingObject(NamedTuple):
    """An object that the groups of a pod depend on, as it was."""

    resource: Resource[Any]
    key: str
    item: Item | None


class CachedPodGroups:
    """Reads the groups of pods from the caches of a server. Fulfils PodGroups."""

    plurals: Collection[str] = aggregate.PLURALS

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache
        self._pods: dict[str, list[GroupingObject]] = {}
        """The objects that the groups of each pod were read from at the last call for it."""
        self._services: dict[str, Item] = {}
        self._by_namespace: dict[str, list[tuple[str, SelectingService]]] = {}
        """Services with a selector, by namespace, with their names."""

    def of_pod(self, namespace: str, name: str) -> Sequence[GroupIdentity] | None:
        key = pod.RESOURCE.key(namespace, name)
        item = self._cache.of(pod.RESOURCE).get(key)
        if item is None:
            return ()
        before = self._pods.get(key)
        if before is not None and all(self._is_current(each) for each in before):
            return None
        sources = self._pods[key] = [GroupingObject(pod.RESOURCE, key, item)]
        found = _grouped.decode(item.body)
        return [
            *self._owners(namespace, found, sources),
            *self._selected_by(namespace, found),
            *self._classes(namespace, found, sources),
        ]

    def _is_current(self, source: GroupingObject) -> bool:
        return self._cache.of(source.resource).get(source.key) is source.item

    def _read(
        self, resource: Resource[Any], key: str, sources: list[GroupingObject]
    ) -> Item | None:
        """Read an object, and note that the groups depend on it."""
        item = self._cache.of(resource).get(key)
        sources.append(GroupingObject(resource, key, item))
        return item

    def forget_pod(self, namespace: str, name: str) -> None:
        self._pods.pop(pod.RESOURCE.key(namespace, name), None)

    def changed_namespaces(self) -> Iterable[str]:
        now = {item.key: item for item in self._cache.of(service.RESOURCE).values()}
        before, self._services = self._services, now
        changed = {key for key, item in now.items() if before.get(key) is not item}
        changed |= before.keys() - now.keys()
        namespaces = {_place(key)[0] for key in changed}
        for namespace in namespaces:
            self._by_namespace.pop(namespace, None)
        # Status and annotations of Services change too; few do, and regrouping is cheap.
        for key, item in now.items():
            namespace, name = _place(key)
            if namespace in namespaces:
                found = _selecting.decode(item.body)
                if found.spec.selector:
                    self._by_namespace.setdefault(namespace, []).append((name, found))
        return namespaces

    def _owners(
        self, namespace: str, found: GroupedPod, sources: list[GroupingObject]
    ) -> Iterator[GroupIdentity]:
        for _ in range(_MOST_OWNERS):
            owner = next(
                (each for each in found.metadata.owner_references if each.controller), None
            )
            if owner is None:
                return
            pair = _WORKLOADS.get((owner.api_version, owner.kind))
            if pair is None:
                return
            core, usage = pair
            item = self._read(core, core.key(namespace, owner.name), sources)
            if item is None:
                return
            found = _grouped.decode(item.body)
            meta = found.metadata
            if meta.uid != owner.uid:
                return
            yield _identity(usage, namespace, owner.name, meta)

    def _selected_by(self, namespace: str, found: GroupedPod) -> Iterator[GroupIdentity]:
        labels = found.metadata.labels.items()
        selecting = (
            _identity(aggregate.SERVICES, namespace, name, each.metadata)
            for name, each in self._by_namespace.get(namespace, ())
            if (each.spec.selector or {}).items() <= labels
        )
        return islice(selecting, MOST_SERVICES)

    def _classes(
        self, namespace: str, found: GroupedPod, sources: list[GroupingObject]
    ) -> Iterator[GroupIdentity]:
        core = core_namespace.RESOURCE
        item = self._read(core, core.key("", namespace), sources)
        if item is None:
            return
        meta = _grouped.decode(item.body).metadata
        yield _identity(aggregate.NAMESPACES, namespace, namespace, meta)
        qos = found.status.qos_class
        if qos:
            own = GroupedMeta(uid=str(uuid5(NAMESPACE_OID, f"{meta.uid}/{qos}")))
            yield _identity(aggregate.QOS_CLASSES, namespace, qos, own)


def _identity(usage: Resource[Any], namespace: str, name: str, meta: GroupedMeta) -> GroupIdentity:
    return GroupIdentity(usage.plural, usage.kind, namespace, name, meta.uid, meta.labels)


def _place(key: str) -> tuple[str, str]:
    """The namespace and name of a Service, from its key in the store."""
    namespace, _, name = key.removeprefix(service.RESOURCE.prefix).partition("/")
    return namespace, name
