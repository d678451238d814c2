"""History: the former templates of a workload, kept as ControllerRevisions for rollbacks."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api.apps_v1.controller_revision import RESOURCE, ControllerRevision
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.label_selector import compiled
from kedge.api.model import LabelSelector, Object, ObjectMeta
from kedge.api.resource import Resource, dec_hook
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.controllers.adoption import Adoption
from kedge.controllers.pod_control import owned_by
from kedge.controllers.shared_informers import ObjectCache, controller_of, key_of
from kedge.machinery.errors import StatusError

PREFIX_LIMIT: Final = 223
"""How much of the owner's name a revision is named after."""
ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters that cannot form words, as in Kubernetes' SafeEncodeString."""


def snapshot_of(resource: Resource[Any], owner: Object) -> dict[str, Any]:
    """A strategic merge patch that gives an owner the template which it has now.

    Keys are sorted, as kubectl compares bytes to find out whether a rollback changes anything.
    """
    template = resource.to_document(owner)["spec"]["template"]
    ordered: dict[str, Any] = _sorted({"spec": {"template": template | {"$patch": "replace"}}})
    return ordered


def template_of(revision: ControllerRevision) -> PodTemplateSpec:
    """The template that a revision is about."""
    data: Any = revision.data
    template = {k: v for k, v in data["spec"]["template"].items() if k != "$patch"}
    return msgspec.convert(template, PodTemplateSpec, dec_hook=dec_hook)


def hash_of(snapshot: Mapping[str, Any], collisions: int = 0) -> str:
    """A short name for a snapshot: its FNV-1 hash, in harmless letters."""
    value = 0x811C9DC5
    for byte in msgspec.json.encode(snapshot) + str(collisions).encode():
        value = (value * 0x01000193) & 0xFFFFFFFF ^ byte
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(value))


def in_order(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Oldest first."""

    def age(each: ControllerRevision) -> tuple[int, str, str]:
        return each.revision, each.metadata.creationTimestamp, each.metadata.name

    return sorted(revisions, key=age)


class Revisions(msgspec.Struct, frozen=True):
    """The update revision of a workload, its current one, and the older ones."""

    present: ControllerRevision
    past: Sequence[ControllerRevision]
    """The others, oldest first."""
    collisions: int
    """How often a name was taken by something else, so far."""


class History:
    """The revisions of all owners of one kind."""

    def __init__(
        self,
        client: Client,
        owners: Resource[Any],
        known: ObjectCache[ControllerRevision],
        *,
        hash_label: str,
    ) -> None:
        """`hash_label` is the label under which a revision keeps its hash."""
        self._client = client
        self._owners = owners
        self._known = known
        self._hash_label = hash_label
        self._claims = Adoption(client, owners, RESOURCE, known)
        self._orphans = known.by(_orphaned_in)

    async def of(
        self,
        owner: Object,
        selector: LabelSelector | None,
        template: PodTemplateSpec,
        collisions: int,
    ) -> Revisions:
        """Return the revisions of an owner; create the one of its current template if needed."""
        meta = owner.metadata
        matches = compiled(selector).matches
        candidates = self._known.owned(meta.uid) + self._orphans.get(meta.namespace)
        found = in_order(
            await self._claims.settle(owner, lambda each: matches(each.metadata.labels), candidates)
        )
        snapshot = snapshot_of(self._owners, owner)
        equal = [each for each in found if each.data == snapshot]
        others = [each for each in found if each.data != snapshot]
        number = max((each.revision for each in others), default=0) + 1
        if equal:
            present = await self._renumbered(equal[-1], number)
        else:
            present, collisions = await self._made(owner, template, snapshot, number, collisions)
        past = [each for each in found if each.metadata.name != present.metadata.name]
        return Revisions(present, past, collisions)

    async def forget(self, revisions: Iterable[ControllerRevision]) -> None:
        for each in revisions:
            meta = each.metadata
            options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
            try:
                await self._client.delete(RESOURCE, meta.name, meta.namespace, options=options)
            except StatusError as error:
                if error.code not in (404, 409):
                    raise
            await self._known.until(key_of(each), partial(_is_gone, meta.uid))

    async def _renumbered(self, revision: ControllerRevision, number: int) -> ControllerRevision:
        """A revision that comes back becomes the latest."""
        if revision.revision >= number:
            return revision
        changed = await self._client.update(RESOURCE, replace(revision, revision=number))
        await self._known.written(changed)
        return changed

    async def _made(
        self,
        owner: Object,
        template: PodTemplateSpec,
        snapshot: dict[str, Any],
        number: int,
        collisions: int,
    ) -> tuple[ControllerRevision, int]:
        meta = owner.metadata
        while True:
            digest = hash_of(snapshot, collisions)
            revision = ControllerRevision(
                metadata=ObjectMeta(
                    name=f"{meta.name[:PREFIX_LIMIT]}-{digest}",
                    namespace=meta.namespace,
                    labels={**template.metadata.labels, self._hash_label: digest},
                    annotations=meta.annotations,
                    ownerReferences=[owned_by(self._owners, owner)],
                ),
                data=snapshot,
                revision=number,
            )
            try:
                made = await self._client.create(RESOURCE, revision)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
                made = await self._client.get(RESOURCE, revision.metadata.name, meta.namespace)
                if not _is_ours(made, owner) or made.data != snapshot:
                    collisions += 1
                    continue
            await self._known.written(made)
            return made, collisions


def _is_ours(revision: ControllerRevision, owner: Object) -> bool:
    manager = controller_of(revision)
    return manager is not None and manager.uid == owner.metadata.uid


def _is_gone(uid: str, now: ControllerRevision | None) -> bool:
    return now is None or now.metadata.uid != uid or bool(now.metadata.deletionTimestamp)


def _orphaned_in(revision: ControllerRevision) -> str | None:
    return None if controller_of(revision) else revision.metadata.namespace


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(each) for each in value]
    return value
