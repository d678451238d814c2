"""Aggregates: the usage of groups of pods, kept up to date while it is read."""

import logging
from collections import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from kedge.machinery.clock import Clock
from kedge.machinery.selectors import FieldSelector, LabelRequirements
from kedge.metrics.collection import Collection
from kedge.metrics.selection import UsageSelection
from kedge.metrics.serve import aggregate_encoding, encoding
from kedge.metrics.usage_object import UsageObject

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 1.0
"""Seconds between two looks at the reports of pods, while aggregates are watched."""
KEPT_SECONDS: Final = 60.0
"""Seconds for which aggregates are kept after they were last read. Unread ones cost nothing."""
AT_ONCE: Final = 4
"""Aggregates whose JSON is made in one turn of the event loop: a group may have many pods."""
_EVERYTHING: Final = UsageSelection("", LabelRequirements(), FieldSelector())


class GroupIdentity(NamedTuple):
    """An object of the cluster that groups pods."""

    plural: str
    """The resource of the aggregate."""
    kind: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]


class PodGroups(Protocol):
    """The groups of pods (kedge.apiserver.metrics.groups)."""

    plurals: abc.Collection[str]
    """The resources that aggregates are served as."""

    def of_pod(self, namespace: str, name: str) -> Sequence[GroupIdentity] | None:
        """Return the groups of a pod; None if they are the same as at the last call for it."""

    def forget_pod(self, namespace: str, name: str) -> None:
        """Forget the last call."""

    def changed_namespaces(self) -> Iterable[str]:
        """The namespaces whose Services changed since the last call."""


class GroupUsage(UsageObject):
    """The usage of one group: an object of the metrics API that is computed from its pods."""

    __slots__ = ("kind", "members")

    def __init__(self, identity: GroupIdentity) -> None:
        super().__init__("", identity.namespace, identity.name, identity.uid, identity.labels)
        self.kind = identity.kind
        self.members: dict[str, UsageObject] = {}
        """Pods by key."""

    def body(self) -> bytes:
        return encoding.beginning(self.kind) + self.metadata() + self.rest()

    def rest(self) -> bytes:
        if self.kept_rest is None:
            self.kept_rest = aggregate_encoding.group(list(self.members.values()))
        return self.kept_rest

    def core_rest(self) -> bytes:
        return self.rest()


