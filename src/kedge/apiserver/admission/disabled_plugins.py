"""DisabledPlugins: warns the author of an object that only a disabled admission plugin reads."""

from collections.abc import Callable, Container, Iterator
from typing import Final

from kedge.api.model import ObjectMeta
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin

_ADMISSION: Final = "admissionregistration.k8s.io"
READERS: Final = {
    (_ADMISSION, "validatingadmissionpolicies"): "ValidatingAdmissionPolicy",
    (_ADMISSION, "validatingadmissionpolicybindings"): "ValidatingAdmissionPolicy",
    (_ADMISSION, "mutatingadmissionpolicies"): "MutatingAdmissionPolicy",
    (_ADMISSION, "mutatingadmissionpolicybindings"): "MutatingAdmissionPolicy",
    (_ADMISSION, "validatingwebhookconfigurations"): "ValidatingAdmissionWebhook",
    (_ADMISSION, "mutatingwebhookconfigurations"): "MutatingAdmissionWebhook",
    ("", "limitranges"): "LimitRanger",
    ("", "resourcequotas"): "ResourceQuota",
    ("scheduling.k8s.io", "priorityclasses"): "Priority",
}
"""The plugins without which objects have no effect, by group and plural."""


def _security_label(meta: ObjectMeta) -> str:
    return next((key for key in meta.labels if key.startswith("pod-security.kubernetes.io/")), "")


def _default_class(meta: ObjectMeta) -> str:
    found = (key for key, value in meta.annotations.items() if value == "true")
    return next((key for key in found if key.endswith("/is-default-class")), "")


PARTS: Final[dict[tuple[str, str], tuple[str, Callable[[ObjectMeta], str]]]] = {
    ("", "namespaces"): ("PodSecurity", _security_label),
    ("storage.k8s.io", "storageclasses"): ("DefaultStorageClass", _default_class),
    ("networking.k8s.io", "ingressclasses"): ("DefaultIngressClass", _default_class),
}
"""The plugins without which a label or annotation of an object has no effect."""


class DisabledPlugins(ValidatingPlugin):
    """A member of the admission chain that is always on, and only warns."""

    name = "DisabledPlugins"

    def __init__(self, enabled: Container[str]) -> None:
        self._enabled = enabled

    async def validate(self, attempt: Attempt) -> None:
        request, obj = attempt.request, attempt.object
        if obj is not None and not request.subresource:
            kind = request.resource.group, request.resource.plural
            request.warnings += self._warnings(kind, obj.metadata)

    def _warnings(self, kind: tuple[str, str], meta: ObjectMeta) -> Iterator[str]:
        reader = READERS.get(kind, "")
        if reader and reader not in self._enabled:
            yield _warning("this object", reader)
        plugin, find = PARTS.get(kind, ("", None))
        if find and plugin not in self._enabled and (part := find(meta)):
            yield _warning(part, plugin)


def _warning(subject: str, plugin: str) -> str:
    return (
        f"{subject} has no effect, because the admission plugin {plugin} is disabled: start the "
        f"server with --enable-admission-plugins={plugin}"
    )
