"""Reviews as an API server sends them."""

from typing import Any

from kedge.admission_webhook.limit_ranges import RESOURCE, LimitRangesByNamespace
from kedge.admission_webhook.review import ReviewRequest, ReviewResource
from kedge.api.core_v1.limit_range import LimitRange
from kedge.api.limits.bounds import NamespaceLimits

Document = dict[str, Any]


def container(name: str = "main", **fields: Any) -> Document:
    return {"name": name, "image": "busybox", **fields}


def field(path: str) -> Document:
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


def variable(path: str, name: str = "A") -> Document:
    return {"name": name, "valueFrom": field(path)}


def pod(*containers: Document, labels: dict[str, str] | None = None, **spec: Any) -> Document:
    meta: Document = {"name": "web", "namespace": "shop"}
    if labels:
        meta["labels"] = labels
    return {"metadata": meta, "spec": {"containers": list(containers), **spec}}


def of_pod(document: Document, operation: str = "CREATE", sub: str = "") -> ReviewRequest:
    return ReviewRequest("u-1", ReviewResource("v1", "pods"), operation, sub, "", "shop", document)


def of(
    group: str, plural: str, document: Document, operation: str = "CREATE", sub: str = ""
) -> ReviewRequest:
    resource = ReviewResource("v1", plural, group)
    return ReviewRequest("u-1", resource, operation, sub, "", "shop", document)


def limit_range(*items: Document, name: str = "limits") -> LimitRange:
    document = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"limits": list(items)}}
    return RESOURCE.from_document(document)


def limits(*items: Document) -> NamespaceLimits | None:
    known = LimitRangesByNamespace()
    known.put(limit_range(*items))
    return known.bounds("shop")
