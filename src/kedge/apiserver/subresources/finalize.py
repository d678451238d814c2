"""namespaces/finalize: the namespace controller says that nothing is left inside."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from kedge.api.core_v1.namespace import Namespace
from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.subresources import part
from kedge.apiserver.verbs.write import Part, only_status
from kedge.machinery.errors import FieldError
from kedge.web.message import Response


def _take(resource: Resource[Any], new: Object, old: Object) -> Object:
    assert isinstance(new, Namespace)
    assert isinstance(old, Namespace)
    return replace(old, spec=replace(old.spec, finalizers=new.spec.finalizers))


def _validate(resource: Resource[Any], new: Object, old: Object) -> Iterator[FieldError]:
    return iter(resource.strategy.validate(new))


FINALIZE = Part("finalize", _take, _validate, only_status)


async def serve(api: Api, request: Request) -> Response:
    return await part.serve(api, request, FINALIZE)
