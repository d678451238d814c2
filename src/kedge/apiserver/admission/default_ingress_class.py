"""DefaultIngressClass: an Ingress without a class gets the default one."""

from typing import Any, Final

from msgspec.structs import replace

from kedge.api.model import Document, Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.watchcache import ResourceCache

_IS_DEFAULT: Final = "ingressclass.kubernetes.io/is-default-class"
_LEGACY: Final = "kubernetes.io/ingress.class"


class DefaultIngressClass:
    """Sets the class of an Ingress that names none to the default IngressClass."""

    name = "DefaultIngressClass"

    def __init__(self, classes: ResourceCache) -> None:
        self._classes = classes

    async def mutate(self, attempt: Attempt) -> Object | None:
        ingress, request = attempt.object, attempt.request
        if request.resource.kind != "Ingress" or not isinstance(ingress, Document):
            return ingress
        if attempt.operation != "CREATE" or request.subresource or _has_class(ingress):
            return ingress
        found = default_class([item.document() for item in self._classes.values()])
        if not found:
            return ingress
        spec = {**(ingress.content.get("spec") or {}), "ingressClassName": found}
        return replace(ingress, content={**ingress.content, "spec": spec})

    async def validate(self, attempt: Attempt) -> None:
        return None


def _has_class(ingress: Document) -> bool:
    spec = ingress.content.get("spec") or {}
    return spec.get("ingressClassName") is not None or _LEGACY in ingress.metadata.annotations


def default_class(classes: list[Any]) -> str:
    """Return the name of the default class: of several the newest, then the first by name."""
    marked = [
        each["metadata"]
        for each in classes
        if (each["metadata"].get("annotations") or {}).get(_IS_DEFAULT) == "true"
    ]
    marked.sort(key=lambda meta: str(meta["name"]))
    newest = max(marked, key=lambda meta: str(meta.get("creationTimestamp", "")), default=None)
    return str(newest["name"]) if newest else ""
