"""Objects that a webhook or a policy has patched, in the form in which the server goes on."""

from typing import Any

from msgspec.structs import replace

from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.apiserver import prepare
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.body import check_depth
from kedge.apiserver.verbs import decode, type_meta
from kedge.machinery.errors import bad_request


def fitted(resource: Resource[Any], document: Any, unknown: list[str]) -> dict[str, Any]:
    """Reduce a patched document to the fields that the kind declares; others go to `unknown`."""
    if not isinstance(document, dict):
        raise bad_request("the patched object is not an object")
    check_depth(document)
    type_meta.check(resource, document)
    shaped = decode.shape(resource, document, unknown)
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    return head | {"metadata": {}} | shaped | head


def settled(attempt: Attempt, obj: Object) -> Object:
    """Return a patched object whose fields that only the server sets are as they were."""
    before, request = attempt.object, attempt.request
    assert before is not None
    was, now = before.metadata, obj.metadata
    if now.namespace != was.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    kept = replace(
        now,
        uid=was.uid,
        creationTimestamp=was.creationTimestamp,
        generation=was.generation,
        deletionTimestamp=was.deletionTimestamp,
        deletionGracePeriodSeconds=was.deletionGracePeriodSeconds,
        resourceVersion=was.resourceVersion,
        managedFields=was.managedFields,
        selfLink="",
    )
    result = replace(obj, metadata=kept)
    if request.subresource == "status" or request.resource.strategy.keeps_posted_status:
        return result
    return prepare.with_status_of(request.resource, result, before)
