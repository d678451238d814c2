"""The checks of the level restricted, in addition to those of baseline."""

from collections.abc import Callable
from typing import Final

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.security import PodSecurityContext, SecurityContext
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.volume.volume import Volume
from kedge.api.pod_security import baseline
from kedge.api.pod_security.baseline import Annotations, added_capabilities
from kedge.api.pod_security.wording import (
    PodSecurityViolation,
    containers_of,
    number,
    of_containers,
    quoted_list,
    setters,
)

_VOLUMES: Final = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
_OTHER_VOLUMES: Final = tuple(
    name for name in Volume.__struct_fields__ if name not in (*_VOLUMES, "name")
)
_NET_BIND: Final = frozenset(("NET_BIND_SERVICE",))


def escalation(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Require that no program gets more privileges than its parent."""
    names = _lacking(spec, lambda context: context.allowPrivilegeEscalation is False)
    if not names:
        return None
    what = "must set securityContext.allowPrivilegeEscalation=false"
    return PodSecurityViolation(
        "allowPrivilegeEscalation != false", f"{of_containers(names)} {what}"
    )


def capabilities(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Require that all capabilities are dropped; only NET_BIND_SERVICE may be added."""
    details = []
    if names := _lacking(spec, _drops_all):
        details.append(f'{of_containers(names)} must set securityContext.capabilities.drop=["ALL"]')
    adding, added = added_capabilities(spec, _NET_BIND)
    if adding:
        what = f"must not include {quoted_list(added)} in securityContext.capabilities.add"
        details.append(f"{of_containers(adding)} {what}")
    if not details:
        return None
    return PodSecurityViolation("unrestricted capabilities", "; ".join(details))


def _drops_all(context: SecurityContext) -> bool:
    return context.capabilities is not None and "ALL" in context.capabilities.drop


def _lacking(spec: PodSpec, is_enough: Callable[[SecurityContext], bool]) -> list[str]:
    """Return the containers whose security context is missing or not enough."""

    def lacks(container: Container) -> bool:
        return container.securityContext is None or not is_enough(container.securityContext)

    return [each.name for each in containers_of(spec) if lacks(each)]


def volumes(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Allow only volumes that give no access to the node or to network storage."""
    bad = {
        volume.name: _source(volume)
        for volume in spec.volumes
        if all(getattr(volume, name) is None for name in _VOLUMES)
    }
    if not bad:
        return None
    kinds = sorted({*bad.values()})
    noun = number(len(kinds), "restricted volume type", "restricted volume types")
    who = f"{number(len(bad), 'volume', 'volumes')} {quoted_list([*bad])}"
    detail = f"{who} {number(len(bad), 'uses', 'use')} {noun} {quoted_list(kinds)}"
    return PodSecurityViolation("restricted volume types", detail)


def _source(volume: Volume) -> str:
    found = (name for name in _OTHER_VOLUMES if getattr(volume, name) is not None)
    return next(found, "unknown")


def non_root(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Require users other than root."""
    reason = "runAsNonRoot != true"
    of_pod = spec.securityContext.runAsNonRoot if spec.securityContext else None
    given = {
        each.name: each.securityContext.runAsNonRoot if each.securityContext else None
        for each in containers_of(spec)
    }
    refusing = [name for name, value in given.items() if value is False]
    if who := setters(of_pod is False, refusing):
        return PodSecurityViolation(
            reason, f"{who} must not set securityContext.runAsNonRoot=false"
        )
    silent = [name for name, value in given.items() if value is None]
    if of_pod or not silent:
        return None
    what = "must set securityContext.runAsNonRoot=true"
    return PodSecurityViolation(reason, f"pod or {of_containers(silent)} {what}")


def user(_: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Forbid user 0 by name."""

    def is_root(context: PodSecurityContext | SecurityContext | None) -> bool:
        return context is not None and context.runAsUser == 0

    names = [each.name for each in containers_of(spec) if is_root(each.securityContext)]
    who = setters(is_root(spec.securityContext), names)
    return PodSecurityViolation("runAsUser=0", f"{who} must not set runAsUser=0") if who else None


def seccomp(annotations: Annotations, spec: PodSpec) -> PodSecurityViolation | None:
    """Require a seccomp profile."""
    if found := baseline.seccomp(annotations, spec):
        return found
    if spec.securityContext and spec.securityContext.seccompProfile:
        return None
    silent = _lacking(spec, lambda context: context.seccompProfile is not None)
    if not silent:
        return None
    what = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return PodSecurityViolation("seccompProfile", f"pod or {of_containers(silent)} {what}")
