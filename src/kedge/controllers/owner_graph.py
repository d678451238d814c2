"""The graph of owners and dependents, and the decision about an object whose owners go. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from functools import lru_cache
from operator import attrgetter
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from kedge.api.model import OwnerReference
from kedge.api.resource import Resource
from kedge.client.view import Outline

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


_REFERENCES_PER_STEP: Final = 1_000
FEW_OWNERS: Final = 4
"""So many owners are kept once for all objects that have the same. A tenant may write thousands."""
SHORT_OWNERS: Final = 4 << 10
"""Characters of owners that are kept so: a name may have a million, and they are kept when the
objects are gone."""


class DependentReference(NamedTuple):
    """An owner reference of a dependent."""

    uid: str
    api_version: str
    kind: str
    name: str
    blocks: bool
    """Whether the owner's foreground deletion has to wait for the dependent."""


class OwnerLocation(NamedTuple):
    """The exact identity that an object must have to count as an owner."""

    group: str
    kind: str
    namespace: str
    name: str
    uid: str


class GraphNode:
    """One object with owners, dependents or garbage collection finalizers."""

    __slots__ = (
        "deleting",
        "foreground",
        "name",
        "namespace",
        "orphaning",
        "owner_kinds",
        "policy",
        "references",
        "resource",
        "uid",
        "version",
    )

    def __init__(self, resource: Resource[Any], obj: Outline) -> None:
        meta = obj.metadata
        self.resource = resource
        self.namespace = intern(meta.namespace)
        self.name = meta.name
        self.uid = meta.uid
        self.version = meta.resource_version
        owners = _cached_owners if _are_small(meta.owner_references) else _owners
        self.references, self.owner_kinds = owners(meta.owner_references)
        """Of the owners: references by uid, groups and kinds."""
        self.deleting = bool(meta.deletion_timestamp)
        self.foreground = self.deleting and FOREGROUND in meta.finalizers
        """Whether it goes only after its dependents."""
        self.orphaning = self.deleting and ORPHAN in meta.finalizers
        """Whether it goes only after its dependents have been let off."""
        self.policy = _policy(meta.finalizers)
        """How its own dependents fare if it is deleted."""

    def __repr__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource.plural}:{where}"

    def references_to(self, uid: str) -> Iterator[DependentReference]:
        """Return the references to an owner, by binary search: a tenant may write twenty thousand
        owners into an object, and name one of them in a thousand objects."""
        first = bisect_left(self.references, uid, key=attrgetter("uid"))
        for at in range(first, len(self.references)):
            if self.references[at].uid != uid:
                return
            yield self.references[at]

    @property
    def claim(self) -> OwnerLocation:
        resource = self.resource
        return OwnerLocation(resource.group, resource.kind, self.namespace, self.name, self.uid)


def _owners(
    owners: tuple[OwnerReference, ...],
) -> tuple[tuple[DependentReference, ...], frozenset[tuple[str, str]]]:
    references = tuple(sorted(map(_reference, owners)))
    kinds = {(each.api_version, each.kind) for each in references}
    return references, frozenset((_group(version), kind) for version, kind in kinds)


def _are_small(owners: tuple[OwnerReference, ...]) -> bool:
    if len(owners) > FEW_OWNERS:
        return False
    return sum(len(o.apiVersion) + len(o.kind) + len(o.name) + len(o.uid) for o in owners) <= (
        SHORT_OWNERS
    )


_cached_owners = lru_cache(1024)(_owners)
"""Thousands of pods have the same owner."""


def _reference(owner: OwnerReference) -> DependentReference:
    version, kind = intern(owner.apiVersion), intern(owner.kind)
    return DependentReference(owner.uid, version, kind, owner.name, bool(owner.blockOwnerDeletion))


def _policy(finalizers: Iterable[str]) -> str:
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


class OwnerState(Enum):
    """The state of an owner."""

    SOLID = auto()
    """It is there."""
    WAITING = auto()
    """It is being deleted and waits for its dependents to go first."""
    ABSENT = auto()
    """It is not there, and never will be again: a uid does not come back."""
    UNKNOWN = auto()
    """The collector has to ask the API server."""


