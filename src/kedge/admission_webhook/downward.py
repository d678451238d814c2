"""Kedge's selectors of the downward API, in terms of a stock kubelet.

A selector becomes a `resourceFieldRef` where the kubelet prints the same number. Elsewhere, such as
for CPU shares, it becomes a `fieldRef` to an annotation, and each new pod gets that annotation. Pod
templates are translated in the same way, because the API server validates them as it does pods.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.validation import validate_spec
from kedge.api.core_v1.reference_validation import NODE_LABELS
from kedge.machinery import fieldpath
from kedge.machinery.errors import ErrorScope, FieldError, enough
from kedge.machinery.fieldpath import ContainerResourcePath, FieldPath, OwnerPath
from kedge.machinery.quantity import Quantity
from kedge.node.pod.environment import downward
from kedge.node.pod.environment.downward import DownwardContext, UnresolvableField

DOMAIN: Final = "downward.kedge.dev"
"""The annotation `CONTAINER.downward.kedge.dev/limits.cpu` has an amount of a container, and
`downward.kedge.dev/owner.name` an attribute of the pod's controller."""
_OWNER: Final = f"{DOMAIN}/owner."
_NAME_LENGTH: Final = 63
"""The longest name of a container, and of an annotation behind its domain."""
_SAME_NUMBER: Final = ("memory", "ephemeral-storage", "storage")
"""Resources whose amounts a kubelet prints as kedge does, as it does those of huge pages."""
_NO_SOURCE: Final = (
    "it names no source: the API server of this cluster drops containerFieldRef. Write its selector"
    " as a fieldRef, for instance fieldPath: resources.limits.cpu"
)

Document = dict[str, Any]


class DownwardReference(NamedTuple):
    """A variable or a file that shows a field."""

    place: str
    """Its path in the object."""
    source: Document
    """The part of the document that has `fieldRef`."""
    container: str
    """The container that it is about, if its selector names none."""
    path: str
    """Of the volume, where it is a file."""

    @property
    def is_file(self) -> bool:
        return bool(self.path)

    @property
    def field(self) -> str:
        ref = self.source.get("fieldRef")
        text = ref.get("fieldPath") if isinstance(ref, dict) else None
        return text if isinstance(text, str) else ""

    def error(self, why: str, written: str = "") -> FieldError:
        path = f"{self.place}.fieldRef.fieldPath"
        return FieldError.invalid(path, written or self.field, why)


def references(spec: Document, at: str) -> Iterator[DownwardReference]:
    """Yield the variables and files of a pod spec that have, or may have had, a field as source."""
    for group in ("containers", "initContainers"):
        for i, container in _items(spec.get(group)):
            for j, variable in _items(container.get("env")):
                source = variable.get("valueFrom")
                if isinstance(source, dict):
                    place = f"{at}.{group}[{i}].env[{j}].valueFrom"
                    yield DownwardReference(place, source, container.get("name", ""), "")
    for i, volume in _items(spec.get("volumes")):
        place = f"{at}.volumes[{i}]"
        yield from _files(volume, place)
        for j, source in _items((volume.get("projected") or {}).get("sources")):
            yield from _files(source, f"{place}.projected.sources[{j}]")


def _files(volume: Document, at: str) -> Iterator[DownwardReference]:
    for i, item in _items((volume.get("downwardAPI") or {}).get("items")):
        path = str(item.get("path", ""))
        place = f"{at}.downwardAPI.items[{i}]"
        yield DownwardReference(place, item, path.partition("/")[0], path or "-")


def _items(value: object) -> Iterator[tuple[int, Document]]:
    """Yield the objects of a list, with their position; nothing of any other value."""
    for i, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield i, item


def complete(spec: Document, at: str) -> list[FieldError]:
    """Turn partial selectors in `fieldRef` into full ones, in place; return what is wrong."""
    errors = []
    initial = {each.get("name") for _, each in _items(spec.get("initContainers"))}
    known = {each.get("name") for _, each in _items(spec.get("containers"))} | initial
    for each in references(spec, at):
        if not each.source.keys() - {"path", "mode"}:
            errors.append(FieldError.required(each.place, _NO_SOURCE))
            continue
        if not each.field.removeprefix(".").startswith("resources."):
            continue
        if len(each.container) > _NAME_LENGTH:
            # The API server refuses such a container. A copy of its name in each of thousands of
            # selectors would fill the memory.
            continue
        if each.is_file and ("/" not in each.path or each.container not in known):
            why = f"the path must be CONTAINER/FILE, with a container of the pod: {each.path}"
            errors.append(each.error(why))
            continue
        among = "initContainers" if each.container in initial else "containers"
        filters = f'spec.{among}[?(@.name=="{each.container}")]'
        each.source["fieldRef"]["fieldPath"] = f"{filters}.{each.field.removeprefix('.')}"
    return enough(errors)


def problems(spec: PodSpec, at: str) -> list[FieldError]:
    """Return kedge's complaints about selectors; Kubernetes' own are left to the API server."""
    return enough(
        error
        for error in validate_spec(spec, at)
        if error.scope is ErrorScope.KEDGE and error.field.endswith("fieldPath")
    )


