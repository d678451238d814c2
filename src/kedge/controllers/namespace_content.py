"""The result of deleting the content of a namespace, and the conditions that show it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.namespace import NamespaceCondition
from kedge.api.resource import Resource
from kedge.client.view import Outline

MESSAGE_LIMIT = 32768
DISCOVERY = "NamespaceDeletionDiscoveryFailure"
PARSING = "NamespaceDeletionGroupVersionParsingFailure"
DELETION = "NamespaceDeletionContentFailure"
CONTENT = "NamespaceContentRemaining"
FINALIZERS = "NamespaceFinalizersRemaining"

FINE = {
    DISCOVERY: ("ResourcesDiscovered", "All resources successfully discovered"),
    PARSING: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    DELETION: (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    CONTENT: ("ContentRemoved", "All content successfully removed"),
    FINALIZERS: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""The reason and message of each condition while it is False."""


class RemainingObjects(msgspec.Struct, frozen=True):
    """Deleted objects of one resource that still exist."""

    resource: Resource[Any]
    objects: Sequence[Outline]
    version: str
    """The moment at which they were seen."""


class ContentDeletion(msgspec.Struct):
    """The result of one attempt to delete the content of a namespace."""

    leftovers: list[RemainingObjects] = msgspec.field(default_factory=list)
    failures: list[str] = msgspec.field(default_factory=list)
    undiscovered: str = ""
    """Why the server would not say what it serves."""

    @property
    def empty(self) -> bool:
        return not (self.leftovers or self.failures or self.undiscovered)


def undiscovered(stale: Sequence[str]) -> str:
    """The complaint about versions whose resources are not known, in upstream's words; "" if there
    are none."""
    if not stale:
        return ""
    listed = ", ".join(f"{each}: stale GroupVersion discovery: {each}" for each in stale)
    return f"unable to retrieve the complete list of server APIs: {listed}"


def unexpected(namespace: str, leftover: RemainingObjects) -> str:
    """The complaint about objects that stay although nothing holds them; "" if there are none."""
    if all(_held(obj) for obj in leftover.objects):
        return ""
    resource = leftover.resource
    kind = f"{resource.group}/{resource.version}, Resource={resource.plural}"
    return f"unexpected items still remain in namespace: {namespace} for gvr: {kind}"


def _held(obj: Outline) -> bool:
    """Whether there is a reason for the object to be still there."""
    return bool(obj.metadata.finalizers or obj.metadata.deletion_timestamp)


def conditions(findings: ContentDeletion) -> list[NamespaceCondition]:
    """The findings, in upstream's words."""
    troubles = dict(_troubles(findings))
    return [
        NamespaceCondition(
            type=type_, status="True", reason=troubles[type_][0], message=troubles[type_][1]
        )
        if type_ in troubles
        else NamespaceCondition(type=type_, status="False", reason=reason, message=message)
        for type_, (reason, message) in FINE.items()
    ]


def _troubles(findings: ContentDeletion) -> Iterable[tuple[str, tuple[str, str]]]:
    if findings.undiscovered:
        yield DISCOVERY, ("DiscoveryFailed", findings.undiscovered)
    if findings.failures:
        texts = ", ".join(sorted(findings.failures))
        count = len(findings.failures)
        message = f"Failed to delete all resource types, {count} remaining: {texts}"
        yield DELETION, ("ContentDeletionFailed", _cut(message))
    if findings.leftovers:
        texts = ", ".join(sorted(map(_counted, findings.leftovers)))
        yield CONTENT, ("SomeResourcesRemain", f"Some resources are remaining: {texts}")
    holding = Counter(
        finalizer
        for leftover in findings.leftovers
        for obj in leftover.objects
        for finalizer in obj.metadata.finalizers
    )
    if holding:
        texts = ", ".join(
            sorted(f"{name} in {n} resource instances" for name, n in holding.items())
        )
        message = f"Some content in the namespace has finalizers remaining: {texts}"
        yield FINALIZERS, ("SomeFinalizersRemain", _cut(message))


def _cut(message: str) -> str:
    """Cut a message to the limit of conditions: users choose the number and length of
    finalizers."""
    return message if len(message) <= MESSAGE_LIMIT else f"{message[: MESSAGE_LIMIT - 4]} ..."


def _counted(leftover: RemainingObjects) -> str:
    # The dot stands there for the core group too, where nothing follows it; upstream's is the same.
    name = f"{leftover.resource.plural}.{leftover.resource.group}"
    return f"{name} has {len(leftover.objects)} resource instances"


def merged(
    old: Sequence[NamespaceCondition], new: Sequence[NamespaceCondition], now: str
) -> list[NamespaceCondition]:
    """The new conditions in the place of the old; others stay, and so does the time of a status."""
    fresh = {condition.type: condition for condition in new}
    result = []
    for before in old:
        after = fresh.pop(before.type, before)
        changed = after.status != before.status
        since = now if changed else before.lastTransitionTime
        result.append(replace(after, lastTransitionTime=since))
    added = [replace(condition, lastTransitionTime=now) for condition in fresh.values()]
    return result + added
