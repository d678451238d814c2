"""JSON of objects and lists in one group and version, in pieces that are written one at a time."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from kedge.metrics.collection import AT_ONCE, Collection, Writer
from kedge.metrics.selection import UsageSelection
from kedge.metrics.serve.encoding import USAGE_BEGINNING, beginning
from kedge.metrics.usage_object import UsageObject

KEPT_UP_TO: Final = 2_000
"""Objects in a list whose body is kept for the next reader."""


class ListForm(NamedTuple):
    """A kind in one group and version."""

    kind: str
    list_kind: str
    api_version: str
    window: str
    """The window of metrics.k8s.io; empty for metrics/v1alpha1, which has all windows."""
    has_details: bool = True
    """Whether the client wants more than cpu and memory."""

    def write(self) -> Writer:
        """The function that makes the JSON of objects in this form."""
        if self.window:
            return partial(_usages, self.window)
        return _bodies if self.has_details else _core_bodies

    @property
    def beginning(self) -> bytes:
        """Return the bytes that precede the metadata of a list element."""
        return USAGE_BEGINNING if self.window else beginning(self.kind)


def one(form: ListForm, found: UsageObject) -> bytes:
    """The JSON of a single object, with its kind."""
    if not form.window:
        return found.body()
    head = f'{{"kind":"{form.kind}","apiVersion":"{form.api_version}",'
    return head.encode() + found.usage(form.window)[1:]


def whole(
    form: ListForm, collection: Collection, selection: UsageSelection, metadata: Any
) -> bytes | Iterable[bytes]:
    """The list of all objects, or of all in a namespace; kept until the next change.

    A long list is not kept: by the time it is sent the next node has reported, and a second copy of
    everything would wait for a reader that never comes. Its objects keep their JSON instead. Nor is
    a list of costly objects, which are made one by one as it is sent.
    """
    key = (form.api_version, selection.namespace)
    kept = collection.lists.get(key)
    if kept is not None:
        return kept
    objects = collection.select(selection)
    fresh = pieces(form, objects, metadata, collection.at_once)
    if collection.at_once < AT_ONCE:
        return fresh
    if len(objects) > KEPT_UP_TO:
        collection.keep_ready(form.api_version, form.write())
        return fresh
    collection.lists[key] = kept = fresh if isinstance(fresh, bytes) else list(fresh)
    return kept


def pieces(
    form: ListForm, objects: Sequence[UsageObject], metadata: Any, at_once: int = AT_ONCE
) -> bytes | Iterable[bytes]:
    """The list of these objects; a short one in one piece, which is sent at once."""
    head: dict[str, Any] = {"kind": form.list_kind, "apiVersion": form.api_version}
    encoded = msgspec.json.encode(head | {"metadata": metadata, "items": []})
    made = _joined(encoded[:-2], form, objects, at_once)
    return next(made) if len(objects) <= at_once else made


def _joined(
    head: bytes, form: ListForm, objects: Sequence[UsageObject], at_once: int
) -> Iterator[bytes]:
    """The list, in pieces. JSON that does not exist yet is made when its piece is due, so that
    other requests are served in between."""
    write, start = form.write(), form.beginning
    last = max(0, len(objects) - 1) // at_once * at_once
    for at in range(0, last, at_once):
        yield head + _items(start, *write(objects[at : at + at_once]))
        head = b","
    yield head + _items(start, *write(objects[last:])) + b"]}\n"


def _items(start: bytes, metadata: list[bytes], rests: list[bytes]) -> bytes:
    """Objects, separated by commas."""
    made = [b"," + start] * (3 * len(rests))
    made[:1] = [start] if rests else []
    made[1::3] = metadata
    made[2::3] = rests
    return b"".join(made)


def _usages(window: str, objects: Sequence[UsageObject]) -> tuple[list[bytes], list[bytes]]:
    rests = [each.kept_usage or each.usage_rest(window) for each in objects]
    return _metadata(objects), rests


def _bodies(objects: Sequence[UsageObject]) -> tuple[list[bytes], list[bytes]]:
    return _metadata(objects), [each.kept_rest or each.rest() for each in objects]


def _core_bodies(objects: Sequence[UsageObject]) -> tuple[list[bytes], list[bytes]]:
    return _metadata(objects), [each.core_rest() for each in objects]


def _metadata(objects: Sequence[UsageObject]) -> list[bytes]:
    return [each.kept_metadata or each.metadata() for each in objects]
