"""metrics.k8s.io: one value for each resource, as `kubectl top` and autoscalers read it."""

from typing import Any, Final

from kedge.api.resource import Resource
from kedge.metrics.collection import Entry

GROUP: Final = "metrics.k8s.io"


def one(resource: Resource[Any], entry: Entry, window: str) -> bytes:
    """An object that stands alone, and so says what it is."""
    head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
    return head.encode() + entry.usage(window)[1:]
