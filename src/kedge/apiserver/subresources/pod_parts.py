"""pods/ephemeralcontainers and pods/resize: the parts of a pod that may change later."""

from collections.abc import Iterator
from typing import Any

from kedge.api import metadata
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resize import only_resources, validate_resize
from kedge.api.core_v1.pod.update import only_ephemeral, validate_ephemeral
from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.apiserver.verbs.write import ObjectPart, only_status
from kedge.machinery.errors import FieldError


def _take_ephemeral(resource: Resource[Any], new: Object, old: Object) -> Object:
    assert isinstance(new, Pod)
    assert isinstance(old, Pod)
    return only_ephemeral(new, old)


def _validate_ephemeral(resource: Resource[Any], new: Object, old: Object) -> Iterator[FieldError]:
    assert isinstance(new, Pod)
    assert isinstance(old, Pod)
    yield from metadata.validate_update(new.metadata, old.metadata)
    yield from resource.strategy.validate(new)
    yield from validate_ephemeral(new, old)


def _take_resized(resource: Resource[Any], new: Object, old: Object) -> Object:
    assert isinstance(new, Pod)
    assert isinstance(old, Pod)
    return only_resources(new, old)


def _validate_resize(resource: Resource[Any], new: Object, old: Object) -> Iterator[FieldError]:
    assert isinstance(new, Pod)
    assert isinstance(old, Pod)
    yield from metadata.validate_update(new.metadata, old.metadata)
    yield from resource.strategy.validate(new)
    yield from validate_resize(new, old)


EPHEMERAL = ObjectPart("ephemeralcontainers", _take_ephemeral, _validate_ephemeral, only_status)
RESIZE = ObjectPart("resize", _take_resized, _validate_resize, only_status)
