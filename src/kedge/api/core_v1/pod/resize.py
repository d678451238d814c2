"""Rules for the resize subresource: requests and limits of a pod that may be running."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container, ResourceRequirements
from kedge.api.core_v1.pod.resources import POD_LEVEL, is_sidecar, qos_class
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.update import changed_fields, kept_metadata
from kedge.api.core_v1.pod.validation import MIRROR_POD
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity

if TYPE_CHECKING:
    from kedge.api.core_v1.pod.pod import Pod

_ONLY_AMOUNTS: Final = "only cpu and memory resources are mutable"


def only_resources(new: "Pod", old: "Pod") -> "Pod":
    """The old pod with the new one's resources: all that the subresource changes."""
    containers = _with_new_resources(new.spec.containers, old.spec.containers)
    init = _with_new_resources(new.spec.initContainers, old.spec.initContainers)
    if containers is None or init is None:
        # Left as it is, for validation to refuse.
        return new
    spec = replace(
        old.spec, resources=new.spec.resources, containers=containers, initContainers=init
    )
    return replace(new, metadata=kept_metadata(new, old), spec=spec, status=old.status)


def _with_new_resources(
    new: Sequence[Container], old: Sequence[Container]
) -> Sequence[Container] | None:
    if [container.name for container in new] != [container.name for container in old]:
        return None
    return [
        replace(before, resources=after.resources, resizePolicy=after.resizePolicy)
        for before, after in zip(old, new, strict=True)
    ]


def validate_resize(new: "Pod", old: "Pod") -> Iterator[FieldError]:
    """Everything wrong with a change of requests and limits through the resize subresource."""
    if MIRROR_POD in old.metadata.annotations:
        yield FieldError.forbidden("", "static pods cannot be resized")
        return
    if old.spec.os is not None and old.spec.os.name == "windows":
        yield FieldError.forbidden("", "windows pods cannot be resized")
        return
    if (old.status.qosClass or qos_class(old)) != qos_class(new):
        why = "Pod QOS Class may not change as a result of resizing"
        yield FieldError.invalid("spec", old.status.qosClass, why)
    if not _resizable(old):
        yield FieldError.forbidden("spec", "Pod running on node without support for resize")
    if old.status.nodeAllocatableResourceClaimStatuses:
        why = "pods with node allocatable resource claims cannot be resized"
        yield FieldError.forbidden("spec", why)
    yield from _pod_resize(new.spec, old.spec)
    if moved := list(_moved(new.spec, old.spec)):
        yield from moved
        return
    yield from _container_resizes(new.spec, old.spec)


def _resizable(pod: "Pod") -> bool:
    """A node that can resize reports the resources in force."""
    for status in pod.status.containerStatuses:
        if status.state.running is not None:
            return status.resources is not None
    return True


def _moved(new: PodSpec, old: PodSpec) -> Iterator[FieldError]:
    for field in ("containers", "initContainers"):
        after, before = getattr(new, field), getattr(old, field)
        if len(after) != len(before):
            yield FieldError.forbidden(
                f"spec.{field}", f"{field} may not be added or removed on resize"
            )
            continue
        for i, (one, other) in enumerate(zip(after, before, strict=True)):
            if one.name != other.name:
                why = f"{field} may not be renamed or reordered on resize"
                yield FieldError.forbidden(f"spec.{field}[{i}].name", why)


def _pod_resize(new: PodSpec, old: PodSpec) -> Iterator[FieldError]:
    after, before = new.resources, old.resources
    if after is None:
        if before is not None:
            yield FieldError.forbidden("spec.resources", "pod-level resources cannot be removed")
        return
    known = before if before is not None else ResourceRequirements()
    for bound in ("requests", "limits"):
        if getattr(known, bound).keys() - getattr(after, bound).keys():
            why = f"pod-level resource {bound} cannot be removed"
            yield FieldError.forbidden(f"spec.resources.{bound}", why)
    if _with_old_amounts(after, known) != known:
        yield FieldError.forbidden("spec", "only cpu and memory resources are mutable at pod-level")


def _container_resizes(new: PodSpec, old: PodSpec) -> Iterator[FieldError]:
    others = {name: getattr(old, name) for name in ("containers", "initContainers", "resources")}
    for field in ("initContainers", "containers"):
        pairs = zip(getattr(new, field), getattr(old, field), strict=True)
        for i, (after, before) in enumerate(pairs):
            yield from _container_resize(after, before, f"spec.{field}[{i}]")
    if changed_fields(replace(new, **others), old):
        yield FieldError.forbidden("spec", _ONLY_AMOUNTS)


def _container_resize(new: Container, old: Container, path: str) -> Iterator[FieldError]:
    for bound in ("requests", "limits"):
        if getattr(old.resources, bound).keys() - getattr(new.resources, bound).keys():
            why = f"resource {bound} cannot be removed"
            yield FieldError.forbidden(f"{path}.resources.{bound}", why)
    masked = replace(new, resources=_with_old_amounts(new.resources, old.resources))
    init = path.startswith("spec.init")
    if masked != old:
        why = "only cpu and memory resources for init or sidecar containers are mutable"
        yield (
            FieldError.forbidden(path, why) if init else FieldError.forbidden("spec", _ONLY_AMOUNTS)
        )
    if init and new != old and not is_sidecar(new):
        for policy in new.resizePolicy:
            if policy.restartPolicy == "RestartContainer":
                why = (
                    "non-sidecar init containers with a resize policy of RestartContainer "
                    "cannot be resized"
                )
                yield FieldError.forbidden(path, why)


def _with_old_amounts(new: ResourceRequirements, old: ResourceRequirements) -> ResourceRequirements:
    return replace(
        new, limits=_masked(new.limits, old.limits), requests=_masked(new.requests, old.requests)
    )


def _masked(new: Mapping[str, Quantity], old: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    other = {name: amount for name, amount in new.items() if name not in POD_LEVEL}
    return other | {name: old[name] for name in POD_LEVEL if name in old}
