"""ObjectViews: whole objects, decoded once for all informers of a process."""

from collections.abc import Callable
from typing import Any, Final, Generic

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.resource import Resource, T
from kedge.client.view import View

LARGE: Final = 64 << 10
"""An object of so many bytes is decoded for each informer: that happens in threads."""
MOST: Final = 500
"""Decoded objects that wait for their other readers. One that is a little behind finds its own."""


class ObjectViews:
    """Views whose readers share the objects: scheduler, controllers and simulated nodes all follow
    pods, and a decoded pod takes four times the memory of its JSON."""

    def __init__(self) -> None:
        self._decoders: dict[tuple[str, str], _SharedDecoder[Any]] = {}

    def of(self, resource: Resource[T]) -> View[T]:
        """Return a view for one more reader of a resource: objects without managed fields.

        These take much memory and no reader decides by them. A write without them leaves them as
        they are.
        """
        name = resource.group, resource.plural
        decoder = self._decoders.get(name)
        if decoder is None:
            decoder = self._decoders[name] = _SharedDecoder(_trimmed(resource))
        decoder.readers += 1
        return View(resource, decoder.decode)


class _SharedDecoder(Generic[T]):
    """Keeps what it has decoded until all readers have it."""

    def __init__(self, decode: Callable[[bytes], T]) -> None:
        self.readers = 0
        self._decode = decode
        self._waiting: dict[bytes, tuple[T, int]] = {}
        """By encoded object: the object, and how many readers still want it. A server in the same
        process hands the same bytes to all of them, unless they are shortened, so that few look-ups
        compare bytes."""

    def decode(self, body: bytes) -> T:
        if self.readers < 2 or type(body) is not bytes or len(body) >= LARGE:
            return self._decode(body)
        if body in self._waiting:
            obj, left = self._waiting.pop(body)
        else:
            obj, left = self._decode(body), self.readers
        if left > 1:
            self._waiting[body] = obj, left - 1
            if len(self._waiting) > MOST:
                # Its reader selects other objects, or lags behind.
                del self._waiting[next(iter(self._waiting))]
        return obj


def _trimmed(resource: Resource[T]) -> Callable[[bytes], T]:
    """Return the function that decodes an object and leaves its managed fields out."""
    if resource.type is not Pod:
        return lambda body: _without_managed_fields(resource.decode(body))
    # Imported here: a server that starts has no informers.
    from kedge.client.alike_pods import AlikePods

    alike: Callable[[Any], Any] = AlikePods().trimmed

    def decode(body: bytes) -> T:
        # Large ones are decoded in threads, and nothing else is shared with those.
        trim = alike if len(body) < LARGE else _without_managed_fields
        pod: T = trim(resource.decode(body))
        return pod

    return decode


def _without_managed_fields(obj: T) -> T:
    return replace(obj, metadata=replace(obj.metadata, managedFields=()))