class Aggregates:
    """The groups of all pods that are listed. `current` brings them up to date."""

    def __init__(self, pods: Collection, groups: PodGroups, clock: Clock) -> None:
        self._pods = pods
        self._groups = groups
        self._clock = clock
        self._collections = self._empty()
        self._seen = 0
        """The version up to which the reports of pods were taken in; 0 before the first."""
        self._read = -KEPT_SECONDS
        self._groups_of: dict[str, tuple[GroupUsage, ...]] = {}
        self._plural_of: dict[GroupUsage, str] = {}

    def _empty(self) -> dict[str, Collection]:
        made = {each: self._collection() for each in self._groups.plurals}
        for collection in made.values():
            collection.forgotten = self._pods.versions.last
        return made

    def _collection(self) -> Collection:
        return Collection(self._pods.versions, self._clock, at_once=AT_ONCE)

    def current(self, plural: str) -> Collection:
        """The aggregates of one resource, up to date."""
        self._read = self._clock.monotonic()
        self.refresh()
        return self._collections[plural]

    @property
    def watched(self) -> bool:
        return any(each.listeners for each in self._collections.values())

    @property
    def hurries_nodes(self) -> bool:
        """Whether a watch wants every tick of all nodes."""
        found = (each.listeners.values() for each in self._collections.values())
        return any(selection.hurries_nodes for each in found for selection in each)

    async def run(self) -> None:
        """Serve watches, and forget aggregates that are no longer read, until cancelled."""
        while True:
            await self._clock.sleep(REFRESH_SECONDS)
            try:
                self.tick()
            except Exception:
                # Reads report it too. The server has other things to do.
                log.exception("could not bring aggregates of usage up to date")

    def tick(self) -> None:
        if self.watched:
            self._read = self._clock.monotonic()
            self.refresh()
        elif self._seen and self._clock.monotonic() - self._read > KEPT_SECONDS:
            self._forget_all()

    def _forget_all(self) -> None:
        for key in self._groups_of:
            self._groups.forget_pod(*key.split("/", 1))
        self._groups_of.clear()
        self._plural_of.clear()
        self._collections = self._empty()
        self._seen = 0

    def refresh(self) -> None:
        """Take in the reports since the last time."""
        # Deletions are remembered for minutes; after a longer sleep the process begins anew.
        if self._seen and self._seen < self._pods.forgotten:
            self._forget_all()
        touched: dict[GroupUsage, None] = {}
        for namespace in self._groups.changed_namespaces():
            self._regroup(namespace, touched)
        last = self._pods.versions.last
        for _, type_, pod in self._pods.changes_after(self._seen, _EVERYTHING):
            if type_ == "DELETED":
                self._leave(pod.key, touched)
            else:
                self._take(pod, touched)
        self._seen = last
        if touched:
            self._publish(touched)
        for collection in self._collections.values():
            collection.forget()

    def _regroup(self, namespace: str, touched: dict[GroupUsage, None]) -> None:
        """Find the groups of all pods of a namespace again."""
        for key in [key for key in self._groups_of if key.startswith(f"{namespace}/")]:
            self._groups.forget_pod(*key.split("/", 1))
            pod = self._pods.entries.get(key)
            if pod is not None and pod.listed:
                self._take(pod, touched)

    def _take(self, pod: UsageObject, touched: dict[GroupUsage, None]) -> None:
        identities = self._groups.of_pod(pod.namespace, pod.name)
        if identities is not None:
            before = self._groups_of.pop(pod.key, ())
            groups = tuple(self._group(each) for each in identities)
            for group in before:
                if group not in groups:
                    group.members.pop(pod.key, None)
                    touched[group] = None
            self._groups_of[pod.key] = groups
        for group in self._groups_of.get(pod.key, ()):
            group.members[pod.key] = pod
            touched[group] = None

    def _leave(self, key: str, touched: dict[GroupUsage, None]) -> None:
        pod = self._pods.entries.get(key)
        if pod is not None and pod.listed:
            # Another pod of the same name has taken its place.
            return
        for group in self._groups_of.pop(key, ()):
            del group.members[key]
            touched[group] = None
        self._groups.forget_pod(*key.split("/", 1))

    def _group(self, identity: GroupIdentity) -> GroupUsage:
        collection = self._collections[identity.plural]
        found = collection.get(identity.namespace, identity.name)
        if isinstance(found, GroupUsage) and found.uid == identity.uid:
            if found.labels != identity.labels:
                collection.relabel(found, identity.labels)
            return found
        if isinstance(found, GroupUsage):
            self._replace(found, collection)
        made = GroupUsage(identity)
        # A group that is not listed yet is found by the next pod, too.
        collection.entries[made.key] = made
        self._plural_of[made] = identity.plural
        return made

    def _replace(self, old: GroupUsage, collection: Collection) -> None:
        """Drop a group whose name another object has now. Its pods no longer count."""
        for key in old.members:
            if key in self._groups_of:
                kept = (each for each in self._groups_of[key] if each is not old)
                self._groups_of[key] = tuple(kept)
        old.members.clear()
        collection.drop(old)
        self._plural_of.pop(old, None)

    def _publish(self, touched: Iterable[GroupUsage]) -> None:
        self._pods.versions.catch_up()
        changed = set()
        for group in touched:
            plural = self._plural_of.get(group)
            if plural is None:
                continue
            changed.add(plural)
            if group.members:
                group.since = min(each.since for each in group.members.values())
                self._collections[plural].put(group)
            else:
                self._collections[plural].drop(group)
                del self._plural_of[group]
        for plural in changed:
            self._collections[plural].settle()
