"""DefaultIngressClass: an Ingress that names no class gets the default one."""

from typing import Any, Final

from kedge.api.builtin.content import text, with_spec
from kedge.api.model import Document, Object
from kedge.apiserver.admission.chain import Attempt, MutatingPlugin
from kedge.apiserver.watchcache import ResourceCache

DEFAULT_ANNOTATION: Final = "ingressclass.kubernetes.io/is-default-class"
CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
"""How an Ingress named its class before it had a field for it."""


class DefaultIngressClass(MutatingPlugin):
    """Sets the class of an Ingress that names none to the default IngressClass."""

    name = "DefaultIngressClass"

    def __init__(self, classes: ResourceCache) -> None:
        self._classes = classes

    async def mutate(self, attempt: Attempt) -> Object | None:
        ingress = attempt.object
        if not isinstance(ingress, Document) or not _is_new_ingress(attempt):
            return ingress
        spec = ingress.content.get("spec") or {}
        if "ingressClassName" in spec or CLASS_ANNOTATION in ingress.metadata.annotations:
            return ingress
        name = self._default()
        return with_spec(ingress, {**spec, "ingressClassName": name}) if name else ingress

    def _default(self) -> str:
        """Return the default class: of several the newest, then the first by name."""
        metas = [item.document()["metadata"] for item in self._classes.values()]
        defaults = sorted((meta for meta in metas if _is_default(meta)), key=_name)
        defaults.sort(key=_created, reverse=True)
        return _name(defaults[0]) if defaults else ""


def _is_new_ingress(attempt: Attempt) -> bool:
    resource = attempt.request.resource
    is_ingress = (resource.group, resource.plural) == ("networking.k8s.io", "ingresses")
    return is_ingress and attempt.operation == "CREATE" and not attempt.request.subresource


def _is_default(meta: dict[str, Any]) -> bool:
    return (meta.get("annotations") or {}).get(DEFAULT_ANNOTATION) == "true"


def _name(meta: dict[str, Any]) -> str:
    return text(meta, "name")


def _created(meta: dict[str, Any]) -> str:
    return text(meta, "creationTimestamp")