class OwnerGraph:
    """The objects that matter and how they depend on each other.

    Objects without owners are not kept until a dependent names them; that keeps memory for those
    who need it. Methods that change the graph return the uids of the nodes to decide on anew.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, GraphNode] = {}
        self._dependents: dict[str, dict[str, GraphNode]] = {}
        """By the owner's uid, then the dependent's."""
        self._absent: dict[str, set[OwnerLocation]] = {}
        """By uid, owners that dependents name and that are known not to be there."""

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, uid: str) -> GraphNode | None:
        return self._nodes.get(uid)

    def dependents(self, owner: GraphNode) -> Iterator[GraphNode]:
        """Return the dependents whose owner references match this object exactly."""
        for dependent in self._dependents.get(owner.uid, {}).values():
            if any(matches(owner, dependent, each) for each in dependent.references_to(owner.uid)):
                yield dependent

    def blocking(self, owner: GraphNode) -> Iterator[GraphNode]:
        """The dependents for which the owner's foreground deletion waits."""
        for dependent in self.dependents(owner):
            if any(each.blocks for each in dependent.references_to(owner.uid)):
                yield dependent

    def standing(self, dependent: GraphNode, reference: DependentReference) -> OwnerState:
        """Return the state of an owner that a dependent references."""
        owner = self._nodes.get(reference.uid)
        if owner is not None and matches(owner, dependent, reference):
            return OwnerState.WAITING if owner.foreground else OwnerState.SOLID
        absent = self._absent.get(reference.uid)
        if absent is None or absent.isdisjoint(claims(dependent, reference)):
            return OwnerState.UNKNOWN
        return OwnerState.ABSENT

    # Updates from informers.

    def observe(self, resource: Resource[Any], obj: Outline) -> set[str]:
        """Take in the present state of an object."""
        old = self._nodes.get(obj.metadata.uid)
        if old is None and self._is_nobody(obj):
            return set()
        node = GraphNode(resource, obj)
        if not self._matters(node):
            return self._drop(old) if old is not None else set()
        self._nodes[node.uid] = node
        self._index(node, old)
        return self._affected(node, old)

    def _is_nobody(self, obj: Outline) -> bool:
        """Whether an object has nothing to do with any other, as most have not."""
        meta = obj.metadata
        related = meta.owner_references or meta.uid in self._dependents
        return not related and not (meta.deletion_timestamp and meta.finalizers)

    def _matters(self, node: GraphNode) -> bool:
        owned_or_owner = node.references or node.uid in self._dependents
        return bool(owned_or_owner or node.foreground or node.orphaning)

    def _affected(self, node: GraphNode, old: GraphNode | None) -> set[str]:
        """Return the uids of the nodes that a change of a node may affect."""
        if old is not None and _same(node, old):
            return set()
        affected = {node.uid}
        if old is None or node.foreground != old.foreground:
            affected.update(self._dependents.get(node.uid, ()))
        if old is not None and old.references != node.references:
            affected.update(self._waiting_owners(old))
        return affected

    def _waiting_owners(self, dependent: GraphNode) -> Iterator[str]:
        for reference in dependent.references:
            owner = self._nodes.get(reference.uid)
            if owner is not None and owner.foreground:
                yield owner.uid

    def forget(self, resource: Resource[Any], obj: Outline) -> set[str]:
        """Take in that an object is gone."""
        if obj.metadata.uid not in self._nodes and self._is_nobody(obj):
            return set()
        node = self._nodes.get(obj.metadata.uid) or GraphNode(resource, obj)
        self.confirm_absent(node.claim)
        return self._drop(node)

    def _drop(self, node: GraphNode) -> set[str]:
        affected = {*self._dependents.get(node.uid, ()), *self._waiting_owners(node)}
        self._nodes.pop(node.uid, None)
        for reference in node.references:
            self._unlink(node, reference)
        return affected

    def retain(self, resource: Resource[Any], uids: set[str]) -> set[str]:
        """Forget every object of a resource but these, the only ones in a list.

        A list can be older than a direct lookup of an owner. So the others do not count as absent:
        an object that depends on one of them has it looked up.
        """
        affected: set[str] = set()
        for node in [n for n in self._nodes.values() if n.resource is resource]:
            if node.uid not in uids:
                affected |= self._drop(node)
        return affected

    def abolish(self, resource: Resource[Any]) -> Iterator[set[str]]:
        """Forget a resource that is no longer served: a kind goes only after its objects.

        There may be millions of references, so this goes step by step, and between two steps the
        graph may change. The references at the beginning count, also of a node that has changed
        since: these owners are gone, and later ones may be objects of a new kind of that name.
        """
        for node in list(self._nodes.values()):
            if node.resource is resource:
                yield self._drop(self._nodes[node.uid]) if node.uid in self._nodes else set()
            elif (resource.group, resource.kind) in node.owner_kinds:
                yield from self._without_owners(node, resource)
            else:
                yield set()

    def _without_owners(self, node: GraphNode, resource: Resource[Any]) -> Iterator[set[str]]:
        """Note that owners of a kind are absent."""
        if resource.namespaced and not node.namespace:
            return
        for at in range(0, len(node.references), _REFERENCES_PER_STEP):
            for reference in node.references[at : at + _REFERENCES_PER_STEP]:
                claim = claims(node, reference)[-1 if resource.namespaced else 0]
                if (claim.group, claim.kind) == (resource.group, resource.kind):
                    self.confirm_absent(claim)
            yield set()
        yield {node.uid}

    # Results of live lookups.

    def confirm_absent(self, claim: OwnerLocation) -> None:
        """An owner is not in the place where its dependents say it is."""
        if claim.uid in self._dependents:
            self._absent.setdefault(claim.uid, set()).add(claim)

    def confirm_present(self, resource: Resource[Any], obj: Outline) -> set[str]:
        """An owner that was looked for was there; it counts unless its end was heard of since."""
        node = GraphNode(resource, obj)
        if node.claim in self._absent.get(node.uid, _NONE) or node.uid in self._nodes:
            return set()
        return self.observe(resource, obj)

    # The index.

    def _index(self, node: GraphNode, old: GraphNode | None) -> None:
        uids = {reference.uid for reference in node.references}
        for reference in old.references if old is not None else ():
            if reference.uid not in uids:
                self._unlink(node, reference)
        for uid in uids:
            self._dependents.setdefault(uid, {})[node.uid] = node

    def _unlink(self, node: GraphNode, reference: DependentReference) -> None:
        """Forget a dependence, and with the last one all that was only kept for its sake."""
        family = self._dependents.get(reference.uid)
        if family is None or family.pop(node.uid, None) is None or family:
            return
        del self._dependents[reference.uid]
        self._absent.pop(reference.uid, None)
        owner = self._nodes.get(reference.uid)
        if owner is not None and not self._matters(owner):
            del self._nodes[owner.uid]


