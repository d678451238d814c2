"""Which kind is described by which file; a kind that is not listed is described as anything."""

from collections.abc import Callable, Mapping
from typing import Final

from kedge.cli.descriptions import any_object, claim, event, limit_range, node, pod, secret
from kedge.cli.descriptions.parts import Fields, RelatedObjects

Describer = Callable[[Fields, RelatedObjects], str]

KINDS: Final[Mapping[tuple[str, str], Describer]] = {
    ("v1", "Pod"): pod.describe,
    ("v1", "PersistentVolumeClaim"): claim.describe,
    ("v1", "Node"): node.describe,
    ("v1", "Event"): event.describe,
    ("events.k8s.io/v1", "Event"): event.describe,
    ("v1", "LimitRange"): limit_range.describe,
    ("v1", "Secret"): secret.describe,
}


def describe(document: Fields, about: RelatedObjects) -> str:
    """The object for people to read."""
    which = (document["apiVersion"], document["kind"])
    return KINDS.get(which, any_object.describe)(document, about)
