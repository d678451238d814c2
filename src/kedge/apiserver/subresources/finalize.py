"""namespaces/finalize: the namespace controller says that nothing is left inside."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from kedge.api.core_v1.namespace import Namespace
from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.apiserver.verbs.write import ObjectPart, only_status
from kedge.machinery.errors import FieldError


def _take(resource: Resource[Any], new: Object, old: Object) -> Object:
    assert isinstance(new, Namespace)
    assert isinstance(old, Namespace)
    return replace(old, spec=replace(old.spec, finalizers=new.spec.finalizers))


def _validate(resource: Resource[Any], new: Object, old: Object) -> Iterator[FieldError]:
    return iter(resource.strategy.validate(new))


FINALIZE = ObjectPart("finalize", _take, _validate, only_status)
