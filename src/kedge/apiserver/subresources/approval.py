"""certificatesigningrequests/approval: only the conditions may change."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from kedge.api import metadata
from kedge.api.builtin.signing_requests import condition_errors
from kedge.api.model import Document, Object
from kedge.api.resource import Resource
from kedge.apiserver.verbs.write import ObjectPart, all_but_status
from kedge.machinery.errors import FieldError


def _take(resource: Resource[Any], new: Object, old: Object) -> Object:
    assert isinstance(new, Document)
    assert isinstance(old, Document)
    status = dict(old.content.get("status") or {})
    conditions = (new.content.get("status") or {}).get("conditions")
    if conditions:
        status["conditions"] = conditions
    return replace(new, content=old.content | {"status": status})


def _validate(resource: Resource[Any], new: Object, old: Object) -> Iterator[FieldError]:
    assert isinstance(new, Document)
    assert isinstance(old, Document)
    yield from metadata.validate_update(new.metadata, old.metadata)
    yield from condition_errors(new, old)


APPROVAL = ObjectPart("approval", _take, _validate, all_but_status)