_NONE: frozenset[OwnerLocation] = frozenset()


def _same(one: GraphNode, other: GraphNode) -> bool:
    """Whether two states of an object differ in nothing that decisions depend on."""
    facts = ("references", "deleting", "foreground", "orphaning", "policy")
    return all(getattr(one, fact) == getattr(other, fact) for fact in facts)


def matches(owner: GraphNode, dependent: GraphNode, reference: DependentReference) -> bool:
    """Whether an object is the one that a reference means: uid, kind, name and place agree."""
    return owner.uid == reference.uid and owner.claim in claims(dependent, reference)


def claims(dependent: GraphNode, reference: DependentReference) -> tuple[OwnerLocation, ...]:
    """Where an owner may be: outside all namespaces, or in the dependent's own."""
    at_large = OwnerLocation(
        _group(reference.api_version), reference.kind, "", reference.name, reference.uid
    )
    if not dependent.namespace:
        return (at_large,)
    return at_large, at_large._replace(namespace=dependent.namespace)


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def misplaced(graph: OwnerGraph, dependent: GraphNode) -> Iterator[DependentReference]:
    """References to owners that are known, but in a namespace where they can own nothing here."""
    for reference in dependent.references:
        owner = graph.get(reference.uid)
        if owner is not None and owner.namespace not in ("", dependent.namespace):
            yield reference


# Decisions.


class KeepObject(msgspec.Struct, frozen=True):
    """No action for now."""


class FindOwners(msgspec.Struct, frozen=True):
    """Look up these owners in the API first."""

    references: tuple[DependentReference, ...]


class DeleteObject(msgspec.Struct, frozen=True):
    """Delete the object: it has no owner left."""

    policy: str
    unblock: bool = False
    """Whether it must first stop blocking its owners, because they and it go in a circle."""


class RemoveReferences(msgspec.Struct, frozen=True):
    """Keep the object for its other owners, and remove these references."""

    uids: frozenset[str]


class RemoveForegroundFinalizer(msgspec.Struct, frozen=True):
    """Remove the finalizer of foreground deletion: no dependent blocks the object."""


class OrphanDependents(msgspec.Struct, frozen=True):
    """Remove the dependents' references, then the finalizer of orphaning."""

    dependents: tuple[GraphNode, ...]


Action = (
    KeepObject
    | FindOwners
    | DeleteObject
    | RemoveReferences
    | RemoveForegroundFinalizer
    | OrphanDependents
)
LEAVE = KeepObject()


def decide(graph: OwnerGraph, node: GraphNode) -> Action:
    """Return the next action for an object."""
    if node.orphaning:
        return OrphanDependents(tuple(graph.dependents(node)))
    if node.foreground:
        return LEAVE if any(graph.blocking(node)) else RemoveForegroundFinalizer()
    if node.deleting or not node.references:
        return LEAVE
    by_standing: dict[OwnerState, list[DependentReference]] = {
        standing: [] for standing in OwnerState
    }
    for reference in node.references:
        by_standing[graph.standing(node, reference)].append(reference)
    if unknown := by_standing[OwnerState.UNKNOWN]:
        return FindOwners(tuple(unknown))
    leaving = by_standing[OwnerState.ABSENT] + by_standing[OwnerState.WAITING]
    if by_standing[OwnerState.SOLID]:
        return RemoveReferences(frozenset(each.uid for each in leaving)) if leaving else LEAVE
    return _deletion(graph, node, waited_for=bool(by_standing[OwnerState.WAITING]))


def _deletion(graph: OwnerGraph, node: GraphNode, *, waited_for: bool) -> DeleteObject:
    dependents = list(graph.dependents(node))
    if waited_for and dependents:
        # An owner that waits for this object also waits for its dependents.
        return DeleteObject("Foreground", unblock=any(each.foreground for each in dependents))
    return DeleteObject(node.policy)
