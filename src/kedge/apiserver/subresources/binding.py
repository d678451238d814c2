"""pods/binding: the scheduler's word on which node a pod runs."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kedge.api.model import Document, Object, ObjectMeta
from kedge.apiserver import render
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.verbs import decode, write
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.apiserver.verbs.write import ObjectPart
from kedge.machinery.errors import FieldError, bad_request, conflict, invalid
from kedge.web.message import Response

SUCCESS = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


async def serve(api: Api, request: Request) -> Response:
    """POST to a pod's binding."""
    binding = read_binding(api, request)
    admitted = await admit_posted(api, request, binding, "v1", "Binding")
    return await bind(api, request, binding, admitted.metadata.labels)


async def serve_collection(api: Api, request: Request) -> Response:
    """POST to /bindings: the older spelling, where the body names the pod."""
    binding = decode.posted_small(request, "CreateOptions")
    pods = api.catalog.find("", "v1", "pods")
    assert pods is not None
    name = (binding.get("metadata") or {}).get("name", "")
    request.name = name
    admitted = await admit_posted(api, request, binding, "v1", "Binding")
    about = Request(request.http, request.user, pods, "create", request.namespace, name, "binding")
    return await bind(api, about, binding, admitted.metadata.labels)


def read_binding(api: Api, request: Request) -> dict[str, Any]:
    kind = api.catalog.find("", "v1", "bindings")
    assert kind is not None
    posted = Request(request.http, request.user, kind, "create", request.namespace, request.name)
    binding = decode.posted_small(posted, "CreateOptions")
    name = (binding.get("metadata") or {}).get("name", "")
    if name and name != request.name:
        raise bad_request(f"name in URL does not match name in Binding object: {name}")
    return binding


async def bind(
    api: Api, request: Request, binding: dict[str, Any], labels: Mapping[str, str]
) -> Response:
    """Put the pod on a node; it gets the binding's labels and annotations."""
    target = binding.get("target") or {}
    errors = []
    if target.get("kind") not in (None, "", "Node"):
        errors.append(FieldError.not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        errors.append(FieldError.required("target.name"))
    if errors:
        raise invalid("", "Binding", request.name, errors)

    def assigned(live: dict[str, Any]) -> DesiredDocument:
        return DesiredDocument(_assign(request, live, binding, labels, api.timestamp()))

    await write.modify(api, request, assigned, BOUND, "CreateOptions")
    return render.status(request.http, SUCCESS, 201)


def _assign(
    request: Request,
    live: dict[str, Any],
    binding: dict[str, Any],
    labels: Mapping[str, str],
    now: str,
) -> dict[str, Any]:
    node = binding["target"]["name"]
    spec, meta = live["spec"], live["metadata"]
    uid = (binding.get("metadata") or {}).get("uid") or meta["uid"]
    if uid != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        raise conflict("", "pods/binding", request.name, why)
    if meta.get("deletionTimestamp"):
        why = f"pod {request.name} is being deleted, cannot be assigned to a host"
        raise conflict("", "pods/binding", request.name, why)
    if spec.get("nodeName"):
        why = f'pod {request.name} is already assigned to node "{spec["nodeName"]}"'
        raise conflict("", "pods/binding", request.name, why)
    if spec.get("schedulingGates"):
        why = f"pod {request.name} has non-empty .spec.schedulingGates"
        raise conflict("", "pods/binding", request.name, why)
    status = live.get("status") or {}
    others = [c for c in status.get("conditions", ()) if c.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    annotations = (binding.get("metadata") or {}).get("annotations") or {}
    given = {"annotations": annotations, "labels": labels}
    merged = {name: {**(meta.get(name) or {}), **more} for name, more in given.items() if more}
    bound = dict(live, spec=spec | {"nodeName": node})
    bound["status"] = status | {"conditions": [*others, scheduled]}
    bound["metadata"] = meta | merged
    return bound


BOUND = ObjectPart(
    "binding",
    lambda resource, new, old: new,
    lambda resource, new, old: iter(()),
    write.MAIN.ignored,
    shown=lambda resource, obj: None,
    counts=False,
)


async def admit_posted(
    api: Api, request: Request, document: dict[str, Any], api_version: str, kind: str
) -> Object:
    """Ask admission about an object that is posted to a subresource and never stored; the object
    as admission leaves it."""
    content = {k: v for k, v in document.items() if k not in ("apiVersion", "kind", "metadata")}
    given = {k: v for k, v in (document.get("metadata") or {}).items() if v is not None}
    meta = given | {"name": request.name, "namespace": request.namespace}
    try:
        read = msgspec.convert(meta, ObjectMeta)
    except msgspec.ValidationError as error:
        raise bad_request(f"cannot read the metadata of the {kind}: {error}") from None
    posted = Document(
        apiVersion=document.get("apiVersion") or api_version,
        kind=kind,
        metadata=read,
        content=content,
    )
    admitted = await api.admission.mutate(Attempt(request, "CREATE", posted))
    assert admitted is not None
    await api.admission.validate(Attempt(request, "CREATE", admitted))
    return admitted