def translate(spec: Document, typed: PodSpec, at: str) -> list[FieldError]:
    """Replace the selectors of a valid spec, in place; return those that cannot be had."""
    errors = []
    for each in references(spec, at):
        if not each.field:
            continue
        try:
            _translate(each, fieldpath.parse(each.field), typed)
        except fieldpath.MalformedFieldPath as error:
            errors.append(each.error(str(error)))
        except UnresolvableField as error:
            errors.append(each.error(str(error)))
    return enough(errors)


def _translate(
    reference: DownwardReference,
    path: FieldPath | ContainerResourcePath | OwnerPath,
    spec: PodSpec,
) -> None:
    match path:
        case ContainerResourcePath():
            if _prints_same(reference, path, spec):
                _replace(reference, resourceFieldRef=_resource_ref(reference, path))
            else:
                _show_annotation(reference, amount_key(path))
        case OwnerPath():
            _show_annotation(reference, _OWNER + path.attribute)
        case FieldPath(name=name) if name == NODE_LABELS:
            _show_pod_label(reference, path)
        case FieldPath() if path.escapes:
            raise UnresolvableField(
                f"no object of this cluster can have the key {path.key}: rename the annotation"
            )


def _prints_same(reference: DownwardReference, path: ContainerResourcePath, spec: PodSpec) -> bool:
    if path.resource not in _SAME_NUMBER and not path.resource.startswith("hugepages-"):
        return False
    # A kubelet does not show the limits of the whole pod in files.
    whole = spec.resources
    return not (reference.is_file and whole is not None and path.resource in whole.limits)


def _resource_ref(reference: DownwardReference, path: ContainerResourcePath) -> Document:
    resource = "ephemeral-storage" if path.resource == "storage" else path.resource
    ref = {"resource": f"{path.bound}.{resource}"}
    # Without a name it is the container of the variable, whose defaults init containers get too.
    return ref | {"containerName": path.container} if reference.is_file else ref


def _show_annotation(reference: DownwardReference, key: str) -> None:
    _replace(
        reference, fieldRef={"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}
    )


def _show_pod_label(reference: DownwardReference, path: FieldPath) -> None:
    """The API server copies zone and region of the node to the pod when it is bound."""
    if path.key not in downward.TOPOLOGY:
        known = " and ".join(downward.TOPOLOGY)
        raise UnresolvableField(f"only these labels of the node reach pods here: {known}")
    _replace(
        reference, fieldRef={"apiVersion": "v1", "fieldPath": f"metadata.labels['{path.key}']"}
    )


def _replace(reference: DownwardReference, **source: Document) -> None:
    del reference.source["fieldRef"]
    reference.source.update(source)


def amount_key(path: ContainerResourcePath) -> str:
    """Return the annotation that has an amount of a container."""
    name = f"{path.bound}.{path.resource.replace('/', '_')}"
    if len(name) > _NAME_LENGTH:
        raise UnresolvableField(f"the annotation {name} would have too long a name")
    return f"{path.container}.{DOMAIN}/{name}"


def written(spec: Document, at: str) -> dict[str, str]:
    """Return the field paths of a spec as its author wrote them, by their place."""
    return {each.place: each.field for each in references(spec, at)}


def annotations(
    spec: Document, obj: Pod, at: str, before: Mapping[str, str]
) -> tuple[dict[str, str], list[FieldError]]:
    """Return the annotations that the fields of a new pod refer to, and those it cannot get;
    `before` are the field paths as they were written."""
    found: dict[str, str] = {}
    errors = []
    containers = {each.name: each for each in (*obj.spec.initContainers, *obj.spec.containers)}
    for each in references(spec, at):
        path = FieldPath.parsed(each.field)
        if path.name != "metadata.annotations" or path.written_key is None:
            continue
        try:
            value = _value(path.written_key, obj, containers)
        except UnresolvableField as error:
            errors.append(each.error(str(error), before.get(each.place, "")))
            continue
        if value is not None:
            found[path.written_key] = value
    return found, enough(errors)


def _value(key: str, obj: Pod, containers: Mapping[str, Container]) -> str | None:
    """Return the value of an annotation; None for one that is not the webhook's."""
    if key.startswith(_OWNER):
        owner = OwnerPath(key.removeprefix(_OWNER))
        return downward.field(obj, str(owner), _CONTEXT)
    prefix, _, name = key.partition("/")
    # Domains of resources have no underscore, so the first one stands for the slash.
    bound, _, resource = name.replace("_", "/", 1).partition(".")
    if not prefix.endswith(f".{DOMAIN}") or bound not in ("limits", "requests"):
        return None
    named = prefix.removesuffix(f".{DOMAIN}")
    container = containers.get(named)
    if container is None:
        raise UnresolvableField(f'container "{named}" not found in the pod')
    path = str(ContainerResourcePath(bound, resource))
    try:
        return downward.container_field(obj, container, path, _CONTEXT)
    except _UnknownAllocatable as error:
        raise UnresolvableField(
            f'set the {resource} limit of container "{container.name}": without one the value is'
            " that of the node, which is not known at admission"
        ) from error


class _UnknownAllocatable(LookupError):
    """A value would be that of the node, which has not been chosen."""


class _NoNode(Mapping[str, Quantity]):
    """The allocatable resources of a node that has not been chosen."""

    def __getitem__(self, name: str) -> NoReturn:
        raise _UnknownAllocatable(name)

    def get(self, name: str, default: object = None) -> NoReturn:
        raise _UnknownAllocatable(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


_CONTEXT: Final = DownwardContext(allocatable=_NoNode())
