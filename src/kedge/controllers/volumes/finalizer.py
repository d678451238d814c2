"""The finalizers of an object, with one more or one less."""

from collections.abc import Sequence

from kedge.api.model import Object


def with_finalizer(obj: Object, finalizer: str) -> Sequence[str] | None:
    """Return the finalizers of a live object that lacks one; None if it needs no change."""
    meta = obj.metadata
    if meta.deletionTimestamp or finalizer in meta.finalizers:
        return None
    return [*meta.finalizers, finalizer]


def without_finalizer(obj: Object, finalizer: str) -> Sequence[str] | None:
    """Return the other finalizers of an object that is being deleted; None for no change."""
    meta = obj.metadata
    if not meta.deletionTimestamp or finalizer not in meta.finalizers:
        return None
    return [each for each in meta.finalizers if each != finalizer]
